"""Judge the contract's promises from the traces of runs. Runs nothing and imports no torch.

C1-C9 are the promises of a patched script:

    C1  stands on its own, without ddpfix     C6  no rank hangs, all end well
    C2  one process computes what it did      C7  the schedule spans the real optimizer steps
    C3  world size and accumulation change    C8  a flag that is passed is obeyed
        no step at one global batch           C9  only the announced lines differ
    C4  evaluation scores every example once
    C5  every file has one writer, and appears whole
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from ..trace.events import Collective, Exit, StepEvent
from ..trace.read import RankTrace
from . import trace_compare as compare
from .check_evaluation import scores_once
from .check_training import trains_the_same
from .evidence import Evidence, Row
from .output_files import different_files, list_files
from .prediction_order import hidden_order
from .unsteady import Unsteady
from .unused_parameters import judge_unused_parameters
from .wording import comma_list, describe_change, first_few, group_by_problem

DDPFIX_IMPORT_ERROR = f"No module named '{__name__.partition('.')[0]}"
"""How the error of a script begins that imports ddpfix in a run where that import must fail."""
_ARGUMENTS = re.compile(r"(args|training)[^/]*\.(bin|pt|pkl)$")
_CARDS = re.compile(r"((n|num|number|count)?[ _-]*(of )?)(gpus?|cards?|devices?)(_count)?", re.I)
_POINT_TO_POINT = {"send", "recv", "isend", "irecv", "batch_isend_irecv"}


def judge(evidence: Evidence) -> list[Row]:
    """The rows of the verdict, C1 to C9."""
    return [
        stands_alone(evidence),
        computes_the_same(evidence),
        trains_the_same(evidence),
        scores_once(evidence),
        writes_once(evidence),
        ends_well(evidence),
        schedules_right(evidence),
        evidence.flags_row,
        evidence.patching_row,
    ]


def stands_alone(evidence: Evidence) -> Row:
    """C1: the runs end well although importing ddpfix fails in them."""
    for run in (evidence.patched_alone, *evidence.groups):
        for trace in run.ranks:
            end = trace.last(Exit)
            if end and end.failure and DDPFIX_IMPORT_ERROR in end.failure.message:
                return Row("C1", "broken", f"{run.name}: it imports ddpfix ({end.failure.site})")
    if not evidence.patched_alone.ended_well:
        return Row(
            "C1",
            "unproven",
            f"{evidence.patched_alone.name}: {evidence.patched_alone.failure_reason}",
        )
    count = 1 + len(evidence.groups)
    return Row("C1", "holds", f"in all {count} runs `import ddpfix` would have failed")


def computes_the_same(evidence: Evidence) -> Row:
    """C2: the original's numbers bit for bit, and the same bytes in its files."""
    before, after = evidence.original, evidence.patched_alone
    if before is None:
        return Row("C2", "unproven", evidence.no_original)
    if not after.ended_well:
        return Row(
            "C2", "broken", f"patched, it fails where the original does not: {after.failure_reason}"
        )
    (one,), (other,) = before.ranks, after.ranks
    if len(one.steps) != len(other.steps):
        return Row(
            "C2", "broken", f"{len(other.steps)} optimizer steps, {len(one.steps)} originally"
        )
    for number, (a, b) in enumerate(zip(one.steps, other.steps, strict=True), 1):
        for label, x, y in (
            ("loss", a.losses, b.losses),
            ("gradient norm", a.norm_before_clipping, b.norm_before_clipping),
            ("learning rate", a.lrs, b.lrs),
            ("parameters", checksum_text(a), checksum_text(b)),
        ):
            if not compare.is_same(x, y):
                return Row(
                    "C2", "broken", f"step {number}: another {label} ({describe_change(x, y)})"
                )
    logged = logged_metrics(one, other, shimmed=evidence.original_needed_shims)
    values = [evidence.unsteady.steady_metrics(each) for each in logged]
    if not compare.is_same(*values):
        key, *_ = _first_difference(*values)
        return Row("C2", "broken", f"another value is logged for {key!r}")
    found = different_files(before.output, after.output, text_only=False)
    different = evidence.unsteady.steady_files(found)
    # Saved arguments hold the number of GPUs, and a shimmed original always sees one.
    expected = [
        name for name in different if evidence.original_needed_shims and _ARGUMENTS.search(name)
    ]
    if different != expected:
        return Row("C2", "broken", f"files differ: {first_few([*{*different} - {*expected}])}")
    files = len(evidence.unsteady.steady_files(list_files(before.output))) - len(expected)
    return Row(
        "C2",
        "holds",
        f"{len(one.steps)} steps bit for bit (loss, norm, rate, parameters), "
        f"{len(values[0])} logged numbers and {files} files the same"
        + _left_out(evidence.unsteady),
    )


