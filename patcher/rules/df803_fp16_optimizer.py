"""Half precision goes through apex's FP16_Optimizer.

What         --fp16 turns the model into float16 and wraps its optimizer in FP16_Optimizer, which
             apex itself has abandoned.
At run time  ImportError with the flag set, on every machine without apex; nothing without it.
Example      optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)
Fix          With the flag the script does what it does without it, under torch.amp: the optimizer
             of the other branch, autocast around forward and loss, a GradScaler that unscales
             before the clipping of a step. model.half() goes, as autocast wants float32 weights;
             so does setting the learning rate by hand under the flag, which stood in for the other
             optimizer's schedule. Only where nothing else depends on the flag in the training.
Fix safety   Safe: with the flag off, autocast and scaler are disabled and change nothing, bit for
             bit; with it on, the script could only raise where apex is missing.
Source       torch.amp; https://docs.pytorch.org/docs/stable/notes/amp_examples.html
"""

import ast
from collections.abc import Iterator

from ...record import record
from ..analysis.program import Program
from ..analysis.train_loops import TrainLoop
from ..editing.edits import Edit, Import, Replace
from ..findings import Finding, Safety, Severity
from ..fixes.grad_scaler import SCALER, forward_of, in_autocast, is_taken, new_scaler, scaled_step
from ..source.module import Module
from ..source.tree import bound_names, within

CODE, SEVERITY, SAFETY = "DF803", Severity.DEGRADED, Safety.SAFE

WRAPPER = "FP16_Optimizer"


@record
class Fp16Loop:
    """The places where a script and its training loop meet FP16_Optimizer."""

    loop: TrainLoop
    making: ast.If
    optimizer: str
    branch: ast.If  # the backward pass, with and without
    backward: ast.Expr
    loss: str
    step: ast.Expr
    forward: tuple[ast.stmt, ...]
    model: str
    clip: ast.Expr | None  # of the master weights, beside the step
    dropped: tuple[ast.If, ...]  # what is done under the flag alone


def findings(program: Program) -> Iterator[Finding]:
    calls = [
        (module, call)
        for module in program.modules
        for call in module.calls_to(WRAPPER)
        if module.dotted(call.func).startswith("apex.")
    ]
    if not calls or program.calls_to("scale_loss"):
        return
    module, call = calls[0]
    shapes = [
        s for loop in program.train_loops if loop.module is module for s in fp16_loops(loop, calls)
    ]
    edits = tuple(torch_amp_edits(program, shapes[0])) if len(shapes) == 1 else ()
    yield Finding(module, call, f"{module.text(call.func)}() is apex's", edits)


def fp16_loops(loop: TrainLoop, calls: list[tuple[Module, ast.Call]]) -> Iterator[Fp16Loop]:
    """The whole shape, where no part of it is missing and there is no more than it."""
    module = loop.module
    makings = [
        up
        for up in module.ancestors(calls[0][1])
        if isinstance(up, ast.If) and all(is_apex(module, stmt) for stmt in up.body)
    ]
    if not makings:
        return
    making = makings[-1]
    if any(where is not module or making not in module.ancestors(c) for where, c in calls):
        return
    flag = module.text(making.test)
    tests = [stmt for stmt in module.nodes(ast.If) if module.text(stmt.test) == flag]
    for backward in within(loop.steps, ast.Expr):
        match backward.value:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=name), attr="backward"),
                args=[ast.Name(id=loss)],
                keywords=[],
            ):
                yield from _shape(loop, making, tests, backward, name, loss)


def _shape(
    loop: TrainLoop,
    making: ast.If,
    tests: list[ast.If],
    backward: ast.Expr,
    optimizer: str,
    loss: str,
) -> Iterator[Fp16Loop]:
    module = loop.module
    branch = module.parents[backward]
    steps = [
        stmt
        for stmt in within(loop.steps, ast.Expr)
        if module.text(stmt.value) == f"{optimizer}.step()"
    ]
    if not (
        isinstance(branch, ast.If)
        and branch in tests
        and branch.body == [backward]
        and branch.orelse
        and len(steps) == 1
        and has_other_optimizer(module, making, optimizer)
        and not is_taken(loop, SCALER)
    ):
        return
    called = {
        module.text(call.func)
        for call in within(module.body(branch), ast.Call)
        if isinstance(call.func, ast.Name)
    }
    handled = {
        module.text(call.func.value)
        for call in within(loop.scope, ast.Call)
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in ("train", "parameters", "named_parameters", "half")
    }
    models = called & handled
    clips = [test.body[0] for test in tests if is_master_clipping(module, test, optimizer)]
    rest = [t for t in tests if t not in (making, branch) and t.body[0] not in clips]
    clip = clips[0] if clips else None
    beside = clip is None or module.parents[clip] in module.body(steps[0])
    others = [
        stmt
        for stmt in loop.clips
        if not any(isinstance(up, ast.If) and up in tests for up in module.ancestors(stmt))
    ]
    if len(models) != 1 or len(clips) > 1 or not beside or others:
        return
    if not all(is_of_fp16(module, test, optimizer) for test in rest):
        return
    model = models.pop()
    gone = set().union(*(bound_names(test.body) for test in rest))
    kept = {
        name.id
        for name in module.nodes(ast.Name)
        if isinstance(name.ctx, ast.Load) and not any(up in rest for up in module.ancestors(name))
    }
    halves = [c for c in module.calls_to("half") if not any(u in rest for u in module.ancestors(c))]
    forward = forward_of(module, branch, model, loss)
    if gone & kept or halves or not forward:
        return
    assert clip is None or isinstance(clip, ast.Expr)
    yield Fp16Loop(
        loop,
        making,
        optimizer,
        branch,
        backward,
        loss,
        steps[0],
        forward,
        model,
        clip,
        tuple(rest),
    )


