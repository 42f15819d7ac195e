"""Run ``ddpfix patch``: write or print the patched scripts, and a summary on stderr."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from ...errors import InputError
from ...record import record
from ..analysis.settings.constant_meanings import ConstantSetting
from ..analysis.settings.constant_settings import constant_settings
from ..analysis.training.load import read_program, read_source
from ..analysis.training.program import Program
from ..capabilities import Capability
from ..engine.check import check
from ..engine.disk_lines import finding_on_disk
from ..engine.marks import mark_lines
from ..engine.patch import FileChange, Patch, patch
from ..findings import Severity
from ..source.files import Source, decode, folder_of
from ..source.journal import finish_interrupted, is_interrupted
from ..source.replacement import replace_all
from .checker import named_at_run_time, rules_with_codes
from .config import Config
from .diagnostics import diagnose, own_mistake
from .output import concise, show_diff
from .patch_report import patch_report
from .relative_paths import as_named
from .request import Request

# The note that one process trains alone: what patch is for, told also where nothing changes.
ONE_PROCESS_ONLY = "DF204"


@record
class PatchOptions:
    """Options of `ddpfix patch`. ``data``: the script's bytes where they came from stdin."""

    request: Request
    capabilities: tuple[Capability, ...]
    dry_run: bool
    diff: bool
    unsafe: bool
    exact: bool
    mark: bool
    may_suggest: bool  # that capabilities could be added
    data: bytes | None
    as_json: bool = False

    @property
    def writes(self) -> bool:
        """Whether files are changed."""
        return not (self.dry_run or self.diff) and self.data is None


def run_patch(options: PatchOptions) -> int:
    """Patch, write and print as the options say; returns the exit status.

    Raises InputError for paths that cannot be used.
    """
    request, data = options.request, options.data
    if options.as_json and data is not None:
        raise InputError("--json prints a report, and `-` the script: give the file instead of `-`")
    paths = [Path(path) for path in ([request.name] if request.from_stdin else request.files())]
    for line in interrupted(paths, options):
        click.echo(line, err=True)
    patches, failures = patch_files(paths, options)
    changed = [one for one in patches if one.changes]
    changes = [change for one in changed for change in one.changes]
    marks: list[FileChange] = []
    if options.mark:
        texts = {real_path(path): data for path in paths if data is not None}
        if not options.writes:
            texts |= {real_path(change.source.path): change.data for change in changes}
        marks = mark_changes(paths, request.codes, texts)
        if marks and options.writes:
            failures += write_marks(marks, paths)
    if options.as_json:
        click.echo(patch_report(patches, failures))
    elif options.dry_run or options.diff:
        show_diff(one_per_file([*changes, *marks]))
    elif data is not None and not failures:
        failures += write_to_stdout(paths[0], data, [*changes, *marks])
    lines = [*summary(patches, marks, options), *(f"ddpfix: {each}" for each in failures)]
    for line in lines:
        click.echo(as_named(line, map(str, paths)), err=True)
    return 2 if failures else 1 if changed or marks else 0


def interrupted(paths: Sequence[Path], options: PatchOptions) -> Iterator[str]:
    """Finish or take back what a killed run left beside the scripts; lines that say so.

    Raises InputError where files have been changed since.
    """
    if options.data is not None:
        return
    for folder in dict.fromkeys(Path(folder_of(str(path))) for path in paths):
        if not options.writes and is_interrupted(folder):
            yield f"{folder}: a patch was interrupted; without --dry-run, patch finishes it"
        elif line := finish_interrupted(folder):
            yield line


def patch_files(paths: Sequence[Path], options: PatchOptions) -> tuple[list[Patch], list[str]]:
    """Patch each path, and write it unless only a diff is wanted.

    Returns the patches, and why other paths were refused or cannot be patched.
    """
    patches: list[Patch] = []
    failures: list[str] = []
    texts: dict[Path, bytes] = {}  # of files that would be written

    def look(name: str) -> Source | None:
        data = texts.get(real_path(Path(name)))
        return read_source(name) if data is None else decode(name, data)

    for path in paths:
        try:
            one = patch(
                path,
                select=options.request.select,
                ignore=options.request.ignore,
                unsafe=options.unsafe,
                exact=options.exact,
                data=texts.get(real_path(path), options.data),
                capabilities=options.capabilities,
                look=look,
                along=paths,
            )
            if one.refusal:
                raise InputError(f"{path}: {one.refusal}")
            if options.writes:
                one.write()
            else:
                texts |= {real_path(change.source.path): change.data for change in one.changes}
        except InputError as error:
            failures.append(str(error))
        except RecursionError:
            failures.append(f"{path}: nested too deeply to be patched; split it")
        except Exception as error:  # a mistake of ours costs this file, and not the others
            failures.append(f"{path}: not patched{own_mistake(error)}")
        else:
            patches.append(one)
    return patches, failures


def one_per_file(changes: Sequence[FileChange]) -> list[FileChange]:
    """The changes with those of one file together, from its text on the disk to the last one."""
    merged: dict[Path, FileChange] = {}
    for change in changes:
        path = real_path(change.source.path)
        first = merged.get(path, change)
        merged[path] = FileChange(first.source, change.text)
    return [*merged.values()]


