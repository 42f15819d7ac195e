"""Batches that a training loop makes without a DataLoader, where ranks can share them.

A loop cuts them by its number, ``data[i : i + size]``, or goes over a list, a generator or an
object of the program. Ranks can take turns where all of them go over the same batches, where a step
needs nothing of the step before, and where nothing but the batch hangs on whose turn it is.
"""

from __future__ import annotations

import ast

from ...record import record
from ..source.module import Module
from ..source.tree import (
    Function,
    argument,
    below,
    everywhere,
    names_within,
    position,
    within,
)
from .batch_origins import refuse_unknown_origin
from .batch_taint import (
    NotDealtError,
    Tainted,
    is_arithmetic,
    names_in,
    refuse_turns_that_part,
    spread,
)
from .carried_state import refuse_carried
from .program import Program
from .random_draws import draws_below, is_of_network
from .train_loops import TrainLoop, is_backward

AROUND = ("enumerate", "tqdm", "track")  # calls that loop as their first argument does
NUMBERS = ("range", "trange", "arange", "permutation", "randperm")
TOLD = {
    *("print", "info", "debug", "warning", "write", "log", "set_description", "set_postfix"),
    *("add_scalar", "append", "update", "flush", "set_postfix_str", "error", "format"),
}
ARITHMETIC = {"min", "max", "int", "len", "float", "round", "abs", "divmod", "slice", "str"}
CUTS = {"narrow", "index_select"}


@record
class BatchSource:
    """What a loop takes its batches from, and the names that tell whose turn it is."""

    whole: ast.expr  # what ranks take turns of
    numbers: frozenset[str]  # names of the number that cuts the batch; none where items are batches
    items: frozenset[str]


def batch_source(program: Program, loop: TrainLoop) -> BatchSource:
    """What ranks can share of a loop without a DataLoader. Raises NotDealtError."""
    module, steps = loop.module, loop.steps
    line = f"line {steps.lineno}"
    if not isinstance(steps, ast.For):
        raise NotDealtError(f"{line} is no for loop, whose turns could be dealt")
    if steps.orelse or loop.step_test is not None or loop.goes_back_elsewhere:
        raise NotDealtError(f"what a step of {line} does cannot be followed")
    if program.unread:
        name = program.unread[0][2]
        raise NotDealtError(f"{name} cannot be read")
    found = source_of(module, steps)
    taint = spread(module, steps.body, {*found.numbers, *found.items})
    refuse_whole_data(program, loop, found, taint)
    if not found.numbers:
        refuse_unknown_origin(program, module, found.whole)
    for name in within(steps.body, ast.Name):
        if name.id in module.unbound_names:
            raise NotDealtError(f"what {name.id} of line {name.lineno} is cannot be told")
    refuse_numbers_elsewhere(program, loop, found)
    refuse_draws(program, loop)
    refuse_carried(program, loop, taint)
    refuse_turns_that_part(program, loop, taint)
    return found


def source_of(module: Module, steps: ast.For) -> BatchSource:
    """The source of a loop, inside calls that only count or show progress."""
    source, target = steps.iter, steps.target
    while isinstance(source, ast.Call) and source.args:
        name = module.last_name(source.func)
        if name not in AROUND or isinstance(source.args[0], ast.Starred):
            break
        if name == "enumerate":
            if not (isinstance(target, ast.Tuple) and len(target.elts) == 2):
                break
            counter = target.elts[0]
            if not isinstance(counter, ast.Name) or counts_into(steps.body, counter.id):
                break
            target = target.elts[1]
        source = source.args[0]
    names = frozenset(name.id for name in everywhere(target, ast.Name))
    plain = module.definition(source, source) or source if isinstance(source, ast.Name) else source
    is_number = is_number_source(module, plain)
    if is_number:
        return BatchSource(source, names, frozenset())
    cutting = frozenset(
        name
        for name in names
        if any(
            names_within(each, numbers_from(steps.body, {name}))
            for each in within(steps.body, ast.Slice)
        )
        and source is steps.iter  # enumerate(…), whose number cuts
    )
    return BatchSource(source, cutting, names - cutting)


