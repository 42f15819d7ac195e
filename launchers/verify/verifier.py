"""Run the original alone and the patched script in 1, 2, 4 … processes, and compare them."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
from attrs import field, frozen

from ...errors import InputError
from ...patcher.api import flag_roles, read_program
from ..gpus.nvml import inventory
from ..running.known_errors import recognize
from ..script.flags import find_script_flags, remove_flag
from ..trace.events import Seed
from . import naive
from . import trace_compare as compare
from .check_evaluation import score_difference
from .checks import DDPFIX_IMPORT_ERROR, collect_warnings, judge, logged_metrics
from .compare_training import pairs_to_compare, weights_may_differ
from .control_runs import double_runs, rounding_controls
from .evidence import Evidence, Row, RunTrace
from .isolation_choice import choose_isolation
from .matrix import plan_splits
from .output_files import different_files, list_files
from .request import VerifyRequest
from .runner import RunSpec, Say, VerifyRunner
from .scripts import ScriptsUnderTest, check_flags, prepare_scripts
from .traced_run import StartRun, run_traced
from .unsteady import STEADY, Unsteady, find_unsteady
from .wording import first_few

DETERMINISTIC = ("--no-dropout", "--seed-examples")
"""The tracer's options without which the draws of runs depend on how a batch is split."""
LEGACY_FAILURES = (
    "cannot import name 'AdamW' from 'transformers",
    "ZeroDivisionError",
    "the number of sizes provided (4) must be greater or equal",  # a mask of token pairs
    "object has no attribute 'torchscript'",
    "type torch.cuda.LongTensor not available",
)
"""Failures of an untouched script that the tracer's ``--shim-legacy`` prevents."""


@frozen
class Verdict:
    """The verdict of all runs on the contract.

    ``summary`` is a sentence on what was compared, ``notes`` are remarks that weaken the verdict.
    ``hang`` says where the ranks of a hung run stood, and ``stacks`` holds the frames of each
    rank's main thread.
    """

    rows: tuple[Row, ...]
    evidence: Evidence
    summary: str
    notes: tuple[str, ...]
    hang: str = ""
    stacks: dict[str, list[str]] = field(factory=dict)

    def row(self, code: str) -> Row:
        """The row of one promise, such as "C3"."""
        return next(row for row in self.rows if row.code == code)

    @property
    def broken(self) -> tuple[str, ...]:
        """Codes of the broken promises."""
        return tuple(row.code for row in self.rows if row.status == "broken")

    @property
    def unproven(self) -> tuple[str, ...]:
        """Codes of the promises that the runs could not prove."""
        return tuple(row.code for row in self.rows if row.status == "unproven")

    @property
    def holds(self) -> bool:
        """Whether nothing is broken, and everything that was judged is proven."""
        return not self.broken and not self.unproven

    @property
    def exit_status(self) -> int:
        """0 when all hold, 1 when something is broken, 2 when something could not be proven."""
        return 1 if self.broken else (2 if self.unproven else 0)

    @property
    def runs(self) -> tuple[RunTrace, ...]:
        """All runs, in the order of the table's columns."""
        evidence = self.evidence
        single = (evidence.original, evidence.patched_alone, evidence.exact_reference)
        return (*(run for run in single if run is not None), *evidence.groups)


def verify(
    request: VerifyRequest,
    *,
    folder: Path | None = None,
    say: Say = lambda _: None,
    start: StartRun = run_traced,
) -> Verdict:
    """Judge a patched script against its original, row by row of the contract.

    The original and the patched script run alone, as they are; then the patched one in process
    groups, of which the group of one is the reference. Where the loss compares the examples of a
    micro-batch, a group's reference is the group of one with the same accumulation. ``folder`` (new
    or empty) keeps all runs; without it they are temporary. Scripts run in the current directory,
    from copies. ``say`` gets a line on each step; ``start`` makes the runs.

    Raises InputError when nothing can be run: a script or flag is missing, the patcher refuses, or
    the script fails alone, original and patched.
    """
    tolerances = request.tolerances()
    with _runs_folder(folder) as runs_folder:
        scripts = prepare_scripts(request, runs_folder / "code")
        if request.exact and scripts.original is None:
            raise InputError(
                f"{request.script}: --exact needs the untouched script: --original or --rev"
            )
        if request.against_naive:
            scripts = _with_naive_edits(scripts)
        say(scripts.summary)
        flags = find_script_flags(
            request.arguments,
            scripts.patched,
            recipe=request.recipe,
            global_batch=request.global_batch,
            **_roles(scripts.patched),
        )
        isolation = choose_isolation(
            request.isolation, request.script, request.arguments, runs_folder
        )
        say(isolation.summary)
        if flags.output is None and isolation.mode == "none":
            raise InputError(
                f"{request.script}: its arguments name no output folder, so in place its runs "
                "would overwrite each other's files and yours: leave --in-place out"
            )
        runner = VerifyRunner(
            folder=runs_folder,
            isolation=isolation,
            scripts=scripts,
            arguments=request.arguments,
            flags=flags,
            options=request.tracer_options(),
            determinism_options=() if request.keep_dropout else DETERMINISTIC,
            seed=0 if request.exact and request.seed is None else request.seed,
            cpu=len(inventory().usable) < max(request.world_sizes),
            naive=request.against_naive,
            exact=request.exact,
            tolerances=tolerances,
            say=say,
            start=start,
            python=request.python,
        )
        try:
            evidence = _collect_evidence(runner, request)
            if flags.output is None:
                runner.notes.append(_what_was_compared(evidence, isolation.current))
            return _verdict(evidence, scripts, runner.notes)
        finally:
            isolation.clean()


