"""C4: check that every evaluation scores each example once, with the same results."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from ..trace.events import BatchEvent, Metric, Pass, StepEvent
from ..trace.read import RankTrace
from . import trace_compare as compare
from .compare_training import pairs_to_compare, weights_may_differ
from .evidence import Evidence, Row, RunTrace
from .output_files import (
    ROUNDING_TOLERANCE,
    comparable_content,
    different_files,
    is_same_file,
    list_text_files,
)
from .prediction_order import hidden_order
from .training_numbers import NumbersApart, numbers_apart
from .unsteady import Unsteady
from .wording import comma_list, first_few, group_by_problem

# The usual names of evaluation metrics.
_SCORE_NAME = re.compile(
    r"^(eval|test|dev|valid|best)|\b(acc|accuracy|f1|precision|recall|mrr|map|bleu|em|ppl|"
    r"perplexity|exact match)\b",
    re.IGNORECASE,
)
_SETTING_NAME = re.compile(r"batch|world|rank|process|worker|gpu|\bsteps?\b", re.IGNORECASE)


def scores_once(evidence: Evidence) -> Row:
    """C4: coverage of every evaluation, metrics on every rank, prediction files.

    These are to be the same byte for byte, raw floats in them to float32's accuracy.
    """
    problems: list[tuple[str, str]] = []
    unproven: list[str] = list(evidence.skip_reasons)
    model = evidence.patched_alone if evidence.patched_alone.ended_well else evidence.reference
    expected = compare.evaluations(model.ranks)
    if not expected:
        return Row("C4", "not judged", f"{model.name} evaluated nothing")
    for run in evidence.groups:
        problems += [
            (run.name, text)
            for text in _coverage_problems(run, expected, evidence.evaluations_cut_short)
        ]
        problems += [(run.name, text) for text in _rank_disagreement(run, evidence.unsteady)]
        if not run.ended_well:
            unproven.append(f"{run.name} did not end well: {run.failure_reason}")
    different, doubtful = _differing_scores(evidence)
    problems += different
    unproven += doubtful
    if problems:
        return Row("C4", "broken", group_by_problem(problems))
    if evidence.evaluations_cut_short:
        return Row("C4", "not judged", "evaluations were cut short; no example was scored twice")
    if unproven:
        return Row("C4", "unproven", first_few(unproven, 3))
    sizes = sorted({coverage.length for coverage in expected})
    folders = [(evidence.reference_of(run).output, run.output) for run in evidence.groups]
    names = list_text_files(evidence.reference.output)
    texts = [
        name
        for name in names
        if all(
            comparable_content(base / name) == comparable_content(other / name)
            for base, other in folders
        )
    ]
    rounded = [
        name
        for name in names
        if name not in texts
        and all(is_same_file(base / name, other / name, rounded=True) for base, other in folders)
    ]
    return Row(
        "C4",
        "holds",
        f"{len(expected)} evaluations ({comma_list(sizes)} examples) in each of "
        f"{len(evidence.groups)} groups: each example once; the same scores on every rank; "
        + _compared_files(texts, rounded)
        + _own_numbers(evidence)
        + _unproven_order(evidence.reference, texts, sizes),
    )


def _compared_files(alike: Sequence[str], rounded: Sequence[str]) -> str:
    """What a comparison of text files has found, where nothing is wrong."""
    found = [f"the same bytes in {first_few(alike)}"] if alike else []
    found += (
        [f"the same but for the rounding of numbers in {first_few(rounded)}"] if rounded else []
    )
    return ", ".join(found) or "no text file to compare"


def _own_numbers(evidence: Evidence) -> str:
    """A clause on files with numbers of training, which are one rank's; "" where there is none."""
    own = {
        name
        for run in evidence.groups
        for name in _files_apart(
            evidence.reference_of(run), run, evidence.unsteady, NumbersApart.TRAINING
        )
    }
    return f"; numbers of training in {first_few(sorted(own))} are of rank 0's share" if own else ""


def _unproven_order(run: RunTrace, names: Sequence[str], sizes: Sequence[int]) -> str:
    """A clause on prediction files that would look the same in any order; "" without one."""
    alike = [name for name in names if hidden_order(run.output / name, sizes)]
    return f"; order unproven: all lines of {first_few(alike)} predict the same" if alike else ""


def _differing_scores(evidence: Evidence) -> tuple[list[tuple[str, str]], list[str]]:
    """Groups whose scores differ from the reference's, and those where that proves nothing."""
    problems: list[tuple[str, str]] = []
    unproven = unnamed_numbers(evidence)
    for run, _ in pairs_to_compare(evidence):
        base = evidence.reference_of(run)
        if evidence.evaluations_cut_short or not (run.ended_well and base.ended_well):
            continue
        different = score_difference(base, run, evidence.unsteady)
        if not different:
            continue
        if weights_may_differ(evidence, run):
            rescored = evidence.rescored_runs.get(run.name)
            if rescored is None or not rescored.ended_well or not list_text_files(rescored.output):
                unproven.append(f"{run.name}: {different}; the weights differ too, rightfully")
                continue
            # Metrics are not comparable: without training, a sampled set comes out differently.
            different = _file_differences(rescored, run, evidence.unsteady)
        if different:
            problems.append((run.name, different))
    return problems, unproven


def unnamed_numbers(evidence: Evidence) -> list[str]:
    """Groups with files of which some numbers are not the reference's, and may be of training."""
    found = []
    for run, _ in pairs_to_compare(evidence):
        base = evidence.reference_of(run)
        doubtful = _files_apart(base, run, evidence.unsteady, NumbersApart.UNKNOWN)
        if doubtful and not evidence.evaluations_cut_short and run.ended_well and base.ended_well:
            found.append(
                f"{run.name}: {first_few(doubtful)} has other numbers than in {base.name}, as"
                " training losses of one rank's share are"
            )
    return found


