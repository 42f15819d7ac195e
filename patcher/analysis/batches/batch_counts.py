"""What counts the batches of a loop that ranks take turns in, and sums over all of them."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from ...source.module import Module
from ...source.tree import below, bound_names, names_within, position, same_code, within
from ..language.name_flow import Tainted, names_in, spread
from ..training.program import Program
from ..training.schedules import HORIZONS, makes_schedule
from ..training.train_loops import TrainLoop
from .batch_numbers import numbers_from
from .batch_sources import BatchSource
from .batch_taint import NotDealtError
from .own_decisions import refuse_own_decisions

SIZES = ("size", "shape", "numel", "__len__")
DETACHED = {"item", "data", "detach", "tolist", "numpy", "float", "int", "len", "size", "numel"}
MAX_DEPTH = 3


def counts_data(module: Module, node: ast.AST) -> bool:
    """Whether a value is made of how many examples or batches there are."""
    return any(True for _ in counts_in(module, node))


def counts_in(module: Module, node: ast.AST, depth: int = 0) -> Iterator[ast.expr]:
    """What counts examples or batches in a value, also in the values of its names."""
    for part in below(node):
        if isinstance(part, ast.Attribute) and part.attr in SIZES:
            yield part
        if isinstance(part, ast.Call) and module.dotted(part.func) == "len":
            yield part
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) and depth < MAX_DEPTH:
            for value in module.alternatives(part, part):
                if value is not node:
                    yield from counts_in(module, value, depth + 1)


def horizons_of_all(program: Program, loop: TrainLoop, batches: ast.expr) -> list[ast.Call]:
    """``len(batches)`` of a loop where it says how far a schedule goes: a rank has a part of them.

    Raises NotDealtError where a schedule counts otherwise.
    """
    found: list[ast.Call] = []
    for module, call, value in plans(program):
        for count in counts_in(module, value):
            of_loop = module is loop.module and (
                module.function(count) is module.function(loop.steps)
            )
            if not (
                of_loop
                and isinstance(count, ast.Call)
                and len(count.args) == 1
                and same_code(count.args[0], batches)
            ):
                raise NotDealtError(f"line {call.lineno} plans with the number of all of them")
            found.append(count)
    return list(dict.fromkeys(found))


def plans(program: Program) -> Iterator[tuple[Module, ast.Call, ast.AST]]:
    """What tells a schedule, or an optimizer that has one, how far it goes, with the call."""
    for module in program.modules:
        for call in module.nodes(ast.Call):
            name = module.last_name(call.func)
            is_schedule = makes_schedule(name) or "warmup" in name.lower()
            words = [word.value for word in call.keywords if word.arg in HORIZONS]
            if program.is_live(module, call):
                yield from ((module, call, value) for value in ([call] if is_schedule else words))


def refuse_other_plans(program: Program, loop: TrainLoop, taint: Tainted) -> None:
    """Raise where the number of batches sets how a value goes on from step to step."""
    module, body = loop.module, loop.steps.body
    losses = set().union(*(names_in(call.func) for call in loop.backwards))
    for kind in (ast.Assign, ast.AugAssign):
        for stmt in within(body, kind):
            assert isinstance(stmt, ast.Assign | ast.AugAssign)
            if names_in(stmt.value) & taint.names or not counts_data(module, stmt.value):
                continue
            targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
            names = set().union(*map(names_in, targets))
            is_plain = all(isinstance(target, ast.Name) for target in targets)
            if not is_plain or spread(body, names).names & losses:
                raise NotDealtError(f"line {stmt.lineno} goes on by the number of all of them")
    for call in within(body, ast.Call):
        if program.callees(module, call) and any(
            counts_data(module, value) and not names_in(value) & taint.names
            for value in call.args
            if isinstance(value, ast.BinOp | ast.Call)
        ):
            raise NotDealtError(f"line {call.lineno} passes on the number of all of them")


def sums_of_all(
    program: Program, loop: TrainLoop, taint: Tainted, source: BatchSource
) -> list[str]:
    """Sums over a rank's batches that are divided by the number of all: to be added up.

    Raises NotDealtError where ranks would decide by sums of their own.
    """
    module, steps = loop.module, loop.steps
    sums = {name: value for name, value in added(steps.body) if name in taint.names}
    uses = [
        use
        for use in names_within(module.scope_statements(steps), set(sums))
        if position(use) > (steps.end_lineno or steps.lineno, 0)
    ]
    for use in uses:
        refuse_mean_by_number(module, use, source.numbers)
    counted = numbers_from(module.scope_statements(steps), set(source.turns))
    own_numbers = taint.names | counted | {name for name, _ in added(steps.body)}
    wanted = list(dict.fromkeys(use.id for use in uses if is_part_of_all(module, use, own_numbers)))
    for name in wanted:
        refuse_graph(sums[name])
        refuse_running_sum(module, steps, name)
    own = taint.names & (bound_names(steps.body) | {n for n in taint.names if "." in n})
    refuse_own_decisions(program, module, steps, own - set(wanted))
    return wanted


def refuse_mean_by_number(module: Module, use: ast.Name, numbers: frozenset[str]) -> None:
    """Raise where a sum is divided by the number of the last batch, of which ranks skip some."""
    for up in module.ancestors(use):
        is_quotient = isinstance(up, ast.BinOp) and isinstance(up.op, ast.Div | ast.FloorDiv)
        if isinstance(up, ast.BinOp) and is_quotient and names_in(up.right) & numbers:
            raise NotDealtError(f"line {up.lineno} divides by the number of a batch")


def is_part_of_all(module: Module, use: ast.Name, own_numbers: Collection[str]) -> bool:
    """``total / len(data)``: a rank's own sum is divided by what is no number of its own."""
    for up in module.ancestors(use):
        is_quotient = isinstance(up, ast.BinOp) and isinstance(up.op, ast.Div | ast.FloorDiv)
        if isinstance(up, ast.BinOp) and is_quotient and use in below(up.left):
            return names_in(up.right).isdisjoint(own_numbers)
        if isinstance(up, ast.stmt):
            is_divided = isinstance(up, ast.AugAssign) and isinstance(up.op, ast.Div)
            return (
                isinstance(up, ast.AugAssign)
                and is_divided
                and names_in(up.value).isdisjoint(own_numbers)
            )
    return False