def _collect_evidence(runner: VerifyRunner, request: VerifyRequest) -> Evidence:
    """Make all runs of a verification."""
    original, no_original, shim = _run_original(runner)
    naive_shim = shim and runner.naive
    alone = runner.run_alone("patched", runner.scripts.patched, naive_shim, sealed=True)
    if (
        not alone.ended_well
        and original is None
        and DDPFIX_IMPORT_ERROR not in alone.failure_reason
    ):
        known = recognize(alone.failure_reason)
        raise InputError(
            "nothing to judge: the script fails in one process, patched as well "
            f"({alone.failure_reason}); {no_original}"
            + (f". {known.cause} {known.remedy}" if known else "")
        )
    unseeded = _without_seed(alone)
    if runner.seed is None and alone.ended_well and unseeded:
        if "torch" in unseeded:
            runner.notes.append("the script sets no seed: in groups it began with that of the rank")
        runner = attrs.evolve(runner, seed=0, seeds_apart=True)
    untouched = None
    if runner.exact:
        if original is None or runner.scripts.original is None:
            raise InputError(f"--exact: nothing to hold the ranks to: {no_original}")
        untouched = runner.run_exact_reference(runner.scripts.original, shim)
    groups, skipped = _run_groups(runner, request, naive_shim)
    evidence = Evidence(
        original=original,
        no_original=no_original,
        patched_alone=alone,
        groups=groups,
        flags_row=check_flags(runner.scripts.patched, runner.arguments),
        patching_row=runner.scripts.patching_row,
        evaluations_cut_short=bool(request.max_eval_batches),
        skip_reasons=skipped,
        exact_reference=untouched,
        tolerances=runner.tolerances,
        accumulation_note=runner.scripts.accumulation_note,
        original_needed_shims=shim,
        unsteady=_find_unsteady(runner, original, alone, shim),
        has_accumulation_flag=runner.flags.accumulation is not None,
    )
    evidence = attrs.evolve(
        evidence,
        rescored_runs=_score_again(runner, evidence),
        rounding_controls=rounding_controls(runner, evidence, naive_shim),
    )
    # A difference that is still there may be one of numbers alone.
    shims = shim if runner.exact else naive_shim
    return attrs.evolve(evidence, double_runs=double_runs(runner, evidence, shims))


def _without_seed(run: RunTrace) -> list[str]:
    """The libraries whose random numbers a script does not seed; runs that draw them differ."""
    seeded = {event.generator for event in run.ranks[0].events_of(Seed)}
    return [each for each in ("torch", "numpy", "random") if each not in seeded]


def _run_groups(
    runner: VerifyRunner, request: VerifyRequest, shim: bool
) -> tuple[tuple[RunTrace, ...], tuple[str, ...]]:
    """Run the judged script in all process groups; also returns why some were not run."""
    splits, undividable = plan_splits(
        runner.flags,
        request.world_sizes,
        request.accumulations,
        exact=runner.exact,
        accumulation_matters=bool(runner.scripts.accumulation_note),
        all_splits=request.all_splits,
    )
    groups: list[RunTrace] = []
    skipped: list[str] = []
    for world, accumulation in splits:
        if groups and any(trace.hang for trace in groups[-1].ranks):
            skipped.append(f"x{world}, accumulation {accumulation}: not run after the hang")
            continue
        groups.append(runner.run_group(world, accumulation, shim))
    runner.notes.extend(undividable)
    return tuple(groups), tuple(skipped)


def _run_original(runner: VerifyRunner) -> tuple[RunTrace | None, str, bool]:
    """The original's run, why there is none, and whether it needed the legacy shims."""
    script = runner.scripts.original
    if script is None:
        return None, "no original: give --original FILE or --rev REVISION", False
    run = runner.run_alone("original", script, shim=False, sealed=False)
    failure = compare.uncaught_exception(run.ranks)
    shim = not run.ended_well and any(text in failure for text in LEGACY_FAILURES)
    if shim:
        runner.notes.append(
            f"the original does not run here as it is ({failure}); it ran with transformers.AdamW, "
            "a count of one card, masks of token pairs and the like supplied"
        )
        run = runner.run_alone("original shimmed", script, shim=True, sealed=False)
        run = attrs.evolve(run, name="original")
    if not run.ended_well:
        return None, f"the original does not run here: {run.failure_reason}", shim
    return run, "", shim


