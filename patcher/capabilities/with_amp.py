"""Mixed precision: the model computes in bfloat16 or float16, its weights stay float32.

What         The trained model's forward pass runs under torch.autocast, in training and wherever
             else it is called. Its outputs are converted back to float32, so losses outside it are
             in float32. float16 on a GPU gets a GradScaler around backward pass, clipping and step;
             when it skips a step the schedule waits, and its state is saved with the optimizer's.
Flags        --amp {no,bf16,fp16}; accelerate launch --mixed_precision gives the default
Without      Matrix products run in float32: on a card with tensor cores several times slower, with
             twice the memory for activations.
Fix safety   Safe: without the flag the model is unchanged and a disabled scaler does nothing. On a
             CPU fp16 means bfloat16 too. In a model that takes the logarithm of a probability
             itself only the encoder gets low precision: a probability rounded to 0 or 1 would make
             the loss infinite. The script's own flag for a GradScaler comes to mean --amp fp16.
Source       torch.amp; https://docs.pytorch.org/docs/stable/notes/amp_examples.html
"""

import ast
import textwrap
from collections.abc import Iterator
from typing import Literal

from ..analysis.settings.parsed_arguments import argument_sites, arguments_at
from ..analysis.training.program import Program
from ..analysis.training.schedules import is_schedule
from ..analysis.training.train_loops import TrainLoop
from ..editing.edits import Define, Edit, Import, Insert, Rewrite, Unwrap
from ..findings import Finding
from ..fixes.grad_scaler import (
    SCALER,
    device_type,
    guard_schedule,
    is_name_bound,
    is_step,
    outermost_loop,
    step_receiver,
)
from ..source.module import Module
from ..source.tree import (
    argument,
    everywhere,
    keyword,
    precedes,
    within,
)
from .errors import CannotError
from .flags import Flag, missing_flag_findings
from .models import (
    DdpWrap,
    ModelConstruction,
    class_of,
    ddp_wraps,
    model_constructions,
    transformer_parts,
)

ORDER = 10
FLAGS = (
    Flag(
        "--amp",
        "str",
        'os.environ.get("ACCELERATE_MIXED_PRECISION", "no")',
        "Compute in this precision, with float32 weights; on a CPU fp16 is bf16 too.",
        ("no", "bf16", "fp16"),
        ("os",),
    ),
)
AUTOCAST = "under_autocast"
UNIFY = """\
if {flag}:
    {amp} = 'fp16'
{flag} = {amp} == 'fp16'"""


PROBABILITIES = ("BCELoss", "binary_cross_entropy")  # which torch refuses in low precision


def findings(program: Program) -> Iterator[Finding]:
    first = program.script.tree.body[0]
    loops = [loop for loop in program.train_loops if program.is_live(loop.module, loop.steps)]
    if not loops:
        raise CannotError(program.script, first, "nothing shows a loop that trains")
    option = program.options.get("amp")
    if option is not None and not (
        isinstance(option.call, ast.Call) and _accepts_bf16(option.call)
    ):
        module = program.module_of(option.call)
        raise CannotError(module, option.call, "--amp is a flag of the script's own")
    flags = missing_flag_findings(program, FLAGS)
    if flags is None:
        raise CannotError(program.script, first, "no command line that could take --amp")
    found = [*flags, *autocast_models(program)]
    for loop in loops:
        found += scale_loop(program, loop)
    yield from found


def _accepts_bf16(call: ast.Call) -> bool:
    return any(node.value == "bf16" for node in everywhere(call, ast.Constant))


# ---- the model


def autocast_models(program: Program) -> list[Finding]:
    """Findings that pass models through the autocast helper, after their construction."""
    found: list[Finding] = []
    every = model_constructions(program)
    places: list[tuple[Module, ast.stmt, str, Literal["before", "after"]]] = [
        (one.module, one.stmt, target, "after")
        for one in every
        if not any(_contains(other, one) for other in every)
        for target in _autocast_targets(program, one)
    ]
    if not places:  # where it is constructed is unknown, but not where it is wrapped
        places = [
            (w.module, _first_wrapping_statement(w), w.name, "before") for w in ddp_wraps(program)
        ]
    if not places:
        because = "nothing shows where the trained model is made"
        raise CannotError(program.script, program.script.tree.body[0], because)
    for module, stmt, target, where in places:
        args = arguments_at(program, module, stmt)
        if not args:
            raise CannotError(module, stmt, "the arguments do not reach the making of the model")
        done = any(
            (model := argument(call, 0, "model")) is not None
            and module.text(model) == target
            and module.function(call) is module.function(stmt)
            for call in module.calls_to(AUTOCAST)
        )
        if not done:
            code = f"{target} = {AUTOCAST}({target}, {args}.amp)"
            edits = (Insert(stmt, code, where), Define(AUTOCAST))
            found.append(Finding(module, stmt, f"{target} computes in float32", edits))
    return found


