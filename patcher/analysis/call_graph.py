"""The modules of a program, and which calls run which of their functions, by name."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from functools import cached_property

from ..source.libraries import LIBRARIES
from ..source.module import Module, cached_per_module
from ..source.tree import FUNCTIONS, Function, everywhere, parameters, within
from .imports import Links, links_of

MAX_DEPTH = 12  # modules through which a name is followed
Definition = tuple[Module, ast.AST]
Unread = tuple[str, int, str]


class CallGraph:
    """A script and the local modules it imports, with the calls among their functions.

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
        self._callers: dict[Function, list[tuple[Module, ast.Call]]] = {}
        for module in self.modules:
            module.graph = self

    @cached_property
    def modules_by_path(self) -> dict[str, Module]:
        """The modules by the resolved path of their file."""
        return {os.path.realpath(module.source.name): module for module in self.modules}

    @cached_property
    def _links(self) -> dict[Module, Links]:
        return {}

    def links(self, module: Module) -> Links:
        """What the imports of a module bind, among the modules of the program."""
        if module not in self._links:
            self._links[module] = links_of(
                module,
                os.path.realpath(module.source.name),
                self.roots,
                self.modules_by_path.__contains__,
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
            if base.id in parameters(function) or (function, base.id) in module.stores:
                return None
            local = _definition_among(within(function.body, ast.FunctionDef), base.id)
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
        own = _top_level(module).get(head)
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
        return next(module for module in self.modules if node in module.parents)

    def callers(self, function: Function) -> list[tuple[Module, ast.Call]]:
        """All calls of ``function`` in the program; for ``__init__``, calls of its class."""
        if function not in self._callers:
            self._callers[function] = list(self._calls_of(function))
        return self._callers[function]

    def _calls_of(self, function: Function) -> Iterator[tuple[Module, ast.Call]]:
        owner = self.module_of(function).parents[function]
        if isinstance(owner, ast.ClassDef):
            yield from self._calls_of_method(function, owner)
            return
        for module in self.modules:
            for call in module.calls_to(function.name):
                if isinstance(call.func, ast.Name) or (
                    isinstance(call.func, ast.Attribute)
                    and isinstance(call.func.value, ast.Name)
                    and call.func.value.id in module.aliases
                ):
                    yield module, call

    def _calls_of_method(
        self, function: Function, owner: ast.ClassDef
    ) -> Iterator[tuple[Module, ast.Call]]:
        is_constructor = function.name == "__init__"
        for module in self.modules:
            for call in module.calls_to(owner.name if is_constructor else function.name):
                if is_constructor or _is_method_call(module, call, owner):
                    yield module, call


def _is_method_call(module: Module, call: ast.Call, owner: ast.ClassDef) -> bool:
    """Whether a call is ``self.method()`` inside the class, or on a name bound to an instance."""
    if not isinstance(call.func, ast.Attribute):
        return False
    base = call.func.value
    if isinstance(base, ast.Name) and base.id == "self":
        return owner in module.ancestors(call)
    value = module.definition(base, call) if isinstance(base, ast.Name) else base
    return isinstance(value, ast.Call) and module.dotted(value.func).endswith(owner.name)


def calls_at_import(module: Module) -> list[ast.Call]:
    """Calls at module level of what the file defines, or imports from other than libraries."""
    libraries = {name for name, full in module.aliases.items() if _is_library(full)}
    known = (_top_level(module).keys() | module.aliases.keys()) - libraries
    return [
        call
        for call in within(module.tree.body, ast.Call)
        if (names := everywhere(call.func, ast.Name)) and names[0].id in known
    ]


def _is_library(full: str) -> bool:
    return full.partition(".")[0] in LIBRARIES


def reachable_functions(graph: CallGraph, names: set[str]) -> set[Function]:
    """Functions (or constructors of classes) with these names, and all functions they call."""
    by_name: dict[str, list[tuple[Module, Function]]] = {}
    for module in graph.modules:
        for function in module.all_functions:
            name, owner = function.name, module.parents[function]
            if isinstance(owner, ast.ClassDef) and name == "__init__":
                name = owner.name
            by_name.setdefault(name, []).append((module, function))
    reachable: set[Function] = set()
    pending = [item for name in names for item in by_name.get(name, [])]
    while pending:
        module, function = pending.pop()
        if function not in reachable:
            reachable.add(function)
            for call in within(function.body, ast.Call):
                pending += by_name.get(module.last_name(call.func), [])
    return reachable


@cached_per_module
def _top_level(module: Module) -> dict[str, ast.AST]:
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


def _definition_among(functions: list[ast.FunctionDef], name: str) -> ast.FunctionDef | None:
    return next((function for function in functions if function.name == name), None)
