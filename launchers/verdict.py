"""The contract's rows, judged by what traced runs did. Runs nothing and imports no torch.

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
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from attrs import field, frozen

from . import compare
from .run import LOG, Outcome
from .tolerances import FP32, Tolerances
from .trace.events import Closed, Collective, Exit, Metric, Parameters, Pass, Step
from .trace.read import RankTrace, disagreement

ROUNDING = 1.01e-4
"""How far two losses may be apart that are logged with four decimals: one in the last."""

FOREIGN = f"No module named '{__name__.partition('.')[0]}"
"""How the failure of a script begins that imports ddpfix where that cannot be imported."""

Status = Literal["holds", "broken", "unproven", "not judged"]
TITLES = {
    "C1": "stands on its own",
    "C2": "one process computes what the original did",
    "C3": "every world size and accumulation trains the same",
    "C4": "evaluation scores every example once",
    "C5": "every file has one writer and appears whole",
    "C6": "no rank hangs, all end well",
    "C7": "the schedule spans the real optimizer steps",
    "C8": "a flag that is passed is obeyed",
    "C9": "only the announced lines differ",
}


@frozen
class Row:
    """One promise of the contract, and the evidence in a sentence."""

    code: str
    status: Status
    evidence: str

    @property
    def title(self) -> str:
        """The promise in a few words."""
        return TITLES[self.code]


@frozen
class Observed:
    """One traced run. ``world`` is None for a script on its own, outside any process group.

    ``wrote`` is its output folder while it ran, ``output`` where that lies now, ``trace`` the
    folder of its trace. ``global_batch`` = batch x accumulation x world.
    """

    name: str
    world: int | None
    accumulation: int
    outcome: Outcome
    ranks: tuple[RankTrace, ...]
    wrote: Path
    output: Path
    trace: Path

    @property
    def ended_well(self) -> bool:
        """All ranks, and what started them, exited with 0."""
        return self.outcome.status == 0 and set(compare.statuses(self.ranks)) == {0}

    @property
    def aborted_after_the_end(self) -> bool:
        """All ranks had ended with 0, script and exit handlers, and yet a process failed."""
        ended = all(trace.status == 0 and trace.last(Closed) for trace in self.ranks)
        return self.outcome.status != 0 and ended and "SIGABRT" in self.outcome.cause + self._log()

    @property
    def why(self) -> str:
        """How it ended, when that was not well: who hung where, or who failed with what."""
        return (
            disagreement(self.ranks)
            or next(_failures(self.ranks), "")
            or f"{self.outcome.cause}; ranks exited with {_list(compare.statuses(self.ranks))}"
            + self._last_words()
        )

    def _log(self) -> str:
        path = self.trace.parent / LOG
        return path.read_text("utf-8", errors="replace") if path.is_file() else ""

    def _last_words(self) -> str:
        lines = self._log().split("\n")
        said = [line for line in lines if "Error" in line or line.startswith("ddpfix")]
        return f" ({said[-1].strip()[:160]})" if said else ""


@frozen
class Evidence:
    """All runs that a verdict rests on.

    ``original`` is None where it was not or could not be run, for the reason ``no_original``.
    ``groups`` holds the group of one first: the reference for all others, ``held_to`` how far they
    may be apart. ``again``: for a name in ``groups`` whose weights differ rightfully, a group of
    one that predicted with its checkpoint.
    ``skipped``: why a group was not run. ``cut``: evaluations were cut short on request.
    ``untouched``: the original alone without dropout, to which every group is then held step by
    step.
    ``apart``: why each accumulation trains in a way of its own, as where examples are held against
    their micro-batch, so that a group is held to the group of one with its accumulation.
    ``accumulates``: the script has a flag for it. ``shimmed``: the original ran with what it needs
    of older libraries.
    ``flags`` is C8's row and ``patching`` C9's, which need no run.
    """

    original: Observed | None
    no_original: str
    alone: Observed
    groups: tuple[Observed, ...]
    flags: Row
    patching: Row
    cut: bool = False
    again: dict[str, Observed] = field(factory=dict)
    skipped: tuple[str, ...] = ()
    untouched: Observed | None = None
    held_to: Tolerances = FP32
    apart: str = ""
    shimmed: bool = False
    accumulates: bool = True

    @property
    def reference(self) -> Observed:
        """The run that all groups are held to."""
        return self.untouched or self.groups[0]

    def reference_of(self, run: Observed) -> Observed:
        """The run whose training and scores a group has to share."""
        if not self.apart or self.untouched is not None:
            return self.reference
        alike = (other for other in self.groups if other.accumulation == run.accumulation)
        return next(other for other in alike if other.world == 1 or other is run)


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
        evidence.flags,
        evidence.patching,
    ]


def stands_alone(evidence: Evidence) -> Row:
    """C1: the runs ended although importing ddpfix failed in them."""
    for run in (evidence.alone, *evidence.groups):
        for trace in run.ranks:
            end = trace.last(Exit)
            if end and end.failure and FOREIGN in end.failure.message:
                return Row("C1", "broken", f"{run.name}: it imports ddpfix ({end.failure.site})")
    if not evidence.alone.ended_well:
        return Row("C1", "unproven", f"{evidence.alone.name}: {evidence.alone.why}")
    count = 1 + len(evidence.groups)
    return Row("C1", "holds", f"in all {count} runs `import ddpfix` would have failed")


def computes_the_same(evidence: Evidence) -> Row:
    """C2: bit for bit what the original computed, and the same bytes in its files."""
    before, after = evidence.original, evidence.alone
    if before is None:
        return Row("C2", "unproven", evidence.no_original)
    if not after.ended_well:
        return Row("C2", "broken", f"patched, it fails where the original does not: {after.why}")
    (one,), (other,) = before.ranks, after.ranks
    if len(one.steps) != len(other.steps):
        return Row(
            "C2", "broken", f"{len(other.steps)} optimizer steps, {len(one.steps)} originally"
        )
    for number, (a, b) in enumerate(zip(one.steps, other.steps, strict=True), 1):
        for what, x, y in (
            ("loss", a.losses, b.losses),
            ("gradient norm", a.norm_before, b.norm_before),
            ("learning rate", a.lrs, b.lrs),
            ("parameters", a.checksum, b.checksum),
        ):
            if x != y and not (x != x and y != y):
                return Row("C2", "broken", f"step {number}: another {what} ({_short(x, y)})")
    values = _logged(one, other)
    if values[0] != values[1]:
        key, *_ = _first_difference(*values)
        return Row("C2", "broken", f"another value is logged for {key!r}")
    different = different_files(before.output, after.output, text_only=False)
    # Saved arguments tell how many cards there are, of which only a shimmed original sees one.
    told = [name for name in different if evidence.shimmed and _ARGUMENTS.search(name)]
    if different != told:
        return Row("C2", "broken", f"files differ: {_some([*{*different} - {*told}])}")
    files = sum(1 for _ in _files(before.output)) - len(told)
    return Row(
        "C2",
        "holds",
        f"{len(one.steps)} steps bit for bit (loss, norm, rate, parameters), "
        f"{len(values[0])} logged numbers and {files} files the same",
    )


def _logged(one: RankTrace, other: RankTrace) -> list[list[tuple[str, float]]]:
    """Numbers that either logs, but for functions that log in one of them alone and loop over no
    loader: the second run may have found in a cache what the first one made.
    """
    traces = (one, other)
    sites = [{m.site.function for m in trace.metrics if m.site} for trace in traces]
    loops = {p.begin.site.function for trace in traces for p in trace.passes if p.begin.site}
    made = (sites[0] ^ sites[1]) - loops
    return [
        [(m.key, m.value) for m in trace.metrics if not (m.site and m.site.function in made)]
        for trace in traces
    ]


@frozen
class Match:
    """How far one run follows another; ``padded`` is the first step with repeated examples, or 0.

    ``problem`` is empty when it follows; ``unproven`` says why nothing can be said.
    """

    steps: int = 0
    loss: float = 0.0
    norm: float = 0.0
    weights: float | None = None
    padded: int = 0
    padding: str = ""
    problem: str = ""
    unproven: str = ""


def trains_the_same(evidence: Evidence) -> Row:
    """C3: each group against the one that it must follow."""
    problems: list[tuple[str, str]] = []
    unproven, said, matches = list(evidence.skipped), [], []
    reference = evidence.reference
    problems += repeated_order(evidence)
    for run in evidence.groups:
        part = compare.ranks_part(run.ranks)
        if part:
            problems.append((run.name, f"the ranks' parameters differ after step {part}"))
    if len(evidence.groups) == 1 and evidence.untouched is None:
        unproven.append("no run to hold against the group of one")
    for run, base in pairs(evidence):
        found = match(base, run, evidence.held_to)
        if found.problem:
            problems.append((run.name, found.problem))
        elif found.unproven:
            unproven.append(f"{run.name}: {found.unproven}")
        else:
            matches.append(found)
        if found.padding:
            said.append(f"{run.name}: {found.padding}")
    if problems:
        return Row("C3", "broken", _grouped(problems))
    if not reference.ranks[0].steps:
        return Row("C3", "unproven", f"{reference.name} took no optimizer step")
    if unproven:
        return Row("C3", "unproven", _some(unproven, 3))
    weights = [found.weights for found in matches if found.weights is not None]
    sentence = (
        f"{len(matches)} run{'s' if len(matches) > 1 else ''} of {matches[0].steps} steps"
        + (" held to the untouched script alone" if evidence.untouched else "")
        + ": at most "
        f"{max(found.loss for found in matches):.1e} apart in the loss, "
        f"{max(found.norm for found in matches):.1e} in the gradient norm"
        + (f", {max(weights):.1e} in the final parameters" if weights else "")
    )
    if evidence.apart:
        said.append(f"{evidence.apart}: each accumulation is for itself")
    said = [evidence.held_to.said, *said]
    return Row("C3", "holds", "; ".join([sentence, *filter(None, said)]))


def pairs(evidence: Evidence) -> Iterator[tuple[Observed, Observed]]:
    """Each group with the run that it must follow step by step.

    That is the untouched script, if it is what counts. Else it is, for all groups but the first,
    the run of the same world with another accumulation, for then padding is the same too, or the
    group of one; where accumulations are apart, the group of one with the same accumulation.
    """
    groups = evidence.groups
    if evidence.untouched is not None:
        yield from ((run, evidence.untouched) for run in groups)
        return
    if evidence.apart:
        bases = ((run, evidence.reference_of(run)) for run in groups)
        yield from ((run, base) for run, base in bases if base is not run)
        return
    for number, run in enumerate(groups[1:], 1):
        same_world = [other for other in groups[:number] if other.world == run.world]
        yield run, (same_world or groups)[0]


def match(base: Observed, run: Observed, held_to: Tolerances) -> Match:
    """Compare the examples, losses, norms and final parameters of two runs of one global batch.

    Steps are held to the tolerances up to the first padded one. From then on the weights differ
    rightfully, so only the examples of each step are compared. Where ``base`` is the untouched
    script on its own, an example that a rank repeats has to count for nothing, and no step is let
    off.
    """
    first, second = compare.steps(base.ranks), compare.steps(run.ranks)
    drawn = compare.draws(base.ranks), compare.draws(run.ranks)
    if base.world is None:
        padded, (padding, problem) = 0, _weightless(*drawn)
    else:
        padded, padding, problem = _same_examples(*drawn, run)
    strict = padded - 1 if padded else min(len(first), len(second))
    one, other = first[:strict], second[:strict]
    problem = problem or _off(one, other, base.name, held_to)
    if not problem and len(first) != len(second):
        if run.ended_well and base.ended_well:
            problem = f"{len(second)} optimizer steps, {base.name} takes {len(first)}"
        else:
            return Match(unproven=f"ended after {len(second)} of {len(first)} steps", padded=padded)
    weights = None if padded or problem else parameters_apart(base, run)
    if weights is not None and not weights <= held_to.weights:
        problem = f"the final parameters are {weights:.1e} off those of {base.name}"
    return Match(
        steps=len(second),
        loss=compare.deviation(one, other, "loss").largest,
        norm=compare.deviation(one, other, "norm").largest,
        weights=weights,
        padded=padded,
        padding=padding,
        problem=problem,
    )


def parted(evidence: Evidence, run: Observed) -> bool:
    """Whether a run's weights may differ from the reference's by more than rounding in fp32.

    That is by padding, or where low precision rounds. Scores are then comparable for equal weights
    only.
    """
    low = evidence.held_to != FP32
    return low or bool(match(evidence.reference_of(run), run, evidence.held_to).padded)


def _off(
    one: Sequence[compare.StepNumbers],
    other: Sequence[compare.StepNumbers],
    name: str,
    held_to: Tolerances,
) -> str:
    """The first step that is beyond the tolerances, and by how much; empty where none is."""
    beyond = [
        (
            compare.first_beyond(one[:1], other[:1], quantity, min(held_to.first, tolerance))
            or compare.first_beyond(one, other, quantity, tolerance),
            what,
            quantity,
        )
        for what, quantity, tolerance in (
            ("loss", "loss", held_to.loss),
            ("gradient norm", "norm", held_to.norm),
        )
    ]
    for number, what, quantity in sorted((b for b in beyond if b[0]), key=lambda b: b[0]):
        here = slice(number - 1, number)
        off = compare.deviation(one[here], other[here], quantity).largest
        largest = compare.deviation(one, other, quantity)
        return (
            f"the {what} of step {number} is {off:.1e} off {name} "
            f"(at most {largest.largest:.1e}, step {largest.step})"
        )
    return ""


def _same_examples(
    first: Sequence[compare.Draw], second: Sequence[compare.Draw], run: Observed
) -> tuple[int, str, str]:
    """First padded step, what is said of padding, and the first step with other examples."""
    padded, said = 0, ""
    for number, (one, other) in enumerate(zip(first, second, strict=False), 1):
        if one.indices == other.indices:
            if len(other.epochs) > 1:
                return padded, said, f"step {number} mixes examples of two epochs"
            continue
        missing, extra = other.lacks(one), one.lacks(other)
        if not missing and one.last and other.last and len(extra) < (run.world or 1):
            if not padded:
                epochs = max(1, sum(draw.last for draw in first))
                padded = number
                said = (
                    f"step {number} (last of its epoch) repeats {len(extra)} example"
                    f"{'s' if len(extra) > 1 else ''} as padding; the losses from there on are not "
                    f"compared, the examples of every step of {epochs} epochs are"
                )
            continue
        if len(other.epochs) > 1 >= len(one.epochs):
            return padded, said, f"step {number} mixes examples of two epochs"
        twice = sum(count - 1 for count in Counter(other.indices).values())
        return (
            padded,
            said,
            f"step {number} trains on other examples: {_count(len(missing), 'missing')}, "
            f"{_count(len(extra), 'foreign or repeated')}"
            + (f", {twice} drawn more than once" if twice else ""),
        )
    return padded, said, ""


def _weightless(first: Sequence[compare.Draw], second: Sequence[compare.Draw]) -> tuple[str, str]:
    """What is said of examples that ranks repeat, and the first step with other examples.

    Whether they have no weight is seen by the step's loss and norm.
    """
    repeating = 0
    for number, (one, other) in enumerate(zip(first, second, strict=False), 1):
        missing, extra = other.lacks(one), one.lacks(other)
        if missing or set(extra) - set(one.indices) or len(other.epochs) > 1:
            return "", (
                f"step {number} trains on other examples: {_count(len(missing), 'missing')}, "
                f"{_count(len(set(extra) - set(one.indices)), 'foreign')}"
            )
        repeating += bool(extra)
    if not repeating:
        return "", ""
    return f"ranks without a part repeat an example, with weight 0, in {repeating} steps", ""


def repeated_order(evidence: Evidence) -> list[tuple[str, str]]:
    """Groups whose epochs repeat each other's order in a group, while alone they do not."""
    if not evidence.alone.ranks[0].steps:
        return []

    def orders(run: Observed) -> list[list[int | None]]:
        passes = [p for p in run.ranks[0].passes if p.kind == "train" and p.end and p.end.complete]
        return [p.indices for p in passes if len(p.indices) > 3]

    def repeats(run: Observed) -> bool:
        found = orders(run)
        return any(a == b for a, b in itertools.pairwise(found))

    if repeats(evidence.alone):
        return []
    sentence = "an epoch repeats the order of the one before (set_epoch)"
    return [(run.name, sentence) for run in evidence.groups if repeats(run)]


