"""What `patch` writes: all that belongs to a file stays, and a kill leaves no half of a patch."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import LEGACY, run
from ddpfix.patcher.source import journal

SCRIPT = "import torch, mod\nfor b in bs: b.backward()\nx = batch // args.n_gpu\n"
MODULE = "import torch\ny = size // args.n_gpu\n"
NEW = {
    "run.py": SCRIPT.replace("batch // args.n_gpu", "batch"),
    "mod.py": "import torch\ny = size\n",
}
SELECT = ("--select", "DF203")

# Writes new texts, and ends itself by SIGKILL before the call of that number that changes a file;
# for a write in place, once half of the bytes are written.
KILLED = """\
import json, os, signal, sys
from pathlib import Path
from ddpfix.patcher.source import journal
from ddpfix.patcher.source.files import decode
from ddpfix.patcher.source.replacement import replace_all

texts = json.load(sys.stdin)
changes = [(decode(name, Path(name).read_bytes()), texts[name]) for name in texts]
left = int(sys.argv[1])

def counted(function):
    def call(*arguments, **named):
        global left
        left -= 1
        if not left:
            if function is overwrite:
                with arguments[0].open("r+b") as file:
                    file.write(arguments[1][: len(arguments[1]) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **named)
    return call

overwrite = journal.overwrite
journal.overwrite = counted(overwrite)
Path.replace = counted(Path.replace)
Path.unlink = counted(Path.unlink)
Path.open = counted(Path.open)
replace_all(changes)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A program of two files, both of which `patch` changes."""
    (tmp_path / "mod.py").write_text(MODULE)
    path = tmp_path / "run.py"
    path.write_text(SCRIPT)
    return path


def written(script: Path, texts: dict[str, str], moment: int) -> int:
    """Write texts beside a script, and end at a moment; returns the status."""
    changes = {str(script.with_name(name)): text for name, text in texts.items()}
    return subprocess.run(
        [sys.executable, "-c", KILLED, str(moment)],
        input=json.dumps(changes),
        text=True,
        check=False,
    ).returncode


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


def test_hard_links_owner_and_mode_survive(tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text(LEGACY)
    path.chmod(0o750)
    if os.geteuid() == 0:
        os.chown(path, 1234, 4321)
    other = tmp_path / "other"
    os.link(path, other)
    before = path.stat()
    assert run("patch", path).exit_code == 1
    after = path.stat()
    assert path.read_text() != LEGACY
    assert other.read_text() == path.read_text()
    for name in ("st_ino", "st_nlink", "st_uid", "st_gid", "st_mode"):
        assert getattr(after, name) == getattr(before, name), name


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_the_owner_survives_a_rename(tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text(LEGACY)
    os.chown(path, 1234, 4321)
    before = path.stat()
    assert run("patch", path).exit_code == 1
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 4321)
    assert path.stat().st_ino != before.st_ino


def test_extended_attributes_survive(tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text(LEGACY)
    try:
        os.setxattr(path, "user.origin", b"somewhere")
    except OSError as error:
        pytest.skip(f"this file system keeps no extended attributes: {error}")
    assert run("patch", path).exit_code == 1
    assert path.read_text() != LEGACY
    assert os.getxattr(path, "user.origin") == b"somewhere"


def test_a_read_only_file_is_refused_and_named_and_others_are_patched(tmp_path: Path) -> None:
    path, other = tmp_path / "a.py", tmp_path / "b.py"
    path.write_text(LEGACY)
    other.write_text(LEGACY)
    path.chmod(0o444)
    result = run("patch", path, other)
    assert result.exit_code == 2
    assert f"{path}: is read-only" in result.stderr
    assert path.read_text() == LEGACY
    assert other.read_text() != LEGACY
    assert sorted(contents(tmp_path)) == ["a.py", "b.py"]


def test_a_read_only_module_keeps_the_script_as_it_is(script: Path) -> None:
    module = script.with_name("mod.py")
    module.chmod(0o444)
    result = run("patch", *SELECT, script)
    assert result.exit_code == 2
    assert f"{module}: is read-only" in result.stderr
    assert contents(script.parent) == {"mod.py": MODULE, "run.py": SCRIPT}


@pytest.mark.parametrize("linked", [False, True], ids=["renamed", "written in place"])
def test_after_a_kill_at_any_moment_the_next_run_finishes_or_takes_back(
    script: Path, tmp_path_factory: pytest.TempPathFactory, linked: bool
) -> None:
    folder = script.parent
    module = script.with_name("mod.py")
    if linked:
        os.link(module, tmp_path_factory.mktemp("links") / "mod.py")
    old = contents(folder)
    new = dict(sorted(NEW.items()))
    said: set[str] = set()
    for moment in range(1, 40):
        for name, text in old.items():
            (folder / name).write_text(text)
        status = written(script, NEW, moment)
        if status == 0:
            break  # it came to its end before that call
        assert status == -signal.SIGKILL
        begun = (folder / journal.NAME).is_file()
        told = journal.finish_interrupted(folder)
        left = contents(folder)
        left.pop(f"{journal.NAME}.part", None)  # overwritten by the next patch
        assert left in (old, new), (moment, left)
        assert bool(told) == begun
        said.add(told.partition(": ")[2].partition(": ")[0] + f" {left == new}")
    else:
        pytest.fail("the run never came to its end")
    assert {
        "finished a patch that was interrupted True",
        "took back a patch that was interrupted before it was complete False",
    } <= said


def interrupted(script: Path) -> dict[str, str]:
    """Kill a patch between the renames of its two files; returns what is there then."""
    for moment in range(1, 40):
        assert written(script, NEW, moment) == -signal.SIGKILL
        now = contents(script.parent)
        if (now["run.py"] == SCRIPT) != (now["mod.py"] == MODULE):
            return now
        journal.finish_interrupted(script.parent)
        script.write_text(SCRIPT)
        script.with_name("mod.py").write_text(MODULE)
    raise AssertionError("no moment between the renames")


def test_patch_says_what_it_finishes_and_a_dry_run_only_that_it_has_to(script: Path) -> None:
    before = interrupted(script)
    mode = (script.parent / journal.NAME).stat().st_mode
    assert stat.S_IMODE(mode) == 0o600, "it holds the sources"
    dry = run("patch", "--dry-run", *SELECT, script)
    assert "a patch was interrupted; without --dry-run, patch finishes it" in dry.stderr
    assert contents(script.parent) == before
    result = run("patch", *SELECT, script)
    assert "finished a patch that was interrupted: run.py, mod.py" in result.stderr
    assert result.exit_code == 0
    assert sorted(contents(script.parent)) == ["mod.py", "run.py"]
    assert "n_gpu" not in script.read_text() + script.with_name("mod.py").read_text()


def test_what_was_edited_after_a_kill_is_not_overwritten(script: Path) -> None:
    left = interrupted(script)
    waiting = script if left["run.py"] == SCRIPT else script.with_name("mod.py")
    waiting.write_text("import torch\nmine = 1\n")
    result = run("patch", *SELECT, script)
    assert result.exit_code == 2
    assert f"{waiting}: changed since a patch of it was interrupted" in result.stderr
    assert waiting.read_text() == "import torch\nmine = 1\n"


@pytest.mark.parametrize(
    "row",
    [{"file": "../victim"}, {"file": "/etc/hostname"}, {"staged": "mod.py"}, {"before": 3}, None],
    ids=str,
)
def test_a_journal_that_a_repository_brings_reaches_nothing_outside(
    script: Path, row: dict[str, object] | None
) -> None:
    victim = script.parent.parent / "victim"
    victim.write_text("kept")
    staged = f"{journal.STAGED}0"
    for folder in (script.parent, script.parent.parent):
        (folder / staged).write_text("evil")
    fields = {"file": "run.py", "staged": staged, "before": "", "in_place": False}
    content = {"ready": True, "files": [None if row is None else fields | row]}
    (script.parent / journal.NAME).write_text(json.dumps(content))
    result = run("patch", *SELECT, script)
    assert result.exit_code == 2
    assert "no journal of a patch in this folder; delete it" in result.stderr
    assert victim.read_text() == "kept"
    assert contents(script.parent)["run.py"] == SCRIPT


def test_a_failed_write_leaves_every_file_as_it_was(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = journal.Replacement.apply
    calls: list[Path] = []

    def fail(self: journal.Replacement) -> None:
        calls.append(self.target)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        apply(self)

    monkeypatch.setattr(journal.Replacement, "apply", fail)
    result = run("patch", *SELECT, script)
    assert result.exit_code == 2
    assert f"{calls[1]}: cannot be written: No space left on device" in result.stderr
    assert contents(script.parent) == {"mod.py": MODULE, "run.py": SCRIPT}
