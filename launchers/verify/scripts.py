"""The scripts that a verdict is about: copies of the original and of the patched one."""

from __future__ import annotations

import shutil
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
    choose_capabilities,
    decode,
    patch,
)
from ..script.flags import without
from ..script.source import declared
from .evidence import Row
from .request import VerifyRequest

APART = {
    "DF307": "examples are held against their micro-batch",
    "DF310": "the loss is a mean over a micro-batch's tokens",
}
"""What an original may do by which the split into micro-batches is a part of the training."""
_HIDDEN = {"__pycache__", ".git"}


@frozen
class ScriptsUnderTest:
    """Copies to run: ``patched`` is judged, ``original`` (None where there is none) is its model.

    ``said`` tells in a sentence what was taken for what. ``patching`` is the row of C9. ``lacking``
    are flags that capabilities have added, and that the original does not have. ``apart``: why
    each accumulation trains in a way of its own, if it does.
    """

    original: Path | None
    patched: Path
    said: str
    patching: Row
    lacking: tuple[Flag, ...] = ()
    apart: str = ""

    def shared(self, arguments: Sequence[str]) -> list[str]:
        """``arguments`` less those that the original does not know."""
        result = list(arguments)
        for flag in self.lacking:
            result = without(result, flag.spelling, takes_value=flag.kind != "bool")
        return result


def prepare(request: VerifyRequest, folder: Path) -> ScriptsUnderTest:
    """Copy a script and what lies beside it below ``folder``, with its original.

    Raises InputError when a script cannot be read, is refused by the patcher, or git has none, or
    when a capability is unknown or cannot be added.
    """
    script, original, rev = request.script, request.original, request.rev
    patched = partial(
        patch,
        exact=request.exact,
        unsafe=request.unsafe,
        capabilities=choose_capabilities(request.wanted),
    )
    if not script.is_file():
        raise InputError(f"{script}: no such script")
    judged = copy(script, folder / "patched")
    if original is not None or rev is not None:
        model = folder / "original" / script.name
        copy(original or script, folder / "original", as_name=script.name)
        if rev is not None:
            _at_revision(script, rev, model)
        source = f"{script} at {rev}" if rev is not None else str(original)
        said = f"original: {source}; judged: {script}"
        return _compared(model, judged, said, patched)
    if request.as_is:
        said = f"judged: {script} as it is, without an original"
        return ScriptsUnderTest(None, judged, said, patching(judged, None, patched))
    change = patched(judged)
    if change.refusal:
        raise InputError(f"{script}: {change.refusal}")
    for finding in change.lacking:
        raise InputError(f"{script}: {finding.code} cannot be added: {finding.because}")
    if not change.changes:
        said = f"{script} needs no patch, and no original is given (--original or --rev)"
        return ScriptsUnderTest(None, judged, said, patching(judged, None, patched))
    model = copy(script, folder / "original")
    change.write()
    said = f"original: {script}; judged: a copy of it, patched for this run"
    return _compared(model, judged, said, patched)


def _compared(
    model: Path, judged: Path, said: str, patched: Callable[[Path], Patch]
) -> ScriptsUnderTest:
    """A script and its original."""
    found = {finding.code for finding in patch(model, chosen=[*APART]).found}
    apart = next((why for code, why in APART.items() if code in found), "")
    left = patch(judged, chosen=["DF307"]).found if "DF307" in found else ()
    if left:
        way = "--unsafe-fixes changes" if all(one.edits for one in left) else "no fix changes here"
        said += f"; its loss knows the rank's own batch only, which {way} (DF307)"
    row = patching(judged, model, patched)
    return ScriptsUnderTest(model, judged, said, row, _lacking(model, judged), apart)


def _lacking(original: Path, judged: Path) -> tuple[Flag, ...]:
    """Flags of capabilities that a script does not have, and the judged one has."""
    added = declared(judged) - declared(original)
    flags = [flag for capability in all_capabilities() for flag in capability.flags]
    return tuple(flag for flag in flags if flag.spelling in added)


def copy(script: Path, folder: Path, *, as_name: str | None = None) -> Path:
    """Copy a script's folder: Python files as they are, all else as links. Returns the script."""
    home = script.resolve().parent
    _copy_folder(home, folder, top=True)
    target = folder / (as_name or script.name)
    target.unlink(missing_ok=True)
    shutil.copyfile(script, target)
    return target