def parameters_apart(base: Observed, run: Observed) -> float | None:
    """|a - b| / |a| over all trained parameters of two runs; None where they were not kept."""
    import numpy

    one, other = _parameters(base), _parameters(run)
    if one is None or other is None:
        return None
    with numpy.load(one) as a, numpy.load(other) as b:
        if set(a.files) != set(b.files):
            return math.inf
        off = math.fsum(float(numpy.square(a[n] - b[n], dtype="f8").sum()) for n in a.files)
        size = math.fsum(float(numpy.square(a[n], dtype="f8").sum()) for n in a.files)
    return math.sqrt(off / size) if size else 0.0


def _parameters(run: Observed) -> Path | None:
    """Parameters after the last step, before a checkpoint was loaded over them."""
    kept = [event for event in run.ranks[0].of(Parameters) if event.file]
    last = max((event.after_step for event in kept), default=0)
    return next((run.trace / str(e.file) for e in kept if e.after_step == last), None)


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
            if again is None or not again.ended_well or not _texts(again.output):
                unproven.append(f"{run.name}: {different}, but so do the weights, rightfully")
                continue
            # Not its metrics: without training, a set that is sampled is another one.
            different = _files_differ(again, run)
        if different:
            problems.append((run.name, different))
    if problems:
        return Row("C4", "broken", _grouped(problems))
    if evidence.cut:
        return Row("C4", "not judged", "evaluations were cut short; no example was scored twice")
    if unproven:
        return Row("C4", "unproven", _some(unproven, 3))
    sizes = sorted({coverage.length for coverage in expected})
    followed = [(evidence.reference_of(run).output, run.output) for run in evidence.groups]
    texts = [
        name
        for name in _texts(reference.output)
        if all(_content(base / name) == _content(other / name) for base, other in followed)
    ]
    return Row(
        "C4",
        "holds",
        f"{len(expected)} evaluations ({_list(sizes)} examples) in each of "
        f"{len(evidence.groups)} groups: each example once; the same scores on every rank; "
        + (f"the same bytes in {_some(texts)}" if texts else "no text file to compare"),
    )