def added(body: list[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    """The names of sums and lists that a step adds to, with what it adds."""
    for add in within(body, ast.AugAssign):
        if isinstance(add.target, ast.Name) and isinstance(add.op, ast.Add):
            yield add.target.id, add.value
    for call in within(body, ast.Call):
        func = call.func
        appends = isinstance(func, ast.Attribute) and func.attr == "append" and bool(call.args)
        if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and appends:
            yield func.value.id, call.args[0]


def refuse_graph(value: ast.expr) -> None:
    """Raise where a sum may hold the graph of its losses, which cannot be sent."""
    words = {
        part.attr if isinstance(part, ast.Attribute) else part.id
        for part in below(value)
        if isinstance(part, ast.Attribute | ast.Name)
    }
    if not words & DETACHED and not isinstance(value, ast.Constant):
        raise NotDealtError(
            f"the sum of line {value.lineno}, of a part of them, is divided by the number of all"
        )


def refuse_running_sum(module: Module, steps: ast.stmt, name: str) -> None:
    """Raise where a sum does not begin anew above the loop, as it would count ranks' sums twice."""
    block = module.body(steps)
    if not any(
        isinstance(stmt, ast.Assign) and name in bound_names(stmt)
        for stmt in block[: block.index(steps)]
    ):
        raise NotDealtError(
            f"the sum {name} over them does not begin anew above line {steps.lineno}"
        )
