"""The live view of a launch, on a real terminal and by its parts."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from select import select
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import evolve
from ddpfix import progress_line
from ddpfix.launchers.report.live_figures import LiveFigures
from ddpfix.launchers.report.live_frame import CardFacts, RunTitle, frame
from ddpfix.launchers.report.live_lines import StreamLines
from ddpfix.launchers.running.output_monitor import OutputMonitor
from ddpfix.launchers.running.step_line import StepLine
from ddpfix.launchers.running.view import RunState
from ddpfix.launchers.running.watchdog import SilenceLimits
from launched import RECIPE
from terminal import OnTerminal
from tqdm import tqdm

BAR = "epoch 0:  {}%|##   | {}/8 [00:0{}<00:06,  1.00it/s, loss=0.{}, lr=1e-3]"
# A bar that is drawn over, a line of several rows, colour; then it waits to be told to go on.
SCRIPT = f"""\
import os, signal, sys, time
def go_on(status=0):
    while not os.path.exists("go"):
        time.sleep(0.01)
    raise SystemExit(status)
signal.signal(signal.SIGINT, lambda *_: go_on(3))
if os.environ["RANK"] == "0":
    print("x" * 500 + "\\n\\x1b[32mgreen\\x1b[0m\\tand more")
    for step in (1, 2):
        bar = {BAR!r}.format(step * 12, step, step, 9 - step)
        print(bar, end="\\r", file=sys.stderr, flush=True)
        time.sleep(0.05)
while not os.path.exists("on"):
    time.sleep(0.01)
if os.environ["RANK"] == "0":
    print("\\neval_f1 = 0.5\\nlast words", flush=True)
go_on()
"""
LAUNCH = ["launch", "--recipe", "./own.toml", "--cpu", "--processes", "2", "--backend", "direct"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "run.py").write_text(SCRIPT)
    (tmp_path / "own.toml").write_text(RECIPE)
    return tmp_path


def launch(place: Path, columns: int, *words: str, **variables: str) -> OnTerminal:
    argv = [sys.executable, "-m", "ddpfix", *LAUNCH, "--unchecked", "--output", "run", *words]
    return OnTerminal(argv, place, columns, variables)


def rows(text: str) -> dict[str, str]:
    """The view's rows, by their names."""
    below = text.rpartition("── run")[2].splitlines()[1:]
    return {name: rest for name, _, rest in (line.partition(" ") for line in below if line)}


def has_step(text: str) -> bool:
    return "2 of 8" in rows(text).get("step", "") and "output" in rows(text)


def test_a_run_on_a_terminal(place: Path) -> None:
    run = launch(place, 80)
    text = run.wait_for(has_step)
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("── run · 2 processes") == 1
    above, _, _ = text.partition("── run")
    assert above.endswith(f"{'x' * 80}\n" * 6 + f"{'x' * 20}\ngreen\tand more\n")
    seen = rows(text)
    assert "1 steps/s" in seen["step"]
    assert seen["left"].strip() in ("0:06", "0:05", "0:04")
    assert seen["loss"].split()[0] == "0.7"
    assert seen["loss"].endswith("   learning rate 0.001")
    assert seen["output"].strip().startswith("epoch 0:  24%|##   | 2/8 [00:02<00:06")
    assert run.screen.shows_cursor

    run.resize(50)
    text = run.wait_for(lambda text: max(map(len, text.splitlines()[-6:])) < 50 and has_step(text))
    assert text.count("── run") == 1
    assert text.count("step  ") == 1
    (place / "on").touch()
    run.wait_for(lambda text: "last words\n── run" in text and "scores   eval_f1 0.5" in text)

    run.type(b"keys\n\n")
    run.type(b"\x03")
    text = run.wait_for(lambda text: "end of" in rows(text).get("waits", ""))
    assert rows(text)["waits"].strip() == "for the end of its processes, after SIG…"
    (place / "go").touch()
    assert run.end() == 130
    assert run.echoes
    text = run.screen.text
    assert "── run" not in text
    assert "keys" not in text
    assert "step  " not in text
    assert "eval_f1 = 0.5\nlast words\n" in text
    closing = "".join(text.partition("last words\n")[2].split())
    bar = "".join(BAR.format(24, 2, 2, 7).split())
    assert closing.startswith(f"{bar}TherunstoppedbySIGINTafter")
    log = (place / "run" / "log.txt").read_bytes()
    assert b"x" * 500 in log
    assert BAR.format(12, 1, 1, 8).encode() + b"\r" in log


def test_a_wide_terminal_without_colours(place: Path) -> None:
    run = launch(place, 160, NO_COLOR="1")
    text = run.wait_for(has_step)
    assert BAR.format(24, 2, 2, 7) in rows(text)["output"]
    assert any(120 < len(line) < 160 for line in text.splitlines() if line.startswith("── run"))
    before = run.raw.count(b"\x1b[?25l")
    run.type(b"\x1a")  # this group of processes has no shell to stop it: it goes on at once
    run.wait_for(lambda text: run.raw.count(b"\x1b[?25l") > before and has_step(text))
    assert run.screen.text.count("── run") == 1
    (place / "on").touch()
    (place / "go").touch()
    assert run.end() == 0
    assert "── run" not in run.screen.text
    assert "last words\nThe run finished after " in run.screen.text
    colours = run.raw.replace(b"\x1b[32mgreen\x1b[0m", b"").count(b"\x1b[3")
    assert colours == 0


