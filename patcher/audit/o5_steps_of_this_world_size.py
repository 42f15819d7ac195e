"""Every number of steps counts optimizer steps of this world size.

What              The horizon of a learning-rate schedule is the number of times it is stepped: the
                  batches of one rank, divided by the accumulation where it steps once per optimizer
                  step, times the epochs; whatever names these have.
At run time       Too long, the learning rate never comes down, or never ends its warm-up. Too
                  short, it is 0 for the rest of the training. Nothing fails.
How it is judged  The horizon is taken apart into factors and divisors, through names, attributes
                  and the only caller, and compared with where the scheduler steps. `len(loader)`
                  of a loader that deals by rank is a rank's own number; `len(data) // batch` is
                  that of all ranks. So are intervals, in `if step % every == 0`.
When unknown      Something in the training loop happens every so many steps, or rises for so many,
                  and that number is made of all examples and one rank's batch; or something rises
                  with the examples that a rank has seen; or the horizon is a
                  number by one rank's batch, and may be that of all examples: the length of
                  something, or an option. A horizon of other parts is the user's own.
Source            transformers.get_linear_schedule_with_warmup (num_training_steps)
"""

import ast
import re
from collections.abc import Iterator

from ..analysis.batches.counted_examples import limits_of_counts, own_counts
from ..analysis.language.passed_arguments import argument_for_parameter
from ..analysis.training.constructed_loaders import Loader
from ..analysis.training.only_values import value_of
from ..analysis.training.program import Program
from ..analysis.training.scheduler_steps import hangs_on_step, scheduler_steps
from ..analysis.training.train_loops import NUMBERS, TrainLoop, calls_around, is_over_numbers
from ..source.module import Module
from ..source.tree import argument, bound_names, everywhere, within
from .quantities import DATA, LOADER, WORLD, Quantity, meaning, one, quantity
from .ranks import is_managed, ranked_loops
from .verdict import AuditVerdict, unknown, violated

CODE = "O5"
HORIZONS = {
    "get_linear_schedule_with_warmup": (2, "num_training_steps"),
    "get_cosine_schedule_with_warmup": (2, "num_training_steps"),
    "get_cosine_with_hard_restarts_schedule_with_warmup": (2, "num_training_steps"),
    "get_polynomial_decay_schedule_with_warmup": (2, "num_training_steps"),
    "get_scheduler": (3, "num_training_steps"),
    "WarmupLinearSchedule": (2, "t_total"),
    "WarmupCosineSchedule": (2, "t_total"),
    "OneCycleLR": (2, "total_steps"),
    "LinearLR": (3, "total_iters"),
    "PolynomialLR": (1, "total_iters"),
    "CosineAnnealingLR": (1, "T_max"),
}
RAMP = re.compile("warm|ramp|lr|alpha|beta|lamb|coef|weight|temp|rate|factor", re.IGNORECASE)
OWN_SCHEDULE = "t_total"  # of optimizers that schedule themselves, such as BertAdam


def verdicts(program: Program, original: Program | None) -> Iterator[AuditVerdict]:
    if is_managed(program):
        return
    ranked = {loop.steps for loop in ranked_loops(program)}
    for loop in program.train_loops:
        if not program.is_live(loop.module, loop.steps):
            continue
        for module, call, horizon in schedules(program, loop):
            every = [quantity(program, module, value, loop) for value in values(module, horizon)]
            if any(WORLD in parts for parts in every):  # what they have before that is no horizon
                every = [parts for parts in every if WORLD in parts]
            for parts in every:
                if LOADER not in parts.factors and DATA not in parts.factors:
                    if loop.steps in ranked:
                        yield from maybe_of_all(program, loop, module, call, parts)
                    continue
                yield from accumulated(program, loop, module, call, parts)
                if loop.steps in ranked:
                    yield from shared(program, loop, module, call, parts)
        if loop.steps in ranked:
            yield from intervals(program, loop)


