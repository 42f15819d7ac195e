"""Find where a script takes or loads the state of a wrapper, whose keys begin with ``module.``."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..analysis.language.passed_arguments import argument_for_parameter
from ..analysis.training.program import Program
from ..source.module import Module
from ..source.tree import Function, everywhere, mentions, parameters, precedes, within
from .models import DdpWrap

STATES = ("state_dict", "load_state_dict")
Place = tuple[Module, Function | None, str]


def wrapper_states(program: Program, wrap: DdpWrap) -> Iterator[tuple[Module, ast.Call]]:
    """The calls of ``state_dict`` and ``load_state_dict`` of a model that is still wrapped."""
    start = (wrap.module, wrap.module.function(wrap.stmt), wrap.name)
    for module, function, name in holders(program, wrap, start):
        for call in calls_in(module, function, STATES):
            owner = call.func.value if isinstance(call.func, ast.Attribute) else call
            at_start = (module, function) == start[:2] and not name.startswith("self.")
            if (
                module.text(owner) == name
                and not (at_start and precedes(call, wrap.stmt))
                and not is_unwrapped(module, function, call, name)
            ):
                yield module, call


def holders(program: Program, wrap: DdpWrap, start: Place) -> list[Place]:
    """The functions that have the wrapped model, and what they call it."""
    found: list[Place] = [start]
    if start[2].startswith("self."):
        owner = wrap.module.enclosing_class(wrap.stmt)
        methods = [] if owner is None else everywhere(owner, ast.FunctionDef)
        found += [(wrap.module, each, start[2]) for each in methods if each is not start[1]]
    for module, function, name in found:  # which grows
        for target in program.modules:
            for callee in target.all_functions:
                for where, call in program.callers(callee):
                    if where is not module or where.function(call) is not function:
                        continue
                    for parameter in parameters(callee):
                        value = argument_for_parameter(target, callee, call, parameter)
                        place = (target, callee, parameter)
                        if value is None or where.text(value) != name or place in found:
                            continue
                        if place[:2] != start[:2] and is_wrapped_at(wrap, where, call):
                            found.append(place)
    return found


def is_wrapped_at(wrap: DdpWrap, module: Module, call: ast.Call) -> bool:
    """Whether a call comes behind the wrapping, where it is in the same function."""
    same = module is wrap.module and module.function(call) is module.function(wrap.stmt)
    return not same or precedes(wrap.stmt, call)


def calls_in(module: Module, function: Function | None, names: tuple[str, ...]) -> list[ast.Call]:
    """The calls of these names in a function, or at module level."""
    return [call for call in module.calls_to(*names) if module.function(call) is function]


def is_unwrapped(module: Module, function: Function | None, call: ast.Call, name: str) -> bool:
    """Whether the wrapper is taken off above a call, or a test around it looks for one."""
    body = module.tree.body if function is None else function.body
    for up in module.ancestors(call):
        if isinstance(up, ast.If | ast.IfExp) and mentions(up.test, "hasattr"):
            return True
        if isinstance(up, ast.If | ast.IfExp) and mentions(up.test, "isinstance"):
            return True
    return any(
        name in map(module.text, stmt.targets)
        and precedes(stmt, call)
        and ("module" in module.text(stmt.value) or "unwrap" in module.text(stmt.value))
        for stmt in within(body, ast.Assign)
    )
