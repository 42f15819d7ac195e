"""A way to train with the memory that is predicted for it, and what it is chosen among."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...record import as_dict, record
from ..memory.peak import Peak
from .plan import Plan

MARGIN = 0.92
"""The part of a card's free memory that a predicted peak may take: predictions are meant to be
within 6 %, and what else is on a card comes and goes."""
GIB = 1 << 30


@record
class Candidate:
    """One way to train: a plan and a precision, with the arguments in `changed` for it.

    `peak` is that of the card where it takes the largest part of what is free, which is `free`
    bytes. `flops` and `moved` are those of one example forward and backward, `moved_once` the bytes
    that are moved whatever the batch, `trainable` those of all weights that get gradients.
    """

    plan: Plan
    precision: str
    changed: Mapping[str, str | None]
    peak: Peak
    free: int
    flops: int
    moved: int
    moved_once: int
    trainable: int

    @property
    def limit(self) -> int:
        """The most bytes that a peak may take here."""
        return int(self.free * MARGIN)

    @property
    def fits(self) -> bool:
        """Whether it leaves the margin."""
        return self.peak.total <= self.limit

    @property
    def name(self) -> str:
        """In a few words."""
        return (
            f"{self.plan.per_device} per device x {self.plan.accumulation} accumulated{self.added}"
        )

    @property
    def added(self) -> str:
        """What is changed for it, as the end of a phrase."""
        words = [
            flag if value is None else f"{flag} {value}" for flag, value in self.changed.items()
        ]
        return f" with {' and '.join(words)}" if words else ""

    @property
    def used(self) -> str:
        """The peak, and what it may take."""
        most = f"{in_gib(self.limit)}, {in_percent(MARGIN)} of what is free on a card"
        return f"{in_gib(self.peak.total)} GiB of {most}"

    @property
    def said(self) -> str:
        """Its name with its peak."""
        return f"{self.name}: {in_gib(self.peak.total)} GiB"


@record
class FitResult:
    """The way that is taken, and what else there is.

    `fits` is false where even the way that takes least is too large: then `chosen` is that one.
    `meeting` is how many examples of a device are to meet in the loss, 0 where they do not.
    `remedies` say what would make it fit. `others` could be taken instead, each with what speaks
    for and against it; `rejected` are told in a line each.
    """

    chosen: Candidate
    fits: bool
    others: tuple[tuple[Candidate, str], ...] = ()
    rejected: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    meeting: int = 0

    @property
    def said(self) -> str:
        """One sentence on the memory, without its full stop."""
        way = self.chosen
        parts = {name: in_gib(size) for name, size in as_dict(way.peak).items()}
        made = ", ".join(f"{name} {size}" for name, size in parts.items() if size != "0.0")
        most = "" if self.fits else ", too much: it may run out of memory"
        return f"memory: {way.used}{way.added}{most} ({made}){self._fewer}"

    @property
    def _fewer(self) -> str:
        now = self.chosen.plan.per_device
        if now >= self.meeting:
            return ""
        return f", where {now} examples meet and not {self.meeting}, which is another training"

    @property
    def objection(self) -> str:
        """Why there is no plan, and what would make one."""
        way = self.chosen
        remedies = "; ".join(self.remedies)
        return (
            f"nothing fits: {way.name} takes {way.used}. What would fit: {remedies}. "
            f"--per-device {way.plan.per_device} tries it all the same"
        )

    def facts(self) -> dict[str, Any]:
        """As JSON can hold it; all sizes in bytes."""
        way = self.chosen
        return {
            "peak": {**as_dict(way.peak), "total": way.peak.total},
            "free": way.free,
            "limit": way.limit,
            "fits": self.fits,
            "others": [
                {"way": other.name, "total": other.peak.total, "why": why}
                for other, why in self.others
            ],
            "rejected": list(self.rejected),
        }


def in_percent(part: float) -> str:
    """A part of one in per cent."""
    return f"{part * 100:.0f} %"


def in_gib(size: float) -> str:
    """Bytes in GiB, without the unit."""
    return f"{size / GIB:.1f}"
