"""A file that cannot be read or patched costs that file, and one line says why."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import LEGACY
from ddpfix.patcher.frontend.cache import open_cache

DEADLINE = 120  # seconds, for a wait that would have no end

ELIFS = LEGACY + "if a == 0: pass\n" + "".join(f"elif a == {n}: pass\n" for n in range(1600))
SUM = "import torch\nfor b in bs: b.backward()\nx = batch // args.n_gpu" + " + args.n_gpu" * 700
UNENDING = LEGACY + "if a == 0: pass\n" + "".join(f"elif a == {n}: pass\n" for n in range(7000))


def ddpfix(folder: Path, *arguments: str | bytes, **variables: str) -> tuple[int, str, str]:
    """Run the command in a folder; returns its status and what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "ddpfix", *arguments],
        cwd=folder,
        env=os.environ | variables,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=DEADLINE,
        check=False,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def circle(path: Path) -> None:
    path.symlink_to(path.name)


def pipe(path: Path) -> None:
    os.mkfifo(path)


BAD = [
    pytest.param(circle, "Too many levels of symbolic links", id="a circle of links"),
    pytest.param(pipe, "not a regular file", id="a pipe"),
    pytest.param(lambda path: None, "no such file or folder", id="no file"),
    *(
        pytest.param(
            lambda path, coding=coding: path.write_text(f"# coding: {coding}\n{LEGACY}"),
            "cannot be decoded",
            id=coding,
        )
        for coding in ("undefined", "punycode", "hex", "nonsense")
    ),
    pytest.param(lambda path: path.write_text(UNENDING), "nested too deeply", id="7,000 elifs"),
]


@pytest.mark.parametrize(("make", "message"), BAD)
@pytest.mark.parametrize("command", [["check", "--output-format", "concise"], ["patch"]], ids=str)
def test_it_costs_that_file(tmp_path: Path, command: list[str], make, message: str) -> None:  # type: ignore[no-untyped-def]
    make(tmp_path / "bad.py")
    good = tmp_path / "good.py"
    good.write_text(LEGACY)
    status, output, errors = ddpfix(tmp_path, *command, "bad.py", "good.py")
    assert status == 2
    (line,) = [line for line in errors.splitlines() if "bad.py" in line]
    assert line.startswith("ddpfix: bad.py: ")
    assert message in line
    assert "Traceback" not in errors
    if command[0] == "patch":
        assert good.read_text() != LEGACY
    else:
        assert "good.py:3:5: DF203" in output


def test_a_circle_of_links_in_a_folder_costs_that_file(tmp_path: Path) -> None:
    circle(tmp_path / "bad.py")
    (tmp_path / "good.py").write_text(LEGACY)
    status, output, errors = ddpfix(tmp_path, "check", ".")
    assert status == 2
    assert "ddpfix: bad.py: Too many levels of symbolic links" in errors
    assert "good.py\n  DF203" in output


@pytest.mark.parametrize("text", [ELIFS, SUM], ids=["1,600 elifs", "701 summands"])
def test_what_can_be_checked_but_not_edited_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.py").write_text(text)
    good = tmp_path / "good.py"
    good.write_text(LEGACY)
    status, output, _ = ddpfix(tmp_path, "check", "bad.py")
    assert (status, "DF203" in output) == (1, True)
    status, _, errors = ddpfix(tmp_path, "patch", "--mark", "bad.py", "good.py")
    assert status == 2
    assert "ddpfix: bad.py: nested too deeply to be patched; split it" in errors
    assert "Traceback" not in errors
    assert good.read_text() != LEGACY


@pytest.mark.parametrize("name", ["full", "concise", "json", "github", "sarif"])
def test_names_that_are_no_utf8(tmp_path: Path, name: str) -> None:
    folder = tmp_path / os.fsdecode(b"fol\xffder")
    folder.mkdir()
    (folder / os.fsdecode(b"na\xfeme.py")).write_text(LEGACY)
    (folder / os.fsdecode(b"bad\xfd.py")).write_text("import torch (\n")
    status, output, errors = ddpfix(folder, "check", "--output-format", name, ".")
    assert status == 2
    assert "DF203" in output
    assert "Traceback" not in errors
    assert r"ddpfix: bad\udcfd.py:1: not valid Python" in errors
    if name == "json":
        assert [item["path"] for item in json.loads(output)] == [r"na\udcfeme.py"]
    if name == "sarif":
        (run,) = json.loads(output)["runs"]
        place = run["results"][0]["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uri"] == "na%FEme.py"
        (told,) = run["invocations"][0]["toolExecutionNotifications"]
        assert r"bad\udcfd.py" in told["message"]["text"]
    json_text = output if name in ("json", "sarif") else ""
    assert r'"\ud' not in json_text.replace(r"\\", "")


def test_a_pipe_in_place_of_the_cache_or_the_settings(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (root / "good.py").write_text(LEGACY)
    os.mkfifo(root / "pyproject.toml")
    os.mkfifo(root / "mod.py")
    (root / "user.py").write_text(f"import mod\n{LEGACY}")
    cache = tmp_path / "cache"
    variables = {"DDPFIX_CACHE_DIR": str(cache)}
    first = ddpfix(root, "check", "good.py", "user.py", **variables)
    assert (first[0], first[1].count("DF203")) == (1, 2)
    (file,) = cache.iterdir()
    file.unlink()
    os.mkfifo(file)
    assert ddpfix(root, "check", "good.py", "user.py", **variables) == first


def test_a_relative_cache_home_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DDPFIX_CACHE_DIR")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    file = open_cache(str(tmp_path), ["DF203"]).file
    assert file is not None
    assert Path(file).parent == tmp_path / "home" / ".cache" / "ddpfix"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "there"))
    file = open_cache(str(tmp_path), ["DF203"]).file
    assert file is not None
    assert Path(file).parent == tmp_path / "there" / "ddpfix"


@pytest.mark.parametrize("value", ["[" * 5000 + "]" * 5000, "9" * 5000], ids=["nested", "digits"])
def test_settings_beyond_sense_are_one_line(tmp_path: Path, value: str) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.ddpfix]\nselect = {value}\n")
    (tmp_path / "good.py").write_text(LEGACY)
    status, _, errors = ddpfix(tmp_path, "check", "good.py")
    assert status == 2
    (line,) = errors.splitlines()
    assert line.startswith(f"ddpfix: {tmp_path}/pyproject.toml: not valid TOML")