def counts_into(body: list[ast.stmt], name: str) -> bool:
    """Whether the number of a batch picks something, before a loop inside takes its name."""
    uses = sorted(names_within(body, {name}), key=position)
    stores = [use for use in uses if isinstance(use.ctx, ast.Store)]
    until = position(stores[0]) if stores else (1 << 30, 0)
    known = numbers_from(body, {name}) - {name}
    early = [use for use in uses if position(use) < until]
    return any(
        use in below(each.slice) for use in early for each in within(body, ast.Subscript)
    ) or (bool(known) and cuts_by(body, known))


def is_number_source(module: Module, source: ast.expr) -> bool:
    """``range(…)``, ``np.random.permutation(n)``, ``torch.randperm(n).tolist()``."""
    if not isinstance(source, ast.Call):
        return False
    name = module.last_name(source.func)
    if name in ("tolist", "numpy") and isinstance(source.func, ast.Attribute):
        return is_number_source(module, source.func.value)
    if name == "list" and source.args:
        return is_number_source(module, source.args[0])
    return name in NUMBERS


def cuts_by(body: list[ast.stmt], names: set[str]) -> bool:
    """Whether code cuts, or picks, by one of the names."""
    known = numbers_from(body, names)
    return any(names_within(each.slice, known) for each in within(body, ast.Subscript)) or any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr in CUTS
        and any(names_within(value, known) for value in call.args)
        for call in within(body, ast.Call)
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


def refuse_whole_data(
    program: Program, loop: TrainLoop, found: BatchSource, taint: Tainted
) -> None:
    """Raise where a step does not go back from its own batch alone."""
    module, steps = loop.module, loop.steps
    losses = {
        name
        for call in loop.backwards
        if is_backward(call) and isinstance(call.func, ast.Attribute)
        for name in names_in(call.func.value)
    }
    if not losses & taint.names and not any(
        names_in(call.func.value) & taint.names
        for call in loop.backwards
        if isinstance(call.func, ast.Attribute)
    ):
        raise NotDealtError(
            f"a step of line {steps.lineno} trains on no part that its number, or an element, picks"
        )
    if found.numbers and not found.items:
        known = numbers_from(steps.body, set(found.numbers))
        slices = any(names_within(each, known) for each in within(steps.body, ast.Slice))
        picks = is_order(module, found.whole) and cuts_by(steps.body, set(found.numbers))
        if not slices and not picks and not any_cutting_callee(program, module, steps.body, known):
            raise NotDealtError(
                f"line {steps.lineno} counts steps, and its number does not pick the examples"
            )


def is_order(module: Module, source: ast.expr) -> bool:
    """Whether a source numbers all examples: a permutation, or ``range(len(data))``."""
    plain = module.definition(source, source) or source if isinstance(source, ast.Name) else source
    if isinstance(plain, ast.Call) and module.last_name(plain.func) in ("tolist", "list"):
        return True
    if not isinstance(plain, ast.Call):
        return False
    if module.last_name(plain.func) in ("permutation", "randperm"):
        return True
    return len(plain.args) == 1 and any(
        isinstance(call.func, ast.Name) and call.func.id == "len"
        for call in everywhere(plain.args[0], ast.Call)
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


def refuse_numbers_elsewhere(program: Program, loop: TrainLoop, found: BatchSource) -> None:
    """Raise where the number of a batch does more than to cut it, or to be told."""
    module, body = loop.module, loop.steps.body
    known = numbers_from(body, set(found.numbers))
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


def refuse_draws(program: Program, loop: TrainLoop) -> None:
    """Raise where a step draws random numbers outside of its network."""
    for stmt in loop.steps.body:
        for module, call in draws_below(program, loop.module, stmt):
            raise NotDealtError(
                f"a step draws at random, by {module.text(call.func)}() in line {call.lineno} of"
                f" {module.source.path.name}"
            )
