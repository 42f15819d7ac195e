"""Where the processes of a run go: to which cards, or to the CPU, and why."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import InputError
from ...record import changed, record
from .visibility import are_kinds, hides_every_card, pick

if TYPE_CHECKING:
    from .model import Gpu, Inventory, Link

CPU_PROCESSES = 2


@record
class GpuRequest:
    """What the user wants of the cards: which, and in bytes how little used or how much free.

    `named` are cards of this machine, `kinds` such as "2x T4" stand for it as a whole.
    """

    named: tuple[str, ...] = ()
    busy_above: int | None = None
    min_free: int | None = None
    kinds: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, names: tuple[str, ...], *, busy_above: int | None = None, min_free: int | None = None
    ) -> GpuRequest:
        """The wish of somebody who gives these names, be they of cards here or of kinds."""
        kinds = names if are_kinds(names) else ()
        return cls(() if kinds else names, busy_above, min_free, kinds)

    def look(self) -> Inventory:
        """The cards as they are now; those that were not named are left out.

        Raises:
            InputError: a name that fits no card, or several.

        """
        if self.kinds:
            from .simulated import simulated

            return simulated(self.kinds, min_free=self.min_free)
        from .nvml import inventory  # with pynvml; whoever wants the CPU alone does without

        found = inventory(busy_above=self.busy_above, min_free=self.min_free)
        if not self.named:
            return found
        if not found.gpus:
            first = self.named[0]  # A10 and A100 could begin a UUID, too
            hint = "" if first.isdigit() else f" For cards that are not here say 1x {first}."
            raise InputError(f"--gpus {','.join(self.named)}: {found.note}{hint}")
        return pick(found, self.named)


@record
class Devices:
    """Where the processes run: so many cards, or the CPU when there are none, and why.

    `links` tell how each two cards of the machine are joined, as far as that is known.
    """

    world: int
    cards: tuple[Gpu, ...]
    found: str
    assigned: bool = False  # the cards are those that a batch job will be given
    links: tuple[Link, ...] = ()

    @property
    def indices(self) -> tuple[int, ...] | None:
        """The cards as nvidia-smi counts them: none for the CPU, None if not known yet."""
        return None if self.assigned else tuple(gpu.index for gpu in self.cards)


def choose_cpu(processes: int | None, *, named: Sequence[str] = ()) -> Devices:
    """How many processes on the CPU; no driver is asked, as it may be why the CPU is wanted.

    Raises:
        InputError: cards are `named`, or there are no `processes`.

    """
    if named:
        raise InputError("--gpus and --cpu exclude each other: give one of them")
    _at_least_one(processes)
    world = processes or CPU_PROCESSES
    many = "1 process" if world == 1 else f"{world} gloo processes"
    return Devices(world, (), f"Running {many} on the CPU.")


def choose_devices(
    found: Inventory, processes: int | None, *, named: Sequence[str] = ()
) -> Devices:
    """How many processes, and on which cards.

    The CPU is taken where there is no card, or CUDA_VISIBLE_DEVICES hides every one, never because
    all cards are busy or the driver is out of order, and never where cards are `named`: those are
    then first in `found`.

    Raises:
        InputError: cards exist but none can be used, or fewer than `processes`, or not all that
            are named; or the driver cannot be asked.

    """
    cardless = not found.gpus and not found.broken
    hidden = hides_every_card(os.environ.get("CUDA_VISIBLE_DEVICES"))
    if cardless or (hidden and not (named or found.simulated)):
        on_cpu = choose_cpu(processes)
        return changed(on_cpu, found=f"{found.note} {on_cpu.found}")
    _at_least_one(processes)
    if found.broken:
        raise InputError(f"{found.note} Or pass --cpu")
    _all_usable(found.gpus[: len(named)])
    usable = found.usable
    left_out = [f"card {gpu.index}: {gpu.why_not}" for gpu in found.gpus if not gpu.usable]
    if not usable:
        reasons = "; ".join([*filter(None, [found.note]), *left_out])
        raise InputError(f"no card can be used ({reasons}); free one, or pass --cpu")
    if processes and processes > len(usable):
        what = "1 card" if len(usable) == 1 else f"{len(usable)} cards"
        raise InputError(f"--processes {processes}, but {what} can be used: one process per card")
    chosen = usable[:processes]
    names = ", ".join(f"{gpu.index} ({gpu.name})" for gpu in chosen)
    told = [] if named else [f"Left out {one}." for one in left_out]
    parts = [f"Using card{'s'[: len(chosen) > 1]} {names}.", *told]
    said = " ".join([*filter(None, [found.note]), *parts])
    return Devices(len(chosen), chosen, said, links=found.links)


def choose_for_job(
    found: Inventory, processes: int | None, *, named: Sequence[str] = ()
) -> Devices:
    """As many cards as `processes` says, or as can be used here, for a batch job to be given.

    Raises:
        InputError: cards are named, which only the batch system does; and where `processes` does
            not say how many, as for `choose_devices`, or because there is none here to go by.

    """
    if named:
        raise InputError("--gpus: the batch system says which; say how many with --processes")
    if processes is not None and processes > 0:
        here = Devices(processes, (), "")
    else:
        here = choose_devices(found, processes)
        if not here.cards:
            raise InputError("no card here to go by: say how many with --processes, or --cpu")
    many = "1 card" if here.world == 1 else f"{here.world} cards"
    # Cards that are here are taken to be like those of the job.
    return changed(here, found=f"The job asks for {many}.", assigned=True)


def _at_least_one(processes: int | None) -> None:
    if processes is not None and processes < 1:
        raise InputError(f"--processes {processes}: at least 1 is needed")


def _all_usable(named: Sequence[Gpu]) -> None:
    reasons = [f"card {gpu.index} cannot be used: {gpu.why_not}" for gpu in named if gpu.why_not]
    if reasons:
        raise InputError(f"--gpus: {'; '.join(reasons)} (see `ddpfix gpus`)")
