"""The commands check, patch, explain, rules and capabilities."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from ...errors import InputError
from ..codes import split
from .check_command import check as check_paths
from .output import FORMATS
from .request import Request


def read_jobs(ctx: click.Context, param: click.Parameter, value: str | None) -> int | str | None:
    """Convert --jobs: a positive number of processes, or auto. Raises InputError."""
    if value is None or value == "auto":
        return value
    if not value.isdecimal() or int(value) < 1:
        raise InputError(f"--jobs {value}: it takes a positive number or auto")
    return int(value)


def common_options(function: Any) -> Any:
    """Add the arguments and options that check and patch share."""
    options = [
        click.argument("paths", nargs=-1, required=True),
        click.option("--select", multiple=True, help="Codes or prefixes to run."),
        click.option("--ignore", multiple=True, help="Codes or prefixes to skip."),
        click.option("--exclude", multiple=True, help="Names or paths to skip in folders."),
        click.option(
            "--stdin-filename", metavar="PATH", help="What `-` is called, and whose neighbour."
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


@click.command()
@common_options
@click.option(
    "--notes/--no-notes",
    default=None,
    help="Show notes too; they do not change the exit status.",
)
@click.option(
    "--output-format", type=click.Choice(list(FORMATS)), help="How findings are told: full unless."
)
@click.option("--statistics", "counted", is_flag=True, help="Count findings per code.")
@click.option("--exit-zero", is_flag=True, help="End with 0 where there are findings.")
@click.option("--jobs", callback=read_jobs, metavar="N", help="Processes; one per CPU unless.")
@click.option("--no-cache", is_flag=True, help="Neither use nor leave what is known of files.")
@click.pass_context
def check(
    ctx: click.Context,
    /,
    notes: bool | None,
    output_format: str | None,
    counted: bool,
    exit_zero: bool,
    jobs: int | str | None,
    no_cache: bool,
    **common: Any,
) -> None:
    """Say what is wrong in scripts, and what it would do to you. Changes and runs nothing.

    PATHS are scripts, folders, or `-` for standard input. Settings stand in [tool.ddpfix] of
    pyproject.toml.

    Exit status: 0 nothing found, 1 findings, 2 a file or option that cannot be used.
    """
    ctx.exit(
        check_paths(
            Request(**common),
            notes=notes,
            output_format=output_format,
            counted=counted,
            exit_zero=exit_zero,
            jobs=jobs,
            cached=not no_cache,
        )
    )


@click.command()
@common_options
@click.option("--dry-run", is_flag=True, help="Print the diff and write nothing.")
@click.option("--diff", is_flag=True, help="Print the diff of what is written.")
@click.option(
    "--unsafe-fixes/--no-unsafe-fixes",
    default=None,
    help="Also make changes that need a judgement.",
)
@click.option(
    "--exact",
    is_flag=True,
    help="Ranks train on one process's own batches, in its order: the batch flag then is that of "
    "all ranks together.",
)
@click.option(
    "--with",
    "wanted",
    multiple=True,
    metavar="NAMES",
    help="Add capabilities as flags of the script, off by default: all, or some of amp, "
    "checkpointing, lora, compile, loader, resume.",
)
@click.option(
    "--without", "unwanted", multiple=True, metavar="NAMES", help="All capabilities but these."
)
@click.option(
    "--mark",
    is_flag=True,
    help="Write `# ddpfix: CODE` at the end of lines whose findings are left, also in a script "
    "that is refused, and take marks away that are out of date.",
)
@click.pass_context
def patch(
    ctx: click.Context,
    /,
    dry_run: bool,
    diff: bool,
    unsafe_fixes: bool | None,
    exact: bool,
    wanted: Sequence[str],
    unwanted: Sequence[str],
    mark: bool,
    **common: Any,
) -> None:
    """Make scripts right with the smallest diff, or leave them alone and say why.

    PATHS are scripts, folders, or `-` for standard input: the result then goes to standard output.

    Exit status: 0 nothing to do, 1 changed (or would change), 2 refused or unusable.
    """
    from .patch_command import PatchOptions, choose_capabilities, run_patch

    request = Request(**common)
    config = request.config
    capabilities = choose_capabilities(split(wanted), split(unwanted), config)
    ctx.exit(
        run_patch(
            PatchOptions(
                request,
                capabilities,
                dry_run=dry_run,
                diff=diff,
                unsafe=config.unsafe_fixes if unsafe_fixes is None else unsafe_fixes,
                exact=exact,
                mark=mark,
                may_suggest=not capabilities and not unwanted,
                data=sys.stdin.buffer.read() if request.from_stdin else None,
            )
        )
    )


@click.command()
@click.argument("code")
def explain(code: str) -> None:
    """Print the manual of one rule or capability."""
    from .manuals import manual

    click.echo(manual(code))


@click.command()
@click.option("--markdown", is_flag=True, help="Print all manuals, as docs/rules.md has them.")
def rules(markdown: bool) -> None:
    """List all rules, a line each."""
    from ..rules import all_rules
    from .manuals import rule_manuals

    if markdown:
        click.echo(rule_manuals(), nl=False)
        return
    for rule in all_rules():
        click.echo(f"{rule.code}  {rule.severity.value}  {rule.safety.value:7}{rule.title}")


@click.command()
@click.option("--markdown", is_flag=True, help="Print all manuals, as docs/capabilities.md does.")
def capabilities(markdown: bool) -> None:
    """List what `patch --with` can add to a script, a line each."""
    from ..capabilities import all_capabilities
    from .manuals import capability_manuals

    if markdown:
        click.echo(capability_manuals(), nl=False)
        return
    for one in all_capabilities():
        click.echo(f"{one.name:14}{one.title}")
