"""Batches that a training loop makes without a DataLoader, where ranks can share them.

A loop cuts them by its number, ``data[i : i + size]``, or goes over a list, a generator or an
object of the program. Ranks can take turns where all of them go over the same batches, where a step
needs nothing of the step before, and where nothing but the batch hangs on whose turn it is.
"""

from __future__ import annotations

import ast

from ....record import record
from ...source.module import Module
from ...source.tree import (
    FUNCTIONS,
    below,
    everywhere,
    names_within,
    position,
    within,
)
from ..language.name_flow import Tainted, names_in, roots, spread
from ..training.loaders import loader_of
from ..training.program import Program
from ..training.train_loops import TrainLoop
from .batch_numbers import (
    any_cutting_callee,
    cuts_by,
    numbers_from,
    refuse_means_by_number,
    refuse_models,
    refuse_numbers_elsewhere,
)
from .batch_origins import refuse_unknown_origin
from .batch_taint import NotDealtError, refuse_turns_that_part
from .carried_state import refuse_carried
from .loss_names import names_gone_back_from
from .random_draws import draws_below
from .steps_apart import refuse_steps_apart

AROUND = (
    "enumerate",
    "tqdm",
    "track",
    "progress_bar",
)  # calls that loop as their first argument does
NUMBERS = ("range", "trange", "arange", "permutation", "randperm")
CHOOSING = (
    "randint",
    "integers",
    "randperm",
    "permutation",
    "choice",
    "choices",
    "sample",
    "multinomial",
)


@record
class BatchSource:
    """What a loop takes its batches from, and the names that tell whose turn it is."""

    whole: ast.expr  # what ranks take turns of
    numbers: frozenset[str]  # names of the number that cuts the batch; none where items are batches
    items: frozenset[str]
    turns: frozenset[str]  # names that count the batches a rank has had


def refuse_parts_of_batches(program: Program, module: Module, steps: ast.For) -> None:
    """Raise where a step takes a part of a DataLoader's batch: ``for part in batch:``."""
    if not isinstance(steps.iter, ast.Name):
        return
    for up in module.ancestors(steps):
        if isinstance(up, ast.For) and names_within(up.target, {steps.iter.id}):
            loader = loader_of(program, module, up)
            if loader is not None:
                raise NotDealtError(
                    f"line {steps.lineno} steps through the parts of each batch of the DataLoader"
                    f" in line {loader.call.lineno}, of which ranks may have unequally many"
                )
            return


def refuse_cuts_of_batches(module: Module, steps: ast.For, numbers: frozenset[str]) -> None:
    """Raise where a step cuts what a loop around gives, as often for each: ``x[:, nodes[i]]``.

    Ranks that share those few steps have one batch alike; with one step each, all do it over. Where
    as many steps are taken as a part has examples, as of each fold, they are batches of it.
    """
    cuts = spread(steps.body, numbers).names
    for up in module.ancestors(steps):
        if isinstance(up, FUNCTIONS):
            return
        if not isinstance(up, ast.For) or not cuts:
            continue
        whole = source_of(module, up)
        given = spread(up.body, whole.items).names
        if whole.numbers or not given or names_in(steps.iter) & given:
            continue
        for part in within(steps.body, ast.Subscript):
            if names_within(part.slice, cuts) and roots(part) & given:
                raise NotDealtError(
                    f"line {steps.lineno} steps through parts of what line {up.lineno} gives, which"
                    " all ranks have alike"
                )


def batch_source(program: Program, loop: TrainLoop) -> BatchSource:
    """What ranks can share of a loop without a DataLoader. Raises NotDealtError."""
    module, steps = loop.module, loop.steps
    line = f"line {steps.lineno}"
    if not isinstance(steps, ast.For):
        raise NotDealtError(
            f"{line} is no for loop, whose turns could be dealt: let it be one over the batches"
        )
    if steps.orelse or loop.step_test is not None:
        raise NotDealtError(f"what a step of {line} does cannot be followed")
    if program.unread:
        name = program.unread[0][2]
        raise NotDealtError(f"{name} cannot be read")
    found = source_of(module, steps)
    refuse_parts_of_batches(program, module, steps)
    refuse_cuts_of_batches(module, steps, found.numbers)
    if is_of_constants(module, found.whole):
        raise NotDealtError(f"{line} goes over numbers that are written there, not over examples")
    for call in everywhere(found.whole, ast.Call):
        if module.dotted(call.func) == "itertools.islice":
            raise NotDealtError(f"{line} takes so many batches, and each rank would take fewer")
    taint = spread(steps.body, {*found.numbers, *found.items})
    refuse_whole_data(program, loop, found, taint)
    if not found.numbers:
        refuse_unknown_origin(program, module, found.whole)
    for use in within(steps.body, ast.Name):
        if use.id in module.unbound_names:
            raise NotDealtError(f"what {use.id} of line {use.lineno} is cannot be told")
    refuse_models(module, steps.body, {*found.numbers, *found.items})
    refuse_numbers_elsewhere(program, loop, found.numbers)
    refuse_means_by_number(steps.body, found.numbers)
    refuse_draws(program, loop)
    refuse_carried(program, loop, taint)
    refuse_turns_that_part(program, loop, taint)
    if loop.goes_back_elsewhere:
        refuse_steps_apart(program, loop)
    return found