def _copy_folder(source: Path, target: Path, *, top: bool = False) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(source.iterdir()):
        if path.name in _HIDDEN:
            continue
        if path.is_dir() and not path.is_symlink() and _holds_python(path, top):
            _copy_folder(path, target / path.name)
        elif path.suffix == ".py" and path.is_file():
            shutil.copyfile(path, target / path.name)
        else:
            (target / path.name).symlink_to(path)


def _holds_python(folder: Path, top: bool) -> bool:
    # A package, or a folder of modules: one look below is enough, as data may be millions of files.
    return any(folder.glob("*.py")) or (top and any(folder.glob("*/__init__.py")))


def _at_revision(script: Path, rev: str, model: Path) -> None:
    """Put the Python files of the script's folder at ``rev`` over the copies."""
    home = script.resolve().parent
    names = _git(home, script, "ls-tree", "-r", "--name-only", rev, ".").splitlines()
    if script.name not in names:
        raise InputError(f"{script}: git has no such file at {rev}; name another --rev")
    for name in names:
        if name.endswith(".py"):
            target = model.parent / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            target.write_bytes(_git_bytes(home, script, "show", f"{rev}:./{name}"))


def _git(home: Path, script: Path, *arguments: str) -> str:
    return _git_bytes(home, script, *arguments).decode("utf-8", "surrogateescape")


def _git_bytes(home: Path, script: Path, *arguments: str) -> bytes:
    try:
        done = subprocess.run(["git", *arguments], cwd=home, capture_output=True, check=False)
    except OSError as error:
        raise InputError(f"{script}: --rev needs git: {error.strerror}") from None
    if done.returncode:
        words = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise InputError(f"{script}: git: {words[-1] if words else done.returncode}; see --rev")
    return done.stdout


def patching(judged: Path, original: Path | None, patched: Callable[[Path], Patch] = patch) -> Row:
    """C9: patching the original gives what is judged; a second patch and a check are silent.

    ``patched`` patches as the judged script is said to be.
    """
    second = patched(judged)
    if second.changes:
        return Row("C9", "broken", f"patching again changes {len(second.changes)} files")
    left = [finding for finding in second.found if finding.severity is Severity.ERROR]
    if left:
        first = left[0]
        return Row("C9", "broken", f"check finds {first.code} line {first.line}: {first.because}")
    if original is None:
        return Row("C9", "unproven", "no original to compare the lines with")
    change = patched(original)
    texts = {each.source.path.resolve(): each.source.encode(each.text) for each in change.changes}
    edited = []
    for path in sorted(original.parent.rglob("*.py")):
        other = judged.parent / path.relative_to(original.parent)
        if not other.is_file() or other.read_bytes() != texts.get(
            path.resolve(), path.read_bytes()
        ):
            edited.append(path.relative_to(original.parent).as_posix())
    if edited:
        return Row(
            "C9",
            "unproven",
            f"{', '.join(edited)}: not what `ddpfix patch` makes of the original; edited by hand?",
        )
    kept, new = (decode(str(path), path.read_bytes()) for path in (original, judged))
    lines = kept.text.splitlines(keepends=True)
    same = sum(1 for line in set(lines) & set(new.text.splitlines(keepends=True)))
    note = f", {len(second.found)} findings without an edit" if second.found else ""
    return Row(
        "C9",
        "holds",
        f"exactly what `ddpfix patch` announces; {same} of {len(set(lines))} distinct lines "
        f"untouched; a second patch changes nothing{note}",
    )


def flags_obeyed(judged: Path, arguments: Sequence[str]) -> Row:
    """C8: a flag that is passed has its effect, or the patcher's finding says where it is lost."""
    passed = {word.partition("=")[0] for word in arguments if word.startswith("--")}
    lost = [f for f in patch(judged, chosen=["DF704"]).found if f.because.split()[0] in passed]
    if not lost:
        return Row("C8", "holds", f"none of the {len(passed)} flags passed is overwritten")
    places = ", ".join(f"{f.because.split()[0]} in line {f.line}" for f in lost)
    return Row("C8", "holds", f"passed and overwritten by the script, as DF704 says: {places}")