def is_apex(module: Module, stmt: ast.stmt) -> bool:
    """An import of apex, tried or not, or what it makes; under a test or not."""
    match stmt:
        case ast.ImportFrom(module=str(name)):
            return name.partition(".")[0] == "apex"
        case ast.Import(names=names):
            return all(alias.name.partition(".")[0] == "apex" for alias in names)
        case ast.Try(body=body, handlers=handlers, orelse=[], finalbody=[]):
            raised = all(isinstance(s, ast.Raise | ast.Pass) for h in handlers for s in h.body)
            return raised and all(is_apex(module, inner) for inner in body)
        case ast.Assign(value=ast.Call(func=func)):
            return module.dotted(func).startswith("apex.")
        case ast.If(body=body, orelse=orelse):
            return all(is_apex(module, inner) for inner in (*body, *orelse))
    return False


def has_other_optimizer(module: Module, making: ast.If, optimizer: str) -> bool:
    """Whether one branch makes apex's optimizer, and the other one, or a line above it, torch's."""
    if not all(is_apex(module, stmt) for stmt in making.body):
        return False
    if making.orelse:
        is_elif = isinstance(making.orelse[0], ast.If) and module.line(
            making.orelse[0].lineno
        ).lstrip().startswith("elif")
        return not is_elif and optimizer in bound_names(making.orelse)
    above = [
        stmt
        for stmt in within(module.scope_statements(making), ast.Assign)
        if stmt.lineno < making.lineno and optimizer in bound_names(stmt)
    ]
    fused = [
        stmt
        for stmt in within(making.body, ast.Assign)
        if not is_optimizer_wrap(module, stmt, optimizer)
    ]
    return bool(above) and not fused


def is_optimizer_wrap(module: Module, stmt: ast.Assign, optimizer: str) -> bool:
    """``optimizer = FP16_Optimizer(optimizer, …)``."""
    call = stmt.value
    return isinstance(call, ast.Call) and bool(call.args) and module.text(call.args[0]) == optimizer


def is_master_clipping(module: Module, test: ast.If, optimizer: str) -> bool:
    """``if fp16: optimizer.clip_master_grads(…)``."""
    match test.body:
        case [ast.Expr(value=ast.Call(func=func, args=[_], keywords=[]))]:
            return module.text(func) == f"{optimizer}.clip_master_grads"
    return False


def is_of_fp16(module: Module, test: ast.If, optimizer: str) -> bool:
    """What is done under the flag for apex's sake: halving, and learning rates set by hand."""
    if test.orelse:
        return False
    for stmt in test.body:
        match stmt:
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="half"), args=[], keywords=[])):
                continue
            case ast.Assign(targets=[ast.Name()]):
                continue  # of the learning rate, read nowhere else
            case ast.For(iter=source) if module.text(source) == f"{optimizer}.param_groups":
                continue
        return False
    return True


def else_code(module: Module, test: ast.If) -> str:
    """The text of an else branch with its comments, at the margin; empty where there is none."""
    if not test.orelse:
        return ""
    first, last = test.orelse[0].lineno, test.orelse[-1].end_lineno or test.orelse[-1].lineno
    while not module.line(first - 1).lstrip().startswith("else"):
        first -= 1
    from textwrap import dedent  # few checks have a use for it

    return dedent("".join(map(module.line, range(first, last + 1))))


def torch_amp_edits(program: Program, shape: Fp16Loop) -> Iterator[Edit]:
    """The same with torch.amp."""
    loop, making = shape.loop, shape.making
    module, flag = loop.module, loop.module.text(making.test)
    yield from new_scaler(program, loop, making, flag, else_code(module, making))
    yield from in_autocast(program, module, shape.forward, flag)
    yield Replace(shape.backward, f"{SCALER}.scale({shape.loss}).backward()")
    if shape.clip is not None:
        assert isinstance(shape.clip.value, ast.Call)
        most = module.text(shape.clip.value.args[0])
        clipped = f"torch.nn.utils.clip_grad_norm_({shape.model}.parameters(), {most})"
        yield Replace(shape.clip, f"{SCALER}.unscale_({shape.optimizer})\n{clipped}")
        yield Import("torch")
    yield from (Replace(test, "") for test in shape.dropped)
    yield from scaled_step(module, shape.step, shape.optimizer)
