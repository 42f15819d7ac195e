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
from ..analysis.training.program import Program
from ..analysis.training.train_loops import TrainLoop
from ..editing.edits import Edit, Import, Replace
from ..findings import Finding, Safety, Severity
from ..fixes.grad_scaler import (
    SCALER,
    forward_statements,
    is_name_bound,
    new_scaler,
    only_step,
    put_under_autocast,
    scaled_step,
)
from ..fixes.statements import dedented_lines
from ..source.module import Module
from ..source.tree import (
    argument,
    argument_values,
    bound_names,
    only_argument,
    precedes,
    within,
)

CODE, SEVERITY, SAFETY = "DF803", Severity.DEGRADED, Safety.SAFE

WRAPPER = "FP16_Optimizer"


@record
class Fp16Loop:
    """The places where a script and its training loop meet FP16_Optimizer."""

    loop: TrainLoop
    creation: ast.If  # of the optimizer, with and without apex
    optimizer: str
    branch: ast.If  # the backward pass, with and without
    backward: ast.Expr
    loss: str
    step: ast.Expr
    forward: tuple[ast.stmt, ...]
    model: str
    clip: ast.Expr | None  # of the master weights, in the block of the step
    removable: tuple[ast.If, ...]  # only needed by apex


def findings(program: Program) -> Iterator[Finding]:
    calls = program.calls_of_apex(WRAPPER)
    if not calls or program.calls_to("scale_loss"):
        return
    module, call = calls[0]
    shapes = [
        s for loop in program.train_loops if loop.module is module for s in fp16_loops(loop, calls)
    ]
    edits = tuple(torch_amp_edits(program, shapes[0])) if len(shapes) == 1 else ()
    yield Finding(module, call, f"{module.text(call.func)}() is apex's", edits)


def fp16_loops(loop: TrainLoop, calls: list[tuple[Module, ast.Call]]) -> Iterator[Fp16Loop]:
    """The uses of FP16_Optimizer, where none of them is missing and there are no others."""
    module = loop.module
    creations = [
        up
        for up in module.ancestors(calls[0][1])
        if isinstance(up, ast.If) and all(is_apex(module, stmt) for stmt in up.body)
    ]
    if not creations:
        return
    creation = creations[-1]
    if any(user is not module or creation not in module.ancestors(call) for user, call in calls):
        return
    flag = module.text(creation.test)
    tests = [stmt for stmt in module.nodes(ast.If) if module.text(stmt.test) == flag]
    for backward in within(loop.steps, ast.Expr):
        match backward.value:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=name), attr="backward"),
                args=[ast.Name(id=loss)],
                keywords=[],
            ):
                yield from fp16_loop(loop, creation, tests, backward, name, loss)


def fp16_loop(
    loop: TrainLoop,
    creation: ast.If,
    tests: list[ast.If],
    backward: ast.Expr,
    optimizer: str,
    loss: str,
) -> Iterator[Fp16Loop]:
    """The uses of FP16_Optimizer around one backward pass; ``tests`` are all tests of the flag."""
    module = loop.module
    branch = module.parents[backward]
    step = only_step(loop, optimizer)
    if step is None or not (
        isinstance(branch, ast.If)
        and branch in tests
        and branch.body == [backward]
        and branch.orelse
        and has_other_optimizer(module, creation, optimizer)
        and not is_name_bound(loop, SCALER)
    ):
        return
    model = only_model(loop, branch)
    clips = [test.body[0] for test in tests if is_master_clipping(module, test, optimizer)]
    removable = [
        test for test in tests if test not in (creation, branch) and test.body[0] not in clips
    ]
    clip = clips[0] if clips else None
    if not model or len(clips) > 1 or clips_otherwise(loop, tests):
        return
    if clip is not None and module.parents[clip] not in module.body(step):
        return
    if not all(is_of_fp16(module, test, optimizer) for test in removable):
        return
    forward = forward_statements(module, branch, model, loss)
    if is_needed_elsewhere(module, removable) or not forward:
        return
    assert clip is None or isinstance(clip, ast.Expr)
    yield Fp16Loop(
        loop=loop,
        creation=creation,
        optimizer=optimizer,
        branch=branch,
        backward=backward,
        loss=loss,
        step=step,
        forward=forward,
        model=model,
        clip=clip,
        removable=tuple(removable),
    )


def only_model(loop: TrainLoop, branch: ast.If) -> str:
    """The model whose forward pass stands in the block of ``branch``; empty if not exactly one."""
    module = loop.module
    called = {
        module.text(call.func)
        for call in within(module.body(branch), ast.Call)
        if isinstance(call.func, ast.Name)
    }
    with_model_methods = {
        module.text(call.func.value)
        for call in within(loop.scope, ast.Call)
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in ("train", "parameters", "named_parameters", "half")
    }
    models = called & with_model_methods
    return models.pop() if len(models) == 1 else ""