def _left_out(unsteady: Unsteady) -> str:
    """A clause on what two runs of the original do not have in common either; "" for nothing."""
    names = [*sorted(unsteady.files), *sorted(unsteady.metrics)]
    return f"; the original alone gives another {first_few(names)} each time" if names else ""


def checksum_text(step: StepEvent) -> str:
    """What tells a step's parameters apart: their sum, and a digest of their bits."""
    return f"{step.checksum.sum} ({step.checksum.sha256[:12]})" if step.checksum else ""


def logged_metrics(
    one: RankTrace, other: RankTrace, *, shimmed: bool = False
) -> list[list[tuple[str, float]]]:
    """The metrics that each of two runs logs.

    Functions that log in only one run and loop over no loader are left out: the second run may
    have loaded from a cache what the first one computed. So is the number of cards beside a
    shimmed original, which always sees one.
    """
    traces = (one, other)
    functions = [{m.site.function for m in trace.metrics if m.site} for trace in traces]
    looping = {p.begin.site.function for trace in traces for p in trace.passes if p.begin.site}
    skipped = (functions[0] ^ functions[1]) - looping
    return [
        [
            (m.key, m.value)
            for m in trace.metrics
            if not (m.site and m.site.function in skipped)
            if not (shimmed and _CARDS.fullmatch(m.key))
        ]
        for trace in traces
    ]


def _first_difference(
    first: Sequence[tuple[str, float]], second: Sequence[tuple[str, float]]
) -> tuple[str, float]:
    for one, other in itertools.zip_longest(first, second):
        if not compare.is_same(one, other):
            return one or other
    raise ValueError("they are the same")


def writes_once(evidence: Evidence) -> Row:
    """C5: one writer for each file, and checkpoints renamed into place."""
    problems: list[tuple[str, str]] = []
    names: set[str] = set()
    for run in evidence.groups:
        files = compare.writers(run.ranks, run.live_output) | compare.writers_outside(
            run.ranks, run.live_output
        )
        names |= set(files)
        problems += [
            (run.name, f"{name} is written by ranks {comma_list(sorted(ranks))}")
            for name, ranks in files.items()
            if len(ranks) > 1
        ]
        problems += [(run.name, each) for each in compare.checkpoints_written_in_place(run.ranks)]
    if problems:
        return Row("C5", "broken", group_by_problem(problems))
    ended = all(run.ended_well for run in evidence.groups)
    if not names:
        return Row("C5", "not judged", "no file was written")
    if not ended or evidence.skip_reasons:
        return Row("C5", "unproven", "not every run came to its end")
    return Row("C5", "holds", f"{first_few(sorted(names))}: one writer each")