def intervals(program: Program, loop: TrainLoop) -> Iterator[AuditVerdict]:
    """What happens every so many steps, a number made of all examples and of one rank's batch.

    ``every = n_examples // (5 * batch_size)`` and ``if step % every == 0``, five times an epoch.
    Where the loader begins anew then, ``next()`` finds no batch before.
    """
    module = loop.module
    for block in everywhere(loop.steps, ast.If):
        for node in everywhere(block.test, ast.BinOp):
            if not isinstance(node.op, ast.Mod) or isinstance(node.right, ast.Constant):
                continue
            if is_of_all_examples(quantity(program, module, node.right, loop)):
                text = module.text(node.right)
                if any(module.dotted(call.func) == "iter" for call in within(block.body, ast.Call)):
                    yield violated(
                        module,
                        node,
                        f"a rank's batches end before `{text}` steps, after which the loader begins"
                        f" anew: divide `{text}` by the number of ranks",
                    )
                    continue
                yield unknown(
                    module,
                    node,
                    f"`{text}` is made of all examples and the batch of one"
                    " rank: with more ranks what hangs on it happens less often in an epoch",
                )
    yield from numbers_of_steps(program, loop)
    yield from numbers_of_draws(program, loop)
    yield from ramps(program, loop)
    yield from examples_of_a_rank(program, loop)


def numbers_of_draws(program: Program, loop: TrainLoop) -> Iterator[AuditVerdict]:
    """``for i in range(len(data) // batch_size): x = next(batches)``, more than a rank has."""
    module, steps = loop.module, loop.steps
    if not isinstance(steps, ast.For) or not is_over_numbers(module, steps):
        return
    called = {module.last_name(call.func) for call in within(steps.body, ast.Call)}
    if "next" not in called or "iter" in called:  # which begins the loader anew
        return
    for _, call in calls_around(module, steps.iter):
        for node in call.args if module.last_name(call.func) in NUMBERS else ():
            if is_of_all_examples(quantity(program, module, node, loop)):
                yield violated(
                    module,
                    node,
                    f"a rank's batches end before `{module.text(node)}` steps, for each of which"
                    " one is taken: divide by the number of ranks",
                )


def ramps(program: Program, loop: TrainLoop) -> Iterator[AuditVerdict]:
    """``warm_up = min(1, step / warm_steps)``, which rises later where a rank takes fewer steps."""
    module = loop.module
    for stmt in within(loop.steps.body, ast.Assign):
        if not any(map(RAMP.search, bound_names(stmt))):
            continue
        for node in everywhere(stmt.value, ast.BinOp):
            is_part = isinstance(node.op, ast.Div) and not isinstance(node.right, ast.Constant)
            if is_part and is_of_all_examples(quantity(program, module, node.right, loop)):
                yield unknown(
                    module,
                    node,
                    f"`{module.text(node.right)}` is made of all examples and the batch of one"
                    f" rank: with more ranks `{module.text(stmt.targets[0])}` comes to its end in"
                    " as many steps, which are more epochs",
                )


def examples_of_a_rank(program: Program, loop: TrainLoop) -> Iterator[AuditVerdict]:
    """``rate = 1 - seen / total``, where ``seen`` counts the examples of one rank."""
    module = loop.module
    for node, name in own_counts(program, loop):
        stmt = module.statement(node)
        names = bound_names(stmt) | {module.text(t) for t in getattr(stmt, "targets", ())}
        if any(map(RAMP.search, names)):
            yield unknown(
                module,
                node,
                f"`{name}` counts a rank's own examples: with more ranks what hangs on it takes as"
                " many times longer, unless the other side counts a rank's, too",
            )
    for test, name in limits_of_counts(program, loop):
        yield unknown(
            module,
            test,
            f"`{name}` counts a rank's own examples: all ranks have had as many times more when it"
            " comes to its limit, unless that is meant for each rank",
        )


