"""The pictures in docs show what the tool prints, and nothing of the machine that made them."""

from __future__ import annotations

import runpy
from typing import Any

import pytest
from checkout import ROOT

FOLDER = ROOT / "docs" / "pictures"
NAMES = [f"{name}-{columns}-{theme}.svg" for name in ("check", "live", "report")
         for columns in (80, 160) for theme in ("light", "dark")]  # fmt: skip
PAGES = [f"page-{columns}-{theme}.png" for columns in (80, 160) for theme in ("light", "dark")]


@pytest.fixture(scope="module")
def pictures() -> dict[str, Any]:
    """What docs/pictures.py defines."""
    return runpy.run_path(str(ROOT / "docs" / "pictures.py"))


def test_all_are_there_and_small() -> None:
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted([*NAMES, *PAGES])
    assert max(path.stat().st_size for path in FOLDER.iterdir()) < 200_000


def test_check_prints_today_what_its_pictures_show(pictures: dict[str, Any]) -> None:
    assert pictures["stale"]() == [], "python docs/pictures.py check"


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("light.svg")])
def test_a_picture_has_text_no_address_and_no_path(name: str, pictures: dict[str, Any]) -> None:
    picture = (FOLDER / name).read_text("utf-8")
    text = "\n".join(pictures["text_of"](picture))
    assert len(text) > 200
    assert not any(folder in text for folder in ("/tmp/", "/home/", "/root/", "/usr/", "/work/"))
    assert "url('http" not in picture
    assert 'url("http' not in picture
    what = {"check": "DF201", "live": "pass2of3", "report": "last/first"}
    assert what[name.split("-")[0]] in text
