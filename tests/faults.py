"""What tests of faults share: a script that trains, numbers for parameters, and its launches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from launched import RECIPE

# A chain over all examples stands for the parameters: another order or number of them, and it ends
# elsewhere. Ranks keep step by their files. FAULT is "what:rank:step", and happens once.
TRAIN = r"""
import argparse, hashlib, json, os, signal, sys, time

parser = argparse.ArgumentParser()
for name in ("--batch", "--eval_batch", "--accumulation", "--save_total_limit"):
    parser.add_argument(name, type=int, default=1)
parser.add_argument("--out")
parser.add_argument("--resume", action="store_true")
args = parser.parse_args()
here, rank = os.environ["HERE"], int(os.environ.get("RANK", 0))
world = int(os.environ.get("WORLD_SIZE", 1))
what, who, when = (os.environ.get("FAULT", "") or "none:0:0").split(":")[:3]
OutOfMemoryError = type("OutOfMemoryError", (RuntimeError,), {"__module__": "torch"})


def write(path, content):
    with open(f"{path}.{rank}.part", "w") as file:
        json.dump(content, file)
    os.replace(f"{path}.{rank}.part", path)


def read(path):
    try:
        with open(path) as file:
            return json.load(file)
    except FileNotFoundError:
        return {"step": 0, "weights": "", "batches": []}


def state(of):
    return os.path.join(args.out, f"state{of}.json")


def waits_for_ever():
    while True:
        time.sleep(0.02)


def fault(step):
    if (int(who), int(when)) != (rank, step):
        return
    if what == "memory" and args.batch > 2:
        raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
    if what == "memory" or os.path.exists(os.path.join(here, "struck")):
        return
    write(os.path.join(here, "struck"), os.getpid())
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "disk":
        with open(os.path.join(args.out, "big"), "wb") as file:
            while True:
                file.write(bytes(4096))
                file.flush()
    if what in ("hang", "memory and hang"):
        if what != "hang":  # as torch tells of an exception that ends a rank
            sys.stderr.write("\n[rank0]: torch.OutOfMemoryError: CUDA out of memory.\n")
        waits_for_ever()
    if what == "wait":
        while not os.path.exists(os.path.join(here, "go")):
            time.sleep(0.02)


os.makedirs(args.out, exist_ok=True)
now = read(state(rank)) if args.resume else read("/none")
write(os.path.join(here, str(rank)), os.getpid())
while now["step"] < 6:
    step = now["step"] + 1
    fault(step)
    for micro in range(args.accumulation):
        for number in range(args.batch):
            example = (step * world + rank) * 1000 + micro * args.batch + number
            chained = hashlib.sha256(f"{now['weights']} {example}".encode())
            now["weights"] = chained.hexdigest()
    now["step"] = step
    now["batches"].append(args.batch)
    write(state(rank), now)
    sys.stderr.write(f"\repoch 0 loss {1 / step:.3f}: {step}0%|##  | {step}/6 [00:01<00:01]")
    while any(read(state(other))["step"] < step for other in range(world)):
        time.sleep(0.02)
"""


class Place:
    """A folder with a recipe and the script, to launch from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.here = folder / "here"
        self.here.mkdir()
        (folder / "own.toml").write_text(RECIPE)
        self.script = folder / "run.py"
        self.script.write_text(TRAIN)
        self.environ = {
            name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"
        }
        self.environ |= {
            "HERE": str(self.here),
            "XDG_STATE_HOME": str(folder / "state"),
            "OMP_NUM_THREADS": "1",
        }

    def start(
        self,
        name: str,
        *options: str,
        fault: str = "",
        cpu: bool = True,
        env: dict[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        """A launch whose run folder is the one of this name."""
        for left in self.here.iterdir():
            left.unlink()
        recipe = ["--recipe", str(self.folder / "own.toml")]
        script = ["--script", str(self.script), "--output", str(self.folder / name)]
        command = [sys.executable, "-m", "ddpfix", "launch", *recipe, *script, *["--cpu"] * cpu]
        environ = self.environ | (env or {}) | {"FAULT": fault}
        return subprocess.Popen(
            [*command, *options],
            env=environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def launch(self, name: str, *options: str, fault: str = "", **more: Any) -> Ended:
        """The same, to its end."""
        return self.ended(name, self.start(name, *options, fault=fault, **more))

    def ended(self, name: str, launcher: subprocess.Popen[str]) -> Ended:
        """How a launch ended; none of its processes may be left."""
        _, talk = launcher.communicate()
        record = json.loads((self.folder / name / "run.json").read_text())
        pids = [int(path.read_text()) for path in self.here.glob("[0-9]")]
        left = [pid for pid in [*pids, *marked(record["run_id"])] if alive(pid)]
        assert left == []
        assert not list((self.folder / name).glob("*.part"))
        return Ended(launcher.returncode, talk, record)

    def weights(self, name: str) -> list[str]:
        """The parameters of every rank at the end of a run."""
        paths = sorted((self.folder / name / "made").glob("state*.json"))
        states = [json.loads(path.read_text()) for path in paths]
        assert {state["step"] for state in states} == {6}
        return [state["weights"] for state in states]


class Ended:
    """A launch that has ended; its record has to say how."""

    def __init__(self, status: int, talk: str, record: dict[str, Any]) -> None:
        self.status, self.talk, self.record = status, talk, record
        self.attempts: list[dict[str, Any]] = record["attempts"]
        assert record["exit_status"] == status
        assert record["start"] < record["end"]
        assert record["cause"] != "running"
        assert record["cause"] == self.attempts[-1]["cause"]


def alive(pid: int) -> bool:
    """Whether the process still runs; a zombie, which nobody has waited for yet, does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return status != "Z"


def marked(run_id: str) -> list[int]:
    """The processes of a run."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if run_id.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def until(condition: Callable[[], bool], launcher: subprocess.Popen[Any]) -> None:
    """Wait for the condition, but no longer than the launcher lives."""
    for _ in range(6000):  # so that a failure does not hang the tests
        if condition():
            return
        assert launcher.poll() is None, "ended too early"
        time.sleep(0.02)
    pytest.fail("it never came about")