def numbers_of_steps(program: Program, loop: TrainLoop) -> Iterator[AuditVerdict]:
    """``len(data) // batch_size * epoch + step``, which jumps at the end of a rank's epoch."""
    module = loop.module
    for node in everywhere(loop.steps, ast.BinOp):
        sides = (node.left, node.right) if isinstance(node.op, ast.Add) else ()
        names = [side.id for side in sides if isinstance(side, ast.Name)]
        before = [side for side in sides if isinstance(side, ast.BinOp)]
        if loop.step_name in names and before:
            parts = quantity(program, module, before[0], loop)
            if sum(parts.factors.values()) > 1 and is_of_all_examples(parts):
                yield unknown(
                    module,
                    node,
                    f"`{module.text(before[0])}` is made of all examples and the batch of one rank:"
                    " more steps than a rank takes in an epoch, for what is told by this number",
                )


def is_of_all_examples(parts: Quantity) -> bool:
    """Whether a number is one of examples by the batch of one rank, whatever ranks there are."""
    counts_examples = any(not part.isdigit() for part in parts.factors)
    by_batch = any("batch" in part for part in parts.divisors)
    return counts_examples and by_batch and LOADER not in parts and WORLD not in parts


def schedules(program: Program, loop: TrainLoop) -> Iterator[tuple[Module, ast.Call, ast.expr]]:
    """The schedules that belong to a loop, with their horizon."""
    function = loop.module.function(loop.steps)
    only = len(program.train_loops) == 1
    for module, call in program.calls_to(*HORIZONS, "LambdaLR"):
        if not (only or (module is loop.module and module.function(call) is function)):
            continue
        name = module.last_name(call.func)
        if name == "LambdaLR":
            horizon = lambda_horizon(call)
        else:
            index, word = HORIZONS[name]
            horizon = argument(call, index, word)
        if horizon is not None:
            yield module, call, horizon
    for module in program.modules if only else [loop.module]:
        for passed in module.nodes(ast.keyword):
            made = module.parents[passed]
            if passed.arg != OWN_SCHEDULE or not isinstance(made, ast.Call):
                continue
            name = module.last_name(made.func)
            is_class = name not in HORIZONS and name[:1].isupper()  # dict(t_total=t_total) is not
            if is_class and (only or module.function(made) is function):
                yield module, made, passed.value


def lambda_horizon(call: ast.Call) -> ast.expr | None:
    """What ``LambdaLR(optimizer, lambda step: 1 - step / total)`` divides the step by."""
    function = argument(call, 1, "lr_lambda")
    if not isinstance(function, ast.Lambda) or not function.args.args:
        return None
    step = function.args.args[0].arg
    for node in everywhere(function.body, ast.BinOp):
        if (
            isinstance(node.op, ast.Div)
            and isinstance(node.left, ast.Name)
            and node.left.id == step
        ):
            return node.right
    return None


def values(module: Module, horizon: ast.expr) -> list[ast.expr]:
    """The values of a horizon, one per branch that assigns it."""
    if isinstance(horizon, ast.Name):
        return module.alternatives(horizon, horizon) or [horizon]
    return [horizon]


def maybe_of_all(
    program: Program, loop: TrainLoop, module: Module, call: ast.Call, parts: Quantity
) -> Iterator[AuditVerdict]:
    """A horizon of so many examples by one rank's batch, where they may be the loop's own."""
    loader = loop.loader
    if loader is None or not loader.distributed_samplers or loader.batch_size is None:
        return
    lengths = sorted(part for part in parts.factors if part.startswith("len("))
    counted = lengths or sorted(part for part in parts.factors if "epoch" not in part)
    by_batch = any(
        size.factors and size.factors <= parts.divisors and size != one("1")
        for size in batches_of(program, loop, loader)
    )
    if counted and by_batch and WORLD not in parts:
        yield unknown(
            module,
            call,
            f"its horizon is `{counted[0]}` by the batch of one rank: more steps than a rank takes,"
            " if these are the examples that ranks share",
        )