def _contains(other: ModelConstruction, one: ModelConstruction) -> bool:
    """Whether ``other`` is ``model = Model(model)`` after ``one`` constructed the inner model."""
    return (
        other.module is one.module
        and precedes(one.stmt, other.stmt)
        and other.name == one.name
        and other.module.function(other.stmt) is one.module.function(one.stmt)
        and any(name.id == one.name for name in everywhere(other.call, ast.Name))
    )


def _autocast_targets(program: Program, one: ModelConstruction) -> list[str]:
    """The model, or only its transformers models if it takes logarithms of probabilities."""
    own = class_of(program, one.module.last_name(one.call.func))
    if own is None or not _needs_float32(*own):
        return [one.name]
    inner_models = [f"{one.name}.{part}" for part in transformer_parts(program, one)]
    if not inner_models:
        because = f"{own[1].name} takes the logarithm of a probability, 0 in low precision"
        raise CannotError(own[0], own[1], because)
    return inner_models


def _needs_float32(module: Module, owner: ast.ClassDef) -> bool:
    """Whether a model computes its loss from probabilities, by hand or with BCELoss."""
    names = {module.last_name(call.func) for call in everywhere(owner, ast.Call)}
    return bool(names & set(PROBABILITIES)) or (
        "log" in names and bool(names & {"sigmoid", "Sigmoid"})
    )


def _first_wrapping_statement(wrap: DdpWrap) -> ast.stmt:
    """The first of neighbouring statements that wrap models, with the tests around them."""
    module = wrap.module
    first: ast.stmt = wrap.stmt
    while isinstance(up := module.parents[first], ast.If):
        first = up
    block = module.body(first)
    for stmt in reversed(block[: block.index(first)]):
        calls = [module.dotted(call.func) for call in within(stmt, ast.Call)]
        if not any(name.endswith("DataParallel") for name in calls):
            break
        first = stmt
    return first


# ---- the loop


def scale_loop(program: Program, loop: TrainLoop) -> list[Finding]:
    """Findings that add a GradScaler to a loop, or link the loop's own one to the flag."""
    module = loop.module
    args = arguments_at(program, module, loop.steps)
    if not args:
        raise CannotError(module, loop.steps, "the arguments do not reach the loop that trains")
    own = [
        (where, call)
        for where in program.modules
        for call in where.calls_to("GradScaler", "autocast")
        if program.is_live(where, call) and not _is_in_helper(where, call)
    ]
    if own:
        return _unify_with_own_scaler(program, loop, args, own)
    if is_name_bound(loop, SCALER):
        raise CannotError(module, loop.steps, f"{SCALER} is another thing here")
    steps = _optimizer_steps(loop)
    optimizers = [module.text(step_receiver(step)) for step in steps]
    made = f"torch.amp.GradScaler({_device_type_at(program, args)}, enabled={args}.amp == 'fp16')"
    edits: list[Edit] = [
        Insert(outermost_loop(loop), f"{SCALER} = {made}"),
        Import("torch"),
        *_scaled_backwards(loop),
        *_unscaled_clips(loop, steps),
        *(
            Rewrite(step.value, f"{SCALER}.step({optimizer})")
            for step, optimizer in zip(steps, optimizers, strict=True)
        ),
        *guard_schedule(module, steps[-1]),
        Insert(steps[-1], f"{SCALER}.update()", "after"),
    ]
    return [Finding(module, loop.steps, "small gradients vanish in float16", tuple(edits))]


def _is_in_helper(module: Module, node: ast.AST) -> bool:
    """Whether a node is in the helper that this capability inserts."""
    helper = module.functions.get(AUTOCAST)
    return helper is not None and helper in module.ancestors(node)