def _coverage(run: Observed, expected: Sequence[compare.Coverage], cut: bool) -> Iterator[str]:
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
            + (f", missing {_some(missing)}" if missing else "")
            + (f", repeating {_some(twice)}" if twice else "")
        )
    if wrong:
        rest = f" ({len(wrong)} of {len(found)} evaluations like this)" if len(wrong) > 1 else ""
        yield wrong[0] + rest


def _ranks_disagree(run: Observed) -> Iterator[str]:
    first, *others = [scores(run.ranks, trace) for trace in run.ranks]
    for trace, other in zip(run.ranks[1:], others, strict=True):
        for (key, value), (name, theirs) in zip(first, other, strict=False):
            if key != name or not _close(key, value, theirs):
                yield f"rank {trace.rank} has {name} {theirs:g}, rank 0 {key} {value:g}"
                return


# What numbers that an evaluation gives are usually called.
_SCORE = re.compile(
    r"^(eval|test|dev|valid|best)|\b(acc|accuracy|f1|precision|recall|mrr|map|bleu|em|ppl|"
    r"perplexity|exact match)\b",
    re.IGNORECASE,
)
_SETTING = re.compile(r"batch|world|rank|process|worker|gpu|\bsteps?\b", re.IGNORECASE)
_ARGUMENTS = re.compile(r"(args|training)[^/]*\.(bin|pt|pkl)$")


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
        if isinstance(event, Step):
            trains = bool(evaluations)
        elif isinstance(event, Pass) and event.pass_id in evaluations:
            trains = False
        elif isinstance(event, Metric) and not _SETTING.search(event.key):
            here = event.site is not None and event.site.function in places
            if here or (_SCORE.search(event.key) and not trains):
                found.append((event.key, event.value))
    return found


