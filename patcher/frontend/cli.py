"""The commands check, patch, rules and capabilities."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Any

import click

from ...command_help import HelpfulCommand
from ...completion import files
from ...errors import InputError
from ..codes import split_codes
from .check_command import check as check_paths
from .output import FORMATS
from .request import Request
from .watch import modules_beside, watch
from .word_completion import capability_names, rule_codes


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
        click.argument("paths", nargs=-1, required=True, shell_complete=files),
        click.option(
            "--select",
            multiple=True,
            metavar="CODES",
            shell_complete=rule_codes,
            help="Codes or prefixes to use (default: all).",
        ),
        click.option(
            "--ignore",
            multiple=True,
            metavar="CODES",
            shell_complete=rule_codes,
            help="Codes or prefixes to skip (default: none).",
        ),
        click.option(
            "--exclude",
            multiple=True,
            metavar="NAMES",
            help="Names or paths in folders to skip (default: none).",
        ),
        click.option(
            "--stdin-filename",
            metavar="PATH",
            help="Path to report for `-`; its imports and settings are looked up from there "
            "(default: -).",
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


@click.command(cls=HelpfulCommand)
@common_options
@click.option(
    "--notes/--no-notes",
    default=None,
    help="Show notes too; they never change the exit status (default: --no-notes).",
)
@click.option(
    "--output-format",
    type=click.Choice(list(FORMATS)),
    help="How findings are printed (default: full).",
)
@click.option("--statistics", "counted", is_flag=True, help="Print counts per rule only.")
@click.option("--exit-zero", is_flag=True, help="Exit with 0 even if there are findings.")
@click.option(
    "--jobs",
    callback=read_jobs,
    metavar="N",
    help="Number of processes, or auto (default: one per CPU).",
)
@click.option("--no-cache", is_flag=True, help="Do not read or write cached results.")
@click.option(
    "--edits", is_flag=True, help="Add the edits that repair findings, in json and sarif (slower)."
)
@click.option("--watch", "again", is_flag=True, help="Check again whenever a file has changed.")
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
    edits: bool,
    again: bool,
    **common: Any,
) -> None:
    """Report what goes wrong when scripts run on several GPUs. Runs and changes nothing.

    PATHS are scripts, folders, or `-` for standard input. Defaults can be set in [tool.ddpfix] of
    pyproject.toml.

    Exit status: 0 no findings, 1 findings, 2 unusable file or option.
    """
    request = Request(**common)
    run = functools.partial(
        check_paths,
        request,
        notes=notes,
        output_format=output_format,
        counted=counted,
        exit_zero=exit_zero,
        jobs=jobs,
        cached=not no_cache,
        edits=edits,
    )
    if again and request.from_stdin:
        raise InputError("--watch: standard input does not change; name a file or folder")
    if again:
        watch(run, lambda: modules_beside(request.files()))
    ctx.exit(run())


@click.command(cls=HelpfulCommand)
@common_options
@click.option("--dry-run", is_flag=True, help="Print the diff; write nothing.")
@click.option("--diff", is_flag=True, help="Print the diff; write nothing, as --dry-run.")
@click.option(
    "--unsafe-fixes/--no-unsafe-fixes",
    default=None,
    help="Also apply fixes that change what one process computes or need your judgement "
    "(default: --no-unsafe-fixes).",
)
@click.option(
    "--exact",
    is_flag=True,
    help="Make N processes take the same steps as the original script in one process; the batch "
    "flag then counts examples over all processes.",
)
@click.option(
    "--with",
    "wanted",
    multiple=True,
    metavar="NAMES",
    shell_complete=capability_names,
    help="Add capabilities as script flags that are off by default: all, or a list of amp, "
    "flags, checkpointing, lora, compile, loader, fsdp, resume (default: none).",
)
@click.option(
    "--without",
    "unwanted",
    multiple=True,
    metavar="NAMES",
    shell_complete=capability_names,
    help="Add all capabilities except these (default: none).",
)
@click.option(
    "--mark",
    is_flag=True,
    help="Add `# ddpfix: CODE` comments to lines with remaining findings, also in refused scripts; "
    "remove outdated ones.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print what was changed, what is left and what the audit says as JSON.",
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
    as_json: bool,
    **common: Any,
) -> None:
    """Repair scripts with the smallest diff, or leave them unchanged and say why.

    PATHS are scripts, folders, or `-` for standard input, which is patched to standard output.

    Exit status: 0 nothing to do, 1 changed (or would change), 2 refused, or unusable input.
    """
    from .patch_command import PatchOptions, choose_capabilities, run_patch

    request = Request(**common)
    config = request.config
    capabilities = choose_capabilities(split_codes(wanted), split_codes(unwanted), config)
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
                as_json=as_json,
            )
        )
    )


@click.command(cls=HelpfulCommand)
@click.option("--markdown", is_flag=True, help="Print all manuals: docs/rules.md.")
def rules(markdown: bool) -> None:
    """List all rules: code, severity, safety of the fix, title."""
    from ..rules import all_rules
    from .manuals import rule_manuals

    if markdown:
        click.echo(rule_manuals(), nl=False)
        return
    for rule in all_rules():
        click.echo(f"{rule.code}  {rule.severity.value}  {rule.safety.value:7}{rule.title}")


@click.command(cls=HelpfulCommand)
@click.option("--markdown", is_flag=True, help="Print all manuals: docs/capabilities.md.")
def capabilities(markdown: bool) -> None:
    """List the capabilities that `patch --with` can add to a script."""
    from ..capabilities import all_capabilities
    from .manuals import capability_manuals

    if markdown:
        click.echo(capability_manuals(), nl=False)
        return
    for one in all_capabilities():
        click.echo(f"{one.name:14}{one.title}")
