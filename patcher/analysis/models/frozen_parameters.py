"""Statements that freeze or thaw parameters, and whether they come behind the wrapper."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ....record import record
from ...source.module import Module
from ...source.tree import argument, everywhere, mentions, parameters, precedes
from ..language.passed_arguments import argument_for_parameter
from ..training.program import Program

MAX_CALL_DEPTH = 4  # functions through which parameters are passed
WRAPPERS = ("DataParallel", "DistributedDataParallel")


@record
class FreezeSwitch:
    """A statement that freezes or thaws parameters."""

    module: Module
    stmt: ast.stmt
    thaws: bool | None  # None where a variable decides


def freeze_switches(program: Program) -> Iterator[FreezeSwitch]:
    """Every statement that sets ``requires_grad`` of parameters."""
    for module in program.modules:
        for node in module.attributes("requires_grad"):
            stmt = module.parents[node]
            if isinstance(stmt, ast.Assign) and is_model_part(program, module, node.value):
                yield FreezeSwitch(module, stmt, constant_bool(stmt.value))
        for call in module.calls_to("requires_grad_"):
            stmt = module.statement(call)
            whose = call.func.value if isinstance(call.func, ast.Attribute) else None
            if whose is not None and is_model_part(program, module, whose):
                block = module.parents[stmt]
                if not (isinstance(block, ast.For) and is_next_to_wrap(module, block)):
                    value = argument(call, 0, "requires_grad")
                    yield FreezeSwitch(
                        module, stmt, True if value is None else constant_bool(value)
                    )


def constant_bool(value: ast.expr) -> bool | None:
    return value.value is True if isinstance(value, ast.Constant) else None


def is_model_part(program: Program, module: Module, node: ast.expr) -> bool:
    """Whether ``node`` is a part of a model or a parameter, and no other tensor."""
    if isinstance(node, ast.Subscript):  # encoder.layers[3]
        return isinstance(node.value, ast.Attribute)
    if isinstance(node, ast.Attribute):
        return node.attr not in ("data", "grad")
    return isinstance(node, ast.Name) and any(
        isinstance(up, ast.For)
        and any(name.id == node.id for name in everywhere(up.target, ast.Name))
        and goes_over_parameters(program, module, up.iter, up)
        for up in module.ancestors(node)
    )


def goes_over_parameters(
    program: Program, module: Module, node: ast.expr, at: ast.AST, depth: int = 0
) -> bool:
    """Whether an expression is made of a model's parameters, also by way of names."""
    if any(mentions(node, name) for name in ("parameters", "named_parameters")):
        return True
    if not isinstance(node, ast.Name) or depth > MAX_CALL_DEPTH:
        return False
    values = [(module, value) for value in module.alternatives(node, at)]
    function = module.function(at)
    if function is not None and node.id in parameters(function):
        for where, call in program.callers(function):
            value = argument_for_parameter(module, function, call, node.id)
            values += [] if value is None else [(where, value)]
    return any(goes_over_parameters(program, *found, found[1], depth + 1) for found in values)


def is_next_to_wrap(module: Module, stmt: ast.stmt) -> bool:
    """Whether the statement right above ``stmt``, or right below it, wraps the model."""
    block = module.body(stmt)
    index = block.index(stmt)
    return any(
        module.last_name(call.func) == "DistributedDataParallel"
        for other in block[max(0, index - 1) : index + 2]
        if other is not stmt
        for call in everywhere(other, ast.Call)
    )


def is_frozen_late(program: Program, switch: FreezeSwitch) -> bool:
    """Whether parameters may be frozen behind the wrapper, which has counted on their gradients."""
    if switch.thaws is True:
        return False
    module, function = switch.module, switch.module.function(switch.stmt)
    places: list[tuple[Module, ast.AST]] = [(module, switch.stmt)]
    if function is not None:
        if function.name == "__init__":
            return False
        places += program.callers(function)
    return not any(
        where is wrapping
        and where.function(place) is where.function(wrap)
        and precedes(place, wrap)
        for where, place in places
        for wrapping, wrap in program.calls_to(*WRAPPERS)
    )
