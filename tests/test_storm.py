"""The storm driver counts what it is there to count."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from printed import printed

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
KILLED = {"exit_status": None, "cause": "its launcher was killed", "end": "then"}
FAILED = {"exit_status": 3, "cause": "failed with exit status 3", "end": "then"}
FINISHED = {"exit_status": 0, "cause": "finished", "end": "then"}
STOPPED = {"exit_status": 143, "cause": "stopped by SIGTERM", "end": "then"}

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="orphans are adopted on Linux only"
)


@pytest.fixture
def cycle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A cycle of one rank that nothing has happened in."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    module = importlib.import_module("storm_cycle")
    harm = module.Harm("direct", 1, "ends", "files", "none", "launcher", False, 0.0, 1.0)
    for name in ("here", "tmp", "cwd", "out"):
        (tmp_path / name).mkdir()
    (tmp_path / "here" / "done0").touch()
    return module.Cycle(tmp_path, harm, 1.0)


@pytest.mark.parametrize(
    ("record", "code", "sent", "behaviour", "counted"),
    [
        (FINISHED, 0, "", "ends", []),
        (FAILED, 3, "", "exit 3", []),
        (STOPPED, 143, "TERM", "ends", []),
        (KILLED, -9, "KILL", "ends", []),
        (FAILED, 3, "", "ends", ["wrong statuses"]),
        (FINISHED, 0, "", "exit 3", ["wrong statuses"]),
        (KILLED, -9, "", "ends", ["wrong statuses"]),
        (FINISHED, 1, "", "ends", ["untrue records", "wrong statuses"]),
        (STOPPED | {"exit_status": 130}, 130, "INT", "ends", ["untrue records"]),
        (KILLED | {"exit_status": 0}, -9, "KILL", "ends", ["untrue records"]),
        (KILLED | {"cause": "running", "end": None}, -9, "KILL", "ends", ["untrue records"]),
        ({}, 0, "", "ends", ["untrue records"]),
    ],
)
def test_a_record_that_does_not_fit_the_end_is_counted(
    record: dict[str, Any], code: int, sent: str, behaviour: str, counted: list[str], cycle: Any
) -> None:
    (cycle.out / "run.json").write_text(json.dumps(record))
    cycle.sent, cycle.harm = sent, cycle.harm._replace(behaviour=behaviour)
    cycle.judge(code)
    assert sorted(cycle.counted) == counted


def test_a_run_that_finished_without_its_rank_is_counted(cycle: Any) -> None:
    (cycle.folder / "here" / "done0").unlink()
    (cycle.out / "run.json").write_text(json.dumps(FINISHED))
    cycle.judge(0)
    assert sorted(cycle.counted) == ["untrue records"]


def test_files_are_counted_beside_those_of_a_run(cycle: Any) -> None:
    for name in ("out/log.txt", "out/run.json"):
        (cycle.folder / name).touch()
    cycle.count_files()
    assert cycle.counted == {}
    for name in ("out/run.json.part", "tmp/torchelastic_x", "cwd/core"):
        (cycle.folder / name).touch()
    cycle.count_files()
    assert cycle.counted == {
        "left-over files": ["tmp/torchelastic_x", "cwd/core", "out/run.json.part"]
    }


def test_two_cycles_leave_nothing() -> None:
    report = printed(BENCHMARKS / "storm.py", "--cycles", "2", "--seed", "18104")
    assert set(report["counted"].values()) == {0}
    assert report["found"] == []
