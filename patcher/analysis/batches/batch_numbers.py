"""The number by which a loop cuts its batches, and what else may hang on it.

Ranks that take turns skip numbers, so that each of them comes to others.
"""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import Function, argument, everywhere, names_within, within
from ..training.program import Program
from ..training.train_loops import TrainLoop
from .batch_taint import NotDealtError, is_arithmetic
from .random_draws import draws_below, is_of_network

TOLD = {
    *("print", "info", "debug", "warning", "write", "log", "set_description", "set_postfix"),
    *("add_scalar", "append", "update", "flush", "set_postfix_str", "error", "format"),
}
OF_MODELS = {
    *("parameters", "step", "zero_grad", "train", "eval", "state_dict", "load_state_dict"),
    "param_groups",
}
ARITHMETIC = {"min", "max", "int", "len", "float", "round", "abs", "divmod", "slice", "str"}
CUTS = {"narrow", "index_select"}


def refuse_numbers_elsewhere(program: Program, loop: TrainLoop, numbers: frozenset[str]) -> None:
    """Raise where the number of a batch does more than to cut it, or to be told."""
    module, body = loop.module, loop.steps.body
    known = numbers_from(body, set(numbers))
    for name in names_within(body, known):
        if isinstance(name.ctx, ast.Load) and not is_harmless_use(program, module, name, known):
            raise NotDealtError(f"in line {name.lineno} more than its batch hangs on {name.id}")


def is_harmless_use(program: Program, module: Module, name: ast.Name, numbers: set[str]) -> bool:
    """Whether a number is used to cut, to compute another number, to test, or to be printed."""
    child: ast.AST = name
    for up in module.ancestors(name):
        match up:
            case ast.Subscript() if child is up.slice:
                return True
            case ast.Call():
                last = module.last_name(up.func)
                if last in TOLD or last in CUTS or is_cutting_call(program, module, up, numbers):
                    return True
                if last not in ARITHMETIC:
                    return False
            case ast.If() | ast.While():
                return child is up.test
            case ast.Assign():
                return is_arithmetic(up.value) and all(
                    isinstance(each, ast.Name | ast.Tuple) for each in up.targets
                )
            case ast.AugAssign():
                return isinstance(up.target, ast.Name)
            case ast.stmt():
                return isinstance(up, ast.Expr)
        child = up
    return False


def refuse_models(module: Module, body: list[ast.stmt], names: set[str]) -> None:
    """Raise where a loop goes over models, and not over data for one."""
    for name in names_within(body, names):
        up = module.parents[name]
        is_called = isinstance(up, ast.Call) and up.func is name
        if is_called or (isinstance(up, ast.Attribute) and up.attr in OF_MODELS):
            raise NotDealtError(f"line {name.lineno} uses its {name.id} as a model")


def refuse_means_by_number(body: list[ast.stmt], names: frozenset[str]) -> None:
    """Raise where the number of a batch, by which ranks skip, makes a mean of what they add up."""
    numbers = numbers_from(body, set(names))
    sums = {
        name.id for add in within(body, ast.AugAssign) for name in everywhere(add.target, ast.Name)
    }
    for quotient in within(body, ast.BinOp):
        is_mean = names_within(quotient.left, sums) and names_within(quotient.right, numbers)
        if isinstance(quotient.op, ast.Div | ast.FloorDiv) and is_mean:
            raise NotDealtError(f"line {quotient.lineno} divides by the number of a batch")
    for test in within(body, ast.If):
        told = names_within([*test.body, *test.orelse], sums)
        if told and names_within(test.test, numbers):
            raise NotDealtError(
                f"what line {told[0].lineno} does with {told[0].id} hangs on the number of a batch"
            )


def numbers_from(body: list[ast.stmt], names: set[str]) -> set[str]:
    """The names, and those that are computed from them: ``start = i * size``."""
    known = set(names)
    for _ in range(4):
        for stmt in within(body, ast.Assign):
            if is_arithmetic(stmt.value) and names_within(stmt.value, known):
                for target in stmt.targets:
                    parts = target.elts if isinstance(target, ast.Tuple) else [target]
                    known |= {part.id for part in parts if isinstance(part, ast.Name)}
    return known


def cuts_by(body: list[ast.stmt], names: set[str]) -> bool:
    """Whether code cuts, or picks, by one of the names."""
    known = numbers_from(body, names)
    return any(names_within(each.slice, known) for each in within(body, ast.Subscript)) or any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr in CUTS
        and any(names_within(value, known) for value in call.args)
        for call in within(body, ast.Call)
    )


def any_cutting_callee(
    program: Program, module: Module, body: list[ast.stmt], numbers: set[str]
) -> bool:
    """Whether a function that gets the number cuts a batch by it."""
    return any(is_cutting_call(program, module, call, numbers) for call in within(body, ast.Call))


def is_cutting_call(program: Program, module: Module, call: ast.Call, numbers: set[str]) -> bool:
    """``get_batch(data, i)``: the function slices by what it gets, draws nothing, keeps nothing."""
    found = program.callees(module, call)
    return bool(found) and all(
        is_cutter(program, where, function, call, numbers) for where, function in found
    )


def is_cutter(
    program: Program, module: Module, function: Function, call: ast.Call, numbers: set[str]
) -> bool:
    if is_of_network(module, function):
        return False
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    if isinstance(module.parents.get(function), ast.ClassDef):
        names = names[1:]
    passed = {
        name
        for index, name in enumerate(names)
        if (value := argument(call, index, name)) is not None and names_within(value, numbers)
    }
    known = numbers_from(function.body, passed)
    keeps = [
        node
        for kind in (ast.Attribute, ast.Subscript)
        for node in within(function.body, kind)
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store)
    ]
    return (
        bool(passed)
        and any(names_within(each, known) for each in within(function.body, ast.Slice))
        and not keeps
        and not within(function.body, ast.Global)
        and not any(True for _ in draws_below(program, module, function))
    )