def clips_otherwise(loop: TrainLoop, tests: list[ast.If]) -> bool:
    """Whether the loop clips gradients under none of the tests."""
    return any(
        not any(isinstance(up, ast.If) and up in tests for up in loop.module.ancestors(stmt))
        for stmt in loop.clips
    )


def is_needed_elsewhere(module: Module, removable: list[ast.If]) -> bool:
    """Whether names that the tests bind are read outside of them, or the model is halved there."""

    def is_outside(node: ast.AST) -> bool:
        return not any(up in removable for up in module.ancestors(node))

    bound = set().union(*(bound_names(test.body) for test in removable))
    reads = {
        name.id
        for name in module.nodes(ast.Name)
        if isinstance(name.ctx, ast.Load) and is_outside(name)
    }
    return bool(bound & reads) or any(map(is_outside, module.calls_to("half")))


def is_apex(module: Module, stmt: ast.stmt) -> bool:
    """An import of apex or a call into it, possibly inside ``try`` or under a test."""
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


def has_other_optimizer(module: Module, creation: ast.If, optimizer: str) -> bool:
    """Whether the optimizer of a run without the flag is created: in ``else`` or further up."""
    if not all(is_apex(module, stmt) for stmt in creation.body):
        return False
    if creation.orelse:
        first = creation.orelse[0]
        is_elif = isinstance(first, ast.If) and module.line(first.lineno).lstrip().startswith(
            "elif"
        )
        return not is_elif and optimizer in bound_names(creation.orelse)
    return any(
        precedes(stmt, creation) and optimizer in bound_names(stmt)
        for stmt in within(module.scope_statements(creation), ast.Assign)
    ) and all(
        is_optimizer_wrap(module, stmt, optimizer) for stmt in within(creation.body, ast.Assign)
    )


def is_optimizer_wrap(module: Module, stmt: ast.Assign, optimizer: str) -> bool:
    """``optimizer = FP16_Optimizer(optimizer, …)``."""
    call = stmt.value
    wrapped = argument(call, 0, "init_optimizer") if isinstance(call, ast.Call) else None
    return wrapped is not None and module.text(wrapped) == optimizer


def is_master_clipping(module: Module, test: ast.If, optimizer: str) -> bool:
    """``if fp16: optimizer.clip_master_grads(…)``."""
    match test.body:
        case [ast.Expr(value=ast.Call(func=func) as call)] if only_argument(call, "max_norm"):
            return module.text(func) == f"{optimizer}.clip_master_grads"
    return False


def is_of_fp16(module: Module, test: ast.If, optimizer: str) -> bool:
    """Whether a test only halves the model, or sets learning rates by hand."""
    if test.orelse:
        return False
    for stmt in test.body:
        match stmt:
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="half"), args=[], keywords=[])):
                continue
            case ast.Assign(targets=[ast.Name()]):
                continue  # ``is_needed_elsewhere`` looks for other reads
            case ast.For(iter=source) if module.text(source) == f"{optimizer}.param_groups":
                continue
        return False
    return True


def else_code(module: Module, test: ast.If) -> str:
    """The dedented text of an else branch with its comments; empty where there is none."""
    if not test.orelse:
        return ""
    first, last = test.orelse[0].lineno, test.orelse[-1].end_lineno or test.orelse[-1].lineno
    while not module.line(first - 1).lstrip().startswith("else"):
        first -= 1
    return dedented_lines(module, first, last)


def torch_amp_edits(program: Program, shape: Fp16Loop) -> Iterator[Edit]:
    """Edits that do the same with torch.amp."""
    loop, creation = shape.loop, shape.creation
    module, flag = loop.module, loop.module.text(creation.test)
    yield from new_scaler(program, loop, creation, flag, else_code(module, creation))
    yield from put_under_autocast(program, module, shape.forward, flag)
    yield Replace(shape.backward, f"{SCALER}.scale({shape.loss}).backward()")
    if shape.clip is not None:
        assert isinstance(shape.clip.value, ast.Call)
        max_norm = module.text(argument_values(shape.clip.value)[0])
        clip = f"torch.nn.utils.clip_grad_norm_({shape.model}.parameters(), {max_norm})"
        yield Replace(shape.clip, f"{SCALER}.unscale_({shape.optimizer})\n{clip}")
        yield Import("torch")
    yield from (Replace(test, "") for test in shape.removable)
    yield from scaled_step(module, shape.step, shape.optimizer)
