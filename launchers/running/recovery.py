"""What a launch does after an attempt that failed: less memory, or the same once more."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import attrs

from ...record import as_dict, changed
from ..backends.command import Command
from ..script.arguments import parse_flags
from .oom_ladder import LaunchSettings, down
from .runner import Attempt, RunOutcome

RESUME = "--resume"
# Together they tell the checkpoints that `ddpfix patch --with resume` adds; a --resume alone may
# mean anything.
KEEP = "--save_total_limit"
RESUMABLE = frozenset({RESUME, KEEP})


def resuming(
    declared: Collection[str], mine: Collection[str], told: Mapping[str, str | None]
) -> dict[str, str | None]:
    """What a script that can go on from checkpoints is told where others may start it again.

    Those are a batch system and torch elastic; the command is then the same each time. Without a
    limit no checkpoint is written; flags among `mine` are said already, by the user or the recipe.
    """
    if not set(declared) >= RESUMABLE:
        return dict(told)
    added = {RESUME: None, KEEP: "1"}
    return {flag: value for flag, value in added.items() if flag not in mine} | dict(told)


@attrs.define
class Recovery:
    """Decides after each attempt, and says so on standard error.

    `build` makes the command of a setting, `keep` writes down what fitted. `output` is the
    script's output folder. `retry` allows the ladder, `restarts` is how many attempts that failed
    otherwise are repeated.
    """

    setting: LaunchSettings
    build: Callable[[LaunchSettings], Command]
    output: Path
    keep: Callable[[LaunchSettings], object]
    retry: bool = True
    restarts: int = 0
    anew: int = 0

    def __call__(self, outcome: RunOutcome) -> Attempt | None:
        """What to go on with, if anything."""
        failure = outcome.failure
        if failure is not None and failure.sentence:
            _say(failure.traceback or None, failure.sentence)
        if failure is not None and failure.out_of_memory:
            return self._lower(outcome)
        if not self.restarts:
            return None
        self.restarts -= 1
        _say(f"{outcome.cause}; starting again{self._from()}, {self.restarts} restart(s) left")
        return self._next(self._resumed(), outcome.cause)

    def _lower(self, outcome: RunOutcome) -> Attempt | None:
        assert outcome.failure is not None
        if not self.retry:
            _say("Out of memory; on one machine, without --no-retry, less would be tried")
            return None
        step = down(self.setting, outcome.failure)
        if step is None:
            _say("Out of memory, and nothing is left to lower: take more or larger cards")
            return None
        self.setting = step.setting
        with contextlib.suppress(OSError):
            self.keep(self.setting)
        if step.anew:
            self._move_aside()
        where = "" if step.anew else self._from()
        _say(f"Out of memory; going on{where} with {step.said}")
        return self._next(self.setting if step.anew else self._resumed(), step.said)

    def _next(self, setting: LaunchSettings, why: str) -> Attempt:
        return Attempt(self.build(setting), {"why": why, "plan": as_dict(setting.plan)})

    def _resumed(self) -> LaunchSettings:
        extra = self.setting.extra
        if not self.setting.declared >= RESUMABLE or RESUME in parse_flags(extra):
            return self.setting
        # Before the user's own: a last word of theirs may be open for a value.
        return changed(self.setting, told={**self.setting.told, RESUME: None})

    def _from(self) -> str:
        """Where the script goes on, as far as is known."""
        if self.setting.declared >= RESUMABLE:
            return " from the last checkpoint, if there is one,"
        return " from the start"

    def _move_aside(self) -> None:
        """Checkpoints of another model are none to go on from; they are kept beside."""
        if self.output.is_dir():
            self.anew += 1
            self.output.rename(self.output.with_name(f"{self.output.name}.before-{self.anew}"))


def _say(*sentences: str | None) -> None:
    for sentence in filter(None, sentences):
        # Whoever read it may have gone away; the run goes on.
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"{sentence}\n" if "\n" in sentence else f"ddpfix: {sentence}\n")
