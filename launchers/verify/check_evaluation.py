"""C4: whether every evaluation scores each example once, and to the same end."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from ..trace.events import Metric, Pass, StepEvent
from ..trace.read import RankTrace
from . import trace_compare as compare
from .check_training import pairs, parted
from .evidence import Evidence, Row, RunTrace
from .output_files import ROUNDING, content, different_files, texts_of
from .wording import grouped, listed, some

# What numbers that an evaluation gives are usually called.
_SCORE = re.compile(
    r"^(eval|test|dev|valid|best)|\b(acc|accuracy|f1|precision|recall|mrr|map|bleu|em|ppl|"
    r"perplexity|exact match)\b",
    re.IGNORECASE,
)
_SETTING = re.compile(r"batch|world|rank|process|worker|gpu|\bsteps?\b", re.IGNORECASE)


def scores_once(evidence: Evidence) -> Row:
    """C4: coverage of every evaluation, metrics on every rank, prediction files byte for byte."""
    problems: list[tuple[str, str]] = []
    unproven: list[str] = list(evidence.skipped)
    reference = evidence.reference
    model = evidence.alone if evidence.alone.ended_well else reference
    expected = compare.evaluations(model.ranks)
    if not expected:
        return Row("C4", "not judged", f"{model.name} evaluated nothing")
    for run in evidence.groups:
        problems += [(run.name, each) for each in _coverage(run, expected, evidence.cut)]
        problems += [(run.name, each) for each in _ranks_disagree(run)]
        if not run.ended_well:
            unproven.append(f"{run.name} did not end well: {run.why}")
    for run, _ in pairs(evidence):
        base = evidence.reference_of(run)
        if evidence.cut or not (run.ended_well and base.ended_well):
            continue
        different = scores_differ(base, run)
        if not different:
            continue
        if parted(evidence, run):
            again = evidence.again.get(run.name)
            if again is None or not again.ended_well or not texts_of(again.output):
                unproven.append(f"{run.name}: {different}, but so do the weights, rightfully")
                continue
            # Not its metrics: without training, a set that is sampled is another one.
            different = _files_differ(again, run)
        if different:
            problems.append((run.name, different))
    if problems:
        return Row("C4", "broken", grouped(problems))
    if evidence.cut:
        return Row("C4", "not judged", "evaluations were cut short; no example was scored twice")
    if unproven:
        return Row("C4", "unproven", some(unproven, 3))
    sizes = sorted({coverage.length for coverage in expected})
    followed = [(evidence.reference_of(run).output, run.output) for run in evidence.groups]
    texts = [
        name
        for name in texts_of(reference.output)
        if all(content(base / name) == content(other / name) for base, other in followed)
    ]
    return Row(
        "C4",
        "holds",
        f"{len(expected)} evaluations ({listed(sizes)} examples) in each of "
        f"{len(evidence.groups)} groups: each example once; the same scores on every rank; "
        + (f"the same bytes in {some(texts)}" if texts else "no text file to compare"),
    )


def _coverage(run: RunTrace, expected: Sequence[compare.Coverage], cut: bool) -> Iterator[str]:
    found = compare.evaluations(run.ranks)
    if len(found) < len(expected) and run.ended_well:
        yield f"{len(found)} evaluations where one process makes {len(expected)}"
    wrong = []
    for number, (coverage, should) in enumerate(zip(found, expected, strict=False), 1):
        if sorted(coverage.drawn) == sorted(should.drawn):
            continue
        seen = Counter(coverage.drawn)
        missing = [index for index in should.drawn if index not in seen]
        twice = [index for index, count in seen.items() if count > 1]
        if (cut and not twice) or (not run.ended_well and number >= len(found)):
            continue
        wrong.append(
            f"evaluation {number} scores {len(seen)} of {coverage.length} examples"
            + (f", missing {some(missing)}" if missing else "")
            + (f", repeating {some(twice)}" if twice else "")
        )
    if wrong:
        rest = f" ({len(wrong)} of {len(found)} evaluations like this)" if len(wrong) > 1 else ""
        yield wrong[0] + rest


def _ranks_disagree(run: RunTrace) -> Iterator[str]:
    first, *others = [scores(run.ranks, trace) for trace in run.ranks]
    for trace, other in zip(run.ranks[1:], others, strict=True):
        for (key, value), (name, theirs) in zip(first, other, strict=False):
            if key != name or not _close(key, value, theirs):
                yield f"rank {trace.rank} has {name} {theirs:g}, rank 0 {key} {value:g}"
                return


def scores(ranks: Sequence[RankTrace], trace: RankTrace) -> list[tuple[str, float]]:
    """Metrics of one rank that come from evaluations: by name, or logged where one loops.

    All ``ranks`` are asked where that is, as a rank's own share may be empty. What else is logged
    between the first optimizer step behind an evaluation and the next evaluation is of training.
    """
    places = {
        one.begin.site.function
        for each in ranks
        for one in each.passes
        if one.kind == "eval" and one.begin.site is not None
    } - {"<module>", "main", "train"}
    evaluations = {one.begin.pass_id for one in trace.passes if one.kind == "eval"}
    trains = False
    found = []
    for event in trace.events:
        if isinstance(event, StepEvent):
            trains = bool(evaluations)
        elif isinstance(event, Pass) and event.pass_id in evaluations:
            trains = False
        elif isinstance(event, Metric) and not _SETTING.search(event.key):
            here = event.site is not None and event.site.function in places
            if here or (_SCORE.search(event.key) and not trains):
                found.append((event.key, event.value))
    return found


def scores_differ(base: RunTrace, run: RunTrace) -> str:
    """The first score and the prediction files in which two runs differ; empty for none."""
    one, other = scores(base.ranks, base.ranks[0]), scores(run.ranks, run.ranks[0])
    found = []
    if len(one) != len(other):
        found.append(f"{len(other)} scores are logged, {base.name} logs {len(one)}")
    for (key, value), (name, theirs) in zip(one, other, strict=False):
        if key != name or not _close(key, value, theirs):
            found.append(f"{name} is {theirs:g}, in {base.name} {key} is {value:g}")
            break
    return " and ".join([*found, *filter(None, [_files_differ(base, run)])])


def _files_differ(base: RunTrace, run: RunTrace) -> str:
    names = different_files(base.output, run.output, text_only=True)[:2]
    return " and ".join(_lines_differ(base, run, name) for name in names)


def _lines_differ(base: RunTrace, run: RunTrace, name: str) -> str:
    paths = base.output / name, run.output / name
    if not all(path.is_file() for path in paths):
        here, there = (run, base) if paths[1].is_file() else (base, run)
        return f"{name} is there in {here.name}, but not in {there.name}"
    one, other = (path.read_text("utf-8").splitlines() for path in paths)
    same = sum(a == b for a, b in zip(one, other, strict=False))
    return (
        f"{name} has {len(other)} lines, of which {same} are the {len(one)} of {base.name} at "
        "their place"
    )


def _close(key: str, value: float, other: float) -> bool:
    if "loss" in key.lower() or "perplexity" in key.lower() or "ppl" in key.lower():
        return math.isclose(value, other, rel_tol=ROUNDING, abs_tol=ROUNDING)
    return math.isclose(value, other, rel_tol=1e-6, abs_tol=1e-9) or value != value
