"""``ddpfix report``: what became of runs, in figures."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from ...command_help import HelpfulCommand
from ...errors import InputError
from .word_completion import runs as complete_runs

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(cls=HelpfulCommand)
@click.argument("runs", nargs=-1, metavar="[RUN]...", shell_complete=complete_runs)
@click.option("--html", "page_file", type=_FILE, help="Write a page; - is standard output.")
@click.option(
    "--verdict",
    "verdict_file",
    type=_FILE,
    help="Show this verdict of `ddpfix verify --verdict` (default: none).",
)
@click.option(
    "--original",
    type=_FILE,
    help="Script before patching, for the diff (default: the last commit's).",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--prometheus", type=_FILE, help="Write the numbers as a Prometheus text file.")
@click.option(
    "--tensorboard",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write the curves for TensorBoard into this folder.",
)
@click.option(
    "--wandb",
    metavar="PROJECT",
    help="Write the runs to this project of Weights & Biases; WANDB_MODE=offline needs no network.",
)
def report(
    runs: tuple[str, ...],
    page_file: Path | None,
    verdict_file: Path | None,
    original: Path | None,
    as_json: bool,
    prometheus: Path | None,
    tensorboard: Path | None,
    wandb: str | None,
) -> None:
    """Show what became of runs, in figures: plan, loss, scores, pace, memory.

    RUN is as in `ddpfix attach`, or the log of a training that ddpfix did not launch. Several are
    shown side by side, the first one being what the others are compared with.
    """
    from ..report.reported_run import collect, patch_diff
    from ..report.verdict import read_verdict

    found = [collect(name, _warn) for name in runs or (None,)]
    verdict = read_verdict(verdict_file) if verdict_file else None
    if prometheus or tensorboard or wandb:
        from ..report import export

        if prometheus:
            export.write_prometheus(found, prometheus)
        if tensorboard:
            export.write_tensorboard(found, tensorboard)
        if wandb:
            export.write_wandb(found, wandb)
    if page_file:
        from ..report.page import page

        _write(page_file, page(found, verdict, patch_diff(found[-1], original)))
    elif as_json:
        from ..report.export import as_json as data

        click.echo(json.dumps(data(found), indent=2))
    else:
        from rich.console import Console

        from ..report.terminal import show

        show(found, verdict, Console(highlight=False))


def _write(path: Path, text: str) -> None:
    if str(path) == "-":
        sys.stdout.write(text)
        return
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None
    click.echo(f"Wrote {path}", err=True)


def _warn(message: str) -> None:
    click.echo(f"ddpfix: {message}", err=True)
