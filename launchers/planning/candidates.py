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
    free memory. `flops` and `bytes_moved` (bytes read and written by kernels) are per example,
    forward and backward; `fixed_bytes_moved` are the bytes moved whatever the batch;
    `trainable_bytes` is the size of all weights that get gradients, in bytes. `sharded`: ranks hold
    parts of the weights, and gather them as they compute.
    """

    plan: Plan
    precision: str
    changed_arguments: Mapping[str, str | None]
    peak: Peak
    free: int
    flops: int
    bytes_moved: int
    fixed_bytes_moved: int
    trainable_bytes: int
    sharded: bool = False

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
            flag if value is None else f"{flag} {value}"
            for flag, value in self.changed_arguments.items()
        ]
        return f" with {' and '.join(words)}" if words else ""

    @property
    def usage(self) -> str:
        """The peak and its limit."""
        total, limit = format_gib(self.peak.total), format_gib(self.limit)
        if total == limit and not self.fits:
            total, limit = (f"{size / GIB:.3f}" for size in (self.peak.total, self.limit))
        share = f"{format_percent(MARGIN)} of what is free on a card"
        return f"{total} GiB; {limit} GiB may be used, {share}"

    @property
    def summary(self) -> str:
        """Its name and its peak."""
        return f"{self.name}: {format_gib(self.peak.total)} GiB"


@record
class FitResult:
    """The candidate to run, and the alternatives to it.

    `fits` is false if even the smallest candidate is too large; `candidate` is then that one, and
    `remedies` say what would make it fit. `alternatives` are alternatives, each with its advantage
    and its price; `rejections` are too large, one line each. `contrastive_batch` is the per-device
    batch that a contrastive loss should see, 0 for losses that treat examples one by one.
    """

    candidate: Candidate
    fits: bool
    alternatives: tuple[tuple[Candidate, str], ...] = ()
    rejections: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    contrastive_batch: int = 0

    @property
    def summary(self) -> str:
        """One sentence on the memory, without its full stop."""
        candidate = self.candidate
        sizes = {name: format_gib(size) for name, size in as_dict(candidate.peak).items()}
        parts = ", ".join(f"{name} {size}" for name, size in sizes.items() if size != "0.0")
        warning = "" if self.fits else ", too much: it may run out of memory"
        usage = f"{candidate.usage}{candidate.with_changes}"
        return f"memory: {usage}{warning} ({parts}){self._fewer_negatives}"

    @property
    def _fewer_negatives(self) -> str:
        """A warning where a contrastive loss sees fewer examples than it should."""
        now = self.candidate.plan.per_device
        if now >= self.contrastive_batch:
            return ""
        wanted = self.contrastive_batch
        return f", where {now} examples meet and not {wanted}, which is another training"

    @property
    def error_message(self) -> str:
        """The error message where nothing fits: why, and what would help."""
        smallest = self.candidate
        remedies = "; ".join(self.remedies)
        return (
            f"nothing fits: {smallest.name} takes {smallest.usage}. What would fit: {remedies}. "
            f"--per-device {smallest.plan.per_device} tries it all the same"
        )

    def facts(self) -> dict[str, Any]:
        """The result as plain data for JSON; sizes in bytes."""
        candidate = self.candidate
        return {
            "peak": {**as_dict(candidate.peak), "total": candidate.peak.total},
            "free": candidate.free,
            "limit": candidate.limit,
            "fits": self.fits,
            "others": [
                {"way": other.name, "total": other.peak.total, "why": why}
                for other, why in self.alternatives
            ],
            "rejected": list(self.rejections),
        }


def format_percent(fraction: float) -> str:
    """Format a fraction in per cent."""
    return f"{fraction * 100:.0f} %"


def format_gib(size: float) -> str:
    """Format bytes in GiB, without the unit."""
    return f"{size / GIB:.1f}"
