"""A GradScaler in a training loop: what the translation of apex and the capability amp share."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..analysis.program import Program
from ..analysis.train_loops import TrainLoop
from ..editing.edits import Edit, Guard, Insert, Replace, Rewrite
from ..source.module import Module
from ..source.tree import bound_names, everywhere, mentions, names_within, within
from .process_group import on_cuda_test

SCALER = "scaler"
SCALE = "loss_scale"  # as it was before the step


def is_step(stmt: ast.stmt) -> bool:
    """A statement ``x.step()``, without arguments."""
    match stmt:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="step"), args=[], keywords=[])):
            return True
    return False


def stepped(stmt: ast.stmt) -> ast.expr:
    """What a statement ``x.step()`` steps."""
    assert isinstance(stmt, ast.Expr)
    assert isinstance(stmt.value, ast.Call)
    assert isinstance(stmt.value.func, ast.Attribute)
    return stmt.value.func.value


def is_schedule(module: Module, node: ast.expr) -> bool:
    """Whether an expression names a learning-rate schedule: by its own name, or its maker's."""
    text = module.text(node)
    if "sched" in text.lower():
        return True
    makers = (
        module.last_name(stmt.value.func)
        for stmt in module.nodes(ast.Assign)
        if isinstance(stmt.value, ast.Call) and any(module.text(t) == text for t in stmt.targets)
    )
    return any(map(makes_schedule, makers))


def makes_schedule(name: str) -> bool:
    """Whether a class or function of this name creates a learning-rate schedule."""
    return "schedule" in name.lower() or name.endswith("LR")


def schedule_waits(module: Module, step: ast.stmt) -> Iterator[Edit]:
    """The schedule behind a scaled step, in its block, advances only where that was not skipped.

    The scaler lowers its scale, and skips the step, where a gradient has overflowed.
    """
    block = module.body(step)
    behind = [
        stmt
        for stmt in block[block.index(step) + 1 :]
        if is_step(stmt) and is_schedule(module, stepped(stmt))
    ]
    if behind:
        yield Insert(step, f"{SCALE} = {SCALER}.get_scale()  # falls where a step is skipped")
    for stmt in behind:
        yield Guard(stmt, f"{SCALER}.get_scale() >= {SCALE}")


def scaled_step(module: Module, step: ast.Expr, optimizer: str) -> Iterator[Edit]:
    """The step of one optimizer through the scaler."""
    yield from schedule_waits(module, step)
    yield Rewrite(step.value, f"{SCALER}.step({optimizer})")
    yield Insert(step, f"{SCALER}.update()", "after")


def device_type(program: Program) -> str:
    """Text for the kind of device that the process computes on."""
    cuda = on_cuda_test(program)
    return cuda.partition(" ")[0] if " == " in cuda else f"'cuda' if {cuda} else 'cpu'"


def new_scaler(
    program: Program, loop: TrainLoop, old: ast.stmt, flag: str, instead: str = ""
) -> Iterator[Edit]:
    """A scaler behind what stands ``instead`` of ``old``; where that is in another function than
    the loop, before the loop.
    """
    made = f"{SCALER} = torch.amp.GradScaler({device_type(program)}, enabled={flag})"
    if loop.module.function(old) is loop.module.function(loop.steps):
        yield Replace(old, f"{instead}{made}")
    else:
        yield Replace(old, instead)
        yield Insert(outermost(loop), made)


def forward_of(module: Module, branch: ast.If, model: str, loss: str) -> tuple[ast.stmt, ...]:
    """The statements from the model's call to the loss, in the block of the backward pass."""
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
    made = [
        index
        for index, stmt in enumerate(above)
        if isinstance(stmt, ast.Assign)
        and loss in bound_names(stmt)
        and not mentions(stmt.value, loss)
    ]
    part = above[calls[0] : max(calls[-1:] + made) + 1]
    multiline = any(
        isinstance(node.value, str) and node.end_lineno != node.lineno
        for stmt in part
        for node in everywhere(stmt, ast.Constant)
    )
    return () if multiline else tuple(part)


def in_autocast(
    program: Program, module: Module, forward: tuple[ast.stmt, ...], flag: str
) -> Iterator[Edit]:
    """The statements of a forward pass under autocast."""
    first, *rest = forward
    last = max(stmt.end_lineno or stmt.lineno for stmt in forward)
    lines = [module.line(number) for number in range(first.lineno, last + 1)]
    margin = module.margin(first)
    inner = "".join(f"    {ln.removeprefix(margin)}" if ln.strip() else "\n" for ln in lines)
    yield Replace(
        first, f"with torch.amp.autocast({device_type(program)}, enabled={flag}):\n{inner}"
    )
    yield from (Replace(stmt, "") for stmt in rest)


def outermost(loop: TrainLoop) -> ast.stmt:
    """The outermost loop around a train loop in its function."""
    module, outer = loop.module, loop.steps
    function = module.function(loop.steps)
    for up in module.ancestors(loop.steps):
        if up is function:
            break
        outer = up if isinstance(up, ast.For | ast.While) else outer
    return outer


def is_taken(loop: TrainLoop, name: str) -> bool:
    """Whether the loop's function, or the module, binds a name."""
    uses = names_within(loop.scope, {name})
    return name in loop.module.module_names or any(isinstance(u.ctx, ast.Store) for u in uses)
