"""Run the original alone and the patched script in 1, 2, 4 … processes, and hold them together."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
from attrs import field, frozen

from ...errors import InputError
from ..gpus.nvml import inventory
from ..script.flags import find, without
from . import naive
from . import scripts as subject
from . import trace_compare as compare
from .check_evaluation import scores_differ
from .check_training import match, nearly, pairs, parted
from .checks import FOREIGN, judge, warnings
from .evidence import Evidence, Row, RunTrace
from .matrix import plan_splits
from .request import VerifyRequest
from .runner import RunSpec, Say, VerifyRunner
from .scripts import ScriptsUnderTest
from .traced_run import Start, trace

LEGACY_FAILURES = (
    "cannot import name 'AdamW' from 'transformers",
    "ZeroDivisionError",
    "the number of sizes provided (4) must be greater or equal",  # a mask of token pairs
    "object has no attribute 'torchscript'",
    "type torch.cuda.LongTensor not available",
)
"""Failures of an untouched script that ``--shim-legacy`` of the tracer takes away."""


@frozen
class Verdict:
    """What all runs say about the contract.

    ``said`` is what was compared, ``notes`` what weakens it. ``hang`` is where the ranks of a hung
    run stood, in one sentence, and ``stacks`` the frames of each rank's main thread.
    """

    rows: tuple[Row, ...]
    evidence: Evidence
    said: str
    notes: tuple[str, ...]
    hang: str = ""
    stacks: dict[str, list[str]] = field(factory=dict)

    def row(self, code: str) -> Row:
        """The row of one promise, such as "C3"."""
        return next(row for row in self.rows if row.code == code)

    @property
    def broken(self) -> tuple[str, ...]:
        """Codes of the promises that are broken."""
        return tuple(row.code for row in self.rows if row.status == "broken")

    @property
    def unproven(self) -> tuple[str, ...]:
        """Codes of the promises that the runs could not prove."""
        return tuple(row.code for row in self.rows if row.status == "unproven")

    @property
    def holds(self) -> bool:
        """Nothing is broken, and everything that was judged is proven."""
        return not self.broken and not self.unproven

    @property
    def exit_status(self) -> int:
        """0 when all hold, 1 when something is broken, 2 when something could not be proven."""
        return 1 if self.broken else (2 if self.unproven else 0)

    @property
    def runs(self) -> tuple[RunTrace, ...]:
        """All runs, in the order of the table's columns."""
        found = self.evidence
        single = (found.original, found.alone, found.untouched)
        return (*(run for run in single if run is not None), *found.groups)


def verify(
    request: VerifyRequest,
    *,
    folder: Path | None = None,
    say: Say = lambda _: None,
    start: Start = trace,
) -> Verdict:
    """Judge a patched script against its original, row by row of the contract.

    The original and the patched script run alone, as they are; then the patched one in process
    groups, of which that of one is the reference. Where the loss compares examples with the others
    of a micro-batch, a group follows the group of one that has as many of them at once, with its
    accumulation. ``folder`` (new or empty) keeps all runs; else they are temporary. Scripts run in
    the current directory, from copies. ``say`` gets a line on each step; ``start`` makes the runs.

    Raises InputError when nothing can be run: a script or flag is missing, the patcher refuses, or
    the script fails alone, original and patched.
    """
    held_to = request.tolerances()
    with _place(folder) as place:
        what = subject.prepare(request, place / "code")
        if request.exact and what.original is None:
            raise InputError(
                f"{request.script}: --exact needs the untouched script: --original or --rev"
            )
        if request.against_naive:
            what = _naive(what)
        say(what.said)
        stage = VerifyRunner(
            place=place,
            subject=what,
            arguments=request.arguments,
            flags=find(
                request.arguments,
                what.patched,
                recipe=request.recipe,
                global_batch=request.global_batch,
            ),
            options=request.tracer_options(),
            alike=() if request.keep_dropout else ("--no-dropout",),
            seed=0 if request.exact and request.seed is None else request.seed,
            cpu=len(inventory().usable) < max(request.world_sizes),
            naive=request.against_naive,
            exact=request.exact,
            held_to=held_to,
            say=say,
            start=start,
        )
        return _verdict(_collect(stage, request), what, stage.notes)


def _collect(stage: VerifyRunner, request: VerifyRequest) -> Evidence:
    original, no_original, shim = _original(stage)
    naive_shim = shim and stage.naive
    alone = stage.alone("patched", stage.subject.patched, naive_shim, sealed=True)
    if not alone.ended_well and original is None and FOREIGN not in alone.why:
        raise InputError(
            f"nothing to judge: the script fails in one process, patched as well ({alone.why}); "
            f"original: {no_original}"
        )
    untouched = None
    if stage.exact:
        if original is None or stage.subject.original is None:
            raise InputError(f"--exact: nothing to hold the ranks to: {no_original}")
        untouched = stage.untouched(stage.subject.original, shim)
    splits, skipped = plan_splits(
        stage.flags,
        request.world_sizes,
        request.accumulations,
        exact=stage.exact,
        apart=bool(stage.subject.apart),
        all_splits=request.all_splits,
    )
    groups: list[RunTrace] = []
    missed: list[str] = []
    for world, accumulation in splits:
        if groups and any(trace.hang for trace in groups[-1].ranks):
            missed.append(f"x{world}, accumulation {accumulation}: not run after the hang")
            continue
        groups.append(stage.group(world, accumulation, naive_shim))
    stage.notes.extend(skipped)
    evidence = Evidence(
        original=original,
        no_original=no_original,
        alone=alone,
        groups=tuple(groups),
        flags=subject.flags_obeyed(stage.subject.patched, stage.arguments),
        patching=stage.subject.patching,
        cut=bool(request.max_eval_batches),
        skipped=tuple(missed),
        untouched=untouched,
        held_to=stage.held_to,
        apart=stage.subject.apart,
        shimmed=shim,
        accumulates=stage.flags.accumulation is not None,
    )
    return attrs.evolve(
        evidence, again=_score_again(stage, evidence), finer=_finer(stage, evidence, naive_shim)
    )


