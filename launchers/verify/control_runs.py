"""Further runs that tell rounding from other arithmetic, for groups that are slightly off."""

from __future__ import annotations

from .compare_training import compare_runs, pairs_to_compare
from .evidence import Evidence, RunTrace
from .rounding import compare_runs_loosely, may_be_rounding
from .runner import VerifyRunner


def rounding_controls(runner: VerifyRunner, evidence: Evidence, shim: bool) -> dict[str, RunTrace]:
    """For groups that are slightly off: runs with micro-batches as small but other ranks.

    A group that agrees with its control run differs from the reference only by rounding.
    """
    controls: dict[str, RunTrace] = {}
    if runner.exact or runner.flags.accumulation is None:
        return controls
    groups = list(evidence.groups)
    for run, base in pairs_to_compare(evidence):
        tolerances, parts = evidence.tolerances, len(run.ranks) * run.accumulation
        if (
            not compare_runs(base, run, tolerances).problem
            or not compare_runs_loosely(base, run, tolerances).follows
        ):
            continue
        # The control of several ranks is a group of one, and the other way round.
        candidates = (each for each in groups if len(each.ranks) * each.accumulation == parts)
        control = next(
            (each for each in candidates if (each.world_size == 1) != (run.world_size == 1)), None
        )
        if control is None and run.world_size != 1 and runner.flags.global_batch % parts == 0:
            groups.append(control := runner.run_group(1, parts, shim))
        if control is not None:
            controls[run.name] = control
    return controls


def double_runs(
    runner: VerifyRunner, evidence: Evidence, shim: bool
) -> dict[str, tuple[RunTrace, RunTrace]]:
    """For groups that are slightly off: their reference and they themselves, once more in fp64.

    One that does not run in fp64 is left out.
    """
    found: dict[str, tuple[RunTrace, RunTrace]] = {}
    again: dict[str, RunTrace] = {}
    for run, base in pairs_to_compare(evidence):
        if not may_be_rounding(evidence, base, run):
            continue
        for one in (base, run):
            if one.name not in again:
                again[one.name] = runner.run_double(one, shim)
        if all(again[one.name].ended_well for one in (base, run)):
            found[run.name] = again[base.name], again[run.name]
    return found
