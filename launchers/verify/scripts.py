"""Copy the original and the patched script for a verification, and check the patch itself."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from attrs import frozen

from ...errors import InputError
from ...patcher.api import (
    Flag,
    Patch,
    Severity,
    all_capabilities,
    decode,
    patch,
    read_modernized,
    read_program,
    select_capabilities,
)
from ..script.flags import remove_flag
from ..script.source import declared_flag_names, script_text
from .evidence import TOKEN_MEANS, Row
from .program_copy import copy_program, program_folders
from .request import VerifyRequest

ACCUMULATION_MATTERS = {
    "DF307": "examples are held against their micro-batch",
    "DF310": TOKEN_MEANS,
}
"""Rules whose findings in the original mean that splitting into micro-batches changes results."""

WEIGHT_HELPER = "def weighed_by_tokens("
PARTIAL_CAPABILITIES = {"flags"}
"""Capabilities that leave a part of the script as it is, where that is all that can be done."""


@frozen
class ScriptsUnderTest:
    """Copies to run: ``patched`` is judged against ``original`` (None where there is none).

    ``summary`` is a sentence on which file is which. ``patching_row`` is the row of C9.
    ``added_flags`` are flags of capabilities that the patched script has and the original lacks.
    ``accumulation_note``: why results depend on the accumulation, or "".
    """

    original: Path | None
    patched: Path
    summary: str
    patching_row: Row
    added_flags: tuple[Flag, ...] = ()
    accumulation_note: str = ""

    def arguments_for_original(self, arguments: Sequence[str]) -> list[str]:
        """``arguments`` without those that the original does not know."""
        result = list(arguments)
        for flag in self.added_flags:
            result = remove_flag(result, flag.spelling, takes_value=flag.kind != "bool")
        return result


def prepare_scripts(request: VerifyRequest, folder: Path) -> ScriptsUnderTest:
    """Copy a script and its original below ``folder``, each with the files in its folder.

    Raises InputError when a script cannot be read, is refused by the patcher, or is not in git, or
    when a capability is unknown or cannot be added.
    """
    script, original, rev = request.script, request.original, request.rev
    patch_as_requested = partial(
        patch,
        exact=request.exact,
        unsafe=request.unsafe,
        capabilities=select_capabilities(request.capabilities),
    )
    if not script.is_file():
        raise InputError(f"{script}: no such script")
    judged = copy_program(script, folder / "patched")
    is_patched_here = original is None and rev is None and not request.as_is
    _check_compiles(judged, script, modernize=is_patched_here)
    if original is not None or rev is not None:
        before = copy_program(original or script, folder / "original", as_name=script.name)
        if rev is not None:
            _check_out(script, rev, folder / "original")
        source = f"{script} at {rev}" if rev is not None else str(original)
        summary = f"original: {source}; judged: {script}"
        return _with_original(before, judged, summary, patch_as_requested)
    if request.as_is:
        summary = f"judged: {script} as it is, without an original"
        row = check_patching(judged, None, patch_as_requested)
        return ScriptsUnderTest(None, judged, summary, row)
    change = patch_as_requested(judged)
    if change.refusal:
        here = "" if script.parent == Path() else f"{script.parent}/"
        because = change.refusal.replace(f"{judged.parent}/", here)  # the user's files, no copies
        raise InputError(f"{script}: {because}")
    for finding in change.capability_failures:
        if finding.code in PARTIAL_CAPABILITIES:
            continue
        raise InputError(f"{script}: {finding.code} cannot be added: {finding.because}")
    if not change.changes:
        summary = f"{script} needs no patch, and no original is given (--original or --rev)"
        row = check_patching(judged, None, patch_as_requested)
        return ScriptsUnderTest(None, judged, summary, row)
    for each in change.changes:
        if not each.source.path.resolve().is_relative_to(folder.resolve()):
            raise InputError(
                f"{script}: it imports {each.source.path} by a full path, of which no copy can be "
                "patched: patch the script by hand, and give verify --original or --rev"
            )
    before = copy_program(script, folder / "original")
    change.write()
    _check_compiles(judged, script, patched=True)
    _check_partial_flags(request, judged, change)
    summary = f"original: {script}; judged: a copy of it, patched for this run"
    return _with_original(before, judged, summary, patch_as_requested)


def _check_partial_flags(request: VerifyRequest, judged: Path, change: Patch) -> None:
    """Raise InputError for a flag that a capability was to add, and could not.

    A script without a command line would not complain, and keep its constant.
    """
    failures = [each.because for each in change.capability_failures]
    words = {word.partition("=")[0] for word in request.arguments} - declared_flag_names(judged)
    for capability in all_capabilities():
        for flag in capability.flags if capability.name in PARTIAL_CAPABILITIES else ():
            if failures and flag.spelling in words:
                reasons = "; ".join(failures)
                raise InputError(f"{request.script}: no {flag.spelling} could be added: {reasons}")


def _check_compiles(
    copy: Path, script: Path, *, patched: bool = False, modernize: bool = False
) -> None:
    """Raise InputError, with the line, for a script that no run could begin.

    ``modernize``: words that became keywords are no reason, as the patch replaces them.
    """
    source = read_modernized(str(copy)) if modernize else None
    text = source.encode(source.text) if source else copy.read_bytes()
    try:
        compile(text, str(script), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        place = f"{script}:{getattr(error, 'lineno', None) or 1}"
        what = "the patched script does" if patched else "it does"
        reason = getattr(error, "msg", None) or error
        raise InputError(f"{place}: {what} not compile ({reason}); correct that line") from None
    except (RecursionError, MemoryError):
        raise InputError(f"{script}: nested too deeply to be compiled; split it") from None


def _with_original(
    original: Path, judged: Path, summary: str, patch_as_requested: Callable[[Path], Patch]
) -> ScriptsUnderTest:
    """The scripts under test where there is an original to judge against."""
    codes = {
        finding.code
        for finding in patch(original, select=[*ACCUMULATION_MATTERS]).findings_before
        if finding.code == "DF307" or finding.severity is not Severity.NOTE  # of class weights
    }
    note = next((text for code, text in ACCUMULATION_MATTERS.items() if code in codes), "")
    if not note and any(
        WEIGHT_HELPER in module.source.text for module in read_program(str(judged)).modules
    ):
        note = TOKEN_MEANS  # the original has no ranks, and so no finding
    left = patch(judged, select=["DF307"]).findings_before if "DF307" in codes else ()
    if left:
        fix = "--unsafe-fixes changes" if all(one.edits for one in left) else "no fix changes here"
        summary += f"; its loss knows the rank's own batch only, which {fix} (DF307)"
    row = check_patching(judged, original, patch_as_requested)
    return ScriptsUnderTest(original, judged, summary, row, _added_flags(original, judged), note)


def _added_flags(original: Path, judged: Path) -> tuple[Flag, ...]:
    """Flags of capabilities that the judged script declares and the original does not."""
    added = declared_flag_names(judged) - declared_flag_names(original)
    text = script_text(original)  # of which the flags cannot be told where it is no valid Python
    flags = [flag for capability in all_capabilities() for flag in capability.flags]
    return tuple(
        flag
        for flag in flags
        if flag.spelling in added and not re.search(rf"""['"]{flag.spelling}['"]""", text)
    )


