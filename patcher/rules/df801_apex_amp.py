"""Mixed precision goes through apex.

What         --fp16 imports apex.amp, although PyTorch has had its successor since version 1.6.
At run time  ImportError with the flag set, on every machine without apex; nothing without it.
Example      with amp.scale_loss(loss, optimizer) as scaled_loss: scaled_loss.backward()
Fix          torch.amp: autocast around forward and loss, a GradScaler that unscales before the
             clipping of a step; the schedule waits where the scaler skips one. On a card float16,
             on a CPU bfloat16; the weights stay float32 at every opt level but O0, which is float32
             throughout, as O2 and O3 were fast at the price of accuracy. FP16_Optimizer gives way
             to the optimizer of the run without the flag. Only where all of the shape is found:
             initialize, scale_loss, the forward call and one optimizer.step(); and where a scaler
             lives as long as apex's, which is not so in a function that each epoch calls.
Fix safety   Safe: with the flag off, autocast and scaler are disabled and change nothing, bit for
             bit; with it on, the script could only raise where apex is missing.
Source       torch.amp; https://docs.pytorch.org/docs/stable/notes/amp_examples.html
"""

import ast
from collections.abc import Iterator

from ...record import record
from ..analysis.language.conditions import condition
from ..analysis.training.program import Program
from ..analysis.training.train_loops import TrainLoop, loop_around
from ..editing.edits import Edit, Insert, Replace, Rewrite
from ..findings import Finding, Safety, Severity
from ..fixes.behind_binding import behind_binding
from ..fixes.grad_scaler import (
    SCALER,
    forward_statements,
    is_name_bound,
    new_scaler,
    only_step,
    put_under_autocast,
    scaled_step,
)
from ..fixes.process_group import arguments_name
from ..fixes.statements import arguments_in_order
from ..source.module import Module
from ..source.tree import (
    argument,
    argument_values,
    bound_names,
    everywhere,
    is_within,
    mentions,
    precedes,
    same_code,
)

CODE, SEVERITY, SAFETY = "DF801", Severity.DEGRADED, Safety.SAFE

FLOAT32 = "O0"  # apex's name for a run that it leaves as it is


@record
class ApexLoop:
    """The places where a script and its training loop meet apex."""

    loop: TrainLoop
    initialize: ast.If
    level: ast.expr | None
    model: str
    flag: str
    scaled: tuple[ast.stmt, ...]  # the backward pass with apex, and the clipping beside it
    scale: ast.With
    loss: str
    optimizer: str
    step: ast.Expr
    forward: tuple[ast.stmt, ...]
    clips: tuple[ast.Call, ...]  # of apex's master weights, in the block of the step
    states: tuple[ast.Call, ...]  # save and load the state of apex's loss scale


def findings(program: Program) -> Iterator[Finding]:
    calls = program.calls_of_apex("initialize", "scale_loss", "FP16_Optimizer")
    if not any(module.dotted(call.func).startswith("apex.amp.") for module, call in calls):
        return
    shape = apex_loop(program, calls)
    module, call = calls[0]
    edits = () if shape is None else tuple(torch_amp_edits(program, shape))
    yield Finding(module, call, f"{module.text(call.func)}() is apex's", edits)


def apex_loop(program: Program, calls: list[tuple[Module, ast.Call]]) -> ApexLoop | None:
    """The uses of apex, or None where one of them is missing or there are others."""
    starts = [(m, call) for m, call in calls if m.dotted(call.func) == "apex.amp.initialize"]
    scales = [call for m, call in calls if m.dotted(call.func) == "apex.amp.scale_loss"]
    if len(starts) != 1 or len(scales) != 1 or len(calls) != 2:
        return None
    (module, start), (scaled,) = starts[0], scales
    if any(user is not module for user, _ in calls):  # each module is edited on its own
        return None
    loops = [loop for loop in program.train_loops if loop.steps in module.ancestors(scaled)]
    branches = flag_branches(module, start, scaled)
    level = argument(start, 2, "opt_level")
    if (
        len(loops) != 1
        or branches is None
        or (names := model_loss_optimizer(start, scaled)) is None
        or (isinstance(level, ast.Constant) and level.value == FLOAT32)
        or is_name_bound(loops[0], SCALER)
        or forgets_scale(program, loops[0], start)
    ):
        return None
    loop = loops[0]
    initialize, branch, scale = branches
    flag = condition(module, branch)
    model, loss, optimizer = (module.text(name) for name in names)
    step = only_step(loop, optimizer)
    forward = forward_statements(module, branch, model, loss)
    if step is None or not forward:
        return None
    clips = tuple(clips_next_to_step(module, branch, step))
    states = tuple(loss_scale_states(loop, initialize))
    clips_in_branch = any(clip_call(module, stmt) for stmt in flag.body)
    if len(clips) + clips_in_branch > 1:  # a scaler unscales the gradients once
        return None
    if has_other_uses(module, (initialize, branch, *clips, *states)):
        return None
    return ApexLoop(
        loop=loop,
        initialize=initialize,
        level=level,
        model=model,
        flag=module.text(flag.test),
        scaled=tuple(flag.body),
        scale=scale,
        loss=loss,
        optimizer=optimizer,
        step=step,
        forward=forward,
        clips=clips,
        states=states,
    )


