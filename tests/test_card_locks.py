"""Cards that a run holds: other launches leave them alone, say so, wait, and get them at last."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ddpfix.errors import InputError
from ddpfix.launchers.gpus import locks
from ddpfix.launchers.gpus.select import CardsTakenError, Devices
from ddpfix.launchers.running import device_claim
from ddpfix.launchers.running.device_claim import claim_devices
from launched import RECIPE
from waiting import ends, until

Machine = Callable[..., dict[str, str]]
TWO_CARDS = "count = 2\n0.uuid = GPU-aaa\n1.uuid = GPU-bbb\n"

# Says which cards it has, and stays until it may go; unlike its launcher, SIGTERM does not end it.
SCRIPT = """
import os, signal, sys, time
here = sys.argv[sys.argv.index("--here") + 1]
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open(os.path.join(here, str(os.getpid()) + ".part"), "w") as file:
    file.write(os.environ["CUDA_VISIBLE_DEVICES"])
os.rename(file.name, file.name.removesuffix(".part"))
while not os.path.exists(os.path.join(here, "go")):
    time.sleep(0.02)
"""


class Place:
    """A folder to launch from on a machine with cards."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.folder, self.here = folder, folder / "here"
        self.here.mkdir()
        (folder / "own.toml").write_text(RECIPE)
        (folder / "run.py").write_text(SCRIPT)
        self.environ = environ | {"XDG_STATE_HOME": str(folder / "state")}
        self.started: list[subprocess.Popen[str]] = []

    def start(self, name: str, *options: str) -> subprocess.Popen[str]:
        words = ["--recipe", str(self.folder / "own.toml"), "--script", str(self.folder / "run.py")]
        words += ["--unchecked", "--backend", "direct", "--output", str(self.folder / name)]
        launcher = subprocess.Popen(
            [*self._ddpfix("launch"), *words, *options, "--", "--here", str(self.here)],
            env=self.environ,
            stdout=subprocess.DEVNULL,
            stderr=(self.folder / f"{name}.err").open("w"),
            text=True,
        )
        self.started.append(launcher)
        return launcher

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.err").read_text()

    def ranks(self) -> dict[int, str]:
        """The ranks that are there, and the cards that they see."""
        return {int(path.name): path.read_text() for path in self.here.glob("*[0-9]")}

    def gpus(self) -> list[dict[str, Any]]:
        done = subprocess.run(
            [*self._ddpfix("gpus"), "--json"], env=self.environ, capture_output=True, text=True
        )
        cards = json.loads(done.stdout)["gpus"]
        assert isinstance(cards, list)
        return cards

    @staticmethod
    def _ddpfix(command: str) -> list[str]:
        return [sys.executable, "-m", "ddpfix", command]


@pytest.fixture
def place(tmp_path: Path, machine: Machine) -> Iterator[Place]:
    place = Place(tmp_path, machine(TWO_CARDS))
    yield place
    for launcher in place.started:
        launcher.kill()
        launcher.wait()
    for pid in place.ranks():
        if not ends(pid, seconds=0):
            os.kill(pid, signal.SIGKILL)


def test_a_second_launch_takes_other_cards_and_a_third_one_line(place: Place) -> None:
    first = place.start("first", "--processes", "1")
    until(lambda: len(place.ranks()) == 1, first)
    second = place.start("second", "--processes", "1")
    until(lambda: len(place.ranks()) == 2, second)
    assert sorted(place.ranks().values()) == ["0", "1"]
    reasons = [card["why_not"] for card in place.gpus()]
    assert f"taken by process {first.pid}, run {place.folder / 'first'}" in reasons
    assert f"taken by process {second.pid}, run {place.folder / 'second'}" in reasons

    for name, options in (("third", ()), ("named", ("--gpus", "1"))):
        assert place.start(name, *options).wait() == 2
        [line] = place.said(name).splitlines()
        assert f"taken by process {second.pid}" in line
        assert "--wait" in line
        assert not (place.folder / name).exists()

    (place.here / "go").touch()
    assert (first.wait(), second.wait()) == (0, 0)
    assert [card["usable"] for card in place.gpus()] == [True, True]


def test_of_launches_at_once_no_two_take_the_same_card(place: Place) -> None:
    launchers = [place.start(f"run{number}", "--processes", "1") for number in range(4)]
    until(lambda: sum(launcher.poll() is not None for launcher in launchers) == 2)
    until(lambda: len(place.ranks()) == 2)
    assert sorted(place.ranks().values()) == ["0", "1"]
    statuses = [launcher.poll() for launcher in launchers]
    assert (statuses.count(2), statuses.count(None)) == (2, 2)


