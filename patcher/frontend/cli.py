"""The commands check, patch, explain and rules."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...errors import InputError
from ..codes import split
from .command import check as check_paths
from .diagnostics import diagnose
from .output import FORMATS, NAMES, capability_manuals, concise, manuals, show_diff
from .request import Request

if TYPE_CHECKING:  # what check has no use for is imported where it is used
    from ..capabilities import Capability
    from ..engine.patch import FileChange, Patch
    from .config import Config


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
    from ..engine.patch import patch as patch_script

    request = Request(**common)
    capabilities = chosen_capabilities(split(wanted), split(unwanted), request.config)
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
                capabilities=capabilities,
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
        for finding in one.lacking:
            place = f"{finding.module.source.name}:{finding.line}"
            click.echo(f"without {finding.code}: {place}: {finding.because}", err=True)
    if changed and not capabilities and not unwanted:
        click.echo(
            "`--with all` would add capabilities: `ddpfix capabilities` lists them", err=True
        )
    for change in marks:
        click.echo(f"{change.source.name}: marks {'to be ' * dry_run}brought up to date", err=True)
    for message in failures:
        click.echo(f"ddpfix: {message}", err=True)
    ctx.exit(2 if failures else 1 if changed or marks else 0)


def chosen_capabilities(
    wanted: list[str], unwanted: list[str], config: Config
) -> tuple[Capability, ...]:
    """What --with and --without ask for, else [tool.ddpfix]; all but those where only the latter.

    Raises InputError for a name that no capability has.
    """
    if not (wanted or unwanted or config.capabilities):
        return ()
    from ..capabilities import chosen

    try:
        return chosen(wanted or list(config.capabilities) or ["all"], unwanted)
    except InputError as error:
        if wanted or unwanted:
            raise
        raise InputError(f"{config.file}: {error}") from error


def marks_of(
    paths: Sequence[Path], codes: tuple[str, ...], texts: dict[Path, bytes]
) -> list[FileChange]:
    """Changes that mark what is left, ``texts`` standing in for the bytes of files.

    A module that a script imports gets its marks; marks go only from files that are named, for
    another script may need those of a module.
    """
    from ..analysis.load import look, read_program
    from ..engine.marks import marked
    from ..engine.patch import FileChange, check
    from ..findings import Severity
    from ..source.files import Source, decode
    from .checker import rules_of

    def current(path: str) -> Source | None:
        data = texts.get(Path(path).resolve())
        return look(path) if data is None else decode(path, data)

    sources: dict[Path, Source] = {}
    wanted: dict[Path, dict[int, set[str]]] = {}
    for path in paths:
        try:
            program = read_program(str(path), texts.get(path.resolve()), current)
        except InputError:
            continue  # patching it has told
        for module in program.modules:
            place = module.source.path.resolve()
            sources.setdefault(place, module.source)
        for finding in check(program, rules_of(codes)):
            if finding.severity is not Severity.NOTE:
                lines = wanted.setdefault(finding.module.source.path.resolve(), {})
                lines.setdefault(finding.line, set()).add(finding.code)
    named = {path.resolve() for path in paths}
    changes = [
        FileChange(source, marked(source.text, wanted.get(place, {}), others_go=place in named))
        for place, source in sources.items()
    ]
    return [change for change in changes if change.text != change.source.text]


def write(changes: Sequence[FileChange]) -> None:
    """Replace all files, or none. Raises InputError."""
    from ..source.files import replace_all

    replace_all([(change.source, change.text) for change in changes])


def send(script: Path, data: bytes, changes: Sequence[FileChange]) -> list[str]:
    """Put the script's new text on stdout; why not, where other files change with it."""
    others = sorted({c.source.file for c in changes if c.source.path != script})
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
    """Print the manual of one rule or capability."""
    from ..capabilities import all_capabilities
    from ..rules import all_rules

    for capability in all_capabilities():
        if capability.name == code.lower():
            click.echo(f"{capability.name} (capability)\n\n{capability.manual}")
            return
    rules = {rule.code: rule for rule in all_rules()}
    rule = rules.get(code.upper())
    if rule is None:
        from difflib import get_close_matches

        begun = [known for known in rules if known.startswith(code.upper())]
        close = begun or get_close_matches(code.upper(), rules, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]}? " if close else ""
        raise InputError(f"no rule {code}; {hint}`ddpfix rules` lists them")
    click.echo(f"{rule.code} ({NAMES[rule.severity.value]}, {rule.safety.value})\n\n{rule.manual}")


@click.command()
@click.option("--markdown", is_flag=True, help="Print all manuals, as docs/rules.md has them.")
def rules(markdown: bool) -> None:
    """List all rules, a line each."""
    from ..rules import all_rules

    if markdown:
        click.echo(manuals(), nl=False)
        return
    for rule in all_rules():
        click.echo(f"{rule.code}  {rule.severity.value}  {rule.safety.value:7}{rule.title}")


@click.command()
@click.option("--markdown", is_flag=True, help="Print all manuals, as docs/capabilities.md does.")
def capabilities(markdown: bool) -> None:
    """List what `patch --with` can add to a script, a line each."""
    from ..capabilities import all_capabilities

    if markdown:
        click.echo(capability_manuals(), nl=False)
        return
    for one in all_capabilities():
        click.echo(f"{one.name:14}{one.title}")