def scores_differ(base: Observed, run: Observed) -> str:
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


def _files_differ(base: Observed, run: Observed) -> str:
    names = different_files(base.output, run.output, text_only=True)[:2]
    return " and ".join(_lines_differ(base, run, name) for name in names)


def _lines_differ(base: Observed, run: Observed, name: str) -> str:
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


def writes_once(evidence: Evidence) -> Row:
    """C5: who wrote each file, and whether checkpoints were renamed into place."""
    problems: list[tuple[str, str]] = []
    names: set[str] = set()
    for run in evidence.groups:
        files = compare.writers(run.ranks, run.wrote) | compare.writers_outside(
            run.ranks, run.wrote
        )
        names |= set(files)
        problems += [
            (run.name, f"{name} is written by ranks {_list(sorted(ranks))}")
            for name, ranks in files.items()
            if len(ranks) > 1
        ]
        problems += [(run.name, each) for each in compare.written_in_place(run.ranks)]
    if problems:
        return Row("C5", "broken", _grouped(problems))
    ended = all(run.ended_well for run in evidence.groups)
    if not names:
        return Row("C5", "not judged", "no file was written")
    if not ended or evidence.skipped:
        return Row("C5", "unproven", "not every run came to its end")
    return Row("C5", "holds", f"{_some(sorted(names))}: one writer each")


