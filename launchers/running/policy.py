"""How a run is supervised, as the user chooses it."""

from __future__ import annotations

import attrs

from .runner import RunLimits
from .watchdog import SilenceLimits

HANG_AFTER = 1800.0
"""Default seconds of silence that count as a hang; gloo waits as long for a rank, NCCL 600."""


@attrs.frozen
class SupervisionPolicy:
    """When a run is stopped, in seconds, and what follows a failure.

    `hang_after`: seconds without output; 0 means never, None the default, which counts from the
    first progress bar on. `retry`: continue with less memory after an OOM. `learned`: start with
    settings that worked after an earlier OOM. `max_restarts`: attempts after other failures.
    `rank_logs`: one log per rank.
    """

    grace: float = 30.0
    hang_after: float | None = None
    retry: bool = True
    learned: bool = True
    max_restarts: int = 0
    rank_logs: bool = True

    @property
    def limits(self) -> RunLimits:
        """When a run under this policy is stopped."""
        if self.hang_after is None:
            silence = SilenceLimits(hang=HANG_AFTER, from_first_step=True)
        else:
            silence = SilenceLimits(hang=self.hang_after)
        return RunLimits(self.grace, silence)

    def for_machines(self, count: int) -> SupervisionPolicy:
        """The policy for one of `count` machines, without what one machine cannot decide alone.

        Less memory on one of them would be another plan than the others'. A machine without rank 0
        is often silent to its end, which is no hang unless the user says so.
        """
        if count == 1:
            return self
        return attrs.evolve(self, hang_after=self.hang_after or 0.0, retry=False, learned=False)