def forgets_scale(program: Program, loop: TrainLoop, start: ast.Call) -> bool:
    """Whether a scaler beside the loop would begin anew in each epoch, which apex's does not.

    The loop is in a function of its own, which a loop over epochs calls.
    """
    module = loop.module
    function = module.function(loop.steps)
    if function is None or function is module.function(start):
        return False
    return any(loop_around(*caller) is not None for caller in program.callers(function))


def flag_branches(
    module: Module, start: ast.Call, scaled: ast.Call
) -> tuple[ast.If, ast.If, ast.With] | None:
    """The tests of the flag around initialize() and the backward pass, and the latter's ``with``.

    None where one of them holds anything but apex's calls and clipping.
    """
    initialize = module.parents[module.statement(start)]
    scale = module.statement(scaled)
    branch = module.parents[scale]
    if not (
        isinstance(initialize, ast.If)
        and isinstance(branch, ast.If)
        and isinstance(scale, ast.With)
    ):
        return None
    starts, scales = condition(module, initialize), condition(module, branch)
    if (
        module.text(starts.test) == module.text(scales.test)
        and not starts.orelse
        and all(is_apex(stmt) for stmt in starts.body)
        and scale in scales.body
        and all(
            is_apex(part)
            or part is scale
            or clip_call(module, part)
            or names_what_is_clipped(module, part)
            for part in scales.body
        )
    ):
        return initialize, branch, scale
    return None


def model_loss_optimizer(
    start: ast.Call, scaled: ast.Call
) -> tuple[ast.Name, ast.Name, ast.Name] | None:
    """The names in ``initialize(model, …)`` and ``scale_loss(loss, optimizer)``, if all are."""
    model = argument(start, 0, "models")
    loss, optimizer = argument(scaled, 0, "loss"), argument(scaled, 1, "optimizers")
    if (
        len(argument_values(scaled)) == 2
        and isinstance(model, ast.Name)
        and isinstance(loss, ast.Name)
        and isinstance(optimizer, ast.Name)
    ):
        return model, loss, optimizer
    return None


def has_other_uses(module: Module, parts: tuple[ast.AST, ...]) -> bool:
    """Whether the module uses apex.amp outside of ``parts``."""
    known = {id(name) for part in parts for name in everywhere(part, ast.Name)}
    names = [name for name, whole in module.aliases.items() if whole.startswith("apex.amp")]
    return any(
        isinstance(name, ast.Name) and id(name) not in known for name in module.occurrences(*names)
    )


def clips_next_to_step(module: Module, branch: ast.If, step: ast.Expr) -> list[ast.Call]:
    """Calls that clip apex's master weights under the flag, in the block of the step."""
    flag = module.text(condition(module, branch).test)
    return [
        clip
        for test in module.body(step)
        if isinstance(test, ast.If)
        for asked in [condition(module, test)]
        if module.text(asked.test) == flag
        for stmt in asked.body
        for clip in [clip_call(module, stmt)]
        if clip is not None and module.statement(clip) is stmt
    ]


def loss_scale_states(loop: TrainLoop, initialize: ast.If) -> list[ast.Call]:
    """Calls that save or load the state of apex's loss scale, under the flag."""
    module = loop.module
    flag = module.text(condition(module, initialize).test)
    return [
        call
        for call in module.calls_to("state_dict", "load_state_dict")
        if module.dotted(call.func) in ("apex.amp.state_dict", "apex.amp.load_state_dict")
        and module.function(call) is module.function(initialize) is module.function(loop.steps)
        and precedes(initialize, call)
        and any(
            module.text(asked.test) == flag and module.statement(call) in asked.body
            for up in module.ancestors(call)
            if isinstance(up, ast.If)
            for asked in [condition(module, up)]
        )
    ]


