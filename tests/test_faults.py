"""Runs that something happens to: real processes, and afterwards nobody left and a whole record."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ddpfix.launchers.backends.command import Command
from ddpfix.launchers.running.ranks import Rank, Ranks, rank_of
from ddpfix.launchers.running.runner import RunLimits, run
from ddpfix.launchers.running.watchdog import SilenceLimits
from faults import Place, marked, until

DIRECT = ("--backend", "direct")
Machine = Callable[..., dict[str, str]]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def undisturbed(place: Place) -> list[str]:
    """The parameters of both ranks where nothing happens."""
    ended = place.launch("undisturbed", *DIRECT)
    assert (ended.status, len(ended.attempts)) == (0, 1)
    return place.weights("undisturbed")


# --- a rank that is killed ---


@pytest.mark.parametrize(
    ("backend", "status"), [("direct", 128 + signal.SIGKILL), ("accelerate", 1)]
)
def test_a_killed_rank_ends_the_run_and_is_named(backend: str, status: int, place: Place) -> None:
    ended = place.launch("killed", "--backend", backend, fault="kill:1:3")
    assert ended.status == status
    assert ended.record["failure"]["rank"] == 1
    assert "Rank 1 failed first, with SIGKILL" in ended.talk


def test_with_restarts_it_goes_on_to_the_same_parameters(
    place: Place, undisturbed: list[str]
) -> None:
    ended = place.launch("killed", *DIRECT, "--max-restarts", "1", fault="kill:1:3")
    assert ended.status == 0
    assert [attempt["exit_status"] for attempt in ended.attempts] == [137, 0]
    assert "--resume" not in ended.attempts[0]["command"]
    assert "--resume" in ended.attempts[1]["command"]
    assert place.weights("killed") == undisturbed


def test_restarts_are_counted(place: Place) -> None:
    (place.folder / "run.py").write_text("raise SystemExit(3)")
    ended = place.launch("failing", *DIRECT, "--max-restarts", "2")
    assert (ended.status, len(ended.attempts)) == (3, 3)


# --- out of memory ---


def test_out_of_memory_on_one_rank_goes_on_with_less_to_the_same_parameters(
    place: Place, undisturbed: list[str]
) -> None:
    ended = place.launch("memory", *DIRECT, fault="memory:1:3")
    assert ended.status == 0
    assert "Rank 1 failed first: torch.OutOfMemoryError" in ended.talk
    plans = [attempt["plan"] for attempt in ended.attempts[1:]]
    assert [plan["per_device"] for plan in plans] == [4, 2]
    assert {plan["global_batch"] for plan in plans} == {ended.record["plan"]["global_batch"]}
    assert place.weights("memory") == undisturbed
    state = json.loads((place.folder / "memory" / "made" / "state1.json").read_text())
    assert state["batches"] == [8, 8, 2, 2, 2, 2]

    again = place.launch("again", *DIRECT, fault="memory:1:3")
    assert len(again.attempts) == 1
    assert "Learned when such a run was out of memory: 2 per device" in again.talk
    assert place.weights("again") == undisturbed


def test_without_retry_it_ends_there(place: Place) -> None:
    ended = place.launch("memory", *DIRECT, "--no-retry", "--max-restarts", "3", fault="memory:0:2")
    assert (ended.status, len(ended.attempts)) == (1, 1)
    assert ended.record["failure"]["out_of_memory"]
    assert not (place.folder / "state" / "ddpfix" / "memory").exists()


def test_when_nothing_is_left_to_lower_it_ends_with_the_ranks_status(place: Place) -> None:
    (place.folder / "run.py").write_text(
        "import sys\nsys.exit('torch.OutOfMemoryError: CUDA out of memory.')"
    )
    ended = place.launch("memory", *DIRECT)
    assert (ended.status, len(ended.attempts)) == (1, 4)
    assert "nothing is left to lower" in ended.talk


def test_a_rank_that_hangs_out_of_memory_is_stopped(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERE", str(place.here))
    monkeypatch.setenv("FAULT", "memory and hang:0:3")
    command = Command(
        (sys.executable, str(place.folder / "run.py"), "--out", str(place.folder / "made")), {}
    )
    limits = RunLimits(silence=SilenceLimits(out_of_memory=0.5))
    outcome = run(command, place.folder / "out", limits=limits)
    assert outcome.status == 128 + signal.SIGTERM
    assert "ran out of memory and the others waited" in outcome.cause
    assert outcome.failure is not None
    assert outcome.failure.out_of_memory
    record = json.loads((place.folder / "out" / "run.json").read_text())
    assert marked(record["run_id"]) == []


# --- a rank that hangs ---


def test_a_rank_that_hangs_shows_its_stack_and_all_are_stopped(place: Place) -> None:
    ended = place.launch("hung", *DIRECT, "--hang-after", "3", fault="hang:1:3")
    assert ended.status == 124
    assert ended.record["cause"].startswith("hung: no output for 3 s")
    ranks = [(place.folder / "hung" / "ranks" / f"{rank}.log").read_text() for rank in (0, 1)]
    assert all("Fatal Python error: Aborted" in own for own in ranks)
    assert ["in waits_for_ever" in own for own in ranks] == [False, True]


def test_before_the_first_step_silence_is_no_hang_unless_asked_for(place: Place) -> None:
    place.script.write_text("import time; time.sleep(1.5)")
    command = Command((sys.executable, str(place.script)), {})
    limits = RunLimits(silence=SilenceLimits(hang=0.5, from_first_step=True))
    assert run(command, place.folder / "silent", limits=limits).status == 0
    hung = RunLimits(silence=SilenceLimits(hang=0.5))
    assert run(command, place.folder / "hung", limits=hung).status == 124
    place.script.write_text("import time; print('5%|# | 1/20 [00:01<'); time.sleep(1000)")
    command = Command((sys.executable, "-u", str(place.script)), {})
    assert run(command, place.folder / "begun", limits=limits).status == 124


def test_after_a_hang_it_goes_on_to_the_same_parameters(
    place: Place, undisturbed: list[str]
) -> None:
    options = ("--hang-after", "3", "--max-restarts", "1")
    ended = place.launch("hung", *DIRECT, *options, fault="hang:1:3")
    assert [attempt["exit_status"] for attempt in ended.attempts] == [124, 0]
    assert place.weights("hung") == undisturbed


# --- signals ---


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_for_good(number: signal.Signals, place: Place) -> None:
    launcher = place.start("stopped", *DIRECT, "--max-restarts", "3", fault="hang:1:3")
    until((place.here / "struck").exists, launcher)
    launcher.send_signal(number)
    ended = place.ended("stopped", launcher)
    assert (ended.status, len(ended.attempts)) == (128 + number, 1)
    assert ended.record["cause"] == f"stopped by {number.name}"
    assert ended.record["failure"] is None
    assert ended.attempts[0]["losses"]


# --- the disk and the log ---


@pytest.fixture
def small_disk(place: Place) -> Iterator[Path]:
    folder = place.folder / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_on_a_full_disk_the_record_is_whole(place: Place, small_disk: Path) -> None:
    ended = place.launch("small/out", *DIRECT, fault="disk:1:3")
    assert ended.status == 1
    assert "No space left on device" in ended.record["failure"]["error"]
    assert len(ended.attempts[0]["losses"]) >= 2


def test_a_log_that_fills_the_disk_ends_no_training(place: Place, small_disk: Path) -> None:
    (place.folder / "run.py").write_text("for _ in range(100): print('x' * 9999)")
    ended = place.launch("small/out", "--processes", "1")
    assert ended.status == 0
    assert "output is no longer copied" in ended.talk


def test_a_log_that_is_removed_is_begun_anew(place: Place) -> None:
    launcher = place.start("out", "--processes", "1", fault="wait:0:3")
    until((place.here / "struck").exists, launcher)
    log = place.folder / "out" / "log.txt"
    until(lambda: b" 2/6" in log.read_bytes(), launcher)
    log.unlink()
    (place.here / "go").touch()
    assert place.ended("out", launcher).status == 0
    assert " 6/6" in log.read_text()
    train_log = place.folder / "out" / "made" / "train.log"
    assert train_log.read_bytes() == log.read_bytes()


# Rank 1 fails once both have said something and drawn a part of a line.
TELLING = """
import os, sys, time
rank, here = os.environ["RANK"], os.environ["HERE"]
print(f"hello of {rank}")
sys.stderr.write(f"\\rbar of {rank}")
open(os.path.join(here, f"told{rank}"), "w").close()
while not os.path.exists(os.path.join(here, "go")):
    time.sleep(0.02)
