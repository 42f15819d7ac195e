"""The norm of a gradient before clipping, where its parameters are clipped in several calls."""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import dataclass, field


@dataclass(frozen=True)
class _ClippedPart:
    """Parameters (by id) that one call clipped after backward pass number ``backward``."""

    members: frozenset[int]
    backward: int
    norm: float
    kind: float  # p of the p-norm


@dataclass
class ClippedGradient:
    """What clip_grad_norm_ said of the gradient that the next optimizer step uses.

    A later backward pass makes an earlier norm of the same parameters meaningless, and a second
    clipping without one sees the clipped gradient: the first after the last backward pass counts.
    """

    parts: list[_ClippedPart] = field(default_factory=list)

    def note(self, members: Set[int], backward: int, norm: float, kind: float) -> None:
        """Add a call's norm, that before its clipping."""
        again = [part for part in self.parts if part.members & members]
        if any(part.backward == backward for part in again):
            return
        self.parts = [part for part in self.parts if part not in again]
        self.parts.append(_ClippedPart(frozenset(members), backward, norm, kind))

    def norm(self, parameters: Set[int]) -> float | None:
        """The norm over all calls that clipped some of these parameters; None without any."""
        parts = [part for part in self.parts if part.members & parameters]
        if len(parts) < 2:
            return parts[0].norm if parts else None
        kinds = {part.kind for part in parts}
        norms = [part.norm for part in parts]
        if len(kinds) > 1 or not math.isfinite(math.fsum(norms)):
            return math.fsum(norms)  # no norm has both, but equal gradients have an equal sum
        if math.isinf(kind := kinds.pop()):
            return max(norms)
        return math.pow(math.fsum(math.pow(norm, kind) for norm in norms), 1 / kind)

    def copy(self) -> ClippedGradient:
        """Another one with the same parts so far."""
        return ClippedGradient(list(self.parts))
