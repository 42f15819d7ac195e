"""Functions of autograd that put what they get into a tensor, such as a memory of features."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import Function, everywhere, within
from ..language.passed_arguments import argument_for_parameter
from ..training.frameworks import COLLECTIVES
from ..training.program import Program

FILLS = ("copy_", "add_", "lerp_", "index_copy_", "index_add_", "scatter_", "scatter_add_")


def filled_arguments(program: Program, module: Module, call: ast.Call) -> Iterator[ast.expr]:
    """What a call passes to such a function, itself or by a function that applies it.

    ``Memory.apply(x, y, self.features)``, and ``remember(x, y, self.features)`` that calls it.
    """
    yield from filled_by_apply(program, module, call)
    if isinstance(call.func, ast.Attribute) and call.func.attr == "apply":
        return
    for where, function in program.callees(module, call):
        for inner in within(function.body, ast.Call):
            for value in filled_by_apply(program, where, inner):
                if isinstance(value, ast.Name):
                    passed = argument_for_parameter(where, function, call, value.id)
                    if passed is not None:
                        yield passed


def filled_by_apply(program: Program, module: Module, call: ast.Call) -> Iterator[ast.expr]:
    """The arguments of ``Memory.apply(…)`` that the function fills."""
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr != "apply":
        return
    where, owner = program.resolve(module, func.value) or (module, None)
    if not isinstance(owner, ast.ClassDef):
        return
    methods = {each.name: each for each in owner.body if isinstance(each, Function)}
    forward = methods.get("forward")
    if forward is None or gathers(where, owner):
        return
    names = [each.arg for each in forward.args.args[1:]]  # without ctx
    filled = filled_in(forward)
    if (backward := methods.get("backward")) is not None:
        filled |= {held_as(forward).get(name, "") for name in filled_in(backward)}
        filled |= filled_in(backward) & set(names)
    for value, name in zip(call.args, names, strict=False):
        if name in filled:
            yield value


def filled_in(function: Function) -> set[str]:
    """The names, and attributes of ctx, whose elements a function changes.

    ``memory[y] = x``, ``ctx.features[y] /= norm`` and ``memory.index_copy_(0, y, x)``.
    """
    targets = [target for each in within(function.body, ast.Assign) for target in each.targets]
    targets += [each.target for each in within(function.body, ast.AugAssign)]
    owners = [each.value for each in targets if isinstance(each, ast.Subscript)]
    owners += [
        call.func.value
        for call in within(function.body, ast.Call)
        if isinstance(call.func, ast.Attribute) and call.func.attr in FILLS
    ]
    found = set()
    for owner in owners:
        while isinstance(owner, ast.Subscript):
            owner = owner.value
        found |= {owner.id} if isinstance(owner, ast.Name) else set()
        found |= {f"ctx.{owner.attr}"} if isinstance(owner, ast.Attribute) else set()
    return found


def held_as(forward: Function) -> dict[str, str]:
    """The attributes of ctx that hold a parameter: ``ctx.features = features``."""
    held = {}
    for stmt in within(forward.body, ast.Assign):
        for target in stmt.targets:
            if isinstance(target, ast.Attribute) and isinstance(stmt.value, ast.Name):
                held[f"ctx.{target.attr}"] = stmt.value.id
    return held


def gathers(module: Module, owner: ast.ClassDef) -> bool:
    """Whether the methods of a class ask the other ranks."""
    names = [module.last_name(call.func) for call in everywhere(owner, ast.Call)]
    return any(name in COLLECTIVES or "gather" in name for name in names)