if rank == "1":
    raise KeyError("of rank 1")
time.sleep(1000)
"""


@pytest.mark.parametrize("backend", ["direct", "accelerate"])
def test_each_rank_has_a_file_of_its_own_and_the_first_one_is_shown(
    backend: str, place: Place
) -> None:
    place.script.write_text(TELLING)
    launcher = place.start("out", "--backend", backend)
    ranks = [place.folder / "out" / "ranks" / f"{rank}.log" for rank in (0, 1)]

    def said() -> list[list[bytes]]:
        texts = [file.read_bytes() if file.exists() else b"" for file in ranks]
        return [sorted(text.replace(b"\r", b"\n").split(b"\n")) for text in texts]

    # At once, though no line of the second stream has ended; either may be heard first.
    until(
        lambda: said() == [[b"", b"bar of %d" % rank, b"hello of %d" % rank] for rank in (0, 1)],
        launcher,
    )
    (place.here / "go").touch()
    ended = place.ended("out", launcher)
    assert ended.status == 1
    assert "bar of 0" in ended.talk
    assert "bar of 1" not in ended.talk
    assert ended.record["failure"]["rank"] == 1
    assert ended.talk.count("KeyError: 'of rank 1'") == 2  # its traceback, and the sentence on it
    assert b"KeyError" in ranks[1].read_bytes()
    assert b"KeyError" not in ranks[0].read_bytes()
    log = (place.folder / "out" / "log.txt").read_text()
    assert all(f"{what} of {rank}" in log for what in ("hello", "bar") for rank in (0, 1))


def test_a_rank_is_known_after_its_end_though_it_wrote_nothing_before() -> None:
    ranks = Ranks()
    rank = subprocess.Popen(
        [sys.executable, "-c", "input()"],
        env=os.environ | {"RANK": "3", "LOCAL_RANK": "1"},
        stdin=subprocess.PIPE,
    )
    until(lambda: rank_of(rank.pid) is not None, rank)  # before, it has our environment
    ranks.look(os.getpid())
    rank.kill()
    rank.communicate()
    assert ranks.of(rank.pid) == Rank(3, local=1)
    assert Ranks().of(rank.pid) is None


def test_without_files_of_their_own_all_ranks_are_shown(place: Place) -> None:
    place.script.write_text(TELLING.replace("time.sleep(1000)", ""))
    launcher = place.start("out", *DIRECT, "--no-rank-logs")
    # The rank that fails ends the other one, which may still be starting.
    until(lambda: all((place.here / f"told{rank}").exists() for rank in (0, 1)), launcher)
    (place.here / "go").touch()
    ended = place.ended("out", launcher)
    assert all(f"bar of {rank}" in ended.talk for rank in (0, 1))
    assert ended.record["failure"]["rank"] == 1
    assert not (place.folder / "out" / "ranks").exists()


# --- the cards ---


def test_a_card_that_is_lost_leaves_the_run_alone(place: Place, machine: Machine) -> None:
    environ = machine("count = 1\n0.used_mib = 100\n0.power_mw = 250000\n")
    cards = Path(environ["TEST_NVML"])
    names = ("TEST_NVML", "LD_LIBRARY_PATH")
    env = {name: environ[name] for name in names}
    launcher = place.start("out", cpu=False, env=env, fault="wait:0:3")
    samples = place.folder / "out" / "gpus.jsonl"

    def seen(key: str) -> list[dict[str, object]]:
        lines = samples.read_text().splitlines() if samples.exists() else []
        return [sample for sample in map(json.loads, lines) if key in sample]

    until(lambda: bool(seen("gpus")), launcher)
    cards.write_text("count = 1\n0.error = 15\n")
    until(lambda: bool(seen("lost")), launcher)
    cards.write_text("count = 1\n0.used_mib = 300\n")
    before = len(seen("gpus"))
    until(lambda: len(seen("gpus")) > before, launcher)
    (place.here / "go").touch()

    ended = place.ended("out", launcher)
    assert ended.status == 0
    [attempt] = ended.attempts
    assert attempt["gpus"]["failed"] == len(seen("lost")) > 0
    assert attempt["gpus"]["peaks"]["0"]["power"] == 250.0
    assert attempt["gpus"]["peaks"]["0"]["memory_used"] >> 20 >= 300
    assert attempt["gpus"]["last_error"]
