"""The commands check, patch, explain and rules."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError
from .cache import Cache, open_cache
from .check_files import Outcome, check_files, examine, shown
from .config import read_config
from .diagnostics import Diagnostic, diagnose
from .discover import project_root, scripts
from .output import FORMATS, concise, manuals, show_diff, statistics
from .selection import all_codes, selected, split

if TYPE_CHECKING:  # what check has no use for is imported where it is used
    from .engine import Change, Patch

STDIN = "-"


def read_jobs(ctx: click.Context, param: click.Parameter, value: str | None) -> int | str | None:
    """A positive number of processes, or auto."""
    if value is None or value == "auto":
        return value
    if not value.isdecimal() or int(value) < 1:
        raise InputError(f"--jobs {value}: it takes a positive number or auto")
    return int(value)


def shared(function: Any) -> Any:
    """What check and patch have in common."""
    options = [
        click.argument("paths", nargs=-1, required=True),
        click.option("--select", "chosen", multiple=True, help="Codes or prefixes to run."),
        click.option("--ignore", "ignored", multiple=True, help="Codes or prefixes to skip."),
        click.option("--exclude", multiple=True, help="Names or paths to skip in folders."),
        click.option(
            "--stdin-filename", metavar="PATH", help="What `-` is called, and whose neighbour."
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


class Request:
    """What the command line and [tool.ddpfix] ask for together; the command line wins."""

    def __init__(
        self,
        paths: tuple[str, ...],
        chosen: Sequence[str],
        ignored: Sequence[str],
        exclude: Sequence[str],
        stdin_filename: str | None,
    ) -> None:
        """Raises InputError for what cannot be used, naming where it stands."""
        self.from_stdin = STDIN in paths
        if self.from_stdin and paths != (STDIN,):
            raise InputError("`-` stands for standard input and cannot be mixed with other paths")
        if stdin_filename and not self.from_stdin:
            raise InputError("--stdin-filename names what `-` is: give `-` as the path")
        self.paths = paths
        self.name = stdin_filename or STDIN
        folder = common_folder([self.name] if self.from_stdin else paths)
        self.config = read_config(Path(folder))
        self.root = project_root(folder)
        self.chosen = split(chosen) or list(self.config.select)
        self.ignored = split(ignored) or list(self.config.ignore)
        self.exclude = split(exclude) or list(self.config.exclude)
        try:
            self.codes = tuple(selected(all_codes(), self.chosen, self.ignored))
        except InputError as error:
            if self.config.file and not (chosen or ignored):
                raise InputError(f"{self.config.file}: {error}") from error
            raise

    def files(self) -> list[str]:
        """The scripts. Raises InputError."""
        root = self.config.file.parent if self.config.file else "."
        return scripts(self.paths, self.exclude, str(root))


def common_folder(paths: Iterable[str]) -> str:
    """The folder that holds all paths."""
    folders = [path if os.path.isdir(path) else os.path.dirname(path) for path in paths]
    return os.path.commonpath([os.path.realpath(folder) for folder in folders])


@click.command()
@shared
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
    request = Request(**common)
    config = request.config
    outcomes: list[Outcome]
    if request.from_stdin:
        record = examine(request.name, request.codes, sys.stdin.buffer.read())
        outcomes = [shown(request.name, record)]
    else:
        files = request.files()
        known = Cache(None, "") if no_cache else open_cache(request.root, request.codes)
        wanted = config.jobs if jobs is None else None if jobs == "auto" else int(jobs)
        outcomes = list(check_files(files, request.codes, known, wanted))
        known.save()
    errors = [outcome.error for outcome in outcomes if outcome.error]
    items = distinct(item for outcome in outcomes for item in outcome.found)
    if not (config.notes if notes is None else notes):
        items = [item for item in items if not item.is_note]
    chosen_format = output_format or config.output_format
    say = statistics(items, chosen_format) if counted else FORMATS[chosen_format](items, errors)
    if say:
        click.echo(say)
    for message in errors:
        click.echo(f"ddpfix: {message}", err=True)
    if items:
        serious = sum(item.severity == "E" for item in items)
        fixable = sum(item.is_fixable for item in items)
        click.echo(
            f"{len(items)} findings, {serious} of them errors; `ddpfix patch` edits {fixable}",
            err=True,
        )
    found = any(not item.is_note for item in items) and not exit_zero
    ctx.exit(2 if errors else 1 if found else 0)


def distinct(items: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Each once: a module is reached from every script that imports it."""
    places: dict[str, str] = {}
    found: dict[tuple[str, int, int, str], Diagnostic] = {}
    for item in items:
        place = places.get(item.path)
        if place is None:
            place = places[item.path] = os.path.realpath(item.path)
        found.setdefault((place, item.line, item.column, item.code), item)
    return list(found.values())