def is_of_constants(module: Module, source: ast.expr) -> bool:
    """``[0.75, 1, 1.25]``, also through a variable: the scales at which each batch is taken."""
    plain = module.definition(source, source) or source if isinstance(source, ast.Name) else source
    return isinstance(plain, ast.List | ast.Tuple) and all(
        isinstance(each, ast.Constant) for each in plain.elts
    )


def source_of(module: Module, steps: ast.For) -> BatchSource:
    """The source of a loop, inside calls that only count or show progress."""
    source, target = steps.iter, steps.target
    turns: set[str] = set()
    while isinstance(source, ast.Call) and source.args:
        name = module.last_name(source.func)
        if name not in AROUND or isinstance(source.args[0], ast.Starred):
            break
        if name == "enumerate":
            if not (isinstance(target, ast.Tuple) and len(target.elts) == 2):
                break
            counter = target.elts[0]
            if not isinstance(counter, ast.Name) or counts_into(steps.body, counter.id):
                break
            turns.add(counter.id)
            target = target.elts[1]
        source = source.args[0]
    names = frozenset(name.id for name in everywhere(target, ast.Name))
    plain = module.definition(source, source) or source if isinstance(source, ast.Name) else source
    is_number = is_number_source(module, plain)
    if is_number:
        return BatchSource(source, names, frozenset(), frozenset(turns))
    cutting = frozenset(
        name
        for name in names
        if any(
            names_within(each, numbers_from(steps.body, {name}))
            for each in within(steps.body, ast.Slice)
        )
        and source is steps.iter  # enumerate(…), whose number cuts
    )
    return BatchSource(source, cutting, names - cutting, frozenset(turns))


def counts_into(body: list[ast.stmt], name: str) -> bool:
    """Whether the number of a batch picks something, before a loop inside takes its name."""
    uses = sorted(names_within(body, {name}), key=position)
    stores = [use for use in uses if isinstance(use.ctx, ast.Store)]
    until = position(stores[0]) if stores else (1 << 30, 0)
    known = numbers_from(body, {name}) - {name}
    early = [use for use in uses if position(use) < until]
    return any(
        use in below(each.slice) for use in early for each in within(body, ast.Subscript)
    ) or (bool(known) and cuts_by(body, known))


def is_number_source(module: Module, source: ast.expr) -> bool:
    """``range(…)``, ``np.random.permutation(n)``, ``torch.randperm(n).tolist()``."""
    if not isinstance(source, ast.Call):
        return False
    name = module.last_name(source.func)
    if name in ("tolist", "numpy") and isinstance(source.func, ast.Attribute):
        return is_number_source(module, source.func.value)
    if name == "list" and source.args:
        return is_number_source(module, source.args[0])
    return name in NUMBERS


def draw_of_batch(program: Program, module: Module, body: list[ast.stmt]) -> ast.Call | None:
    """The call by which a step, or a function that it calls, draws which examples it takes."""
    for stmt in body:
        for where, call in draws_below(program, module, stmt):
            if where.last_name(call.func) in CHOOSING:
                return call
    return None


def refuse_whole_data(
    program: Program, loop: TrainLoop, found: BatchSource, taint: Tainted
) -> None:
    """Raise where a step does not go back from its own batch alone."""
    module, steps = loop.module, loop.steps
    if not names_gone_back_from(loop) & taint.names and not any(
        names_in(call.func.value) & taint.names
        for call in loop.backwards
        if isinstance(call.func, ast.Attribute)
    ):
        if (drawn := draw_of_batch(program, module, steps.body)) is not None:
            raise NotDealtError(
                f"line {drawn.lineno} draws the batch of each step: all ranks would draw the same"
                " one, or each another by a seed of its own, which is to be set by hand"
            )
        raise NotDealtError(
            f"a step of line {steps.lineno} trains on no part that its number, or an element, picks"
        )
    if found.numbers and not found.items:
        known = numbers_from(steps.body, set(found.numbers))
        slices = any(names_within(each, known) for each in within(steps.body, ast.Slice))
        picks = is_order(module, found.whole) and cuts_by(steps.body, set(found.numbers))
        if not slices and not picks and not any_cutting_callee(program, module, steps.body, known):
            raise NotDealtError(
                f"line {steps.lineno} counts steps, and its number does not pick the examples"
            )


def is_order(module: Module, source: ast.expr) -> bool:
    """Whether a source numbers all examples: a permutation, or ``range(len(data))``."""
    plain = module.definition(source, source) or source if isinstance(source, ast.Name) else source
    if isinstance(plain, ast.Call) and module.last_name(plain.func) in ("tolist", "list"):
        return True
    if not isinstance(plain, ast.Call):
        return False
    if module.last_name(plain.func) in ("permutation", "randperm"):
        return True
    return len(plain.args) == 1 and any(
        isinstance(call.func, ast.Name) and call.func.id == "len"
        for call in everywhere(plain.args[0], ast.Call)
    )


def refuse_draws(program: Program, loop: TrainLoop) -> None:
    """Raise where a step draws random numbers outside of its network."""
    for stmt in loop.steps.body:
        for module, call in draws_below(program, loop.module, stmt):
            raise NotDealtError(
                f"a step draws at random, by {module.text(call.func)}() in line {call.lineno} of"
                f" {module.source.path.name}"
            )
