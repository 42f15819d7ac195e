"""Gradient accumulation leaks, clips too often and all-reduces too often.

What         Micro-batches left over at the end of an epoch; clipping per micro-batch; the loss
             divided by the number of micro-batches whatever they hold; an all-reduce for each.
At run time  Left-over gradients enter the next epoch's first step; clipping weighs micro-batches
             0.24 / 0.38 / 0.57 / 1.0 instead of alike; 4 all-reduces where 1 would do.
Example      if (step + 1) % args.gradient_accumulation_steps == 0: optimizer.step()
Fix          The last micro-batch of an epoch steps too; clip once, before the step; weigh each
             micro-batch by its share of the examples; synchronise on the last one only.
             Only where enumerate counts the steps of a loop over a known loader.
Fix safety   Safe: with accumulation 1 every step is as it was, bit for bit.
Source       torch.nn.parallel.DistributedDataParallel.no_sync, which sets the same attribute
"""

import ast
from collections.abc import Iterator

from ..edits import Define, Edit, Guard, Insert, Rewrite
from ..facts import TrainLoop, Unit
from ..findings import Finding, Safety, Severity
from ..module import Module
from ..syntax import below, bound_names, same, within

CODE, SEVERITY, SAFETY = "DF703", Severity.DEGRADED, Safety.SAFE

LAST = "last_micro_step"


def findings(unit: Unit) -> Iterator[Finding]:
    for loop in unit.train_loops:
        test = loop.step_test
        if test is None or loop.accumulation is None:
            continue
        module = loop.module
        if loop.loader is None or not loop.step_name:
            yield Finding(module, test, "what it counts is not the loop's own step number")
            continue
        if isinstance(test.test, ast.Compare) and counts_from_one(loop, test.test):
            yield Finding(
                module,
                test,
                "micro-batches left at the end of an epoch are stepped in the next one",
                tail(loop, test),
            )
            for clip in loop.clips:
                if not any(same_test(up, test) for up in module.ancestors(clip)):
                    yield Finding(
                        module, clip, "clips after every micro-batch", (Guard(clip, LAST),)
                    )
        yield from synchronisation(loop)
        for divided in divisions(loop):
            share = f"loss_share({loop.step_name}, {loop.loader.name}, {text(loop)})"
            assert isinstance(divided.value, ast.BinOp)
            weighted = f"{module.text(divided.value.left)} * {share}"
            yield Finding(
                module,
                divided,
                "the last micro-batches of an epoch are fewer or shorter than that",
                (Rewrite(divided.value, weighted), Define("loss_share")),
            )


def same_test(up: ast.AST, test: ast.If) -> bool:
    return isinstance(up, ast.If) and (same(up.test, test.test) or ast.unparse(up.test) == LAST)


def text(loop: TrainLoop) -> str:
    assert loop.accumulation is not None
    return loop.module.text(loop.accumulation)


def counts_from_one(loop: TrainLoop, test: ast.Compare) -> bool:
    """``(step + 1) % n == 0`` with ``step`` from enumerate."""
    return (
        isinstance(test.left, ast.BinOp)
        and isinstance(test.left.left, ast.BinOp)
        and isinstance(test.left.left.op, ast.Add)
        and isinstance(test.left.left.left, ast.Name)
        and test.left.left.left.id == loop.step_name
    )


def tail(loop: TrainLoop, test: ast.If) -> tuple[Edit, ...]:
    """Name the test at the head of the loop, with the epoch's last micro-batch in it."""
    assert loop.loader is not None
    module = loop.module
    condition = f"{module.text(test.test)} or {loop.step_name} + 1 == len({loop.loader.name})"
    return (
        Insert(loop.steps, f"{LAST} = {condition}", "first"),
        Rewrite(test.test, LAST),
    )


def synchronisation(loop: TrainLoop) -> Iterator[Finding]:
    """All-reduce on the last micro-batch only, once the loop has a name for it."""
    module = loop.module
    named = [stmt for stmt in loop.steps.body if bound_names(stmt) == {LAST}]
    handled = {node.attr for node in within(loop.steps.body, ast.Attribute)}
    if not named or handled & {"require_backward_grad_sync", "no_sync"}:
        return
    for model in wrapped_models(module, loop):
        code = f"{model}.require_backward_grad_sync = {LAST}"
        yield Finding(
            module, loop.steps, "an all-reduce per micro-batch", (Insert(named[0], code, "after"),)
        )


def wrapped_models(module: Module, loop: TrainLoop) -> list[str]:
    """Names that DDP's result is bound to in the function of the loop."""
    names: set[str] = set()
    for stmt in within(loop.scope, ast.Assign):
        if any(call in below(stmt) for call in module.calls_to("DistributedDataParallel")):
            names |= bound_names(stmt)
    return sorted(names)


def divisions(loop: TrainLoop) -> Iterator[ast.Assign]:
    """``loss = loss / accumulation`` in the loop."""
    assert loop.accumulation is not None
    for stmt in within(loop.steps.body, ast.Assign):
        if (
            isinstance(stmt.value, ast.BinOp)
            and isinstance(stmt.value.op, ast.Div)
            and same(stmt.value.right, loop.accumulation)
            and len(stmt.targets) == 1
            and ast.unparse(stmt.targets[0]) == ast.unparse(stmt.value.left)
        ):
            yield stmt