def is_apex(stmt: ast.stmt) -> bool:
    """An import of apex, inside ``try`` or not, or the call that initialises it."""
    match stmt:
        case ast.ImportFrom(module="apex") | ast.Import(names=[ast.alias(name="apex")]):
            return True
        case ast.Try(body=[first], handlers=handlers, orelse=[], finalbody=[]):
            return is_apex(first) and all(
                isinstance(item, ast.Raise | ast.Pass) for h in handlers for item in h.body
            )
        case ast.Assign(value=ast.Call() as call):
            return mentions(call.func, "initialize")
    return False


def clip_call(module: Module, stmt: ast.stmt) -> ast.Call | None:
    """The call of a statement that only clips, possibly under a test of its own."""
    if isinstance(stmt, ast.If) and not stmt.orelse and len(stmt.body) == 1:
        stmt = stmt.body[0]
    call = stmt.value if isinstance(stmt, ast.Expr) else None
    if not isinstance(call, ast.Call) or not module.dotted(call.func).endswith("clip_grad_norm_"):
        return None
    return call if argument(call, 0, "parameters") is not None else None


def names_what_is_clipped(module: Module, stmt: ast.stmt) -> bool:
    """``weights = amp.master_params(optimizer)``, which is read once, in a call that clips."""
    match stmt:
        case ast.Assign(targets=[ast.Name(id=name) as target], value=ast.Call(func=func)):
            uses = [use for use in module.occurrences(name) if use is not target]
        case _:
            return False
    if module.dotted(func) != "apex.amp.master_params" or len(uses) != 1:
        return False
    return uses[0] in [
        argument(clip, 0, "parameters")
        for part in module.body(stmt)
        for clip in [clip_call(module, part)]
        if clip is not None
    ]


def torch_amp_edits(program: Program, shape: ApexLoop) -> Iterator[Edit]:
    """Edits that do the same with torch.amp."""
    module = shape.loop.module
    flag = shape.flag
    yield from float32_at_o0(program, shape, flag)
    yield from new_scaler(program, shape.loop, shape.initialize, flag)
    yield from put_under_autocast(program, module, shape.forward, flag)
    unscale = f"{SCALER}.unscale_({shape.optimizer})"
    parameters = f"{shape.model}.parameters()"
    for stmt in shape.scaled:
        clip = clip_call(module, stmt)
        backward = f"{SCALER}.scale({shape.loss}).backward()" if stmt is shape.scale else ""
        yield Replace(stmt, backward)
        if clip is not None:
            clipped = argument(clip, 0, "parameters")
            rest = [
                module.text(each)
                for each in arguments_in_order(clip)
                if clipped not in (each, getattr(each, "value", None))
            ]
            new_clip = f"{module.text(clip.func)}({', '.join([parameters, *rest])})"
            if isinstance(stmt, ast.If) and not is_asked_around(module, stmt.test, shape.step):
                new_clip = f"if {module.text(stmt.test)}:\n        {new_clip}"
            yield Insert(shape.step, f"if {flag}:\n    {unscale}\n    {new_clip}")
    for clip in shape.clips:
        yield Insert(module.statement(clip), unscale)
        clipped = argument(clip, 0, "parameters")
        assert clipped is not None
        yield Rewrite(clipped, parameters)
    for state in shape.states:
        assert isinstance(state.func, ast.Attribute)
        yield Rewrite(state.func.value, SCALER)
    for stmt in module.tree.body:
        if is_apex(stmt) and bound_names(stmt) == {"amp"}:
            yield Replace(stmt, "")
    yield from scaled_step(module, shape.step, shape.optimizer)


def is_asked_around(module: Module, test: ast.expr, stmt: ast.stmt) -> bool:
    """Whether a statement stands under a test already."""
    around = [up for up in module.ancestors(stmt) if isinstance(up, ast.If)]
    return any(same_code(up.test, test) and is_within(stmt, up.body) for up in around)


def float32_at_o0(program: Program, shape: ApexLoop, flag: str) -> Iterator[Edit]:
    """Edits that clear the flag at opt level O0, where both are command-line options."""
    module = shape.loop.module
    level = "" if shape.level is None else module.text(shape.level)
    here = f"{arguments_name(program, module, shape.loop.steps)}."
    if not flag.startswith(here) or not level.startswith(here):
        return
    for where, stmt, args in program.parse_sites:
        there, chosen = (f"{args}.{text.removeprefix(here)}" for text in (flag, level))
        code = f"{there} = {there} and {chosen} != '{FLOAT32}'"
        yield from behind_binding(where, stmt, args, code)
