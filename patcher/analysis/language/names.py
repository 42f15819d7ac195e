"""The modules of a program, and what names in them stand for."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable
from functools import cached_property
from typing import Any, Concatenate, ParamSpec, TypeVar

from ...source.libraries import LIBRARIES
from ...source.module import Module, cached_per_module
from ...source.tree import FUNCTIONS, Function, Preorder, everywhere, locate, parameters, within
from .imports import Finder, Links, links_of, module_finder

MAX_DEPTH = 12  # modules through which a name is followed
Definition = tuple[Module, ast.AST]
Unread = tuple[str, int, str]
Set = TypeVar("Set", bound="ModuleSet")
Params = ParamSpec("Params")
Answer = TypeVar("Answer")


def answered_once(
    question: Callable[Concatenate[Set, Params], Answer],
) -> Callable[Concatenate[Set, Params], Answer]:
    """Cache a function of a program and of hashable arguments, by position, for that program."""

    def answered(program: Set, /, *args: Params.args, **kwargs: Params.kwargs) -> Answer:
        key = (question, *args)
        if key not in program.answers:
            program.answers[key] = question(program, *args, **kwargs)
        answer: Answer = program.answers[key]
        return answer

    return answered


class ModuleSet:
    """A script and the local modules it imports, with what their names stand for.

    ``roots`` are the folders that imports are looked up in; the script's own without any.
    ``unread`` are local imports that cannot be found or parsed: file, line and name, once each.
    """

    def __init__(
        self,
        script: Module,
        siblings: tuple[Module, ...] = (),
        roots: tuple[str, ...] = (),
        unread: tuple[Unread, ...] = (),
    ) -> None:
        self.unread = unread
        self.script = script
        self.modules = (script, *siblings)
        self.roots = roots or (os.path.dirname(os.path.realpath(script.source.name)),)

    @cached_property
    def answers(self) -> dict[object, Any]:
        """Cached results of questions about the program; see ``answered_once``."""
        return {}

    @cached_property
    def modules_by_path(self) -> dict[str, Module]:
        """The modules by the resolved path of their file."""
        return {os.path.realpath(module.source.name): module for module in self.modules}

    @cached_property
    def _links(self) -> dict[Module, Links]:
        return {}

    @cached_property
    def _find_module(self) -> Finder:
        return module_finder(self.modules_by_path.__contains__)

    def links(self, module: Module) -> Links:
        """What the imports of a module bind, among the modules of the program."""
        if module not in self._links:
            self._links[module] = links_of(
                module,
                os.path.realpath(module.source.name),
                self.roots,
                self.modules_by_path.__contains__,
                self._find_module,
            )
        return self._links[module]

    def resolve(self, module: Module, node: ast.expr) -> Definition | None:
        """What a name or ``a.b.c`` stands for: a function, class, module or assigned value.

        None where it is a parameter, is bound in several ways, or lies outside of the program.
        """
        parts: list[str] = []
        base = node
        while isinstance(base, ast.Attribute):
            parts.append(base.attr)
            base = base.value
        if not isinstance(base, ast.Name):
            return None
        parts.append(base.id)
        function = module.function(node)
        while function is not None:
            if base.id in parameter_names(module)[function]:
                return None
            if (function, base.id) in module.stores:
                return None
            local = local_functions(module).get((function, base.id))
            if local is not None:
                return (module, local) if len(parts) == 1 else None
            function = module.function(function)
        return self.member(module, parts[::-1])

    def member(self, module: Module, parts: list[str], depth: int = 0) -> Definition | None:
        """What ``parts`` stand for at the top level of a module: ``["Class", "method"]``."""
        if depth > MAX_DEPTH:
            return None
        head, rest = parts[0], parts[1:]
        links = self.links(module)
        own = top_level(module).get(head)
        if own is not None and head not in links.modules:
            return _inside(module, own, rest)
        if head in links.names:
            path, name = links.names[head]
            target = self.modules_by_path.get(path)
            if target is not None and target is not module:
                found = self.member(target, [name, *rest], depth + 1)
                if found is not None:
                    return found
        for end in range(len(parts), 0, -1):
            path = links.modules.get(".".join(parts[:end]), "")
            target = self.modules_by_path.get(path)
            if target is not None:
                if end == len(parts):
                    return target, target.tree
                return self.member(target, parts[end:], depth + 1)
        for path in links.stars:
            target = self.modules_by_path.get(path)
            if target is not None and target is not module:
                found = self.member(target, parts, depth + 1)
                if found is not None:
                    return found
        return None

    def module_of(self, node: ast.AST) -> Module:
        """The module that ``node`` belongs to."""
        return self._by_table[locate(node)[0]]

    @cached_property
    def _by_table(self) -> dict[Preorder, Module]:
        return {module.parents.table: module for module in reversed(self.modules)}


def calls_at_import(module: Module) -> list[ast.Call]:
    """Calls at module level of what the file defines, or imports from other than libraries."""
    libraries = {name for name, full in module.aliases.items() if is_library(full)}
    known = (top_level(module).keys() | module.aliases.keys()) - libraries
    return [
        call
        for call in within(module.tree.body, ast.Call)
        if (names := everywhere(call.func, ast.Name)) and names[0].id in known
    ]


def is_library(full: str) -> bool:
    """Whether a full name is one of a known library."""
    return full.partition(".")[0] in LIBRARIES


@cached_per_module
def top_level(module: Module) -> dict[str, ast.AST]:
    """What names stand for at module level: definitions, and values of single assignments."""
    found: dict[str, ast.AST] = {}
    definitions: list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef] = [
        *within(module.tree.body, ast.FunctionDef),
        *within(module.tree.body, ast.AsyncFunctionDef),
        *within(module.tree.body, ast.ClassDef),
    ]
    for node in definitions:
        found.setdefault(node.name, node)
    for function, name in module.stores:
        if function is None and name not in found:
            value = module.single_assignment(None, name)
            if value is not None:
                found[name] = value
    return found


def _inside(module: Module, node: ast.AST, rest: list[str]) -> Definition | None:
    """The member of a class; a definition itself where ``rest`` is empty."""
    if not rest:
        return module, node
    if isinstance(node, ast.ClassDef) and len(rest) == 1:
        for member in node.body:
            if isinstance(member, FUNCTIONS) and member.name == rest[0]:
                return module, member
    return None


@cached_per_module
def local_functions(module: Module) -> dict[tuple[Function, str], Function]:
    """Functions that are defined in a function, by that function and their name."""
    found: dict[tuple[Function, str], Function] = {}
    for function in module.all_functions:
        around = module.function(function)
        if around is not None and not isinstance(module.parents[function], ast.ClassDef):
            found.setdefault((around, function.name), function)
    return found


@cached_per_module
def parameter_names(module: Module) -> dict[Function, set[str]]:
    """The names of each function's parameters."""
    return {function: parameters(function) for function in module.all_functions}
