"""Edits that put autocast and a GradScaler into a training loop, for apex's rules and ``--amp``."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..analysis.training.program import Program
from ..analysis.training.schedules import is_schedule
from ..analysis.training.train_loops import TrainLoop
from ..editing.edits import Edit, Guard, Insert, Replace, Rewrite
from ..source.module import Module
from ..source.tree import bound_names, everywhere, mentions, names_within, within
from .process_group import on_cuda_test
from .statements import lines_of

SCALER = "scaler"
SCALE = "loss_scale"  # holds the scale before the step


def is_step(stmt: ast.stmt) -> bool:
    """Whether a statement is ``x.step()``, without arguments."""
    match stmt:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="step"), args=[], keywords=[])):
            return True
    return False


def step_receiver(stmt: ast.stmt) -> ast.expr:
    """``x`` of a statement ``x.step()``."""
    assert isinstance(stmt, ast.Expr)
    assert isinstance(stmt.value, ast.Call)
    assert isinstance(stmt.value.func, ast.Attribute)
    return stmt.value.func.value


def only_step(loop: TrainLoop, optimizer: str) -> ast.Expr | None:
    """The statement ``optimizer.step()`` of the loop, if there is exactly one."""
    steps = [
        stmt
        for stmt in within(loop.steps, ast.Expr)
        if mentions(stmt, "step") and loop.module.text(stmt.value) == f"{optimizer}.step()"
    ]
    return steps[0] if len(steps) == 1 else None


def guard_schedule(module: Module, step: ast.stmt) -> Iterator[Edit]:
    """Edits that advance the schedule below a scaled step only if the step was not skipped.

    The scaler lowers its scale, and skips the step, where a gradient has overflowed.
    """
    block = module.body(step)
    schedule_steps = [
        stmt
        for stmt in block[block.index(step) + 1 :]
        if is_step(stmt) and is_schedule(module, step_receiver(stmt))
    ]
    if schedule_steps:
        yield Insert(step, f"{SCALE} = {SCALER}.get_scale()  # falls where a step is skipped")
    for stmt in schedule_steps:
        yield Guard(stmt, f"{SCALER}.get_scale() >= {SCALE}")


def scaled_step(module: Module, step: ast.Expr, optimizer: str) -> Iterator[Edit]:
    """Edits that step an optimizer through the scaler."""
    yield from guard_schedule(module, step)
    yield Rewrite(step.value, f"{SCALER}.step({optimizer})")
    yield Insert(step, f"{SCALER}.update()", "after")


def device_type(program: Program, at: tuple[Module, ast.AST] | None = None) -> str:
    """The text of an expression for the type of the process's device, at a node of a module."""
    cuda = on_cuda_test(program, at)
    return cuda.partition(" ")[0] if " == " in cuda else f"'cuda' if {cuda} else 'cpu'"


def new_scaler(
    program: Program, loop: TrainLoop, old: ast.stmt, flag: str, instead: str = ""
) -> Iterator[Edit]:
    """Edits that replace ``old`` by ``instead`` and create a scaler.

    The scaler is created right behind, or above the loop where ``old`` is in another function.
    """
    kind = device_type(program, (loop.module, loop.steps))
    construction = f"{SCALER} = torch.amp.GradScaler({kind}, enabled={flag})"
    if loop.module.function(old) is loop.module.function(loop.steps):
        yield Replace(old, f"{instead}{construction}")
    else:
        yield Replace(old, instead)
        yield Insert(outermost_loop(loop), construction)


def forward_statements(
    module: Module, branch: ast.If, model: str, loss: str
) -> tuple[ast.stmt, ...]:
    """The statements from the model's call to the loss, in the block of the backward pass.

    None where one of them holds a literal of several lines, which indenting would change.
    """
    body = module.body(branch)
    above = body[: body.index(branch)]
    calls = [
        index
        for index, stmt in enumerate(above)
        if any(
            isinstance(call.func, ast.Name) and call.func.id == model
            for call in within(stmt, ast.Call)
        )
    ]
    if not calls:
        return ()
    losses = [
        index
        for index, stmt in enumerate(above)
        if isinstance(stmt, ast.Assign)
        and loss in bound_names(stmt)
        and not mentions(stmt.value, loss)
    ]
    forward = above[calls[0] : max(calls[-1:] + losses) + 1]
    has_multiline_text = any(
        isinstance(node.value, str) and node.end_lineno != node.lineno
        for stmt in forward
        for node in everywhere(stmt, ast.Constant)
    )
    return () if has_multiline_text else tuple(forward)


def put_under_autocast(
    program: Program, module: Module, forward: tuple[ast.stmt, ...], flag: str
) -> Iterator[Edit]:
    """Edits that put the statements of a forward pass under autocast."""
    first, *rest = forward
    lines = lines_of(module, first, forward[-1]).splitlines(keepends=True)
    margin = module.margin(first)
    inner = "".join(f"    {ln.removeprefix(margin)}" if ln.strip() else "\n" for ln in lines)
    kind = device_type(program, (module, first))
    yield Replace(first, f"with torch.amp.autocast({kind}, enabled={flag}):\n{inner}")
    yield from (Replace(stmt, "") for stmt in rest)


def outermost_loop(loop: TrainLoop) -> ast.stmt:
    """The outermost loop around a train loop in its function."""
    module, outer = loop.module, loop.steps
    function = module.function(loop.steps)
    for up in module.ancestors(loop.steps):
        if up is function:
            break
        outer = up if isinstance(up, ast.For | ast.While) else outer
    return outer


def is_name_bound(loop: TrainLoop, name: str) -> bool:
    """Whether the loop's function, or the module, binds a name."""
    uses = names_within(loop.scope, {name})
    return name in loop.module.module_names or any(isinstance(u.ctx, ast.Store) for u in uses)
