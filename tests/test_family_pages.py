"""The pages of the families are what is computed now, and hold what they promise."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from checkout import ROOT
from ddpfix.fixtures.families import VARIANTS

FOLDER = ROOT / "docs" / "families"
VERIFIED = json.loads((FOLDER / "verified.json").read_text("utf-8"))


def test_the_pages_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "family_pages.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "stale: none\n"), done.stderr


@pytest.mark.parametrize(
    ("title", "precision"), [(t, each) for t, one in VARIANTS.items() for each in one.precisions]
)
def test_verify_held_for_1_to_4_processes_with_accumulation_1_and_4(
    title: str, precision: str
) -> None:
    found = VERIFIED[f"{title}, {precision}"]
    assert [row[0] for row in found["rows"]] == [f"C{number}" for number in range(1, 10)]
    assert {row[2] for row in found["rows"]} == {"holds"}
    assert [(run["accumulation"], run["world"]) for run in found["runs"]] == [
        *((1, 1), (1, 2), (1, 3), (1, 4)),
        *((4, 1), (4, 2), (4, 3), (4, 4)),
    ]
    assert all(run["off"]["lr"] == 0 for run in found["runs"])


def plan_of_graphcodebert() -> Iterator[list[str]]:
    """The rows of its table, cell by cell."""
    page = (FOLDER / "graphcodebert.md").read_text("utf-8")
    for line in page.partition("## After")[2].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0].isdigit():
            yield cells


def test_graphcodebert_s_global_batch_is_64_or_the_nearest_on_1_to_8_cards() -> None:
    rows = list(plan_of_graphcodebert())
    assert [row[0] for row in rows] == list("12345678")
    assert [(row[1], row[2], row[3]) for row in rows] == [
        ("16", "4", "64"),
        ("16", "2", "64"),
        ("7", "3", "63"),
        ("16", "1", "64"),
        ("13", "1", "65"),
        ("11", "1", "66"),
        ("9", "1", "63"),
        ("8", "1", "64"),
    ]
    assert [row[4] for row in rows][2] == "63 or 66"
    assert [row[5] for row in rows][2] == "48", "what the shell's arithmetic gives"
