"""Decide how a launch continues after a failed attempt: with less memory, or the same again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from ...record import as_dict, replace
from ...standard_streams import say
from ..backends.command import Command
from ..script.arguments import parse_flags
from .oom_ladder import LaunchSettings, next_rung
from .runner import Attempt, RunOutcome

if TYPE_CHECKING:
    from .failure import RunFailure

RESUME = "--resume"
# A script with both flags has the checkpoints that `ddpfix patch --with resume` adds; --resume
# alone may mean anything.
SAVE_LIMIT = "--save_total_limit"
RESUMABLE = frozenset({RESUME, SAVE_LIMIT})


def with_resume_flags(
    declared: Collection[str], already_set: Collection[str], flags: Mapping[str, str | None]
) -> dict[str, str | None]:
    """Add the flags for resuming to `flags`, if the script can resume from checkpoints.

    This is for a batch system and for torch elastic, which start the same command again. Without a
    limit no checkpoint is written. `already_set` are the flags of the user and the recipe.
    """
    if not set(declared) >= RESUMABLE:
        return dict(flags)
    added = {RESUME: None, SAVE_LIMIT: "1"}
    return {flag: value for flag, value in added.items() if flag not in already_set} | dict(flags)


@attrs.define
class Recovery:
    """Decides after a failed attempt how to continue, and prints the decision on standard error.

    `build` makes the command of a setting, `save` saves a lowered one for later runs, once it has
    trained. `output` is
    the script's output folder. `retry` allows less memory after an OOM; `restarts` is how often the
    run may start again after other failures.
    """

    setting: LaunchSettings
    build: Callable[[LaunchSettings], Command]
    output: Path
    save: Callable[[LaunchSettings], object]
    retry: bool = True
    restarts: int = 0
    moved_folders: int = attrs.field(default=0, init=False)
    full_at: int | None = attrs.field(default=None, init=False)
    """The step of the last OOM; None before any, and where no steps are seen."""
    is_lowered: bool = attrs.field(default=False, init=False)

    def __call__(self, outcome: RunOutcome) -> Attempt | None:
        """The next attempt; None gives up."""
        self.learn(outcome)
        failure = outcome.failure
        if failure is not None and failure.sentence:
            _print(failure.traceback or None, failure.sentence, *_advice(failure))
        if failure is not None and failure.out_of_memory:
            return self._lower(outcome)
        if not self.restarts:
            return None
        self.restarts -= 1
        where = self._resume_point()
        _print(f"{outcome.cause}; starting again{where}, {self.restarts} restart(s) left")
        return self._next(self._resumed(), outcome.cause)

    def learn(self, outcome: RunOutcome) -> None:
        """Save the setting of an attempt that has ended, if it was lowered and then trained.

        That is one that finished, or came further than the one before it.
        """
        before, now = self.full_at, outcome.step
        further = before is not None and now is not None and now > before
        full = outcome.failure is not None and outcome.failure.out_of_memory
        if self.is_lowered and not full and (outcome.status == 0 or further):
            self.is_lowered = False
            with contextlib.suppress(OSError):
                self.save(self.setting)

    def _lower(self, outcome: RunOutcome) -> Attempt | None:
        assert outcome.failure is not None
        if not self.retry:
            _print("Out of memory; on one machine, without --no-retry, less would be tried")
            return None
        step = next_rung(self.setting, outcome.failure)
        if step is None:
            _print("Out of memory, and nothing is left to lower: take more or larger cards")
            return None
        self.setting = step.setting
        self.is_lowered, self.full_at = True, outcome.step
        if step.restarts_training:
            self._move_aside()
        where = "" if step.restarts_training else self._resume_point()
        _print(f"Out of memory; going on{where} with {step.change}")
        return self._next(self.setting if step.restarts_training else self._resumed(), step.change)

    def _next(self, setting: LaunchSettings, why: str) -> Attempt:
        return Attempt(self.build(setting), {"why": why, "plan": as_dict(setting.plan)})

    def _resumed(self) -> LaunchSettings:
        extra = self.setting.extra
        if not self.setting.declared_flags >= RESUMABLE or RESUME in parse_flags(extra):
            return self.setting
        # Not after the user's own arguments: their last one may be a flag that takes a value.
        return replace(self.setting, added_flags={**self.setting.added_flags, RESUME: None})

    def _resume_point(self) -> str:
        """Where the script resumes, as words of a message."""
        if self.setting.declared_flags >= RESUMABLE:
            return " from the last checkpoint, if there is one,"
        return " from the start"

    def _move_aside(self) -> None:
        """Rename the output folder: one cannot resume from the checkpoints of another training."""
        if self.output.is_dir():
            self.moved_folders += 1
            name = f"{self.output.name}.before-{self.moved_folders}"
            self.output.rename(self.output.with_name(name))


def _advice(failure: RunFailure) -> list[str]:
    """What a known error means, and what mends it; nothing of an OOM, which is retried."""
    from .known_errors import sightings  # most runs have none

    if failure.out_of_memory:
        return []
    lines = failure.traceback.splitlines() or [failure.error]
    known = [one.error for one in sightings(lines) if one.error and one.error.ends_run]
    return known[0].advice if known else []


def _print(*sentences: str | None) -> None:
    for sentence in filter(None, sentences):
        say(sentence if "\n" in sentence else f"ddpfix: {sentence}")