def _files_apart(
    base: RunTrace, run: RunTrace, unsteady: Unsteady, kind: NumbersApart
) -> list[str]:
    """The text files in which two runs differ by numbers of a kind."""
    names = unsteady.steady_files(different_files(base.output, run.output, text_only=True))
    return [name for name in names if _apart(base, run, name) is kind]


def _apart(base: RunTrace, run: RunTrace, name: str) -> NumbersApart:
    """What the numbers are of in which a file differs between two runs."""
    paths = base.output / name, run.output / name
    if not all(path.is_file() for path in paths):
        return NumbersApart.EXAMPLES
    one, other = (path.read_text("utf-8") for path in paths)
    return numbers_apart(one, other, [each.length for each in compare.evaluations(base.ranks)])


def _coverage_problems(
    run: RunTrace, expected: Sequence[compare.Coverage], cut_short: bool
) -> Iterator[str]:
    """How a run's evaluations miss or repeat examples, compared with one process's."""
    actual = compare.evaluations(run.ranks)
    if len(actual) < len(expected) and run.ended_well:
        yield f"{len(actual)} evaluations where one process makes {len(expected)}"
    problems = []
    for number, (coverage, wanted) in enumerate(zip(actual, expected, strict=False), 1):
        if sorted(wanted.indices) in (sorted(coverage.indices), sorted(coverage.by_each)):
            continue
        counts = Counter(coverage.indices)
        missing = [index for index in wanted.indices if index not in counts]
        repeated = [index for index, count in counts.items() if count > 1]
        if (cut_short and not repeated) or (not run.ended_well and number >= len(actual)):
            continue
        problems.append(
            f"evaluation {number} scores {len(counts)} of {coverage.length} examples"
            + (f", missing {first_few(missing)}" if missing else "")
            + (f", repeating {first_few(repeated)}" if repeated else "")
        )
    if problems:
        count = len(problems)
        rest = f" ({count} of {len(actual)} evaluations like this)" if count > 1 else ""
        yield problems[0] + rest


def _rank_disagreement(run: RunTrace, unsteady: Unsteady) -> Iterator[str]:
    """The first metric in which a rank disagrees with rank 0, if any."""
    first, *others = [
        unsteady.steady_metrics(evaluation_scores(run.ranks, trace)) for trace in run.ranks
    ]
    for trace, other in zip(run.ranks[1:], others, strict=True):
        for (key, value), (other_key, other_value) in zip(first, other, strict=False):
            if key != other_key or not _is_close(key, value, other_value):
                yield f"rank {trace.rank} has {other_key} {other_value:g}, rank 0 {key} {value:g}"
                return


def evaluation_scores(ranks: Sequence[RankTrace], trace: RankTrace) -> list[tuple[str, float]]:
    """Evaluation metrics that one rank logged, recognised by name or by the logging function.

    Functions that evaluate are collected from all ``ranks``, as a rank's own share may be empty.
    Anything else logged between the first training batch after an evaluation and the next
    evaluation belongs to training.
    """
    evaluating_functions = {
        one.begin.site.function
        for each in ranks
        for one in each.passes
        if one.kind == "eval" and one.begin.site is not None
    } - {"<module>", "main", "train"}
    evaluations = {one.begin.pass_id for one in trace.passes if compare.is_evaluation(one)}
    trainings = {one.begin.pass_id for one in trace.passes if one.kind == "train"}
    in_training = False
    metrics = []
    for event in trace.events:
        if isinstance(event, StepEvent) or (
            isinstance(event, BatchEvent) and event.pass_id in trainings
        ):
            in_training = bool(evaluations)
        elif isinstance(event, Pass) and event.pass_id in evaluations:
            in_training = False
        elif isinstance(event, Metric) and not _SETTING_NAME.search(event.key):
            evaluates = event.site is not None and event.site.function in evaluating_functions
            if evaluates or (_SCORE_NAME.search(event.key) and not in_training):
                metrics.append((event.key, event.value))
    return metrics


def score_difference(base: RunTrace, run: RunTrace, unsteady: Unsteady) -> str:
    """Describe the first score and the prediction files in which two runs differ; "" for none."""
    expected, actual = (
        unsteady.steady_metrics(evaluation_scores(base.ranks, base.ranks[0])),
        unsteady.steady_metrics(evaluation_scores(run.ranks, run.ranks[0])),
    )
    differences = []
    if len(expected) != len(actual):
        differences.append(f"{len(actual)} scores are logged, {base.name} logs {len(expected)}")
    for (key, value), (other_key, other_value) in zip(expected, actual, strict=False):
        if key != other_key or not _is_close(key, value, other_value):
            differences.append(f"{other_key} is {other_value:g}, in {base.name} {key} is {value:g}")
            break
    return " and ".join([*differences, *filter(None, [_file_differences(base, run, unsteady)])])


def _file_differences(base: RunTrace, run: RunTrace, unsteady: Unsteady) -> str:
    names = _files_apart(base, run, unsteady, NumbersApart.EXAMPLES)
    return " and ".join(_line_difference(base, run, name) for name in names[:2])


def _line_difference(base: RunTrace, run: RunTrace, name: str) -> str:
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


def _is_close(key: str, value: float, other: float) -> bool:
    if compare.is_same(value, other):
        return True
    if "loss" in key.lower() or "perplexity" in key.lower() or "ppl" in key.lower():
        return math.isclose(value, other, rel_tol=ROUNDING_TOLERANCE, abs_tol=ROUNDING_TOLERANCE)
    return math.isclose(value, other, rel_tol=1e-6, abs_tol=1e-9)
