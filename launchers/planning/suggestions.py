"""Suggest what would make a training fit whose smallest batch takes more memory than there is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from ...record import record, replace
from ..gpus.specs import known_cards
from ..memory.peak import NoPrediction
from ..memory.predict import MAX_TRACED_LAYERS, predict
from ..memory.step import FSDP_FLAG, TrainingStep
from .candidates import GIB, MARGIN, Candidate, format_gib
from .memory_fit import TrainingSetup, predict_candidates, steps_to_predict
from .plan import Plan
from .precision import AMP_FLAG, best_precision

LORA_RANK = 16


@record
class SettingChange:
    """A change of arguments or of the precision, with what the user would do for it."""

    description: str
    arguments: Mapping[str, str | None] = MappingProxyType({})
    precision: str = ""

    def apply_precision(self, training: TrainingSetup) -> TrainingSetup:
        """The training in the changed precision, if it is changed."""
        return replace(training, precision=self.precision or training.precision)


def suggest_remedies(
    training: TrainingSetup, smallest: Candidate, plans: Sequence[Plan]
) -> tuple[str, ...]:
    """List each change that alone makes it fit, or the effect of all of them, and a larger card.

    Each is tried with the smallest batch; sharding with all `plans`, as it takes less with each.

    For a deep network other changes than sharding are listed without their effect, as tracing all
    of them takes minutes.
    """
    plan, larger = smallest.plan, _larger_card(training, smallest.plan)
    sharding = [*_sharding(training, plan)]
    changes = [*_changes(training), *sharding]
    if smallest.peak.parameters + smallest.peak.context > smallest.limit:
        changes = sharding  # no other change shrinks the parameters
    if training.recipe.model is None or training.recipe.model.layers > MAX_TRACED_LAYERS:
        fits = [*_lines_of_fitting(training, plans, sharding)]
        untraced = [change for change in changes if not (fits and change in sharding)]
        return (*fits, *(f"perhaps {change.description}" for change in untraced), *larger)
    if not changes:
        return tuple(larger)
    combined = _combine(changes)
    _predict_all(training, [*changes, combined])
    lines = [*_lines_of_fitting(training, [plan], changes)]
    candidate = _with_change(training, plan, combined)
    if not lines and candidate is not None:
        verb = "fit" if candidate.fits else "still do not fit"
        size = format_gib(candidate.peak.total)
        lines.append(f"{combined.description} together {verb}: {size} GiB")
    return (*lines, *larger)


def _lines_of_fitting(
    training: TrainingSetup, plans: Sequence[Plan], changes: Sequence[SettingChange]
) -> Iterator[str]:
    """What the first of the plans that fits takes, with each change that alone makes one fit."""
    for change in changes:
        candidates = (_with_change(training, plan, change) for plan in plans)
        fitting = next((one for one in candidates if one is not None and one.fits), None)
        if fitting is not None:
            batch = f" with {fitting.plan.per_device} per device" if len(plans) > 1 else ""
            yield f"{change.description}: {format_gib(fitting.peak.total)} GiB{batch}"


def _changes(training: TrainingSetup) -> Iterator[SettingChange]:
    recipe, arguments, declared = training.recipe, training.arguments, training.declared_flags
    network = recipe.model
    if network is None:
        return
    switch = network.checkpointing
    if isinstance(switch, str) and switch not in arguments:
        adds = "" if switch in declared else ", which `ddpfix patch --with checkpointing` adds"
        yield SettingChange(f"{switch}{adds}", {switch: None})
    precision, _ = best_precision(training.cards)
    if not network.precision and training.precision == "fp32" != precision:
        how = f"{AMP_FLAG} {precision}" if AMP_FLAG in declared else "`ddpfix patch --with amp`"
        yield SettingChange(f"{how}, which computes in {precision}", precision=precision)
    if isinstance(network.lora, str) and network.lora not in arguments:
        adds = "" if network.lora in declared else ", which `ddpfix patch --with lora` adds"
        description = f"{network.lora} {LORA_RANK}{adds}, another training"
        yield SettingChange(description, {network.lora: str(LORA_RANK)})
    for flag, floor in recipe.out_of_memory.items():
        number = str(arguments.get(flag) or "")
        less = max(int(number) // 2, floor) if number.isdigit() else 0
        if 0 < less < int(number or 0):
            description = f"{flag} {less} instead of {number}, as the recipe allows"
            yield SettingChange(description, {flag: str(less)})


def _sharding(training: TrainingSetup, plan: Plan) -> Iterator[SettingChange]:
    """Dividing weights among ranks, if there are several and none has its own share of a batch."""
    if plan.world == 1 or plan.shares or FSDP_FLAG in training.arguments:
        return
    adds = "" if FSDP_FLAG in training.declared_flags else ", which `ddpfix patch --with fsdp` adds"
    yield SettingChange(f"{FSDP_FLAG}{adds}", {FSDP_FLAG: None})


def _combine(changes: Sequence[SettingChange]) -> SettingChange:
    arguments = {flag: value for change in changes for flag, value in change.arguments.items()}
    precision = next((change.precision for change in changes if change.precision), "")
    description = " and ".join(change.description for change in changes)
    return SettingChange(description, arguments, precision)


def _predict_all(training: TrainingSetup, changes: Sequence[SettingChange]) -> None:
    """Trace the steps of all changes in one process, so that later predictions find them stored."""
    wanted: list[TrainingStep] = []
    for change in changes:
        steps = steps_to_predict(change.apply_precision(training), change.arguments)
        wanted += [] if isinstance(steps, NoPrediction) else steps.values()
    predict(wanted, training.state)


def _with_change(training: TrainingSetup, plan: Plan, change: SettingChange) -> Candidate | None:
    found = predict_candidates(change.apply_precision(training), [plan], change.arguments)
    return None if isinstance(found, NoPrediction) else found[0]


def _larger_card(training: TrainingSetup, plan: Plan) -> Iterator[str]:
    """A line on the smallest known card that is large enough."""
    found = predict_candidates(training, [plan])
    if isinstance(found, NoPrediction):
        return
    needed = found[0].peak.total
    large_enough = [
        card
        for card in known_cards()
        if card.memory * MARGIN >= needed and training.precision in card.tflops
    ]
    if large_enough:
        card = min(large_enough, key=lambda card: card.memory)
        size = f"{card.memory / GIB:.0f} GiB"
        yield f"a card of {size}, such as {card.aliases[0]}: {format_gib(needed)} GiB"
    else:
        yield f"no single card that is known here: it takes {format_gib(needed)} GiB"
