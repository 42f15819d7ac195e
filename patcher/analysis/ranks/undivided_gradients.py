"""Gradients that a script sums over its ranks, and that nothing divides by their number."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import argument, below, everywhere, parameters, precedes
from ..language.passed_arguments import argument_for_parameter
from ..models.wrapping import are_gradients, reduces_gradients
from ..training.program import Program
from .rank_reach import is_world_size

DIVIDING = ("div", "div_", "divide", "divide_", "true_divide", "mul", "mul_", "scale", "scale_")
PLAIN = ("float", "int")
ROUNDING = ("ceil", "floor", "int", "round")


def undivided_sum(
    program: Program, places: list[tuple[Module, ast.AST]]
) -> tuple[Module, ast.Call] | None:
    """The all-reduce of gradients in the code of a training step; None where they are averaged.

    Also where it may be so: anything is divided by what is no 1 beside it, or by the number of
    ranks anywhere in the step, as a loss may be.
    """
    for module, node in places:
        for call in everywhere(node, ast.Call):
            if (
                module.last_name(call.func) == "all_reduce"
                and module.dotted(call.func).startswith("torch.distributed.")
                and reduces_gradients(program, module, call)
                and is_sum(module, call)
                and not any(divides_by_ranks(where, code) for where, code in places)
                and not divides_beside(program, module, call)
            ):
                return module, call
    return None


def is_sum(module: Module, call: ast.Call) -> bool:
    """Whether an all-reduce adds: by default, and by ``ReduceOp.SUM``."""
    how = argument(call, 1, "op")
    return how is None or module.text(how).endswith("SUM")


def divides_by_ranks(module: Module, code: ast.AST) -> bool:
    """Whether anything in code is divided by the number of ranks, or multiplied by its inverse.

    Not what is behind a step, which is for the log.
    """
    steps = [each for each in everywhere(code, ast.Call) if module.last_name(each.func) == "step"]
    return any(
        isinstance(part, ast.expr) and is_world_size(module, part)
        for divisor in divisors_in(module, code)
        if not any(precedes(step, divisor) for step in steps)
        for part in below(divisor)
    )


def divides_beside(program: Program, module: Module, reduction: ast.Call) -> bool:
    """Whether the functions around a reduction divide by what is not surely 1."""
    function = module.function(reduction)
    while function is not None and module.function(function) is not None:
        function = module.function(function)
    code = function or module.tree
    return any(not is_one(program, module, each) for each in divisors_in(module, code))


def divisors_in(module: Module, code: ast.AST) -> list[ast.expr]:
    """What code divides by, but for whole numbers: ``math.ceil(size / width)``."""
    divisors = [
        node.right
        for node in everywhere(code, ast.BinOp)
        if isinstance(node.op, ast.Div) and not is_rounded(module, node)
    ]
    divisors += [
        node.value for node in everywhere(code, ast.AugAssign) if isinstance(node.op, ast.Div)
    ]
    return divisors + [
        value
        for call in everywhere(code, ast.Call)
        if module.last_name(call.func) in DIVIDING
        for value in call.args
    ]


def is_rounded(module: Module, node: ast.BinOp) -> bool:
    """Whether a quotient is made a whole number."""
    above = module.parents[node]
    return isinstance(above, ast.Call) and module.last_name(above.func) in ROUNDING


def is_one(program: Program, module: Module, divisor: ast.expr) -> bool:
    """Whether a divisor is 1, also as a parameter for which each call with gradients passes 1."""
    if isinstance(divisor, ast.Call) and module.last_name(divisor.func) in PLAIN and divisor.args:
        return is_one(program, module, divisor.args[0])
    if isinstance(divisor, ast.Constant):
        return divisor.value == 1
    function = module.function(divisor)
    while function is not None and isinstance(divisor, ast.Name):
        if divisor.id in parameters(function):
            passed = [
                (where, argument_for_parameter(module, function, call, divisor.id))
                for where, call in program.callers(function)
                if any(are_gradients(where, value) for value in call.args)
            ]
            return bool(passed) and all(
                value is not None and is_one(program, where, value) for where, value in passed
            )
        function = module.function(function)
    return False
