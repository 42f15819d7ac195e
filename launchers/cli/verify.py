"""``ddpfix verify``: proof by running that a patched script trains as the original did."""

from __future__ import annotations

import json
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import attrs
import click

from ...command_help import HelpfulCommand
from ...errors import InputError, missing_package
from ...recipes.load import complete_recipes
from ..stop_signals import unwinding
from ..verify.report import as_json as verdict_as_json
from ..verify.report import show
from .python_option import with_python


class _Counts(click.ParamType[tuple[int, ...]]):
    name = "N,N,…"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, ...]:
        """Whole numbers above 0, separated by commas."""
        if isinstance(value, tuple):
            return value
        words = str(value).split(",")
        if not all(word.strip().isdigit() and int(word) > 0 for word in words):
            self.fail(f"{value!r} is no list of whole numbers above 0, such as 1,2,4", param, ctx)
        return tuple(int(word) for word in words)


_AT_LEAST_1 = click.IntRange(min=1)


@click.command("verify", cls=HelpfulCommand, context_settings={"ignore_unknown_options": False})
@click.argument("script", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="-- SCRIPT ARGS...")
@click.option("--original", type=click.Path(path_type=Path), help="Script before patching.")
@click.option("--rev", metavar="REVISION", help="Git revision of SCRIPT before patching.")
@click.option("--as-is", is_flag=True, help="Check SCRIPT as it is, without an original.")
@click.option(
    "--exact",
    is_flag=True,
    help="Patch with --exact and compare with the original's own steps in one process.",
)
@click.option(
    "--unsafe-fixes",
    "unsafe",
    is_flag=True,
    help="Patch with --unsafe-fixes.",
)
@click.option(
    "--with",
    "wanted",
    multiple=True,
    metavar="NAMES",
    help="Patch with these capabilities; only process groups get their flags, and with --amp bf16 "
    "the tolerances of bf16 apply (default: none).",
)
@click.option(
    "--world-sizes",
    type=_Counts(),
    default="1,2,4",
    show_default=True,
    help="Numbers of processes to compare.",
)
@click.option(
    "--accumulation",
    type=_Counts(),
    default="1,2",
    show_default=True,
    help="Accumulation steps to compare at the largest world size, at the same global batch.",
)
@click.option(
    "--all-splits", is_flag=True, help="Compare each accumulation at every world size it divides."
)
@click.option(
    "--global-batch",
    type=_AT_LEAST_1,
    help="Examples per optimizer step (default: batch x accumulation of SCRIPT ARGS).",
)
@click.option(
    "--max-steps",
    type=_AT_LEAST_1,
    help="Stop training after this many optimizer steps (default: no limit).",
)
@click.option(
    "--max-epochs",
    type=_AT_LEAST_1,
    help="Stop training after this many epochs (default: no limit).",
)
@click.option(
    "--max-eval-batches",
    type=_AT_LEAST_1,
    help="Stop each evaluation after this many batches; C4 is then not checked (default: no "
    "limit).",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=600,
    show_default=True,
    help="Seconds without a traced event that count as a hang.",
)
@click.option(
    "--seed",
    type=int,
    help="Seed the random generators first, for a script that does not (default: the rank "
    "where it seeds nothing, and 0 with --exact).",
)
@click.option(
    "--keep-dropout",
    is_flag=True,
    help="Leave dropout, and the statistics of batch norm, as they are.",
)
@click.option(
    "--recipe",
    metavar="NAME",
    shell_complete=complete_recipes,
    help="Recipe that names the script's output and batch flags (default: common names).",
)
@click.option(
    "--against-naive",
    is_flag=True,
    help="Also check the original with the two edits people usually make by sed.",
)
@click.option(
    "--isolation",
    type=click.Choice(["auto", "overlay", "copy"]),
    help="What keeps your files from the runs: an overlay mount, copies, or what works here "
    "(default: auto).",
)
@click.option(
    "--in-place", is_flag=True, help="Let the runs write to your files, where nothing keeps them."
)
@with_python
@click.option(
    "--keep",
    type=click.Path(path_type=Path),
    help="New folder to keep all runs in (default: temporary).",
)
@click.option(
    "--verdict",
    "verdict_file",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Write the verdict as JSON, for `ddpfix report --verdict` (default: none).",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@click.pass_context
def verify(
    ctx: click.Context,
    /,
    script: Path,
    arguments: tuple[str, ...],
    original: Path | None,
    rev: str | None,
    wanted: tuple[str, ...],
    accumulation: tuple[int, ...],
    against_naive: bool,
    isolation: str | None,
    in_place: bool,
    keep: Path | None,
    python: str | None,
    verdict_file: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Prove by running that a patched SCRIPT trains the same in 1, 2, 4 ... processes.

    SCRIPT ARGS are the script's own arguments for one process. They must name its output folder
    (each run gets its own) and its batch. Without --original or --rev, an unpatched SCRIPT is the
    original and a patched copy is checked.

    Exit status: 0 all promises hold, 1 one is broken, 2 it cannot run or something is unproven.
    """
    ctx.with_resource(unwinding())
    from rich.console import Console

    from ...patcher.api import split_codes
    from ..backends.interpreter import choose_interpreter
    from ..verify.request import VerifyRequest
    from ..verify.verifier import verify as judge

    if (original is not None) + (rev is not None) + options["as_is"] > 1:
        raise InputError("--original, --rev and --as-is exclude each other: give one of them")
    interpreter = choose_interpreter(python or "")
    if interpreter is None and find_spec("torch") is None:
        raise InputError(str(missing_package("torch")))
    talk = Console(stderr=True, highlight=False)
    text = Console(highlight=False, width=None if sys.stdout.isatty() else 200)
    say = partial(talk.print, style="dim", soft_wrap=True, markup=False)
    request = VerifyRequest(
        script,
        arguments,
        original=original,
        rev=rev,
        capabilities=split_codes(wanted),
        accumulations=accumulation,
        isolation="none" if in_place else isolation,
        python=interpreter,
        **options,
    )
    if request.python is not None:
        say(request.python.summary)
    found = judge(request, folder=keep, say=say)
    document = verdict_as_json(found)
    if not as_json:
        show(found, text)
    if against_naive:
        naive = judge(
            attrs.evolve(request, against_naive=True), folder=keep and keep / "naive", say=say
        )
        document["naive"] = verdict_as_json(naive)
        if not as_json:
            show(naive, text)
    text_of_verdict = json.dumps(document, indent=1) + "\n"
    if verdict_file is not None:
        _write(verdict_file, text_of_verdict)
    if as_json:
        click.echo(text_of_verdict, nl=False)
    ctx.exit(found.exit_status)


def _write(where: str, text: str) -> None:
    try:
        Path(where).write_text(text, "utf-8")
    except OSError as error:
        raise InputError(f"{where}: {error.strerror}; give --verdict another file") from None