def _original(stage: VerifyRunner) -> tuple[RunTrace | None, str, bool]:
    """The original's run, why there is none, and whether it needed the legacy shims."""
    script = stage.subject.original
    if script is None:
        return None, "no original: give --original FILE or --rev REVISION", False
    run = stage.alone("original", script, shim=False, sealed=False)
    failure = compare.failure(run.ranks)
    shim = not run.ended_well and any(words in failure for words in LEGACY_FAILURES)
    if shim:
        stage.notes.append(
            f"the original does not run here as it is ({failure}); it ran with transformers.AdamW, "
            "a count of one card, masks of token pairs and the like supplied"
        )
        run = stage.alone("original shimmed", script, shim=True, sealed=False)
        run = attrs.evolve(run, name="original")
    if not run.ended_well:
        return None, f"the original does not run here: {run.why}", shim
    return run, "", shim


def _finer(stage: VerifyRunner, evidence: Evidence, shim: bool) -> dict[str, RunTrace]:
    """What to hold groups to that may be off by rounding: others with micro-batches as small."""
    found: dict[str, RunTrace] = {}
    if stage.exact or stage.flags.accumulation is None:
        return found
    made = list(evidence.groups)
    for run, base in pairs(evidence):
        held_to, parts = evidence.held_to, len(run.ranks) * run.accumulation
        if not match(base, run, held_to).problem or not nearly(base, run, held_to).follows:
            continue
        # A group of one speaks for ranks, and ranks for it: none for itself.
        alike = (other for other in made if len(other.ranks) * other.accumulation == parts)
        other = next((other for other in alike if (other.world == 1) != (run.world == 1)), None)
        if other is None and run.world != 1 and stage.flags.global_batch % parts == 0:
            made.append(other := stage.group(1, parts, shim))
        if other is not None:
            found[run.name] = other
    return found


def _score_again(stage: VerifyRunner, evidence: Evidence) -> dict[str, RunTrace]:
    """Groups of one that score checkpoints whose weights differ from the reference rightfully.

    Only so are metrics and predictions comparable there: of the same weights.
    """
    found: dict[str, RunTrace] = {}
    if evidence.cut or stage.exact or "--do_train" not in stage.arguments:
        return found
    for run, _ in pairs(evidence):
        reference = evidence.reference_of(run)
        good = run.ended_well and reference.ended_well
        if good and scores_differ(reference, run) and parted(evidence, run):
            found[run.name] = stage.run(
                RunSpec(
                    f"{run.name}, scored by one",
                    stage.subject.patched,
                    world=1,
                    options=stage.alike,
                    change=lambda words: without(words, "--do_train"),
                    start_from=run.output,
                )
            )
    return found


def _naive(what: ScriptsUnderTest) -> ScriptsUnderTest:
    if what.original is None:
        raise InputError("--against-naive edits the original: give --original or --rev")
    shutil.copyfile(what.original, what.patched)
    for path in sorted(what.original.parent.rglob("*.py")):
        shutil.copyfile(path, what.patched.parent / path.relative_to(what.original.parent))
    done = naive.rewrite(what.patched)
    return attrs.evolve(
        what,
        said=f"judged: the original with the usual two edits: {'; '.join(done)}",
        patching=Row("C9", "not judged", "edited by sed, not by ddpfix"),
    )


def _verdict(evidence: Evidence, what: ScriptsUnderTest, notes: Sequence[str]) -> Verdict:
    hung = [run for run in evidence.groups if any(trace.hang for trace in run.ranks)]
    stacks: dict[str, list[str]] = {}
    for trace_of in hung[0].ranks if hung else ():
        if trace_of.hang is not None:
            frames = trace_of.hang.stacks
            stacks[f"rank {trace_of.rank}"] = frames.get("MainThread", [])
    return Verdict(
        rows=tuple(judge(evidence)),
        evidence=evidence,
        said=what.said,
        notes=(*notes, *warnings(evidence)),
        hang=f"{hung[0].name}: {hung[0].why}" if hung else "",
        stacks=stacks,
    )


@contextlib.contextmanager
def _place(folder: Path | None) -> Iterator[Path]:
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="ddpfix-verify-") as name:
            yield Path(name).resolve()
        return
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder}: is not empty; name a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    yield folder.resolve()
