"""Files of the state directory: whole whoever writes, and of use or named."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from at_once import AT_ONCE, ROUNDS, all_at_once, writes
from ddpfix.errors import InputError
from ddpfix.launchers import state_files
from ddpfix.launchers.gpus.select import choose_cpu
from ddpfix.launchers.memory.peak import Curve, Peak
from ddpfix.launchers.memory.stored_curve import StoredCurve
from ddpfix.launchers.planning.plan import solve
from ddpfix.launchers.planning.planner import PlanRequest
from ddpfix.launchers.planning.throughput import Throughput, ThroughputHistory
from ddpfix.launchers.running.oom_history import OomHistory
from ddpfix.launchers.running.oom_ladder import LaunchSettings
from ddpfix.launchers.state import write_atomically
from ddpfix.recipes.load import load
from launched import RECIPE

# What may be found in place of each of our files: its text, and what is said of it.
DAMAGED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "Expecting value"),
    "cut off": (b'{"pace": {"when": "now", "wor', "Unterminated string"),
    "no text": (b"\xff\xfe\x00", "can't decode"),
    "a list": (b"[1, 2, 3]", "it has no field pace"),
    "nested": (b"[" * 200_000 + b"]" * 200_000, "nested too deeply"),
    "nested inside": (b'{"pace": ' + b'{"a": ' * 90_000, "nested too deeply"),
    "a number without end": (b'{"pace": ' + b"9" * 5000 + b"}", "4300 digits"),
}
GOOD = {"when": "now", "world": 2, "per_device": 8, "accumulation": 1, "seconds": 1.5}
WRONG: dict[str, tuple[dict[str, object], str]] = {
    "NaN": ({"seconds": float("nan")}, "NaN is no number"),
    "infinite": ({"seconds": float("inf")}, "Infinity is no number"),
    "a negative memory": ({"memory": -1.0}, "memory is -1.0, but has to be above 0"),
    "no time at all": ({"seconds": 0}, "seconds is 0.0, but has to be above 0"),
    "text for a number": ({"world": "2"}, "field world: '2' is no whole number"),
    "true for a number": ({"world": True}, "field world: True is no whole number"),
    "a fraction of a process": ({"world": 1.5}, "field world: 1.5 is no whole number"),
    "too large to be ours": ({"world": 10**400}, "field world: a number of many digits"),
    "a list for text": ({"when": [1]}, "field when: [1] is no text"),
    "half a character": ({"when": "\ud800"}, r"field when: '\ud800' is no Unicode"),
}


@pytest.fixture(autouse=True)
def _say_it_again() -> None:
    state_files.say_once.cache_clear()


def test_several_writers_of_one_file_leave_one_of_their_texts(tmp_path: Path) -> None:
    assert all_at_once(writes, tmp_path) == [[]] * AT_ONCE
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        f"{number}.json" for number in range(ROUNDS)
    )
    for path in tmp_path.iterdir():
        [writer] = set(json.loads(path.read_text()))
        assert writer in range(AT_ONCE)


def test_what_cannot_be_written_leaves_the_old_text_and_no_rest(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    write_atomically(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "\ud800")
    assert path.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["one.json"]


def measured(state: Path, identity: str = "") -> ThroughputHistory:
    return ThroughputHistory(state, ("own",), (), identity)


def damaged(state: Path) -> Path:
    """The file of a measurement, to be damaged."""
    measured(state).store(Throughput(**GOOD), "fp32")  # type: ignore[arg-type]
    [path] = (state / "pace").iterdir()
    return path


@pytest.mark.parametrize(("content", "said"), DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_file_is_named_and_not_used(
    content: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = damaged(tmp_path)
    path.write_bytes(content)
    for _ in range(2):
        assert measured(tmp_path).latest("fp32") is None
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"ddpfix: {path}: cannot be read: ")
    assert line.endswith("; it is not used")
    assert said in line


@pytest.mark.parametrize(("fields", "said"), WRONG.values(), ids=WRONG.keys())
def test_a_value_that_cannot_be_is_named_with_its_file(
    fields: dict[str, object], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = damaged(tmp_path)
    path.write_text(json.dumps({"pace": GOOD | fields}))
    assert measured(tmp_path).latest("fp32") is None
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"ddpfix: {path}: cannot be read: {said}")


def test_what_is_no_file_is_not_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = damaged(tmp_path)
    path.unlink()
    os.mkfifo(path)
    assert measured(tmp_path).latest("fp32") is None
    assert f"{path}: cannot be read: it is no file" in capsys.readouterr().err
    path.unlink()
    path.mkdir()
    state_files.say_once.cache_clear()
    assert measured(tmp_path).latest("fp32") is None
    assert str(path) in capsys.readouterr().err


def test_what_a_later_version_adds_is_no_error(tmp_path: Path) -> None:
    path = damaged(tmp_path)
    path.write_text(json.dumps({"schema": 9, "pace": GOOD | {"new": 1}}))
    assert measured(tmp_path).latest("fp32") == Throughput(**GOOD)  # type: ignore[arg-type]


CURVE: dict[str, Any] = Curve(
    (1, 2), (Peak(5), Peak(5, activations=9)), trainable=5, flops=1, moved=1, moved_once=1
).to_json()
CURVES: dict[str, tuple[dict[str, object], str]] = {
    "negative memory": ({"peaks": [[-1] * 8, [1] * 8]}, "no sizes of a peak"),
    "a peak without its parts": ({"peaks": [[1], [2]]}, "no sizes of a peak"),
    "a batch without its peak": ({"peaks": [[1] * 8]}, "have not a peak each"),
    "batches in disorder": ({"batches": [2, 1]}, "are no batches"),
    "one that never grows": ({"peaks": [[1] * 8, [1] * 8]}, "does not grow"),
}


@pytest.mark.parametrize(("fields", "said"), CURVES.values(), ids=CURVES.keys())
def test_a_predicted_curve_that_cannot_be_is_refused(
    fields: dict[str, object], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "curve.json"
    path.write_text(json.dumps(CURVE))
    assert Curve.from_json(state_files.read(path, StoredCurve).plain) == Curve.from_json(CURVE)
    path.write_text(json.dumps(CURVE | fields))
    with pytest.raises(InputError, match=said):
        state_files.read(path, StoredCurve)


def own_recipe(folder: Path, **changes: str) -> Path:
    folder.mkdir()
    text = RECIPE
    for old, new in changes.items():
        text = text.replace(f"{old} = ", f"{old} = {new}#")
    (folder / "own.toml").write_text(text)
    (folder / "run.py").write_text("")
    return folder


def test_learned_settings_that_cannot_be_are_named_and_not_used(
    tmp_path: Path,
) -> None:
    recipe = load(str(own_recipe(tmp_path / "a") / "own.toml"))
    setting = LaunchSettings(recipe, solve(2, 16, 8), ())
    history = OomHistory(tmp_path, (), setting)
    history.save(setting.with_batch(2))
    lowered, sentence = history.apply(setting)
    assert lowered.plan.per_device == 2
    assert "2 per device" in sentence
    [path] = (tmp_path / "memory").iterdir()
    good = json.loads(path.read_text())
    for fields in ({"per_device": -1}, {"checkpointing": "no"}, {"numbers": {"--x": "1"}}):
        path.write_text(json.dumps(good | fields))
        same, line = history.apply(setting)
        assert same == setting
        assert line.startswith(f"{path}: cannot be read: ")
        assert next(iter(fields)) in line.removeprefix(str(path))


def test_the_pace_of_recipes_with_one_file_name_is_not_mixed_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    devices = choose_cpu(1)

    def history(folder: Path, script: Path) -> ThroughputHistory:
        return PlanRequest(load(str(folder / "own.toml")), script).throughput_history(devices)

    first = own_recipe(tmp_path / "first")
    other = own_recipe(tmp_path / "other", global_batch="32")
    pace = Throughput(**GOOD)  # type: ignore[arg-type]
    history(first, first / "run.py").store(pace, "fp32")
    assert history(first, first / "run.py").latest("fp32") == pace
    assert history(first, other / "run.py").latest("fp32") is None
    assert history(other, first / "run.py").latest("fp32") is None
