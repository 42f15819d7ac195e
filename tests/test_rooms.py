"""The rooms of the house: import-linter's contracts, and that they notice what they are for."""

from __future__ import annotations

import ast
import subprocess

import pytest
from checkout import ROOT, ImportedCopy


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> ImportedCopy:
    return ImportedCopy(tmp_path_factory.mktemp("house"))


def linted(house: ImportedCopy) -> subprocess.CompletedProcess[str]:
    return house.command(["lint-imports", "--no-cache", "--config", "pyproject.toml"])


def test_every_import_keeps_the_order_of_the_rooms(house: ImportedCopy) -> None:
    done = linted(house)
    assert done.returncode == 0, done.stdout
    assert "0 broken" in done.stdout


BREACHES = [
    pytest.param(
        "patcher/loose.py", "", "each room imports those below it BROKEN", id="a file in no room"
    ),
    pytest.param(
        "launchers/attic/__init__.py",
        "",
        "each room imports those below it BROKEN",
        id="a new room",
    ),
    pytest.param(
        "patcher/source/tree.py",
        "\nfrom ..analysis.training import program\n",
        "each room imports those below it BROKEN",
        id="an import upwards",
    ),
    pytest.param(
        "patcher/analysis/language/names.py",
        "\nfrom ..training import program\n",
        "The analysis: each room imports those below it BROKEN",
        id="an import upwards in the analysis",
    ),
    pytest.param(
        "launchers/gpus/model.py",
        "\nfrom . import nvml\n",
        "No circle inside a room BROKEN",
        id="a circle inside a room",
    ),
    pytest.param(
        "launchers/planning/plan.py",
        "\nfrom ...patcher import api\n",
        "through its api alone, from verify and cli BROKEN",
        id="the patcher in a room that is not to know it",
    ),
    pytest.param(
        "launchers/verify/checks.py",
        "\nfrom ...patcher.engine import patch\n",
        "through its api alone, from verify and cli BROKEN",
        id="the patcher, past its api",
    ),
    pytest.param(
        "patcher/source/files.py", "\nimport torch\n", "know nothing of torch BROKEN", id="torch"
    ),
]


@pytest.mark.parametrize(("file", "added", "broken"), BREACHES)
def test_a_breach_of_the_order_is_noticed(
    house: ImportedCopy, file: str, added: str, broken: str
) -> None:
    path = house.root / file
    before = path.read_text() if path.exists() else None
    path.parent.mkdir(exist_ok=True)
    path.write_text((before or "") + added)
    try:
        done = linted(house)
    finally:
        if before is None:
            path.unlink()
            if path.name == "__init__.py":
                path.parent.rmdir()
        else:
            path.write_text(before)
    assert done.returncode == 1
    assert broken in done.stdout


def test_rooms_say_in_a_sentence_what_they_are() -> None:
    folders = [
        path for top in ("patcher", "launchers", "recipes") for path in (ROOT / top).rglob("*")
    ]
    rooms = [path for path in folders if path.is_dir() and any(path.glob("*.py"))]
    assert len(rooms) > 15
    for room in rooms:
        first = (room / "__init__.py").read_text().split("\n")[0]
        assert first.startswith('"""'), room
        assert first.rstrip('"').endswith("."), room


def test_no_two_classes_have_one_name() -> None:
    places: dict[str, list[str]] = {}
    for top in ("patcher", "launchers", "recipes"):
        for path in (ROOT / top).rglob("*.py"):
            if path.name.endswith("helper_code.py"):  # of the scripts that carry it
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    places.setdefault(node.name, []).append(f"{path}:{node.lineno}")
    assert len(places) > 100
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