def ends_well(evidence: Evidence) -> Row:
    """C6: exit statuses, process groups, and the same collectives on every rank."""
    problems: list[tuple[str, str]] = []
    for run in evidence.groups:
        if not run.ended_well:
            problems.append((run.name, run.why))
        uneven = uneven_collectives(run.ranks)
        if uneven:
            problems.append((run.name, uneven))
        alive = [trace.rank for trace in run.ranks if trace.group_destroyed is False]
        if run.ended_well and alive:
            problems.append((run.name, f"rank {_list(alive)} leaves its process group open"))
        if run.outcome.left_behind and run.ended_well:
            problems.append((run.name, f"{run.outcome.left_behind} processes were left behind"))
    if problems:
        return Row("C6", "broken", _grouped(problems))
    total = sum(len(run.ranks) for run in evidence.groups)
    return Row(
        "C6",
        "holds",
        f"{total} ranks in {len(evidence.groups)} groups exit 0, end their group and take part in "
        "the same collectives",
    )


def uneven_collectives(ranks: Sequence[RankTrace]) -> str:
    """The first place where the ranks' collectives over the whole group part; empty for none.

    A run can survive this by luck, when a later collective happens to pair with an earlier one.
    Those of DistributedDataParallel must come from the same line: a forward pass in evaluation on
    rank 0 pairs with one in training on rank 1. A barrier may stand in two branches.
    """
    lists = [
        [
            event
            for event in trace.of(Collective)
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
            told = [
                f"rank {trace.rank} {f'{e.op} in {e.site}' if e else 'has ended'}"
                for trace, e in zip(ranks, events, strict=True)
            ]
            return f"collective {number} is not the same on all ranks: {', '.join(told)}"
    return ""


_POINT_TO_POINT = {"send", "recv", "isend", "irecv", "batch_isend_irecv"}


def schedules_right(evidence: Evidence) -> Row:
    """C7: the learning rates of every group are those of the run that all are held to."""
    reference = compare.steps(evidence.reference.ranks)
    for run in evidence.groups:
        rates = compare.steps(run.ranks)
        number = compare.first_beyond(reference, rates, "lr", 1e-12)
        if number:
            return Row(
                "C7",
                "broken",
                f"{run.name}: the rate of step {number} is {rates[number - 1].lr:g}, in "
                f"{evidence.reference.name} {reference[number - 1].lr:g}",
            )
    if not reference:
        return Row("C7", "unproven", "no optimizer step was taken")
    what, splits = "accumulation", {run.accumulation for run in evidence.groups}
    if not evidence.accumulates:
        what, splits = "world size", {len(run.ranks) for run in evidence.groups}
    if len(splits) < 2:
        return Row("C7", "unproven", f"only one {what} was run: it takes two to tell")
    if any(len(compare.steps(run.ranks)) < len(reference) for run in evidence.groups):
        return Row("C7", "unproven", "a run ended before its last step")
    peak = max(step.lr for step in reference)
    return Row(
        "C7",
        "holds",
        f"the same rates at {what} {_list(sorted(splits))}: {len(reference)} steps, "
        f"peak {peak:g}, last {reference[-1].lr:g}",
    )


def warnings(evidence: Evidence) -> list[str]:
    """What weakens the verdict or is worth knowing, a sentence each."""
    said = list(evidence.skipped)
    for path in sorted(evidence.groups[0].output.rglob("*pred*")):
        labels = one_class(path) if path.is_file() else None
        if labels is not None:
            said.append(
                f"{path.name}: only {labels!r} is ever predicted, so a wrong order would not show; "
                "train longer or on other data"
            )
    return said


def one_class(path: Path) -> str | None:
    """The one label that ends every line of a prediction file, or None where there are more."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    labels = {line.split()[-1] for line in lines if line.split()}
    return labels.pop() if len(labels) == 1 and len(lines) > 1 else None


_SCORES = re.compile(r"result|score|metric", re.IGNORECASE)
_DECIMAL = re.compile(r"\d+\.\d+")
_STAMP = re.compile(rb"\d{4}-\d\d-\d\d|\d\d/\d\d/\d{4}|\d\d:\d\d:\d\d(?:[.,]\d+)?")
_LOG = re.compile(r"\.log$|log|config|args|events\.out\.", re.IGNORECASE)


def different_files(first: Path, second: Path, *, text_only: bool) -> list[str]:
    """Files below two folders that are not in both, or differ in more than dates and times.

    ``text_only``: what a run predicts, so neither binary files nor logs and settings; scores, in a
    name or in a file of them, may then differ by rounding. Event files of TensorBoard bear host,
    time and process in name and content and are left out.
    """
    listed = _texts if text_only else _files
    names, theirs = set(listed(first)), set(listed(second))
    pairs = {name: name for name in names | theirs}
    for name in names - theirs if text_only else ():
        for other in theirs - names:
            if _is_rounded(name, other):
                pairs[name] = other
                pairs.pop(other, None)
    return sorted(
        name
        for name, other in pairs.items()
        if not _is_same(first / name, second / other, rounded=text_only)
    )


def _is_same(path: Path, other: Path, *, rounded: bool) -> bool:
    content, theirs = _content(path), _content(other)
    if content is None or theirs is None or not (rounded and _SCORES.search(path.name)):
        return content == theirs
    return _is_rounded(content.decode(), theirs.decode("utf-8", "replace"))


def _is_rounded(text: str, other: str) -> bool:
    """``checkpoint-8-394.9073/vocab.txt`` and ``checkpoint-8-394.9075/vocab.txt``."""
    if _DECIMAL.sub("", text) != _DECIMAL.sub("", other):
        return False
    numbers = zip(_DECIMAL.findall(text), _DECIMAL.findall(other), strict=True)
    return all(math.isclose(float(a), float(b), rel_tol=ROUNDING) for a, b in numbers)


def _content(path: Path) -> bytes | None:
    if not path.is_file():
        return None
    data = path.read_bytes()
    return data if _is_binary(data) else _STAMP.sub(b"", data)


def _files(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "events.out.tfevents" not in path.name:
            yield path.relative_to(folder).as_posix()


def _texts(folder: Path) -> list[str]:
    return [
        name
        for name in _files(folder)
        if not _LOG.search(Path(name).name) and not _is_binary((folder / name).read_bytes())
    ]


def _is_binary(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return True
    return b"\0" in data[:8192]


def _failures(ranks: Iterable[RankTrace]) -> Iterator[str]:
    for trace in ranks:
        end = trace.last(Exit)
        if end is not None and end.failure is not None:
            words = f"{end.failure.type}: {end.failure.message}".splitlines()[0][:160]
            yield f"rank {trace.rank} died in {end.failure.site}: {words}"


def _first_difference(
    first: Sequence[tuple[str, float]], second: Sequence[tuple[str, float]]
) -> tuple[str, float]:
    for one, other in itertools.zip_longest(first, second):
        if one != other:
            return one or other
    raise ValueError("they are the same")


def _short(first: object, second: object) -> str:
    texts = [str(getattr(each, "sum", each)) for each in (first, second)]
    return f"{texts[0]} became {texts[1]}"


def _some(items: Sequence[object], most: int = 5) -> str:
    rest = len(items) - most
    separator = "; " if items and isinstance(items[0], str) and " " in items[0] else ", "
    shown = separator.join(str(each) for each in items[:most])
    return shown + (f" and {rest} more" if rest > 0 else "")


def _grouped(problems: Sequence[tuple[str, str]], most: int = 3) -> str:
    """One sentence for what is wrong in several runs alike."""
    runs: dict[str, list[str]] = {}
    for name, problem in problems:
        runs.setdefault(problem, []).append(name)
    return _some([f"{' and '.join(names)}: {text}" for text, names in runs.items()], most)


def _list(items: Iterable[object]) -> str:
    return ", ".join(str(each) for each in items)


def _count(number: int, what: str) -> str:
    return f"{number} {what}"


__all__ = ["Evidence", "Match", "Observed", "Row", "Status", "judge", "warnings"]
