"""``ddpfix demo``: the whole story on a tiny model, offline: check, patch, launch, proof."""

from __future__ import annotations

import collections
import contextlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import attrs
import click
from attrs import frozen

from ...command_help import HelpfulCommand
from ...fixtures.tiny import build_clone_data, build_model, clone_arguments, copy_family
from ...patcher.api import Patch, concise, diagnose
from ...patcher.api import patch as patch_script
from ...progress_line import elapsed
from ...recipes.load import load
from ..backends import command as commands
from ..planning.plan import solve
from ..stop_signals import unwinding
from ..verify import trace_compare as compare
from ..verify.traced_run import StartRun, TracedRun, run_traced, traced_command, tracer_prefix

if TYPE_CHECKING:
    from rich.console import Console

Kind = Literal["gpt2", "roberta"]
VARIANTS: dict[str, Kind] = {"codegpt": "gpt2", "codebert": "roberta"}
GLOBAL_BATCH = 8
TRAIN, VALID, TEST = 48, 13, 11  # 48 is a multiple of the global batch; 13 and 11 of nothing
LOSS_TOLERANCE = 1e-6  # relative, fp32, as the contract has it


@frozen
class RunPair:
    """One accumulation setting: the same global batch in a group of one and of two."""

    accumulation: int
    one: TracedRun
    two: TracedRun
    output_one: Path
    output_two: Path


@frozen
class ClosingRow:
    """A row of the closing table."""

    claim: str
    seen: str
    holds: bool


@click.command(cls=HelpfulCommand)
@click.option(
    "--variant",
    type=click.Choice(list(VARIANTS)),
    default="codegpt",
    show_default=True,
    help="Model to train.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="New folder to keep everything in (default: temporary).",
)
@click.pass_context
def demo(ctx: click.Context, variant: str, output: Path | None) -> None:
    """Check, patch and launch a legacy script on two processes, and compare with one process.

    Needs no network, GPU or data. Exit status: 0 if every line of the closing table holds, else 1.
    """
    ctx.with_resource(unwinding())
    from rich.console import Console

    if output is not None and output.exists() and any(output.iterdir()):
        raise click.BadParameter(f"{output} is not empty; name a new folder", param_hint="--output")
    talk = Console(stderr=True, highlight=False)
    began = time.monotonic()
    with _folder(output) as folder:
        lines, comparisons = story(folder, VARIANTS[variant], variant, talk)
        show(lines, comparisons)
    talk.print(f"{time.monotonic() - began:.0f} s.", style="dim")
    ctx.exit(0 if all(line.holds for line in lines) else 1)


@contextlib.contextmanager
def _folder(output: Path | None) -> Iterator[Path]:
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        yield output.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="ddpfix-demo-") as name:
        yield Path(name)


def story(
    folder: Path, kind: Kind, variant: str, talk: Console, *, start: StartRun = run_traced
) -> tuple[list[ClosingRow], list[RunPair]]:
    """The steps of the demo in ``folder``; returns the closing table's content.

    ``start`` makes the runs.
    """
    with _step(talk, "A legacy script, a tiny model and tiny data"):
        script = copy_family("bigclonebench", folder / "code")
        model = build_model(folder / "model", kind)
        data = build_clone_data(folder / "data", train=TRAIN, valid=VALID, test=TEST)
    stage = DemoFolder(folder, script, model, data, kind, f"{variant}-bigclonebench", start)

    with _step(talk, "The untouched script under `accelerate launch` on 2 processes", runs=True):
        raw = stage.launch("untouched", accumulation=1)
    talk.print(f"  exit status {raw.outcome.status}: {compare.uncaught_exception(raw.ranks)}")
    with _step(talk, "The same with its import and its division shimmed", runs=True):
        shimmed = stage.launch("shimmed", accumulation=1, options=["--shim-legacy"])
    talk.print(f"  {_two_trainings(shimmed, stage.output('shimmed'))}")

    with _step(talk, "ddpfix check, then ddpfix patch"):
        patch = patch_script(script)
    _show_patch(patch, talk)
    patch.write()

    comparisons = []
    for accumulation in (1, 4):
        with _step(
            talk,
            f"Patched, global batch {GLOBAL_BATCH}, accumulation {accumulation}: 1 process, then 2",
            runs=True,
        ):
            one = stage.group_of_one(f"one-{accumulation}", accumulation)
            two = stage.launch(f"two-{accumulation}", accumulation)
        comparisons.append(
            RunPair(
                accumulation,
                one,
                two,
                stage.output(f"one-{accumulation}"),
                stage.output(f"two-{accumulation}"),
            )
        )
    lines = [line for comparison in comparisons for line in judge(comparison)]
    return lines, comparisons