def _device_type_at(program: Program, args: str) -> str:
    """The expression for the device type where the parsed arguments are called ``args``."""
    text = device_type(program)
    return f"{args}.device.type" if text.endswith(".device.type") else text


def _optimizer_steps(loop: TrainLoop) -> list[ast.Expr]:
    """The statements that step the optimizers, all in one block. Raises CannotError."""
    module = loop.module
    zeroed = {
        module.text(call.func.value)
        for call in within(loop.scope, ast.Call)
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("zero_grad", "state_dict")
    }
    found: list[ast.Expr] = []
    for stmt in within(loop.steps, ast.Expr):
        call = stmt.value
        if not (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and call.func.attr == "step"
            and not is_schedule(module, call.func.value)
        ):
            continue
        text = module.text(call.func.value)
        if "opt" in text.rpartition(".")[2].lower() or text in zeroed:
            found.append(stmt)
    if not found:
        raise CannotError(module, loop.steps, "the optimizer steps elsewhere")
    block = module.body(found[0])
    around = [up for up in module.ancestors(found[0]) if loop.steps in module.ancestors(up)]
    if any(not is_step(stmt) for stmt in found):
        raise CannotError(module, found[0], "a scaler takes no step with a closure")
    if any(stmt not in block for stmt in found) or len({*map(module.text, found)}) < len(found):
        raise CannotError(module, found[-1], "the optimizer steps in several places")
    if any(isinstance(up, ast.For | ast.While) for up in around):
        raise CannotError(module, found[0], "optimizers step in a loop of their own")
    return found


def _scaled_backwards(loop: TrainLoop) -> Iterator[Edit]:
    """Edits that scale the loss of every backward pass in the loop."""
    module = loop.module
    for call in loop.backwards:
        if loop.goes_back_elsewhere or not isinstance(call.func, ast.Attribute):
            raise CannotError(module, call, "a function of its own goes back")
        if call.args or call.keywords:
            raise CannotError(module, call, "this backward pass takes no scaled loss")
        loss = call.func.value
        yield Rewrite(loss, f"{SCALER}.scale({module.text(loss)})")
    for node in within(loop.steps, ast.Attribute):
        if node.attr == "grad":
            raise CannotError(module, node, f"{module.text(node)} would be read scaled")


def _unscaled_clips(loop: TrainLoop, steps: list[ast.Expr]) -> Iterator[Edit]:
    """Edits that unscale the gradients before they are clipped, once per step."""
    module = loop.module
    for clip in loop.clips:
        if len(steps) > 1:
            raise CannotError(module, clip, "gradients of several optimizers are clipped")
        if precedes(steps[0], clip) or not _tests_around(loop, steps[0]) <= _tests_around(
            loop, clip
        ):
            raise CannotError(module, clip, "gradients are clipped between steps")
        if clip not in module.body(loop.clips[0]):
            raise CannotError(module, clip, "gradients are clipped in several places")
    for clip in loop.clips[:1]:
        yield Insert(clip, f"{SCALER}.unscale_({module.text(step_receiver(steps[0]))})")


def _tests_around(loop: TrainLoop, stmt: ast.stmt) -> set[tuple[str, bool]]:
    """The tests around a statement in the loop, and whether they are true there."""
    module, found = loop.module, set()
    inner: ast.AST = stmt
    for up in module.ancestors(stmt):
        if up is loop.steps:
            break
        if isinstance(up, ast.If):
            found.add((module.text(up.test), inner in up.body))
        inner = up
    return found


# ---- a script with its own scaler


def _unify_with_own_scaler(
    program: Program, loop: TrainLoop, args: str, own: list[tuple[Module, ast.Call]]
) -> list[Finding]:
    """Findings for a loop with its own scaler, whose flag comes to mean ``--amp fp16``."""
    module = loop.module
    flags = {(where, call): _enabling_flag(where, call) for where, call in own}
    flag = next((f for (w, c), f in flags.items() if w is module and _is_scaler(w, c)), "")
    if flag == f"{args}.amp == 'fp16'":
        return [*_checkpoint_scaler(loop)]
    name = flag.removeprefix(f"{args}.")
    for (where, call), text in flags.items():
        if text.rpartition(".")[2] != name or name not in program.options:
            raise CannotError(where, call, "mixed precision of its own, by no flag")
    found = [*_link_flags(program, name), *_checkpoint_scaler(loop)]
    for where, call in own:
        stmt = where.statement(call)
        if isinstance(stmt, ast.With) and len(stmt.items) == 1:
            because = "the model has autocast of its own"
            found.append(Finding(where, stmt, because, (Unwrap(stmt),)))
    for step in within(loop.steps, ast.Expr):
        if module.text(step).startswith(f"{SCALER}.step("):
            edits = tuple(guard_schedule(module, step))
            if edits:
                because = "the schedule advances where a step is skipped"
                found.append(Finding(module, step, because, edits))
    return found


