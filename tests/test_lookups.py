"""Modules that a script looks for, compared folder by folder with what is there now."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from ddpfix.patcher.frontend.cache import Cache
from ddpfix.patcher.frontend.lookups import Folders, Lookup, names_in

FILES = ["run.py", "steps.py", "lib/deep/layer.py", "../shared.py"]
# What a script of that folder looks for: a missing module, one of a missing folder, and so on.
LOOKED_FOR = [
    "steps.py",
    "gone.py",
    "gone/__init__.py",
    "lib/deep/layer.py",
    "lib/deep/gone.py",
    "big/nn/parallel/__init__.py",
    "big/nn/parallel/wrapper.py",
    "big/optim.py",
    "../shared.py",
    "../far/away/module.py",
]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    for name in FILES:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name = }\n")
    return folder


def folders_now() -> Folders:
    return Folders(Cache(None, "").fingerprint_at)


def lookups_of(home: Path) -> tuple[Lookup, ...]:
    folders = folders_now()
    probes = {name: folders.probe(str(home), name) for name in LOOKED_FOR}
    assert [name for name, digest in probes.items() if digest] == [
        name for name in LOOKED_FOR if name in FILES
    ]
    return folders.lookups(str(home), probes)


def test_what_is_missing_is_the_outermost_missing_folder(home: Path) -> None:
    summary = {
        folder: (sorted(name for name, _ in files), sorted(missing))
        for folder, files, missing in lookups_of(home)
    }
    assert summary == {
        "": (["steps.py"], ["big", "gone", "gone.py"]),
        "lib/deep": (["layer.py"], ["gone.py"]),
        "..": (["shared.py"], ["far"]),
    }


def test_a_missing_folder_is_never_listed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[str] = []

    def recorded(folder: str) -> frozenset[str]:
        listed.append(folder)
        return names_in(folder)

    lookups = lookups_of(home)
    monkeypatch.setattr("ddpfix.patcher.frontend.lookups.names_in", recorded)
    folders = folders_now()
    assert all(folders.are_unchanged(str(home), lookups) for _ in range(3))
    assert sorted(listed) == sorted(map(str, (home.parent, home, home / "lib" / "deep")))


def write(name: str) -> Callable[[Path], object]:
    def change(home: Path) -> None:
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n")

    return change


CHANGES: list[object] = [
    pytest.param(write("steps.py"), False, id="module edited"),
    pytest.param(write("lib/deep/layer.py"), False, id="module of a package edited"),
    pytest.param(write("../shared.py"), False, id="module above edited"),
    pytest.param(lambda home: (home / "steps.py").unlink(), False, id="module gone"),
    pytest.param(write("gone.py"), False, id="missing module appears"),
    pytest.param(write("lib/deep/gone.py"), False, id="missing module of a package appears"),
    pytest.param(write("big/optim.py"), False, id="missing folder appears"),
    pytest.param(lambda home: (home / "big").mkdir(), False, id="missing folder appears, empty"),
    pytest.param(write("../far/other.py"), False, id="missing folder above appears"),
    pytest.param(write("other.py"), True, id="module that nobody looks for"),
    pytest.param(write("lib/gone.py"), True, id="missing name in another folder"),
    pytest.param(lambda home: None, True, id="nothing"),
]


@pytest.mark.parametrize(("change", "unchanged"), CHANGES)
def test_changes_that_a_script_would_see(
    home: Path, change: Callable[[Path], object], unchanged: bool
) -> None:
    lookups = lookups_of(home)
    change(home)
    assert folders_now().are_unchanged(str(home), lookups) == unchanged


def test_a_folder_by_the_name_of_a_module_can_be_compared(home: Path) -> None:
    (home / "gone.py").mkdir()
    folders = folders_now()
    probes = {"gone.py": folders.probe(str(home), "gone.py")}
    lookups = folders.lookups(str(home), probes)
    assert probes == {"gone.py": None}
    assert folders_now().are_unchanged(str(home), lookups)
    (home / "gone.py").rmdir()
    assert folders_now().are_unchanged(str(home), lookups)
    (home / "gone.py").write_text("x = 1\n")
    assert not folders_now().are_unchanged(str(home), lookups)


def test_a_script_below_a_linked_folder_looks_beside_the_real_one(
    home: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "link").symlink_to(home)
    (tmp_path / "run.py").symlink_to(home / "run.py")
    folders = folders_now()
    assert folders.home(str(tmp_path / "elsewhere" / "link" / "run.py")) == str(home)
    assert folders.home(str(tmp_path / "run.py")) == str(home)
    assert folders.home(str(home / "run.py")) == str(home)
