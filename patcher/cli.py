"""The commands check, patch, explain and rules."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from ..errors import InputError
from .engine import Patch, select
from .engine import check as check_unit
from .engine import patch as patch_script
from .findings import Finding, Severity
from .output import as_json, concise, full, manuals, show_diff
from .project import read_unit
from .rules import Rule, all_rules

SKIPPED = {"build", "dist", "node_modules", "site-packages", "__pycache__"}
NEEDLES = (b"torch", b"transformers")

paths_argument = click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
select_option = click.option("--select", "chosen", multiple=True, help="Codes or prefixes to run.")
ignore_option = click.option(
    "--ignore", "ignored", multiple=True, help="Codes or prefixes to skip."
)


def scripts(paths: Sequence[Path]) -> Iterator[Path]:
    """Python files named by ``paths``: files as they are, folders walked in order.

    Raises InputError for a path that does not exist and a folder without Python files.
    """
    for path in paths:
        if path.is_dir():
            found = [
                file
                for file in sorted(path.rglob("*.py"))
                if not any(
                    part in SKIPPED or part.startswith(".") for part in file.relative_to(path).parts
                )
            ]
            if not found:
                raise InputError(
                    f"{path}: no Python files in this folder; name a script or its folder"
                )
            yield from found
        elif path.exists():
            yield path
        else:
            raise InputError(f"{path}: no such file or folder; check the spelling")


def split(value: Sequence[str]) -> list[str]:
    """``--select DF1,DF2 --select DF3`` as one list."""
    return [code.strip() for item in value for code in item.split(",") if code.strip()]


@click.command()
@paths_argument
@select_option
@ignore_option
@click.option("--notes", is_flag=True, help="Show notes too; they do not change the exit status.")
@click.option(
    "--output-format",
    type=click.Choice(["full", "concise", "json"]),
    default="full",
    show_default=True,
)
@click.pass_context
def check(
    ctx: click.Context,
    paths: tuple[Path, ...],
    chosen: tuple[str, ...],
    ignored: tuple[str, ...],
    notes: bool,
    output_format: str,
) -> None:
    """Say what is wrong in scripts, and what it would do to you. Changes and runs nothing.

    Exit status: 0 nothing found, 1 findings, 2 a file or option that cannot be used.
    """
    rules = select(all_rules(), split(chosen), split(ignored))
    found: dict[tuple[Path, int, int, str], Finding] = {}
    unreadable = []
    for path in scripts(paths):
        try:
            for finding in findings_of(path, rules):
                if notes or finding.severity is not Severity.NOTE:
                    place = finding.module.source.path.resolve()
                    found.setdefault((place, finding.line, finding.column, finding.code), finding)
        except InputError as error:
            unreadable.append(str(error))
    shown = list(found.values())
    if output_format == "json":
        click.echo(as_json(shown))
    else:
        for finding in shown:
            click.echo(full(finding) if output_format == "full" else concise(finding))
    for message in unreadable:
        click.echo(f"ddpfix: {message}", err=True)
    serious = [f for f in shown if f.severity is not Severity.NOTE]
    if shown:
        errors = sum(f.severity is Severity.ERROR for f in shown)
        fixable = sum(bool(f.edits) for f in shown)
        click.echo(
            f"{len(shown)} findings, {errors} of them errors; `ddpfix patch` edits {fixable}",
            err=True,
        )
    ctx.exit(2 if unreadable else 1 if serious else 0)


def findings_of(path: Path, rules: list[Rule]) -> list[Finding]:
    """Findings of one script; a file that mentions neither library is not parsed further."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; check its name and permissions") from error
    if not any(needle in data for needle in NEEDLES):
        return []
    return check_unit(read_unit(path, data), rules)


@click.command()
@paths_argument
@select_option
@ignore_option
@click.option("--dry-run", is_flag=True, help="Print the diff and write nothing.")
@click.option("--diff", is_flag=True, help="Print the diff of what is written.")
@click.option("--unsafe-fixes", is_flag=True, help="Also make changes that need a judgement.")
@click.option(
    "--exact",
    is_flag=True,
    help="Ranks train on one process's own batches, in its order: the batch flag then is that of "
    "all ranks together.",
)
@click.pass_context
def patch(
    ctx: click.Context,
    paths: tuple[Path, ...],
    chosen: tuple[str, ...],
    ignored: tuple[str, ...],
    dry_run: bool,
    diff: bool,
    unsafe_fixes: bool,
    exact: bool,
) -> None:
    """Make scripts right with the smallest diff, or leave them alone and say why.

    Exit status: 0 nothing to do, 1 changed (or would change), 2 refused or unusable.
    """
    patches: list[Patch] = []
    failures: list[str] = []
    for path in scripts(paths):
        try:
            one = patch_script(
                path,
                chosen=split(chosen),
                ignored=split(ignored),
                unsafe=unsafe_fixes,
                exact=exact,
            )
        except InputError as error:
            failures.append(str(error))
            continue
        if one.refusal:
            failures.append(f"{path}: {one.refusal}")
            continue
        if not dry_run:
            one.write()
        patches.append(one)
    changed = [one for one in patches if one.changes]
    for one in changed:
        if dry_run or diff:
            show_diff(one.diff())
        codes = sorted({f.code for f in one.found} - {f.code for f in one.left})
        verb = "would repair" if dry_run else "repaired"
        click.echo(
            f"{one.path}: {verb} {len(one.found) - len(one.left)} findings ({' '.join(codes)})",
            err=True,
        )
    for one in patches:
        for finding in one.left:
            if one.changes or finding.severity is not Severity.NOTE:
                click.echo(f"left alone: {concise(finding)}", err=True)
    for message in failures:
        click.echo(f"ddpfix: {message}", err=True)
    ctx.exit(2 if failures else 1 if changed else 0)


@click.command()
@click.argument("code")
def explain(code: str) -> None:
    """Print the manual of one rule."""
    rules = {rule.code: rule for rule in all_rules()}
    rule = rules.get(code.upper())
    if rule is None:
        close = difflib.get_close_matches(code.upper(), rules, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]}? " if close else ""
        raise InputError(f"no rule {code}; {hint}`ddpfix rules` lists them")
    click.echo(f"{rule.code} ({rule.severity.name.lower()}, {rule.safety.value})\n\n{rule.manual}")


@click.command()
@click.option("--markdown", is_flag=True, help="Print all manuals, as docs/rules.md has them.")
def rules(markdown: bool) -> None:
    """List all rules, a line each."""
    if markdown:
        click.echo(manuals(), nl=False)
        return
    for rule in all_rules():
        click.echo(f"{rule.code}  {rule.severity.value}  {rule.safety.value:7}{rule.title}")
