"""Reading traces back, without torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ddpfix.errors import InputError
from ddpfix.launchers.trace.events import KINDS, SCHEMA
from ddpfix.launchers.trace.read import RankTrace, disagreement, read
from ddpfix.launchers.trace.seeds_and_metrics import parse_metrics


def start(rank: int = 0, world: int = 1, **changes: Any) -> dict[str, Any]:
    line = {
        "type": "start",
        "t": 0.0,
        "schema": SCHEMA,
        "rank": rank,
        "local_rank": rank,
        "world_size": world,
        "pid": 1,
        "host": "h",
        "started": 0.0,
        "script": "/run.py",
        "argv": [],
        "cwd": "/",
        "python": "3",
        "hash_seed": None,
        "options": {},
    }
    return {**line, **changes}


def hang(function: str, line: int, operation: str | None) -> dict[str, Any]:
    where = {"file": "/a/run.py", "line": line, "function": function}
    return {
        "type": "hang",
        "seconds": 1.0,
        "cause": "c",
        "where": where,
        "operation": operation,
        "stacks": {},
    }


def leave(status: int, failure: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "exit", "status": status, "failure": failure, "group_alive": True}


def write(folder: Path, *ranks: list[dict[str, Any]]) -> list[RankTrace]:
    for rank, events in enumerate(ranks):
        text = "".join(json.dumps(line) + "\n" for line in [start(rank, len(ranks)), *events])
        (folder / f"rank{rank}.jsonl").write_text(text)
    return read(folder)


def test_reading_needs_no_torch() -> None:
    code = "import sys, ddpfix.launchers.trace; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_empty_folder_is_named_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no trace here.*--out DIR"):
        read(tmp_path)


@pytest.mark.parametrize(
    "line", ["not json", '{"type": "unknown"}', '{"type": "hang"}', "[]"], ids=str
)
def test_a_line_that_is_not_ours_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "rank0.jsonl").write_text(json.dumps(start()) + "\n" + line + "\n")
    with pytest.raises(InputError, match=r"rank0\.jsonl:2: .*trace the run again"):
        read(tmp_path)


def test_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rank0.jsonl").write_text(json.dumps(start(schema=SCHEMA + 1)) + "\n")
    with pytest.raises(InputError, match=r"rank0\.jsonl:1"):
        read(tmp_path)


def test_a_last_line_cut_short_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "rank0.jsonl").write_text(json.dumps(start()) + '\n{"type": "ex')
    assert read(tmp_path)[0].events == []


def test_ranks_of_several_runs_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rank0.jsonl").write_text(json.dumps(start(0, 1)) + "\n")
    (tmp_path / "rank1.jsonl").write_text(json.dumps(start(1, 2)) + "\n")
    with pytest.raises(InputError, match="several runs"):
        read(tmp_path)


def test_without_a_hang_there_is_no_disagreement(tmp_path: Path) -> None:
    assert disagreement(write(tmp_path, [leave(0)], [leave(1)])) is None


def test_each_rank_is_named_where_it_stands(tmp_path: Path) -> None:
    failure: dict[str, object] = {
        "type": "ValueError",
        "message": "bad\nworse",
        "traceback": [],
        "site": None,
    }
    traces = write(
        tmp_path,
        [hang("evaluate", 214, "all_gather_object")],
        [hang("train", 180, "backward")],
        [leave(0)],
        [leave(1, failure)],
        [],
    )
    assert disagreement(traces) == (
        "rank 0 is in evaluate run.py:214 (all_gather_object), rank 1 in train run.py:180 "
        "(backward), rank 2 ended with status 0, rank 3 ended with ValueError: bad, "
        "rank 4 was cut off without a report"
    )


def test_ranks_that_stand_together_are_said_to(tmp_path: Path) -> None:
    traces = write(tmp_path, [hang("<module>", 3, "barrier")], [hang("<module>", 3, "barrier")])
    assert disagreement(traces) == (
        "every rank is in run.py:3 (barrier): together, so waiting for something outside, or slow"
    )


def test_time_in_an_evaluation_inside_training_counts_once(tmp_path: Path) -> None:
    def begin(number: int, t: float) -> dict[str, Any]:
        return {
            "type": "pass",
            "t": t,
            "pass_id": number,
            "loader": number,
            "epoch": 0,
            "dataset": "D",
            "length": 1,
            "sampler": "S",
            "batch_size": 1,
            "batches": 1,
            "workers": 0,
            "site": None,
        }

    def end(number: int, t: float, kind: str) -> dict[str, Any]:
        return {
            "type": "passend",
            "t": t,
            "pass_id": number,
            "kind": kind,
            "batches": 1,
            "drawn": 1,
            "backwards": 0,
            "training": True,
            "grad": True,
            "complete": True,
            "limit": None,
        }

    imported = {"type": "imported", "t": 2.0, "module": "m", "version": None, "seconds": 2.0}
    events = [imported, begin(0, 3), begin(1, 5), end(1, 9, "eval"), end(0, 10, "train")]
    (found,) = write(tmp_path, [*events, {**leave(0), "t": 12.0}])
    assert found.phases() == {
        "import": 2.0,
        "set-up": 1.0,
        "train": 3.0,
        "eval": 4.0,
        "rest": 2.0,
    }


def test_every_kind_of_event_is_documented() -> None:
    for name, kind in KINDS.items():
        assert kind.__doc__, name


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("  eval_f1 = 0.9006", [("eval_f1", 0.9006)]),
        ("  Num examples = 12", [("Num examples", 12.0)]),
        ("step: 3, loss: 1.5e-3", [("step", 3.0), ("loss", 0.0015)]),
        ("loss = nan", [("loss", float("nan"))]),
        ("Best f1:0.5", [("Best f1", 0.5)]),
        ("Saving to /tmp/a=1/b", []),
        ("time 12:30:01", []),
        ("nothing here", []),
        ("input_ids: 1 2 3", []),
    ],
    ids=str,
)
def test_numbers_are_found_in_a_message(message: str, found: list[tuple[str, float]]) -> None:
    assert repr(parse_metrics(message)) == repr(found)
