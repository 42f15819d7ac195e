"""The modules of a program, and which calls run which of their functions, by name."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.module import Module
from ..source.tree import Function, within


class CallGraph:
    """A script and the local modules it imports, with the calls among their functions."""

    def __init__(self, script: Module, siblings: tuple[Module, ...] = ()) -> None:
        self.script = script
        self.modules = (script, *siblings)
        self._callers: dict[Function, list[tuple[Module, ast.Call]]] = {}

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
