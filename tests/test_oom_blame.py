"""An OOM is to blame where it ended a rank, and settings are learned once they have trained."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import attrs
import pytest
from ddpfix.launchers.backends.command import Command
from ddpfix.launchers.planning.plan import solve
from ddpfix.launchers.running.failure import KERNEL_KILL, RunFailure, first_failure
from ddpfix.launchers.running.kernel_kills import count_kernel_kills
from ddpfix.launchers.running.oom_ladder import LaunchSettings
from ddpfix.launchers.running.output_monitor import OutputMonitor
from ddpfix.launchers.running.recovery import Recovery
from ddpfix.launchers.running.runner import RunLimits, RunOutcome, run
from ddpfix.launchers.running.watchdog import SilenceLimits
from ddpfix.recipes.load import load
from faults import Place
from launched import RECIPE

MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"


def raised(error: str, prefix: str = "") -> str:
    """A traceback, each line with the prefix."""
    lines = ["Traceback (most recent call last):", '  File "/x/run.py", line 3, in main', error]
    return "".join(f"{prefix}{line}\n" for line in lines)


def chained(how: str, *errors: str) -> str:
    return f"\n{how}\n\n".join(map(raised, errors))


def ended(rank: int, how: str) -> str:
    return f"ddpfix: rank {rank} ended with {how}; the other ranks are stopped\n"


def bar(step: int) -> str:
    return f"\r{step}0%|#  | {step}/10 [00:01<00:09]"


CONTEXT = "During handling of the above exception, another exception occurred:"
CAUSE = "The above exception was the direct cause of the following exception:"

# What one process without a launcher writes, how it ended, and whether memory is to blame.
ALONE: dict[str, tuple[str, str, bool]] = {
    "its last exception": (bar(1) + raised(MEMORY), "", True),
    "then the bar as it was": (bar(1) + raised(MEMORY) + bar(1), "", True),
    "raised from one": (chained(CAUSE, MEMORY, "RuntimeError: too large"), "", True),
    "raised from what was raised from one": (
        chained(CAUSE, MEMORY, "RuntimeError: too large", "ValueError: batch"),
        "",
        True,
    ),
    "the words that sys.exit writes": (MEMORY + "\n", "", True),
    "printed, and the bar went on": (bar(1) + raised(MEMORY) + bar(2) + bar(3), "", False),
    "printed, and the loss went on": (raised(MEMORY) + "step 2 loss 0.5\n", "", False),
    "printed, and another exception": (raised(MEMORY) + raised("KeyError: 'label'"), "", False),
    "another exception in its handler": (chained(CONTEXT, MEMORY, "KeyError: 1"), "", False),
    "printed, and a signal": (raised(MEMORY), "SIGSEGV", False),
    "printed, and it hung": (raised(MEMORY), "hung", False),
    "the words, and the bar went on": (f"{MEMORY}\n{bar(2)}\n{bar(3)}", "", False),
}


@pytest.mark.parametrize(("text", "how", "blamed"), ALONE.values(), ids=ALONE.keys())
def test_of_one_process_memory_is_to_blame(text: str, how: str, blamed: bool) -> None:
    monitor = OutputMonitor()
    monitor.take(2, text.encode())
    monitor.end()
    failure = first_failure(monitor.output(), how=how, recovered=monitor.recovered)
    assert failure.out_of_memory == blamed


# What the ranks write, in turn, and whether memory is to blame. Torch puts the number of the rank
# before what ends it, once there is a process group.
SEVERAL: dict[str, tuple[list[tuple[int | None, str]], bool]] = {
    "the rank that ended first": ([(1, raised(MEMORY)), (None, ended(1, "exit status 1"))], True),
    "one that ended later, as torch says": (
        [
            (1, raised(MEMORY, "[rank1]: ")),
            (0, raised("RuntimeError: Connection closed by peer", "[rank0]: ")),
            (None, ended(0, "exit status 1")),
        ],
        True,
    ),
    "another rank caught one": (
        [
            (0, raised(MEMORY)),
            (1, raised("KeyError: 'label'")),
            (None, ended(1, "exit status 1")),
        ],
        False,
    ),
    "the rank caught one, and was killed": (
        [(1, raised(MEMORY)), (None, ended(1, "SIGKILL"))],
        False,
    ),
    "the rank caught one, and went on": (
        [(1, bar(1) + raised(MEMORY) + bar(2) + bar(3)), (None, ended(1, "exit status 3"))],
        False,
    ),
}


@pytest.mark.parametrize(("writes", "blamed"), SEVERAL.values(), ids=SEVERAL.keys())
def test_of_several_ranks_memory_is_to_blame(
    writes: list[tuple[int | None, str]], blamed: bool
) -> None:
    monitor = OutputMonitor()
    for rank, text in writes:
        monitor.take(2, text.encode(), rank)
    monitor.end()
    failure = first_failure(monitor.output(), recovered=monitor.recovered)
    assert failure.out_of_memory == blamed


def test_a_caught_one_and_silence_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The training goes on by itself, long after the time that others would be waited for."""
    place = Place(tmp_path)
    monkeypatch.setenv("HERE", str(place.here))
    place.script.write_text(
        f"import sys, time\nsys.stderr.write('{MEMORY}\\n')\ntime.sleep(2)\nprint('trained')\n"
    )
    command = Command((sys.executable, str(place.script)), {})
    limits = RunLimits(silence=SilenceLimits(out_of_memory=0.2))
    outcome = run(command, tmp_path / "out", limits=limits)
    assert (outcome.status, outcome.cause) == (0, "finished")