def _find_unsteady(
    runner: VerifyRunner, original: RunTrace | None, alone: RunTrace, shim: bool
) -> Unsteady:
    """What a second run of the original tells not to compare, where the patched one differs."""
    if original is None or runner.scripts.original is None or not alone.ended_well:
        return STEADY
    first, patched = logged_metrics(original.ranks[0], alone.ranks[0], shimmed=shim)
    is_same = compare.is_same(first, patched)
    if is_same and not different_files(original.output, alone.output, text_only=False):
        return STEADY
    again = runner.run_alone("original again", runner.scripts.original, shim, sealed=False)
    if not again.ended_well:
        return STEADY
    first, second = logged_metrics(original.ranks[0], again.ranks[0])
    return find_unsteady((original.output, again.output), (first, second))


def _score_again(runner: VerifyRunner, evidence: Evidence) -> dict[str, RunTrace]:
    """Score, in a group of one, the checkpoints of groups whose weights may differ.

    Metrics and predictions are then compared at the same weights.
    """
    rescored: dict[str, RunTrace] = {}
    if evidence.evaluations_cut_short or runner.exact or "--do_train" not in runner.arguments:
        return rescored
    if runner.flags.output is None:
        return rescored
    for run, _ in pairs_to_compare(evidence):
        reference = evidence.reference_of(run)
        if not (run.ended_well and reference.ended_well):
            continue
        different = score_difference(reference, run, evidence.unsteady)
        if different and weights_may_differ(evidence, run):
            rescored[run.name] = runner.run(
                RunSpec(
                    f"{run.name}, scored by one",
                    runner.scripts.patched,
                    world_size=1,
                    options=runner.determinism_options,
                    change_arguments=lambda words: remove_flag(words, "--do_train"),
                    start_from=run.output,
                )
            )
    return rescored


def _what_was_compared(evidence: Evidence, folder: Path) -> str:
    """A sentence on the files that stand for the output of a script without an option for it."""
    names = sorted({name for run in evidence.groups for name in list_files(run.output)})
    what = first_few(names) if names else "no file"
    return (
        "no argument names an output folder: each run had a working folder of its own, and what "
        f"it wrote there is compared ({what}, in {folder})"
    )


def _roles(script: Path) -> dict[str, Any]:
    """What the script's options mean, and the default of its batch."""
    roles = flag_roles(read_program(str(script)))
    batch = roles.get("train_batch")
    default = batch.default if batch else None
    return {
        "roles": {role: (one.flag, *one.spellings) for role, one in roles.items()},
        "default_batch": default if type(default) is int and default > 0 else None,
    }


def _with_naive_edits(scripts: ScriptsUnderTest) -> ScriptsUnderTest:
    """Replace the patched script by the original with the two usual edits by sed."""
    if scripts.original is None:
        raise InputError("--against-naive edits the original: give --original or --rev")
    shutil.copyfile(scripts.original, scripts.patched)
    for path in sorted(scripts.original.parent.rglob("*.py")):
        shutil.copyfile(path, scripts.patched.parent / path.relative_to(scripts.original.parent))
    edits = naive.rewrite(scripts.patched)
    return attrs.evolve(
        scripts,
        summary=f"judged: the original with the usual two edits: {'; '.join(edits)}",
        patching_row=Row("C9", "not judged", "edited by sed, not by ddpfix"),
    )


def _verdict(evidence: Evidence, scripts: ScriptsUnderTest, notes: Sequence[str]) -> Verdict:
    hung = [run for run in evidence.groups if any(trace.hang for trace in run.ranks)]
    stacks: dict[str, list[str]] = {}
    for rank_trace in hung[0].ranks if hung else ():
        if rank_trace.hang is not None:
            frames = rank_trace.hang.stacks
            stacks[f"rank {rank_trace.rank}"] = frames.get("MainThread", [])
    return Verdict(
        rows=tuple(judge(evidence)),
        evidence=evidence,
        summary=scripts.summary,
        notes=(*notes, *collect_warnings(evidence)),
        hang=f"{hung[0].name}: {hung[0].failure_reason}" if hung else "",
        stacks=stacks,
    )


@contextlib.contextmanager
def _runs_folder(folder: Path | None) -> Iterator[Path]:
    """``folder``, made where it is missing, or a temporary one. Raises InputError."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="ddpfix-verify-") as name:
            yield Path(name).resolve()
        return
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder}: is not empty; name a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    yield folder.resolve()