@click.command()
@shared
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
    mark: bool,
    **common: Any,
) -> None:
    """Make scripts right with the smallest diff, or leave them alone and say why.

    PATHS are scripts, folders, or `-` for standard input: the result then goes to standard output.

    Exit status: 0 nothing to do, 1 changed (or would change), 2 refused or unusable.
    """
    from .engine import patch as patch_script

    request = Request(**common)
    data = sys.stdin.buffer.read() if request.from_stdin else None
    unsafe = request.config.unsafe_fixes if unsafe_fixes is None else unsafe_fixes
    paths = [Path(path) for path in ([request.name] if request.from_stdin else request.files())]
    patches: list[Patch] = []
    failures: list[str] = []
    for path in paths:
        try:
            one = patch_script(
                path,
                chosen=request.chosen,
                ignored=request.ignored,
                unsafe=unsafe,
                exact=exact,
                data=data,
            )
        except InputError as error:
            failures.append(str(error))
            continue
        if one.refusal:
            failures.append(f"{path}: {one.refusal}")
            continue
        if not dry_run and data is None:
            one.write()
        patches.append(one)
    texts = {path.resolve(): data for path in paths if data is not None}
    changed = [one for one in patches if one.changes]
    changes = [change for one in changed for change in one.changes]
    if dry_run or data is not None:
        texts |= {change.source.path.resolve(): change.data for change in changes}
    marks = marks_of(paths, request.codes, texts) if mark else []
    if marks and not dry_run and data is None:
        write(marks)
    if dry_run or diff:
        show_diff("".join(change.diff() for change in (*changes, *marks)))
    elif data is not None and not failures:
        failures += send(paths[0], data, [*changes, *marks])
    for one in changed:
        codes = sorted({f.code for f in one.found} - {f.code for f in one.left})
        verb = "would repair" if dry_run else "repaired"
        click.echo(
            f"{one.path}: {verb} {len(one.found) - len(one.left)} findings ({' '.join(codes)})",
            err=True,
        )
    for one in patches:
        for finding in one.left:
            item = diagnose(finding)
            if one.changes or not item.is_note:
                click.echo(f"left alone: {concise(item)}", err=True)
    for change in marks:
        click.echo(f"{change.source.path}: marks {'to be ' * dry_run}brought up to date", err=True)
    for message in failures:
        click.echo(f"ddpfix: {message}", err=True)
    ctx.exit(2 if failures else 1 if changed or marks else 0)


def marks_of(
    paths: Sequence[Path], codes: tuple[str, ...], texts: dict[Path, bytes]
) -> list[Change]:
    """Changes that mark what is left, ``texts`` standing in for the bytes of files.

    A module that a script imports gets its marks; marks go only from files that are named, for
    another script may need those of a module.
    """
    from .check_files import rules_of
    from .engine import Change, check
    from .findings import Severity
    from .mark import marked
    from .project import look, read_unit
    from .sources import Source

    def current(path: Path) -> bytes | None:
        place = path.resolve()
        return texts[place] if place in texts else look(path)

    sources: dict[Path, Source] = {}
    wanted: dict[Path, dict[int, set[str]]] = {}
    for path in paths:
        try:
            unit = read_unit(path, current(path), current)
        except InputError:
            continue  # patching it has told
        for module in unit.modules:
            place = module.source.path.resolve()
            sources.setdefault(place, module.source)
        for finding in check(unit, rules_of(codes)):
            if finding.severity is not Severity.NOTE:
                lines = wanted.setdefault(finding.module.source.path.resolve(), {})
                lines.setdefault(finding.line, set()).add(finding.code)
    named = {path.resolve() for path in paths}
    changes = [
        Change(source, marked(source.text, wanted.get(place, {}), others_go=place in named))
        for place, source in sources.items()
    ]
    return [change for change in changes if change.text != change.source.text]


def write(changes: Sequence[Change]) -> None:
    """Replace all files, or none. Raises InputError."""
    from .sources import replace_all

    replace_all([(change.source, change.text) for change in changes])


def send(script: Path, data: bytes, changes: Sequence[Change]) -> list[str]:
    """Put the script's new text on stdout; why not, where other files change with it."""
    others = sorted({c.source.path.name for c in changes if c.source.path != script})
    if others:
        return [
            f"{script}: {', '.join(others)} beside it changes too; give the file in place of `-`"
        ]
    for change in changes:
        data = change.data
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
    return []


@click.command()
@click.argument("code")
def explain(code: str) -> None:
    """Print the manual of one rule."""
    from .rules import all_rules

    rules = {rule.code: rule for rule in all_rules()}
    rule = rules.get(code.upper())
    if rule is None:
        from difflib import get_close_matches

        close = get_close_matches(code.upper(), rules, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]}? " if close else ""
        raise InputError(f"no rule {code}; {hint}`ddpfix rules` lists them")
    click.echo(f"{rule.code} ({rule.severity.name.lower()}, {rule.safety.value})\n\n{rule.manual}")


@click.command()
@click.option("--markdown", is_flag=True, help="Print all manuals, as docs/rules.md has them.")
def rules(markdown: bool) -> None:
    """List all rules, a line each."""
    from .rules import all_rules

    if markdown:
        click.echo(manuals(), nl=False)
        return
    for rule in all_rules():
        click.echo(f"{rule.code}  {rule.severity.value}  {rule.safety.value:7}{rule.title}")