def test_a_logged_one_and_another_exception_is_one_attempt_and_nothing_learned(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path)
    text = f"import sys\nsys.stderr.write({raised(MEMORY)!r})\nraise KeyError('label')\n"
    place.script.write_text(text)
    done = place.launch("out", "--processes", "1")
    assert (done.status, len(done.attempts)) == (1, 1)
    assert not done.record["failure"]["out_of_memory"]
    assert "The run failed first: KeyError: 'label'" in done.talk
    assert not (tmp_path / "state" / "ddpfix" / "memory").exists()


# --- what is learned ---

FULL = RunOutcome(1, "failed", 1.0, 0, RunFailure(out_of_memory=True), step=5)
DONE = RunOutcome(0, "finished", 1.0, 0, step=10)


@pytest.mark.parametrize(
    ("outcomes", "learned"),
    [
        pytest.param([FULL, DONE], [4], id="it then finished"),
        pytest.param([FULL, FULL, DONE], [2], id="only the last, which did"),
        pytest.param([FULL, attrs.evolve(DONE, status=143)], [4], id="it came further"),
        pytest.param([FULL, attrs.evolve(DONE, status=1, step=2)], [], id="it did not"),
        pytest.param([FULL, FULL, FULL, FULL], [], id="none was enough"),
        pytest.param([DONE], [], id="nothing was lowered"),
    ],
)
def test_settings_are_learned_that_then_trained(
    outcomes: list[RunOutcome], learned: list[int], tmp_path: Path
) -> None:
    (tmp_path / "own.toml").write_text(RECIPE)
    setting = LaunchSettings(load(str(tmp_path / "own.toml")), solve(1, 16, 8), ())
    saved: list[int] = []
    recovery = Recovery(
        setting,
        lambda setting: Command((), {}),
        tmp_path / "made",
        lambda setting: saved.append(setting.plan.per_device),
    )
    for outcome in outcomes:
        if outcome.status == 1:
            recovery(outcome)
    recovery.learn(outcomes[-1])
    assert saved == learned


# --- the kernel's killer ---


def test_a_kill_by_the_kernel_is_named_and_to_blame() -> None:
    text = ended(1, "SIGKILL").encode()
    by_kernel = first_failure(text, kernel_kills=1)
    assert by_kernel.sentence == f"Rank 1 failed first, with {KERNEL_KILL}"
    assert by_kernel.out_of_memory
    assert first_failure(text).sentence == "Rank 1 failed first, with SIGKILL"
    assert not first_failure(text).out_of_memory
    other = first_failure(ended(1, "exit status 1").encode(), kernel_kills=1)
    assert not other.out_of_memory


LAYOUTS: dict[str, tuple[str, str, str]] = {
    "version 2": ("0::/a/b\n", "a/b/memory.events", "low 0\noom 4\noom_kill 3\n"),
    "version 2 in a container": ("0::/a/b\n", "memory.events", "oom 4\noom_kill 3\n"),
    "version 1": (
        "9:memory:/x\n0::/\n",
        "memory/x/memory.oom_control",
        "oom_kill 3\n",
    ),
    "version 1 in a container": (
        "5:cpu,memory:/x\n",
        "memory/memory.oom_control",
        "oom_kill_disable 0\noom_kill 3\n",
    ),
}


@pytest.mark.parametrize(("groups", "file", "content"), LAYOUTS.values(), ids=LAYOUTS.keys())
def test_the_kernels_count_is_read_of(groups: str, file: str, content: str, tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text(groups)
    root = tmp_path / "fs"
    assert count_kernel_kills(tmp_path / "cgroup", root) is None
    (root / file).parent.mkdir(parents=True)
    (root / file).write_text(content)
    assert count_kernel_kills(tmp_path / "cgroup", root) == 3
    assert count_kernel_kills(tmp_path / "no such file", root) is None


def test_a_run_whose_group_counts_a_kill_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A process that is killed while the kernel's count goes from 6 to 7."""
    from ddpfix.launchers.running import runner

    counts = iter([6, 7])
    monkeypatch.setattr(runner, "count_kernel_kills", lambda: next(counts))
    (tmp_path / "run.py").write_text("import os\nos.kill(os.getpid(), 9)\n")
    outcome = run(Command((sys.executable, str(tmp_path / "run.py")), {}), tmp_path / "out")
    assert outcome.status == 128 + signal.SIGKILL
    failure = json.loads((tmp_path / "out" / "run.json").read_text())["failure"]
    assert (failure["how"], failure["out_of_memory"]) == (KERNEL_KILL, True)