@pytest.mark.parametrize(
    ("words", "variables"),
    [(["--no-live"], {}), ([], {"TERM": "dumb"}), ([], {"CI": "true"})],
)
def test_plain_lines_where_no_view_is_wanted(
    place: Path, words: list[str], variables: dict[str, str]
) -> None:
    (place / "on").touch()
    (place / "go").touch()
    run = launch(place, 80, *words, **variables)
    assert run.end() == 0
    log = (place / "run" / "log.txt").read_bytes()
    assert sorted(log.splitlines()) == sorted(
        run.raw.replace(b"\r\n", b"\n")
        .partition(b"run.py")[2]
        .partition(b"\n")[2]
        .splitlines()[:-1]
    )


def test_a_pipe_gets_the_bytes_of_the_output(place: Path) -> None:
    (place / "on").touch()
    (place / "go").touch()
    words = [sys.executable, "-X", "importtime", "-m", "ddpfix", *LAUNCH, "--output", "run"]
    done = subprocess.run([*words, "--unchecked"], cwd=place, capture_output=True, check=True)
    assert (
        done.stdout
        == b"x" * 500 + b"\n\x1b[32mgreen\x1b[0m\tand more\n\neval_f1 = 0.5\nlast words\n"
    )
    modules = {line.rpartition(b"|")[2].strip() for line in done.stderr.splitlines()}
    assert b"ddpfix.launchers.running.runner" in modules
    assert modules.isdisjoint({b"rich", b"ddpfix.launchers.report.live_view"})


def shown(text: bytes, size: int) -> tuple[list[str], list[str]]:
    """What is finished and what is not, of a stream that comes in chunks of a size."""
    lines = StreamLines()
    for number, place in enumerate(range(0, len(text), size)):
        lines.add(text[place : place + size], number)
    return [line for _, line in lines.take_finished()], lines.unfinished


@pytest.mark.parametrize("size", [1, 2, 7, 10_000])
def test_bars_below_each_other_stay_two_lines(size: int) -> None:
    stream = io.StringIO()
    outer = tqdm(total=3, file=stream, desc="outer", mininterval=0, ascii=True)
    for _ in range(2):
        with tqdm(total=4, file=stream, desc="inner", mininterval=0, leave=False) as inner:
            for _ in range(4):
                inner.update()
        outer.update()
    text = b"before\n" + stream.getvalue().encode()
    finished, unfinished = shown(text, size)
    assert finished == ["before"]
    assert len(unfinished) == 1
    assert "2/3" in unfinished[0]
    outer.close()
    finished, unfinished = shown(b"before\n" + stream.getvalue().encode(), size)
    assert (len(finished), unfinished) == (2, [])


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    ("text", "finished", "unfinished"),
    [
        ("a\nb", ["a"], ["b"]),
        ("a\r\nb\r\n", ["a", "b"], []),
        ("10%\r20%\r\n", ["20%"], []),
        ("10%\r   \r", [], []),
        ("\x1b[31mred\x1b[0m\n", ["\x1b[31mred\x1b[0m"], []),
        ("\x1b]0;a title\x07up\x1b[2J\x1b[5;5H\x07\n", ["up"], []),
        ("grüße 漢字\n", ["grüße 漢字"], []),
        ("bar\r\x1b[Kgone\n", ["gone"], []),
    ],
)
def test_a_line_is_what_a_terminal_shows_at_last(
    text: str, finished: list[str], unfinished: list[str], size: int
) -> None:
    assert shown(text.encode(), size) == (finished, unfinished)


def test_a_line_without_an_end_does_not_grow_for_ever() -> None:
    lines = StreamLines()
    for number in range(100):
        lines.add(b"x" * 1000, number)
    assert len(lines.take_finished()) == 1
    assert lines.unfinished == []


def state_with(cards: int = 0, **signals: Any) -> RunState:
    """The state of a run that has said nothing yet."""
    sample = {"memory_used": 31 << 30, "utilization": 97, "power": 287.4}
    idle: Any = SimpleNamespace(**({"received": None} | signals))
    watchdog: Any = SimpleNamespace(hung=False, cause="")
    samples = [{"index": index, **sample} for index in range(cards)]
    return RunState(OutputMonitor(), watchdog, idle, SilenceLimits(), lambda: samples)


def drawn(figures: LiveFigures, state: RunState, columns: int, lines: int, now: float) -> list[str]:
    cards = {index: CardFacts(44 << 30, 300.0) for index in range(8)}
    run = RunTitle("run", 8, 33 << 30, cards)
    found = frame(run, figures, state, [], now, (columns, lines))
    assert len(found) <= lines - 2
    return [f"{row.name:9}{row.text}" if row.name else row.text for row in found]