def test_waiting_ends_when_the_cards_are_free(place: Place) -> None:
    first = place.start("first", "--processes", "2")
    until(lambda: len(place.ranks()) == 2, first)
    waiting = place.start("waiting", "--wait", "--processes", "2")
    until(lambda: "Waiting: " in place.said("waiting"), waiting)
    assert f"taken by process {first.pid}" in place.said("waiting")
    assert not (place.folder / "waiting").exists()
    (place.here / "go").touch()
    assert (first.wait(), waiting.wait()) == (0, 0)
    record = json.loads((place.folder / "waiting" / "run.json").read_text())
    assert [card["uuid"] for card in record["cards"]] == ["GPU-aaa", "GPU-bbb"]


def test_a_killed_launcher_holds_its_cards_to_the_end_of_its_ranks(place: Place) -> None:
    first = place.start("first", "--processes", "2", "--grace", "2")
    until(lambda: len(place.ranks()) == 2, first)
    taken = set()
    first.kill()
    first.wait()
    ranks = list(place.ranks())
    while not all(ends(pid, seconds=0) for pid in ranks):
        cards = [card["usable"] for card in place.gpus()]
        if not all(ends(pid, seconds=0) for pid in ranks):  # there during the whole look
            taken.update(cards)
    assert taken <= {False}
    until(lambda: all(card["usable"] for card in place.gpus()))


# --- without a run ---


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    yield tmp_path / "ddpfix" / "cards"
    locks.release_locks()


HOLD = """
import sys
from pathlib import Path
from ddpfix.launchers.gpus import locks
print(locks.take_locks(sys.argv[1:]), flush=True)
locks.name_run(Path("/runs/one"))
print(flush=True)
input()
"""


@pytest.fixture
def holder(state: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the cards b and c."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, "b", "c"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["True\n", "\n"]
    yield process
    process.kill()
    process.communicate()


def test_all_cards_are_locked_or_none(state: Path, holder: subprocess.Popen[str]) -> None:
    assert not locks.take_locks(["a", "b"])
    assert locks.lock_descriptors() == ()
    assert locks.take_locks(["a", "d", ""])
    assert len(locks.lock_descriptors()) == 2
    assert locks.take_locks(["a"])  # its own
    expected = f"taken by process {holder.pid}, run /runs/one"
    assert [str(locks.lock_holder(uuid)) for uuid in "abcde"] == [
        *("None", expected, expected),
        *("None", "None"),
    ]
    assert sorted(path.name for path in state.iterdir()) == [
        *("a.lock", "b.lock", "c.lock", "d.lock"),
    ]
    assert {path.stat().st_mode & 0o777 for path in [state, *state.iterdir()]} == {0o700, 0o600}


def test_a_killed_holder_gives_its_cards_free(holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()
    assert locks.lock_holder("b") is None
    assert locks.take_locks(["b", "c"])


def test_looking_at_a_lock_does_not_keep_others_from_taking_it(state: Path) -> None:
    assert locks.take_locks(["a"])
    locks.release_locks()
    look = (
        "import os, fcntl, sys\n"
        f"held = os.open({str(state / 'a.lock')!r}, os.O_RDONLY)\n"
        "fcntl.flock(held, fcntl.LOCK_SH)\nprint(flush=True)\ninput()"
    )
    looking = subprocess.Popen(
        [sys.executable, "-c", look], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert looking.stdout is not None
    looking.stdout.readline()
    assert not locks.take_locks(["a"])  # for as long as nobody looks
    looking.communicate("\n")
    assert locks.take_locks(["a"])


def test_an_unreadable_lock_is_taken_by_somebody(
    state: Path, holder: subprocess.Popen[str]
) -> None:
    for content in ("", "{", "[]", '{"pid": null, "run": ""}'):
        (state / "b.lock").write_text(content)
        assert str(locks.lock_holder("b")) == "taken by another run"


def test_where_nothing_can_be_written_nothing_is_locked(state: Path) -> None:
    state.parent.mkdir(parents=True)
    state.write_text("no folder")
    assert locks.take_locks(["a"])
    assert locks.lock_descriptors() == ()


def test_waiting_goes_on_over_a_card_that_is_still_busy_and_ends_with_other_mistakes(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_claim, "_POLL", 0.0)
    answers: list[InputError | Devices] = [
        CardsTakenError("taken by process 1"),
        CardsTakenError("taken by process 1"),
        InputError("busy: 9.0 GiB in use"),
        Devices(1, (), "cards 0"),
    ]
    said: list[str] = []

    def choose() -> Devices:
        answer = answers.pop(0)
        if isinstance(answer, InputError):
            raise answer
        return answer

    assert claim_devices(choose, said.append, wait=True).summary == "cards 0"
    assert said == ["Waiting: taken by process 1"]
    for answer in (CardsTakenError("taken by process 1"), InputError("no such card")):
        answers.append(answer)
        with pytest.raises(InputError, match=str(answer)):
            claim_devices(choose, said.append, wait=isinstance(answer, CardsTakenError) is False)