def _check_out(script: Path, rev: str, copy: Path) -> None:
    """Overwrite the copied program with git's Python files at ``rev``."""
    program = program_folders(script)
    names = _git(program.base, script, "ls-tree", "-r", "--name-only", rev, ".").splitlines()
    if (program.home.relative_to(program.base) / script.name).as_posix() not in names:
        raise InputError(f"{script}: git has no such file at {rev}; name another --rev")
    for name in names:
        target = copy / name
        if name.endswith(".py") and _is_copied(target.parent, copy):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            target.write_bytes(_git_bytes(program.base, script, "show", f"{rev}:./{name}"))


def _is_copied(folder: Path, copy: Path) -> bool:
    """Whether a folder of a copy is not one of the user's by a link."""
    return not any(each.is_symlink() for each in (folder, *folder.parents) if each != copy)


def _git(home: Path, script: Path, *arguments: str) -> str:
    return _git_bytes(home, script, *arguments).decode("utf-8", "surrogateescape")


def _git_bytes(home: Path, script: Path, *arguments: str) -> bytes:
    try:
        git = subprocess.run(["git", *arguments], cwd=home, capture_output=True, check=False)
    except OSError as error:
        raise InputError(f"{script}: --rev needs git: {error.strerror}") from None
    if git.returncode:
        lines = git.stderr.decode("utf-8", "replace").strip().splitlines()
        raise InputError(f"{script}: git: {lines[-1] if lines else git.returncode}; see --rev")
    return git.stdout


def check_patching(
    judged: Path, original: Path | None, patch_as_requested: Callable[[Path], Patch] = patch
) -> Row:
    """C9: patching the original gives the judged script; a second patch and a check are silent.

    ``patch_as_requested`` patches with the options that the judged script was patched with.
    """
    second = patch_as_requested(judged)
    if second.changes:
        return Row("C9", "broken", f"patching again changes {len(second.changes)} files")
    left = [finding for finding in second.findings_before if finding.severity is Severity.ERROR]
    if left:
        first = left[0]
        return Row("C9", "broken", f"check finds {first.code} line {first.line}: {first.because}")
    if original is None:
        return Row("C9", "unproven", "no original to compare the lines with")
    change = patch_as_requested(original)
    texts = {each.source.path.resolve(): each.source.encode(each.text) for each in change.changes}
    edited = []
    for path in sorted({*original.parent.rglob("*.py"), *texts}):
        other = judged.parent / os.path.relpath(path, original.parent)
        if not other.is_file() or other.read_bytes() != texts.get(
            path.resolve(), path.read_bytes()
        ):
            edited.append(os.path.relpath(path, original.parent))
    if edited:
        return Row(
            "C9",
            "unproven",
            f"{', '.join(edited)}: not what `ddpfix patch` makes of the original; edited by hand?",
        )
    old, new = (decode(str(path), path.read_bytes()) for path in (original, judged))
    lines = old.text.splitlines(keepends=True)
    same = sum(1 for line in set(lines) & set(new.text.splitlines(keepends=True)))
    note = (
        f", {len(second.findings_before)} findings without an edit"
        if second.findings_before
        else ""
    )
    return Row(
        "C9",
        "holds",
        f"exactly what `ddpfix patch` announces; {same} of {len(set(lines))} distinct lines "
        f"untouched; a second patch changes nothing{note}",
    )


def check_flags(judged: Path, arguments: Sequence[str]) -> Row:
    """C8: a flag that is passed takes effect, or the patcher reports where it is overwritten."""
    passed = {word.partition("=")[0] for word in arguments if word.startswith("--")}
    findings = patch(judged, select=["DF704"]).findings_before
    overwritten = [f for f in findings if f.because.split()[0] in passed]
    if not overwritten:
        return Row("C8", "holds", f"none of the {len(passed)} flags passed is overwritten")
    places = ", ".join(f"{f.because.split()[0]} in line {f.line}" for f in overwritten)
    return Row("C8", "holds", f"passed and overwritten by the script, as DF704 says: {places}")