def test_cards_against_what_was_predicted() -> None:
    narrow = drawn(LiveFigures(), state_with(2), 80, 24, 0.0)
    assert narrow[2] == "card 0    97 %   31.0 GiB of 33.0 predicted   287 of 300 W"
    assert narrow[3].startswith("card 1 ")
    assert narrow[-1] == "waits    for the first output, for 0 s"
    wide = drawn(LiveFigures(), state_with(8), 160, 24, 0.0)
    assert [line.count("card ") for line in wide] == [0, 0, 2, 2, 2, 2, 0]
    assert max(map(len, wide)) < 160
    low = drawn(LiveFigures(), state_with(8), 80, 9, 0.0)
    assert low[2] == "8 cards  97 to 97 %   at most 31.0 GiB of 33.0 predicted   2299 W in all"
    assert drawn(LiveFigures(), state_with(8), 80, 5, 0.0)[-1].startswith("waits")


def test_the_time_left_of_a_pass_and_of_all() -> None:
    figures = LiveFigures({8: 3.0})
    for epoch in range(2):
        for step in range(9):
            figures.read(BAR.format(step * 12, step, step, 9 - step), 10.0 * epoch + step)
        figures.read("evaluating: 50%|##   | 1/2 [00:01<00:01,  1.00it/s]", 10.0 * epoch + 9)
    figures.read("eval_f1 = 0.75", 20.0)
    figures.read(BAR.format(25, 2, 2, 4), 22.0)
    steps, left, loss, scores, _ = drawn(figures, state_with(), 80, 24, 23.0)[1:]
    assert steps.endswith(" 25%  2 of 8  pass 3 of 3  1 steps/s")
    assert left == "left     0:05 of this pass, 0:05 in all"
    assert loss.startswith("loss     0.4 ")
    assert scores == "scores   eval_f1 0.75"
    figures.read("evaluating: 50%|##   | 1/2 [00:01<00:01,  1.00it/s]", 23.0)
    assert "also     evaluating: 1 of 2" in drawn(figures, state_with(), 80, 24, 23.0)
    assert not any("also" in line for line in drawn(figures, state_with(), 80, 24, 99.0))


def test_steps_that_no_bar_counts() -> None:
    figures = LiveFigures()
    figures.read("step 640 loss 0.5", 1.0)
    assert drawn(figures, state_with(), 80, 24, 2.0)[1] == "step     640"


def test_what_a_stopped_run_waits_for() -> None:
    assert state_with(received=2, seconds_left=29.0).waits_for == (
        "the end of its processes, after SIGINT: they are killed in 29 s, or at a second Ctrl-C"
    )


class Told:
    """The reading end of a terminal."""

    def __init__(self, leader: int) -> None:
        self._leader = leader

    def __call__(self) -> str:
        assert select([self._leader], [], [], 60)[0]
        return os.read(self._leader, 4096).decode()

    def nothing_is_there(self) -> bool:
        return not select([self._leader], [], [], 0)[0]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    """What is written to a terminal by whoever loses patience at once."""
    leader, follower = pty.openpty()
    monkeypatch.setattr(progress_line, "PATIENCE", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("CI", raising=False)
    with os.fdopen(follower, "w") as terminal:
        monkeypatch.setattr(progress_line, "sys", SimpleNamespace(stderr=terminal))
        yield Told(leader)
    os.close(leader)


def test_a_quiet_run_has_a_line_of_its_own(told: Told) -> None:
    state, line = state_with(), StepLine()
    line.look(state)
    assert told() == "\r\x1b[K  0 s"
    state.monitor.take(2, f"{BAR.format(24, 2, 2, 7)}\r".encode())
    line.look(state)  # drawn half a second after the first
    line.look(evolve(state, monitor=aged(state.monitor)))
    assert told() == "\r\x1b[K  60 s, step 2 of 8, loss 0.7"
    line.close()
    assert told() == "\r\x1b[K"


def aged(monitor: OutputMonitor) -> OutputMonitor:
    """A monitor of a run that began a minute ago."""
    monitor.began -= 60
    return monitor


def test_work_that_takes_long_says_for_how_long(told: Told) -> None:
    with progress_line.elapsed("tracing a step"):
        assert told() == "\r\x1b[K  tracing a step: 1 s"
    assert told() == "\r\x1b[K"


@pytest.mark.parametrize(("name", "value"), [("TERM", "dumb"), ("CI", "1")])
def test_a_terminal_that_cannot_redraw_gets_nothing(
    told: Told, name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    line = StepLine()
    line.look(state_with())
    line.close()
    with progress_line.elapsed("nothing"):
        pass
    assert told.nothing_is_there()


def test_a_terminal_that_goes_away_ends_no_run(place: Path) -> None:
    run = launch(place, 80)
    run.wait_for(has_step)
    (place / "on").touch()
    (place / "go").touch()
    assert run.hang_up() in (0, 129)  # the terminal sends SIGHUP, which stops the run
    assert '"cause"' in (place / "run" / "run.json").read_text()
