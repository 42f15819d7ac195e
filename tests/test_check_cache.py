"""What is remembered between runs, and that nothing else is believed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from checkout import ROOT
from command_line import LEGACY, run
from ddpfix.patcher.frontend import cache
from ddpfix.patcher.frontend import checker as check_files

PROGRAM = "import torch, steps\nfor b in bs: b.backward()\nif __name__ == '__main__': main()\n"
MODULE = "import torch\ndef f(args):\n    return 8 // args.n_gpu\n"
CLEAN = "import torch\ndef f(args):\n    return 8 // max(args.n_gpu, 1)\n"


@pytest.fixture
def examined(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the scripts that are really checked, in order."""
    names: list[str] = []
    examine = check_files.check_script

    def recorded(
        path: str, codes: tuple[str, ...], known: cache.Cache, data: bytes | None = None
    ) -> cache.CacheEntry:
        names.append(Path(path).name)
        return examine(path, codes, known, data)

    monkeypatch.setattr(check_files, "check_script", recorded)
    return names


@pytest.fixture
def program(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "run.py").write_text(PROGRAM)
    (folder / "steps.py").write_text(MODULE)
    return folder


def findings(*arguments: object) -> str:
    return run("check", "--output-format", "concise", *arguments).stdout


def test_the_second_run_checks_nothing_and_says_the_same(
    program: Path, examined: list[str]
) -> None:
    first = run("check", program)
    assert examined == ["run.py", "steps.py"]
    second = run("check", program)
    assert examined == ["run.py", "steps.py"]
    assert "DF203" in first.stdout
    assert (second.stdout, second.stderr, second.exit_code) == (
        first.stdout,
        first.stderr,
        first.exit_code,
    )
    run("check", "--no-cache", program)
    assert examined == ["run.py", "steps.py"] * 2


def test_every_format_is_the_same_from_the_cache(program: Path) -> None:
    (program / "bad.py").write_text("import torch\nprint 'Python 2'\n")
    for name in ("full", "concise", "json", "github", "sarif"):
        fresh = run("check", "--no-cache", "--output-format", name, program)
        known = [run("check", "--output-format", name, program) for _ in range(2)]
        assert [(one.stdout, one.stderr) for one in known] == [(fresh.stdout, fresh.stderr)] * 2


def replace_keeping_times(path: Path, text: str) -> None:
    status = path.stat()
    path.write_text(text.ljust(status.st_size))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def drop(folder: Path) -> None:
    (folder / "steps.py").unlink()


CHANGES: list[object] = [
    pytest.param(lambda f: (f / "steps.py").write_text(CLEAN), "", id="neighbour edited"),
    pytest.param(drop, "", id="neighbour gone"),
    pytest.param(
        lambda f: (f / "steps.py").write_text("import helper\n" + MODULE),
        "steps.py:4:12: DF203",
        id="neighbour moved its finding",
    ),
    pytest.param(
        lambda f: (f / "run.py").write_text(PROGRAM.replace(", steps", "")), "", id="script edited"
    ),
    pytest.param(
        lambda f: replace_keeping_times(f / "steps.py", "import torch\n"),
        "",
        id="neighbour edited, size and time as before",
    ),
]


