"""Choose the devices of a run: how many processes, on which cards or on the CPU."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import InputError
from ...record import record, replace
from .locks import TAKEN, mark_taken
from .visibility import are_kinds, hides_every_card, pick

if TYPE_CHECKING:
    from .model import Gpu, Inventory, Link

CPU_PROCESSES = 2


class CardsTakenError(InputError):
    """Cards that would be used are held by other runs."""


@record
class GpuRequest:
    """The cards a user asks for, and limits on their used and free memory in bytes.

    `card_names` are cards of this machine; `kinds`, such as "2x T4", are simulated instead of it.
    """

    card_names: tuple[str, ...] = ()
    busy_above: int | None = None
    min_free: int | None = None
    kinds: tuple[str, ...] = ()

    @classmethod
    def from_names(
        cls, names: tuple[str, ...], *, busy_above: int | None = None, min_free: int | None = None
    ) -> GpuRequest:
        """Make a request from names, all of cards of this machine or all of kinds."""
        kinds = names if are_kinds(names) else ()
        return cls(() if kinds else names, busy_above, min_free, kinds)

    def take_inventory(self) -> Inventory:
        """Take the inventory; if cards are named, all others are marked unusable.

        Raises:
            InputError: a name matches no card, or several.

        """
        if self.kinds:
            from .simulated import simulate_inventory

            return simulate_inventory(self.kinds, min_free=self.min_free)
        from .nvml import inventory  # needs pynvml, which CPU runs do without

        found = inventory(busy_above=self.busy_above, min_free=self.min_free)
        found = mark_taken(found)
        if not self.card_names:
            return found
        if not found.gpus:
            first = self.card_names[0]  # A10 and A100 are taken for the beginning of a UUID
            hint = "" if first.isdigit() else f" For cards that are not here say 1x {first}."
            raise InputError(f"--gpus {','.join(self.card_names)}: {found.note}{hint}")
        return pick(found, self.card_names)


@record
class Devices:
    """The devices of a run: `world` processes, one per card, or on the CPU if there are no cards.

    `summary` explains the choice. `links` are the known connections between the machine's cards.
    """

    world: int
    cards: tuple[Gpu, ...]
    summary: str
    assigned: bool = False  # a batch system will assign the cards
    links: tuple[Link, ...] = ()
    simulated: bool = False  # the cards are those of another machine

    @property
    def indices(self) -> tuple[int, ...] | None:
        """The cards' indices as in nvidia-smi: empty for the CPU, None if not known yet."""
        return None if self.assigned else tuple(gpu.index for gpu in self.cards)


def choose_cpu(processes: int | None, *, named: Sequence[str] = ()) -> Devices:
    """Choose how many processes to run on the CPU, without querying a driver that may be broken.

    Raises:
        InputError: cards are `named`, or `processes` is below 1.

    """
    if named:
        raise InputError("--gpus and --cpu exclude each other: give one of them")
    _check_at_least_one(processes)
    world = processes or CPU_PROCESSES
    count = "1 process" if world == 1 else f"{world} gloo processes"
    return Devices(world, (), f"Running {count} on the CPU.")


def choose_devices(
    inventory: Inventory, processes: int | None, *, named: Sequence[str] = ()
) -> Devices:
    """Choose how many processes to run, and on which cards.

    The CPU is chosen if there is no card, or CUDA_VISIBLE_DEVICES hides every one; never because
    all cards are busy or the driver is broken, and never if cards are `named`, which then come
    first in `inventory`.

    Raises:
        CardsTakenError: other runs hold cards that are needed.
        InputError: cards exist but none is usable, fewer than `processes` are, or a named one is
            not; or the driver cannot be queried.

    """
    cardless = not inventory.gpus and not inventory.broken
    hidden = hides_every_card(os.environ.get("CUDA_VISIBLE_DEVICES"))
    if cardless or (hidden and not (named or inventory.simulated)):
        on_cpu = choose_cpu(processes)
        return replace(on_cpu, summary=f"{inventory.note} {on_cpu.summary}")
    _check_at_least_one(processes)
    if inventory.broken:
        raise InputError(f"{inventory.note} Or pass --cpu")
    _check_usable(inventory.gpus[: len(named)])
    usable = inventory.usable
    left_out = [f"card {gpu.index}: {gpu.why_not}" for gpu in inventory.gpus if not gpu.usable]
    if not usable:
        reasons = "; ".join([*filter(None, [inventory.note]), *left_out])
        raise _refusal(f"no card can be used ({reasons}); free one, or pass --cpu", inventory.gpus)
    if processes and processes > len(usable):
        count = "1 card" if len(usable) == 1 else f"{len(usable)} cards"
        message = f"--processes {processes}, but {count} can be used: one process per card"
        taken = [reason for reason in left_out if TAKEN in reason]
        reasons = f" ({'; '.join(taken)})" if taken else ""
        raise _refusal(message + reasons, inventory.gpus)
    chosen = usable[:processes]
    names = ", ".join(f"{gpu.index} ({gpu.name})" for gpu in chosen)
    rest = [] if named else [f"Left out {reason}." for reason in left_out]
    sentences = [f"Using card{'s'[: len(chosen) > 1]} {names}.", *rest]
    summary = " ".join([*filter(None, [inventory.note]), *sentences])
    return Devices(
        len(chosen), chosen, summary, links=inventory.links, simulated=inventory.simulated
    )


def choose_for_job(
    inventory: Inventory, processes: int | None, *, named: Sequence[str] = ()
) -> Devices:
    """Choose the devices of a batch job: `processes` cards, or as many as are usable here.

    Raises:
        InputError: cards are named, which only the batch system can do; or `processes` is not
            given and there is no card here, or as for `choose_devices`.

    """
    if named:
        raise InputError("--gpus: the batch system says which; say how many with --processes")
    if processes is not None and processes > 0:
        here = Devices(processes, (), "")
    else:
        here = choose_devices(inventory, processes)
        if not here.cards:
            raise InputError("no card here to go by: say how many with --processes, or --cpu")
    count = "1 card" if here.world == 1 else f"{here.world} cards"
    # The job's cards are assumed to be like those here.
    return replace(here, summary=f"The job asks for {count}.", assigned=True)


def _check_at_least_one(processes: int | None) -> None:
    if processes is not None and processes < 1:
        raise InputError(f"--processes {processes}: at least 1 is needed")


def _check_usable(named: Sequence[Gpu]) -> None:
    reasons = [f"card {gpu.index} cannot be used: {gpu.why_not}" for gpu in named if gpu.why_not]
    if reasons:
        raise _refusal(f"--gpus: {'; '.join(reasons)} (see `ddpfix gpus`)", named)


def _refusal(message: str, gpus: Sequence[Gpu]) -> InputError:
    if any(gpu.why_not.startswith(TAKEN) for gpu in gpus):
        return CardsTakenError(f"{message}; `launch --wait` waits for what other runs hold")
    return InputError(message)