def batches_of(program: Program, loop: TrainLoop, loader: Loader) -> list[Quantity]:
    """The size of a loader's batches, as the call passes it that makes this one.

    One for each branch: ``args.batch if kind == "train" else args.eval_batch``.
    """
    module, size = loader.module, loader.batch_size
    assert size is not None
    function = module.function(loader.call)
    for where, call in loader.made_by:
        passed = (
            argument_for_parameter(module, function, call, size.id)
            if isinstance(size, ast.Name) and function is not None
            else None
        )
        if passed is None:
            break
        module, size, function = where, passed, where.function(call)
    value = value_of(program, module, size) if isinstance(size, ast.Name) else None
    where, chosen = value or (module, size)
    branches = [chosen.body, chosen.orelse] if isinstance(chosen, ast.IfExp) else []
    every = [(where, each) for each in branches] or [(module, size)]
    return [quantity(program, where, each, loop) for where, each in every]


def is_repeated(loop: TrainLoop, step: ast.Call) -> bool:
    """``for _ in range(accumulation): scheduler.step()``, once for each micro-batch of a step."""
    ups = loop.module.ancestors(step)
    below = ups[: ups.index(loop.steps)] if loop.steps in ups else []
    return any(isinstance(up, ast.For) for up in below)


def accumulated(
    program: Program, loop: TrainLoop, module: Module, call: ast.Call, parts: Quantity
) -> Iterator[AuditVerdict]:
    """A horizon that is not divided by the accumulation as often as the scheduler steps."""
    if loop.accumulation is None or loop.step_test is None:
        return
    count = times_divided(program, loop, parts)
    stepped = scheduler_steps(loop, module, call)
    if not stepped:
        return
    text = loop.module.text(loop.accumulation)
    inside = [hangs_on_step(loop, step) and not is_repeated(loop, step) for step in stepped]
    if count > 1:
        yield violated(module, call, f"its horizon is divided by {text} {count} times")
    elif all(inside) and count == 0:
        yield violated(
            module, call, f"its horizon counts micro-batches, and it steps once in {text} of them"
        )
    elif not any(inside) and count == 1:
        yield violated(
            module, call, f"its horizon is divided by {text}, and it steps with each micro-batch"
        )


def times_divided(program: Program, loop: TrainLoop, parts: Quantity) -> int:
    """How often a quantity is divided by the accumulation, also where that is itself a quotient."""
    assert loop.accumulation is not None
    by = quantity(program, loop.module, loop.accumulation, loop)
    if not by.divisors and sum(by.factors.values()) == 1:
        return parts.divisors[next(iter(by.factors))]
    if by.factors and by.factors <= parts.divisors and by.divisors <= parts.factors:
        twice = Quantity(by.factors + by.factors, by.divisors + by.divisors)
        return 1 + (twice.factors <= parts.divisors and twice.divisors <= parts.factors)
    return parts.divisors[meaning(program, loop.module, loop.accumulation)]


def shared(
    program: Program, loop: TrainLoop, module: Module, call: ast.Call, parts: Quantity
) -> Iterator[AuditVerdict]:
    """A horizon that forgets the number of ranks, or takes it into account twice."""
    loader = loop.loader
    if loader is None or not loader.distributed_samplers:
        return
    if LOADER in parts.factors:
        if parts.divisors[WORLD]:
            yield violated(
                module,
                call,
                "its horizon divides the loader's length by the ranks, which deals by rank already",
            )
        elif parts.factors[WORLD]:
            yield violated(
                module,
                call,
                "its horizon multiplies a rank's steps by the number of ranks, which"
                " all step at once",
            )
        return
    batch = loader.batch_size
    if batch is None or parts.divisors[WORLD] or parts.factors[WORLD]:
        return
    size = quantity(program, loader.module, batch, loop)
    if WORLD in size or size.divisors or loader.batch_sampler is not None:
        return
    if size.factors and size.factors <= parts.divisors and size != one("1"):
        yield violated(
            module,
            call,
            "its horizon is that of all data, of which each rank steps through its own part",
        )
