"""Candidate plans with their predicted peak memory, and the outcome of choosing among them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...record import as_dict, record
from ..memory.peak import Peak
from .plan import Plan

MARGIN = 0.92
"""Fraction of a card's free memory that a predicted peak may take: predictions aim to be within
6 %, and the memory that other processes use varies."""
GIB = 1 << 30


@record
class Candidate:
    """A plan in one precision, with the script arguments that it changes.

    `peak` and `free` (bytes) are those of the card on which it takes the largest fraction of the
    free memory. `flops` and `moved` (bytes read and written by kernels) are per example, forward
    and backward; `moved_once` are the bytes moved whatever the batch; `trainable` is the size of
    all weights that get gradients, in bytes.
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
        """The largest peak that leaves the margin, in bytes."""
        return int(self.free * MARGIN)

    @property
    def fits(self) -> bool:
        """Whether the predicted peak leaves the margin."""
        return self.peak.total <= self.limit

    @property
    def name(self) -> str:
        """Its batch and changed arguments in a few words."""
        batch = f"{self.plan.per_device} per device x {self.plan.accumulation} accumulated"
        return batch + self.with_changes

    @property
    def with_changes(self) -> str:
        """The changed arguments, to end a phrase with."""
        words = [
            flag if value is None else f"{flag} {value}" for flag, value in self.changed.items()
        ]
        return f" with {' and '.join(words)}" if words else ""

    @property
    def used(self) -> str:
        """The peak and its limit."""
        limit = f"{in_gib(self.limit)}, {in_percent(MARGIN)} of what is free on a card"
        return f"{in_gib(self.peak.total)} GiB of {limit}"

    @property
    def said(self) -> str:
        """Its name and its peak."""
        return f"{self.name}: {in_gib(self.peak.total)} GiB"


@record
class FitResult:
    """The candidate to run, and the alternatives to it.

    `fits` is false if even the smallest candidate is too large; `chosen` is then that one, and
    `remedies` say what would make it fit. `others` are alternatives, each with its advantage and
    its price; `rejected` are too large, one line each. `meeting` is the per-device batch that a
    contrastive loss should see, 0 for losses that treat examples one by one.
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
        candidate = self.chosen
        sizes = {name: in_gib(size) for name, size in as_dict(candidate.peak).items()}
        parts = ", ".join(f"{name} {size}" for name, size in sizes.items() if size != "0.0")
        warning = "" if self.fits else ", too much: it may run out of memory"
        usage = f"{candidate.used}{candidate.with_changes}"
        return f"memory: {usage}{warning} ({parts}){self._fewer_negatives}"

    @property
    def _fewer_negatives(self) -> str:
        """A warning where a contrastive loss sees fewer examples than it should."""
        now = self.chosen.plan.per_device
        if now >= self.meeting:
            return ""
        return f", where {now} examples meet and not {self.meeting}, which is another training"

    @property
    def objection(self) -> str:
        """The error message where nothing fits: why, and what would help."""
        smallest = self.chosen
        remedies = "; ".join(self.remedies)
        return (
            f"nothing fits: {smallest.name} takes {smallest.used}. What would fit: {remedies}. "
            f"--per-device {smallest.plan.per_device} tries it all the same"
        )

    def facts(self) -> dict[str, Any]:
        """The result as plain data for JSON; sizes in bytes."""
        candidate = self.chosen
        return {
            "peak": {**as_dict(candidate.peak), "total": candidate.peak.total},
            "free": candidate.free,
            "limit": candidate.limit,
            "fits": self.fits,
            "others": [
                {"way": other.name, "total": other.peak.total, "why": why}
                for other, why in self.others
            ],
            "rejected": list(self.rejected),
        }


def in_percent(fraction: float) -> str:
    """Format a fraction in per cent."""
    return f"{fraction * 100:.0f} %"


def in_gib(size: float) -> str:
    """Format bytes in GiB, without the unit."""
    return f"{size / GIB:.1f}"