@frozen
class DemoFolder:
    """The folders and files that all runs of the demo share."""

    folder: Path
    script: Path
    model: Path
    data: Path
    kind: Kind
    recipe: str
    start: StartRun

    def output(self, name: str) -> Path:
        """Where the run ``name`` leaves checkpoints and predictions."""
        return self.folder / "runs" / name / "saved_models"

    def arguments(self, name: str, per_device: int, accumulation: int) -> list[str]:
        return clone_arguments(
            self.model,
            self.data,
            self.output(name),
            self.kind,
            batch=per_device,
            accumulation=accumulation,
        )

    def launch(self, name: str, accumulation: int, options: Sequence[str] = ()) -> TracedRun:
        """Two processes through the launcher's own command, with dropout off."""
        run_folder = self.folder / "runs" / name
        plan = solve(2, GLOBAL_BATCH, GLOBAL_BATCH, accumulation=accumulation)
        arguments = self.arguments(name, plan.per_device, accumulation)
        tracer = tracer_prefix(run_folder, ["--no-dropout", "--threads", "1", *options])
        what = commands.build(
            commands.ScriptCall(load(self.recipe), self.script, plan, run_folder, arguments),
            commands.ProcessOptions(module_prefix=tracer),
        )
        return self._start(what, run_folder)

    def group_of_one(self, name: str, accumulation: int) -> TracedRun:
        """One process in a process group of one, with dropout off."""
        run_folder = self.folder / "runs" / name
        arguments = self.arguments(name, GLOBAL_BATCH // accumulation, accumulation)
        options = ["--no-dropout", "--threads", "1"]
        what = traced_command(self.script, arguments, run_folder, world=1, options=options)
        return self._start(what, run_folder)

    def _start(self, command: commands.Command, run_folder: Path) -> TracedRun:
        temporary = self.folder / "tmp"  # else what a run leaves there outlives the demo
        temporary.mkdir(exist_ok=True)
        env = command.env | {"TMPDIR": str(temporary)}
        return self.start(attrs.evolve(command, env=env), run_folder)


@contextlib.contextmanager
def _step(talk: Console, title: str, *, runs: bool = False) -> Iterator[None]:
    talk.print(f"[bold]•[/bold] {title}")
    # A run has a line of its own, with its step.
    with elapsed("preparing") if not runs else contextlib.nullcontext():
        yield


def _two_trainings(run: TracedRun, output: Path) -> str:
    drawn = [sum(len(p.indices) for p in rank.passes if p.kind == "train") for rank in run.ranks]
    files = compare.writers(run.ranks, output)
    shared = [name for name, ranks in files.items() if len(ranks) > 1]
    return (
        f"exit status {run.outcome.status}; training examples per rank: "
        f"{' and '.join(map(str, drawn))}, each rank the whole set; "
        f"written by both: {', '.join(shared) or 'nothing'}"
    )


def _show_patch(patch: Patch, talk: Console) -> None:
    from rich.syntax import Syntax

    counts = collections.Counter(finding.code for finding in patch.findings_before)
    for code in sorted(counts):
        first = next(finding for finding in patch.findings_before if finding.code == code)
        text = concise(diagnose(first)).partition(f"{code} ")[2]
        talk.print(f"  {counts[code]:2} x {code} {text}", soft_wrap=True, markup=False)
    talk.print(Syntax(patch.diff(), "diff", background_color="default"))


def judge(pair: RunPair) -> list[ClosingRow]:
    """The claims of the contract that two runs of one global batch can show."""
    one, two = compare.steps(pair.one.ranks), compare.steps(pair.two.ranks)
    off = compare.deviation(one, two, "loss")
    label = f"accumulation {pair.accumulation}"
    scored = compare.evaluations(pair.two.ranks)
    right = sum(coverage.in_order for coverage in scored)
    files = compare.writers(pair.two.ranks, pair.output_two)
    same = _same_bytes(pair.output_one / "predictions.txt", pair.output_two / "predictions.txt")
    f1 = [compare.metric_values(run.ranks, "eval_f1") for run in (pair.one, pair.two)]
    statuses = compare.exit_statuses(pair.two.ranks)
    return [
        ClosingRow(
            f"{label}: loss of every optimizer step, 1 process = 2 processes",
            f"{len(two)} of {len(one)} steps, at most {off.largest:.1e} apart",
            off.largest <= LOSS_TOLERANCE and len(one) > 0,
        ),
        ClosingRow(
            f"{label}: validation and test examples scored once and in order",
            f"{right} of {len(scored)} evaluations",
            right == len(scored) > 0,
        ),
        ClosingRow(
            f"{label}: predictions.txt, byte for byte", "same" if same else "different", same
        ),
        ClosingRow(
            f"{label}: F1 of every evaluation",
            ", ".join(f"{value:g}" for value in f1[1]) or "none",
            f1[0] == f1[1] != [],
        ),
        ClosingRow(
            f"{label}: every file has one writer",
            "; ".join(f"{name}: rank {_ranks(ranks)}" for name, ranks in files.items()),
            bool(files) and all(len(ranks) == 1 for ranks in files.values()),
        ),
        ClosingRow(
            f"{label}: exit status of both ranks",
            " and ".join(map(str, statuses)),
            statuses == [0, 0] and pair.two.outcome.status == 0,
        ),
    ]


def _ranks(ranks: set[int]) -> str:
    return ", ".join(map(str, sorted(ranks)))


def _same_bytes(first: Path, second: Path) -> bool:
    return first.is_file() and second.is_file() and first.read_bytes() == second.read_bytes()


def show(lines: list[ClosingRow], comparisons: list[RunPair]) -> None:
    """The closing tables on stdout."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    losses = Table(title=f"Loss per optimizer step, global batch {GLOBAL_BATCH}")
    losses.add_column("step", justify="right")
    for pair in comparisons:
        for world in ("1 process", "2 processes"):
            losses.add_column(f"accumulation {pair.accumulation}\n{world}", justify="right")
    columns = [
        [f"{step.loss:.7f}" for step in compare.steps(run.ranks)]
        for pair in comparisons
        for run in (pair.one, pair.two)
    ]
    for number in range(max(map(len, columns))):
        cells = [column[number] if number < len(column) else "" for column in columns]
        losses.add_row(str(number + 1), *cells)
    console.print(losses)
    table = Table("", "claim", "seen", title="What two processes did, held against one")
    for line in lines:
        mark = "[green]✓[/green]" if line.holds else "[red]✗[/red]"
        table.add_row(mark, line.claim, line.seen)
    console.print(table)


__all__ = ["ClosingRow", "RunPair", "demo", "judge", "story"]
