"""What would make a training fit whose least batch takes more memory than there is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from ...record import changed, record
from ..gpus.specs import cards
from ..memory.peak import NoPrediction
from ..memory.predict import DEEP, predict
from ..memory.step import TrainingStep
from .candidates import GIB, MARGIN, Candidate, in_gib
from .memory_fit import TrainingSetup, steps_of, ways
from .plan import Plan
from .precision import FLAG, best_of

LORA_RANK = 16


@record
class SettingChange:
    """Something to change: arguments, the precision, and what the user would do for it."""

    said: str
    arguments: Mapping[str, str | None] = MappingProxyType({})
    precision: str = ""

    def of(self, training: TrainingSetup) -> TrainingSetup:
        """The training in this precision."""
        return changed(training, precision=self.precision or training.precision)


def remedies(training: TrainingSetup, way: Candidate) -> tuple[str, ...]:
    """Each change that alone makes it fit, else how far all go together, and a larger card.

    For a deep network the changes are named only.
    """
    least, larger = way.plan, _larger_card(training, way.plan)
    if way.peak.parameters + way.peak.context > way.limit:
        return tuple(larger)  # no change but that makes the parameters fewer
    changes = [*_changes(training)]
    if training.recipe.model is None or training.recipe.model.layers > DEEP:
        return (*(f"perhaps {one.said}" for one in changes), *larger)  # tracing takes minutes
    together = _together(changes)
    _trace(training, [*changes, together])
    told = []
    for one in changes:
        changed = _way(training, least, one)
        if changed is not None and changed.fits:
            told.append(f"{one.said}: {in_gib(changed.peak.total)} GiB")
    changed = _way(training, least, together)
    if not told and changed is not None:
        verb = "fit" if changed.fits else "still do not fit"
        told.append(f"{together.said} together {verb}: {in_gib(changed.peak.total)} GiB")
    return (*told, *larger)


def _changes(training: TrainingSetup) -> Iterator[SettingChange]:
    recipe, told, declared = training.recipe, training.arguments, training.declared
    network = recipe.model
    if network is None:
        return
    switch = network.checkpointing
    if isinstance(switch, str) and switch not in told:
        adds = "" if switch in declared else ", which `ddpfix patch --with checkpointing` adds"
        yield SettingChange(f"{switch}{adds}", {switch: None})
    precision, _ = best_of(training.cards)
    if not network.precision and training.precision == "fp32" != precision:
        how = f"{FLAG} {precision}" if FLAG in declared else "`ddpfix patch --with amp`"
        yield SettingChange(f"{how}, which computes in {precision}", precision=precision)
    if isinstance(network.lora, str) and network.lora not in told:
        with_it = "" if network.lora in declared else ", which `ddpfix patch --with lora` adds"
        said = f"{network.lora} {LORA_RANK}{with_it}, another training"
        yield SettingChange(said, {network.lora: str(LORA_RANK)})
    for flag, floor in recipe.out_of_memory.items():
        number = str(told.get(flag) or "")
        less = max(int(number) // 2, floor) if number.isdigit() else 0
        if 0 < less < int(number or 0):
            said = f"{flag} {less} instead of {number}, as the recipe allows"
            yield SettingChange(said, {flag: str(less)})


def _together(changes: Sequence[SettingChange]) -> SettingChange:
    arguments = {flag: value for one in changes for flag, value in one.arguments.items()}
    precision = next((one.precision for one in changes if one.precision), "")
    return SettingChange(" and ".join(one.said for one in changes), arguments, precision)


def _trace(training: TrainingSetup, changes: Sequence[SettingChange]) -> None:
    """Have all steps traced in one process, and kept."""
    wanted: list[TrainingStep] = []
    for one in changes:
        steps = steps_of(one.of(training), one.arguments)
        wanted += [] if isinstance(steps, NoPrediction) else steps.values()
    predict(wanted, training.state)


def _way(training: TrainingSetup, least: Plan, change: SettingChange) -> Candidate | None:
    found = ways(change.of(training), [least], change.arguments)
    return None if isinstance(found, NoPrediction) else found[0]


def _larger_card(training: TrainingSetup, least: Plan) -> Iterator[str]:
    found = ways(training, [least])
    if isinstance(found, NoPrediction):
        return
    needed = found[0].peak.total
    able = [
        card
        for card in cards()
        if card.memory * MARGIN >= needed and training.precision in card.tflops
    ]
    if able:
        card = min(able, key=lambda one: one.memory)
        size = f"{card.memory / GIB:.0f} GiB"
        yield f"a card of {size}, such as {card.aliases[0]}: {in_gib(needed)} GiB"
    else:
        yield f"no single card that is known here: it takes {in_gib(needed)} GiB"