@pytest.mark.parametrize(("change", "expected"), CHANGES)
@pytest.mark.parametrize("settled", [0, cache.SETTLE_TIME_NS])
def test_a_change_of_any_part_of_the_program_is_checked_anew(
    program: Path,
    change: Callable[[Path], object],
    expected: str,
    settled: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # With no time to settle, new files too are recognised by their times.
    monkeypatch.setattr(cache, "SETTLE_TIME_NS", settled)
    script = program / "run.py"
    assert "steps.py:3:12: DF203" in findings(script)
    change(program)
    after = findings(script)
    assert expected in after
    assert bool(after) == bool(expected)
    assert after == findings("--no-cache", script)


def test_a_neighbour_that_appears_is_seen(program: Path) -> None:
    text = (program / "steps.py").read_text()
    (program / "steps.py").unlink()
    assert findings(program / "run.py") == ""
    (program / "steps.py").write_text(text)
    assert "steps.py:3:12: DF203" in findings(program / "run.py")


def test_equal_scripts_are_checked_once_where_their_neighbours_are_equal(
    tmp_path: Path, examined: list[str]
) -> None:
    for name, module in (("a", MODULE), ("b", CLEAN), ("c", MODULE)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "run.py").write_text(PROGRAM)
        (folder / "steps.py").write_text(module)
    found = findings(tmp_path)
    assert sorted(examined) == ["run.py", "run.py", "steps.py", "steps.py"]
    assert [line.partition(": ")[0] for line in found.splitlines()] == [
        f"{tmp_path}/a/steps.py:3:12",
        f"{tmp_path}/c/steps.py:3:12",
    ]


SPOILT: list[object] = [
    pytest.param(lambda data: b"", id="empty"),
    pytest.param(lambda data: data[: len(data) // 2], id="cut off"),
    pytest.param(lambda data: data.replace(b"run.py", b"ran.py"), id="another text"),
    pytest.param(lambda data: data[:-1] + bytes([data[-1] ^ 1]), id="a flipped bit"),
    pytest.param(lambda data: b"\xff\n" + data, id="no header"),
    pytest.param(lambda data: data.replace(b"\n", b"\n\n", 1), id="a line more"),
]


@pytest.mark.parametrize("spoil", SPOILT)
def test_a_spoilt_cache_is_none(
    program: Path, cache_folder: Path, spoil: Callable[[bytes], bytes], examined: list[str]
) -> None:
    first = findings(program)
    (file,) = cache_folder.iterdir()
    file.write_bytes(spoil(file.read_bytes()))
    examined.clear()
    assert findings(program) == first != ""
    assert examined == ["run.py", "steps.py"]


def test_another_ddpfix_believes_nothing_of_this_one(
    program: Path, examined: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = findings(program)
    monkeypatch.setattr(cache, "version", lambda: "another")
    examined.clear()
    assert findings(program) == first
    assert examined == ["run.py", "steps.py"]


PATCHER_FILES = sorted(path for path in (ROOT / "patcher").rglob("*.py"))


def test_a_change_of_any_file_of_the_patcher_is_another_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "patcher"
    shutil.copytree(ROOT / "patcher", copy)
    monkeypatch.setattr(cache, "PATCHER", str(copy))
    seen = {cache.version()}
    assert cache.version() in seen
    for path in PATCHER_FILES:
        file = copy / path.relative_to(ROOT / "patcher")
        file.write_text(f"{file.read_text()}\n")
        version = cache.version()
        assert version not in seen, path
        seen.add(version)
    (copy / "rules" / "df999_new.py").write_text("")
    assert cache.version() not in seen


def test_selections_do_not_share_what_they_know(program: Path) -> None:
    assert "DF203" in findings(program)
    assert findings("--ignore", "DF2", program) == ""
    assert "DF203" in findings(program)


def test_a_folder_that_cannot_be_written_costs_nothing_but_time(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DDPFIX_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert "DF203" in findings(program)


def test_nothing_is_written_beside_the_scripts(
    program: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("DDPFIX_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(program)
    assert "DF203" in findings(".")
    assert sorted(path.name for path in program.iterdir()) == ["run.py", "steps.py"]
    assert len(list((tmp_path / "home" / "ddpfix").iterdir())) == 1


def test_the_same_file_by_a_link_and_from_another_folder(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "link.py"
    link.symlink_to(program / "run.py")
    expected = f"{program}/steps.py:3:12: DF203"
    assert findings(link).startswith(expected)
    assert findings(link).startswith(expected)
    monkeypatch.chdir(program)
    assert findings("run.py").startswith("steps.py:3:12: DF203")
    monkeypatch.chdir(tmp_path)
    assert findings("code/run.py").startswith("code/steps.py:3:12: DF203")


@pytest.mark.parametrize("broken", [False, True])
def test_processes_change_neither_findings_nor_their_order(tmp_path: Path, broken: bool) -> None:
    for number in range(3 * check_files.MIN_SCRIPTS_PER_WORKER):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "run.py").write_text(PROGRAM + f"x = {number}\n")
        (folder / "steps.py").write_text(MODULE if number % 3 else f"{LEGACY}y = {number}\n")
    if broken:
        (tmp_path / "7" / "run.py").write_text("import torch\nprint 'Python 2'\n")
    alone = run("check", "--no-cache", "--jobs", "1", tmp_path)
    several = run("check", "--no-cache", "--jobs", "3", tmp_path)
    assert len(alone.stdout) > 0
    assert (several.stdout, several.stderr) == (alone.stdout, alone.stderr)
    assert several.exit_code == alone.exit_code == (2 if broken else 1)


@pytest.mark.parametrize("jobs", ["0", "-1", "many"])
def test_jobs_that_are_no_number_are_refused(program: Path, jobs: str) -> None:
    result = run("check", "--jobs", jobs, program)
    assert result.exit_code == 2
    assert "a positive number or auto" in result.stderr