def summary(
    patches: Sequence[Patch], marks: Sequence[FileChange], options: PatchOptions
) -> Iterator[str]:
    """Lines on what was repaired, and what is left and why."""
    changed = [one for one in patches if one.changes]
    verb = "would repair" if options.dry_run or options.diff else "repaired"
    for one in changed:
        left = Counter(f.code for f in one.findings_after)
        gone = Counter(f.code for f in one.findings_before) - left
        codes = sorted(gone.keys() - left.keys())
        names = f" ({' '.join(codes)})" if codes else ""
        yield f"{one.path}: {verb} {gone.total()} findings{names}"
    for one in patches:
        if one.unasked:
            notes = ",".join(one.unasked)
            yield f"{one.path}: nothing to repair; `--select {notes}` makes the edits of its notes"
        unread = [name for _, _, name in one.original.unread]
        unread += named_at_run_time(one.original)
        if unread and (one.changes or not one.findings_after):
            names = ", ".join(dict.fromkeys(unread))
            result = "this rests on" if one.changes else "nothing found in"
            yield f"{one.path}: {result} what could be read; not read: {names}"
        for finding in one.findings_after:
            item = diagnose(finding if options.writes else finding_on_disk(one.original, finding))
            if one.changes or not item.is_note or finding.code == ONE_PROCESS_ONLY:
                yield f"left alone: {concise(item)}"
        for verdict in one.audit:
            answer = f"{verdict.code} {verdict.answer.value}"
            yield f"audit: {verdict.where}: {answer}: {verdict.because}"
        for finding in one.capability_failures:
            place = f"{finding.module.source.name}:{finding.line}"
            yield f"without {finding.code}: {place}: {finding.because}"
    if changed and options.data is None:
        before = " --rev HEAD" if options.writes else ""
        words = f"{before} {words_to_verify(changed[0].original)}"
        run = f"ddpfix verify {changed[0].path}{words}"
        yield f"`{run}` proves by running what was changed"
    if changed and options.may_suggest:
        yield "`--with all` would add capabilities: `ddpfix capabilities` lists them"
    for change in marks:
        yield f"{change.source.name}: marks {'to be ' * (not options.writes)}brought up to date"


def words_to_verify(program: Program) -> str:
    """What a script is verified with: its arguments, or options for its constants."""
    is_constant = any(
        isinstance(one, ConstantSetting) and one.role == "train_batch"
        for one in constant_settings(program)
    )
    words = ["--with flags"] if is_constant else []
    if program.options or not is_constant:
        words.append("-- ITS ARGUMENTS")
    return " ".join(words)


def choose_capabilities(
    wanted: list[str], unwanted: list[str], config: Config
) -> tuple[Capability, ...]:
    """The capabilities of --with and --without, else those of [tool.ddpfix].

    --without alone means all others. Raises InputError for a name that no capability has.
    """
    if not (wanted or unwanted or config.capabilities):
        return ()
    from ..capabilities import select_capabilities

    try:
        return select_capabilities(wanted or list(config.capabilities) or ["all"], unwanted)
    except InputError as error:
        if wanted or unwanted:
            raise
        raise InputError(f"{config.file}: {error}") from error


def mark_changes(
    paths: Sequence[Path], codes: tuple[str, ...], texts: dict[Path, bytes]
) -> list[FileChange]:
    """Changes that mark the findings left; ``texts`` replace the bytes of files.

    A module that a script imports is marked, too; but marks are removed only from files that are
    named, as another script may need those of a module.
    """

    def current(path: str) -> Source | None:
        data = texts.get(real_path(Path(path)))
        return read_source(path) if data is None else decode(path, data)

    sources: dict[Path, Source] = {}
    wanted: dict[Path, dict[int, set[str]]] = {}
    for path in paths:
        try:
            program = read_program(str(path), texts.get(real_path(path)), current)
            findings = check(program, rules_with_codes(codes))
        except (InputError, RecursionError):
            continue  # reported when it was patched
        for module in program.modules:
            sources.setdefault(real_path(module.source.path), module.source)
        for finding in findings:
            if finding.severity is not Severity.NOTE:
                lines = wanted.setdefault(real_path(finding.module.source.path), {})
                lines.setdefault(finding.line, set()).add(finding.code)
    named = {real_path(path) for path in paths}
    changes = [
        FileChange(source, mark_lines(source.text, wanted.get(path, {}), others_go=path in named))
        for path, source in sources.items()
    ]
    return [change for change in changes if change.text != change.source.text]


def real_path(path: Path) -> Path:
    """A path without symbolic links; one in a circle of links stays."""
    return Path(os.path.realpath(path))


def write_marks(marks: Sequence[FileChange], paths: Sequence[Path]) -> list[str]:
    """Write each file with its marks; returns why others could not be."""
    homes = [real_path(Path(folder_of(str(path)))) for path in paths]
    failures = []
    for change in marks:
        file = real_path(change.source.path)
        home = next((home for home in homes if file.is_relative_to(home)), None)
        try:
            replace_all([(change.source, change.text)], home)
        except InputError as error:
            failures.append(str(error))
    return failures


def write_to_stdout(script: Path, data: bytes, changes: Sequence[FileChange]) -> list[str]:
    """Print the script's new text; returns the failure where other files would change, too."""
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