def ends_well(evidence: Evidence) -> Row:
    """C6: exit statuses, process groups, and the same collectives on every rank."""
    problems: list[tuple[str, str]] = []
    for run in evidence.groups:
        if not run.ended_well:
            problems.append((run.name, run.failure_reason))
        mismatch = _collective_mismatch(run.ranks)
        if mismatch:
            problems.append((run.name, mismatch))
        alive = [trace.rank for trace in run.ranks if trace.group_destroyed is False]
        if run.ended_well and alive:
            problems.append((run.name, f"rank {comma_list(alive)} leaves its process group open"))
        if run.outcome.left_behind and run.ended_well:
            problems.append((run.name, f"{run.outcome.left_behind} processes were left behind"))
    if problems:
        return Row("C6", "broken", group_by_problem(problems))
    total = sum(len(run.ranks) for run in evidence.groups)
    return Row(
        "C6",
        "holds",
        f"{total} ranks in {len(evidence.groups)} groups exit 0, end their group and take part in "
        "the same collectives",
    )


def _collective_mismatch(ranks: Sequence[RankTrace]) -> str:
    """Describe where the ranks' collectives over the whole group first differ; "" if nowhere.

    A run can survive this by luck, when a later collective happens to pair with an earlier one.
    Those of DistributedDataParallel must come from the same line, or a forward pass in evaluation
    on rank 0 would pair with one in training on rank 1. A barrier may be called in two branches.
    """
    lists = [
        [
            event
            for event in trace.events_of(Collective)
            if event.group_size in (None, trace.world_size) and event.op not in _POINT_TO_POINT
        ]
        for trace in ranks
    ]
    for number, events in enumerate(itertools.zip_longest(*lists), 1):
        kinds = {
            (event.op, event.site if event.op.startswith("ddp_") else None) if event else None
            for event in events
        }
        if len(kinds) > 1:
            operations = [
                f"rank {trace.rank} {f'{e.op} in {e.site}' if e else 'has ended'}"
                for trace, e in zip(ranks, events, strict=True)
            ]
            return f"collective {number} is not the same on all ranks: {', '.join(operations)}"
    return ""


def schedules_right(evidence: Evidence) -> Row:
    """C7: the learning rates of every group equal the reference run's."""
    reference = compare.steps(evidence.reference.ranks)
    for run in evidence.groups:
        rates = compare.steps(run.ranks)
        number = compare.first_step_beyond(reference, rates, "lr", 1e-12)
        if number:
            return Row(
                "C7",
                "broken",
                f"{run.name}: the rate of step {number} is {rates[number - 1].lr:g}, in "
                f"{evidence.reference.name} {reference[number - 1].lr:g}",
            )
    if not reference:
        return Row("C7", "unproven", "no optimizer step was taken")
    setting, values = "accumulation", {run.accumulation for run in evidence.groups}
    if not evidence.has_accumulation_flag:
        setting, values = "world size", {len(run.ranks) for run in evidence.groups}
    if len(values) < 2:
        return Row("C7", "unproven", f"only one {setting} was run: it takes two to tell")
    if any(len(compare.steps(run.ranks)) < len(reference) for run in evidence.groups):
        return Row("C7", "unproven", "a run ended before its last step")
    peak = max(step.lr for step in reference)
    return Row(
        "C7",
        "holds",
        f"the same rates at {setting} {comma_list(sorted(values))}: {len(reference)} steps, "
        f"peak {peak:g}, last {reference[-1].lr:g}",
    )


def collect_warnings(evidence: Evidence) -> list[str]:
    """Sentences on what weakens the verdict or is worth knowing."""
    sentences = [*evidence.skip_reasons, *judge_unused_parameters(evidence.groups)]
    output = evidence.groups[0].output
    sizes = [coverage.length for coverage in compare.evaluations(evidence.groups[0].ranks)]
    hidden: dict[str, list[str]] = {}
    for path in sorted(path for path in output.rglob("*") if path.is_file()):
        if what := hidden_order(path, sizes):
            hidden.setdefault(what, []).append(path.name)
    for what, names in hidden.items():
        sentences.append(
            f"{first_few(names)}: only {what} is ever predicted, so a wrong order would not show "
            "(order unproven); train longer or on other data"
        )
    return sentences
