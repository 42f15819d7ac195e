"""Which files of a folder are looked at."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from command_line import LEGACY, run
from ddpfix.patcher.frontend.discover import find_scripts
from ddpfix.patcher.frontend.request import common_folder


def plant(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)


def found(folder: Path, *paths: str) -> list[str]:
    """Files below ``folder``, as paths from there."""
    names = find_scripts([str(folder / path) for path in paths or (".",)])
    return [str(Path(name).relative_to(folder)) for name in names]


def test_folders_are_walked_in_order_without_the_usual_ones(tmp_path: Path) -> None:
    plant(tmp_path, "b.py", "a/z.py", "a/b/c.py", "notes.txt", "c/d.py")
    plant(tmp_path, ".venv/x.py", "build/x.py", "a/__pycache__/x.py", "node_modules/x.py", ".x.py")
    assert found(tmp_path) == ["a/b/c.py", "a/z.py", "b.py", "c/d.py"]
    assert found(tmp_path, "b.py", "a") == ["b.py", "a/b/c.py", "a/z.py"]


def test_what_git_ignores_is_left_out(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    plant(tmp_path, "run.py", "old/run.py", "old/kept.py", "old/sub/run.py", "deep/er/gen_x.py")
    plant(tmp_path, "deep/er/x.py", "secret.py", "tracked_old.py", "data/a/b/c.py")
    (tmp_path / ".gitignore").write_text("/old/*\n!/old/kept.py\ntracked_*\ndata/\n")
    (tmp_path / "deep" / ".gitignore").write_text("gen_*.py\n")
    (tmp_path / ".git" / "info" / "exclude").write_text("secret.py\n")
    git(tmp_path, "add", "--force", "tracked_old.py")
    assert found(tmp_path) == ["deep/er/x.py", "old/kept.py", "run.py", "tracked_old.py"]
    assert found(tmp_path, "deep/er") == ["deep/er/x.py"]
    # What is named is checked.
    assert found(tmp_path, "secret.py", "data") == ["secret.py", "data/a/b/c.py"]
    assert found(tmp_path, "data/a/b") == ["data/a/b/c.py"]


def test_repositories_inside_a_folder_are_each_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        plant(tmp_path / name, "run.py", "gone_one.py", "gone_two.py")
        git(tmp_path / name, "init", "-q")
        (tmp_path / name / ".gitignore").write_text(f"gone_{name}.py\n")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "one" / ".git"))  # as in a hook of git
    assert found(tmp_path) == ["one/gone_two.py", "one/run.py", "two/gone_one.py", "two/run.py"]


def test_without_git_nothing_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(tmp_path, "init", "-q")
    plant(tmp_path, "run.py", "old.py")
    (tmp_path / ".gitignore").write_text("old.py\n")
    assert found(tmp_path) == ["run.py"]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert found(tmp_path) == ["old.py", "run.py"]


def test_patch_leaves_ignored_scripts_alone(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("old.py\n")
    for name in ("run.py", "old.py"):
        (tmp_path / name).write_text(LEGACY)
    assert run("patch", tmp_path).exit_code == 1
    assert (tmp_path / "old.py").read_text() == LEGACY
    assert (tmp_path / "run.py").read_text() != LEGACY


def test_a_script_nested_too_deeply_does_not_stop_the_others(tmp_path: Path) -> None:
    deep = "x = " + "f(" * 90 + "1" + ")" * 90
    nested = "".join(f"{' ' * depth}if x:\n" for depth in range(95)) + f"{' ' * 95}{deep}\n"
    chain = "x = " + " + ".join(["1"] * 3000) + "\n"
    for name, text in (("chain", chain), ("nested", nested), ("last", "")):
        (tmp_path / f"{name}.py").write_text(LEGACY + text + "if __name__ == '__main__': main()\n")
    result = run("check", tmp_path)
    assert f"{tmp_path / 'last.py'}\n  DF203" in result.stdout
    assert result.exit_code in (1, 2)
    assert result.exception is None or isinstance(result.exception, SystemExit)


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["a/x.py"], "a"),
        (["a/x.py", "a/b/y.py", "a"], "a"),
        (["a/x.py", "a-b/y.py", "a/b/z.py"], ""),  # a-b is not in a, though it begins so
        (["a/b/c/x.py", "a/b/d", "a/b/c/e/y.py"], "a/b"),
    ],
)
def test_the_common_folder_of_paths_holds_them_all(
    tmp_path: Path, paths: list[str], expected: str
) -> None:
    for path in paths:
        place = tmp_path / path
        (place.parent if place.suffix else place).mkdir(parents=True, exist_ok=True)
    found = common_folder([str(tmp_path / path) for path in paths])
    assert found == str((tmp_path / expected).resolve())


def test_the_folder_of_paths_that_share_none_is_the_root() -> None:
    assert common_folder(["/bin/a.py", "/usr/b.py", "/c.py"]) == "/"
