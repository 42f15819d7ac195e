"""The number of a micro-batch in its pass over the loader, as a training loop tells it."""

from __future__ import annotations

import ast

from ..analysis.language.conditions import asked_value
from ..analysis.training.train_loops import TrainLoop, calls_around
from ..source.tree import bound_names, everywhere

NUMBER = "micro_step"  # counts the batches of one pass over the loader, from 0


def accumulation_text(loop: TrainLoop) -> str:
    """The text of the number of micro-batches per step, as an operand."""
    assert loop.accumulation is not None
    return loop.module.operand(loop.accumulation)


def is_cyclic(loop: TrainLoop) -> bool:
    """``for step in range(n): batch = next(batches)``."""
    return loop.loader is not None and loop.loader.cycle is not None


def has_step_number(loop: TrainLoop) -> bool:
    """Whether a name holds the number of the micro-batch in its pass over a known loader."""
    if loop.loader is None or not loop.loader.name:
        return False
    if is_cyclic(loop):
        return NUMBER in bound_names(loop.steps)
    return bool(loop.step_name) and is_one_pass(loop)


def is_one_pass(loop: TrainLoop) -> bool:
    """Whether the loop ends where its loader does: not ``for step in range(n): next(batches)``."""
    module, limit = loop.module, loop_range(loop)
    if limit is None:
        return True
    is_length = any(
        isinstance(value, ast.Call) and module.dotted(value.func) == "len"
        for value in (limit, *module.alternatives(limit, limit))
    )
    name = loop.loader.name if loop.loader else ""
    iterators = {
        target.id
        for call in module.calls_to("iter")
        for stmt in [module.statement(call)]
        if isinstance(stmt, ast.Assign) and stmt.value is call
        for target in stmt.targets
        if isinstance(target, ast.Name)
    }
    return is_length and name not in iterators  # which have no batch size


def micro_step_text(loop: TrainLoop) -> str:
    """Text for the number of the micro-batch in its pass over the loader, from 0."""
    if is_cyclic(loop):
        return NUMBER
    return f"{loop.step_name} - 1" if loop.step_start else loop.step_name


def counts_own_steps(loop: TrainLoop, test: ast.Compare) -> bool:
    """``step += 1`` per batch and ``step % n == 0``: right in a loop without epochs."""
    remainder = asked_value(test)
    if not isinstance(remainder, ast.BinOp):
        return False
    if not isinstance(loop.steps, ast.While) and is_one_pass(loop):
        return False
    counts = {name.id for name in everywhere(remainder.left, ast.Name)}
    is_cycle = bool(loop.module.calls_to("cycle"))  # whose epochs have a last micro-batch each
    by_loop = bool(loop.step_name) and counts == {loop.step_name} and not is_cycle
    counted = isinstance(remainder.left, ast.Name) and is_counter(loop, remainder.left.id)
    return by_loop or counted


def is_counter(loop: TrainLoop, name: str) -> bool:
    """Whether the loop's body adds 1 to the name exactly once per batch."""
    increments = [
        stmt
        for stmt in loop.steps.body
        if isinstance(stmt, ast.AugAssign)
        and isinstance(stmt.target, ast.Name)
        and stmt.target.id == name
        and isinstance(stmt.value, ast.Constant)
        and stmt.value.value == 1
    ]
    return len(increments) == 1


def loop_range(loop: TrainLoop) -> ast.expr | None:
    """The number of batches that the loop takes: the argument of its ``range``."""
    source = loop.steps.iter if isinstance(loop.steps, ast.For) else None
    for name, call in calls_around(loop.module, source):
        if name in ("range", "trange"):
            return call.args[0] if len(call.args) == 1 else None
        if name == "enumerate":
            break
    return None