def _is_scaler(module: Module, call: ast.Call) -> bool:
    return module.dotted(call.func).endswith("GradScaler")


def _enabling_flag(module: Module, call: ast.Call) -> str:
    """The source text of the ``enabled`` argument of a scaler or autocast."""
    word = keyword(call, "enabled")
    return "" if word is None else module.text(word.value)


def _link_flags(program: Program, name: str) -> Iterator[Finding]:
    """Findings that make the script's own flag and ``--amp fp16`` set each other."""
    for module, stmt, args in argument_sites(program):
        flag, amp = f"{args}.{name}", f"{args}.amp"
        assignments = [
            other
            for other in module.nodes(ast.Assign)
            if any(module.text(target) == flag for target in other.targets)
        ]
        if any(module.text(other.value) == f"{amp} == 'fp16'" for other in assignments):
            continue
        block = module.body(stmt)
        later = [other for other in assignments if other in block and precedes(stmt, other)]
        code = UNIFY.format(flag=flag, amp=amp)
        edits = (Insert([stmt, *later][-1], code, "after"),)
        yield Finding(module, stmt, f"{flag} is float16", edits)


# ---- the scaler's state


def _checkpoint_scaler(loop: TrainLoop) -> Iterator[Finding]:
    """Findings that save and load the scaler's state wherever the optimizer's is."""
    module, scope = loop.module, loop.scope
    made = [
        stmt
        for stmt in within(scope, ast.Assign)
        if isinstance(stmt.value, ast.Call)
        and _is_scaler(module, stmt.value)
        and module.text(stmt.targets[0]) == SCALER
    ]
    calls = {call: module.text(call) for call in within(scope, ast.Call)}
    if len(made) != 1 or any(f"{SCALER}.state_dict()" in text for text in calls.values()):
        return
    saves = [
        stmt
        for call, text in calls.items()
        for stmt in [module.statement(call)]
        if text == "optimizer.state_dict()"
        and isinstance(stmt, ast.Expr)
        and call in getattr(stmt.value, "args", [])
        and _mentions_optimizer(stmt)
    ]
    loads = [
        test
        for test in within(scope, ast.If)
        if not test.orelse
        and all(isinstance(stmt, ast.Expr) for stmt in test.body)  # a message is allowed
        and module.text(test.body[-1]).startswith("optimizer.load_state_dict(")
        and loop.steps not in module.ancestors(test)
    ]
    if not saves or len(loads) != 1:
        return
    (load,) = loads
    paths = [
        stmt
        for stmt in within(scope, ast.Assign)
        if precedes(stmt, load)
        and module.text(stmt.targets[0]) in {name.id for name in everywhere(load, ast.Name)}
        and _mentions_optimizer(stmt)
    ]
    if not paths and not _mentions_optimizer(load):
        return
    texts = [_for_scaler(module, stmt) for stmt in [*paths[-1:], load]]
    edits = [Insert(max(load, made[0], key=lambda stmt: stmt.lineno), "\n".join(texts), "after")]
    for stmt in saves:
        code = textwrap.indent(_for_scaler(module, stmt), "    ")
        edits.append(Insert(stmt, f"if {SCALER}.is_enabled():\n{code}", "after"))
    yield Finding(module, load, "the scaler forgets its scale", tuple(edits))


def _mentions_optimizer(node: ast.AST) -> bool:
    """Whether a string in the node contains "optimizer", as the name of its state's file does."""
    return any("optimizer" in str(text.value) for text in everywhere(node, ast.Constant))


def _for_scaler(module: Module, stmt: ast.stmt) -> str:
    """A statement about the optimizer, rewritten for the scaler."""
    text = module.margin(stmt) + module.text(stmt)
    return textwrap.dedent(text).replace("optimizer", SCALER)
