"""Time the way to a script's first line: python benchmarks/launch_overhead.py [--rounds N].

Two questions, of two processes on the CPU. What does `ddpfix launch` add to the command that it
prints? And what does `--backend direct` take of accelerate's time, both as printed and launched?
Each round starts every command once, the launched one beside the printed one, before and after it
by turns, so that what else the machine does meets both alike; ratios and differences are medians of
the rounds' own. The processor time that launch adds, on all cores and to its end, is told beside
them, as other load hardly changes that. Byte code is kept, as that of an installed package is. On
the CPU no NVML is asked, which takes a time of its own where there are cards. Torchrun's rendezvous
waits up to 0.3 s at random before it begins (next_rendezvous in dynamic_rendezvous.py of torch), so
few rounds say little of it.

A table goes to stderr and JSON to stdout; the exit status is 1 where a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

BACKENDS = ("accelerate", "torchrun", "direct")

MOST_ADDED = 0.25  # seconds that `ddpfix launch` may add to the command that it prints
MOST_OF_ACCELERATE = 0.2  # of accelerate's time that `--backend direct` may take

# The first line, before any import of the script's own. CLOCK_MONOTONIC is the machine's.
SCRIPT = """\
import os, time; now = time.clock_gettime(time.CLOCK_MONOTONIC)
with open(os.path.join(os.environ["FIRST_LINES"], os.environ["RANK"]), "w") as file:
    file.write(repr(now))
"""

RECIPE = """\
description = "for timing"
family = "timing"
script = "run.py"
task = "to be started"
[flags]
train_batch = "--batch"
eval_batch = "--eval_batch"
accumulation = "--accumulation"
output = "--out"
[batch]
global_batch = 16
per_device_cap = 8
eval_per_device = 8
[data]
folder = "."
files = {}
[output]
folder = "made"
"""


def main() -> None:
    """Print table and JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="ddpfix-benchmark-") as work:
        seconds, processor = measure(Path(work), rounds)
    report = {
        "rounds": rounds,
        "cores": os.cpu_count(),
        "seconds": {name: spread(values) for name, values in seconds.items()},
        "added by launch": {backend: spread(added(seconds, backend)) for backend in BACKENDS},
        "processor time added": {
            backend: spread(added(processor, backend)) for backend in BACKENDS
        },
        "direct of accelerate": {
            way: spread([a / b for a, b in pairs(seconds, f"{way} direct", f"{way} accelerate")])
            for way in ("printed", "launch")
        },
    }
    missed = list(complaints(report))
    print(json.dumps(report | {"missed": missed}, indent=2))
    show(report, missed)
    sys.exit(1 if missed else 0)


def measure(work: Path, rounds: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds from each command's start to the first line of its last rank, and of processor time.

    By the command's name, one per round.
    """
    (work / "run.py").write_text(SCRIPT)
    (work / "own.toml").write_text(RECIPE)
    # What any launcher can come down to at best, and how busy the machine is.
    bare = f"RANK=0 {sys.executable} run.py & RANK=1 {sys.executable} run.py; wait"
    ways: dict[str, Sequence[str]] = {"bare Python": ["sh", "-c", bare]}
    for backend in BACKENDS:
        options = ["--recipe", "./own.toml", "--cpu", "--backend", backend]
        launch = [sys.executable, "-m", "ddpfix", "launch", *options]
        ways[f"launch {backend}"] = [*launch, "--output"]
        printed = [*launch, "--output", str(work / "made"), "--dry-run"]
        line = subprocess.run(printed, cwd=work, capture_output=True, text=True, check=True).stdout
        ways[f"printed {backend}"] = ["sh", "-c", f"exec {line}"]
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    processor: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(-1, rounds):  # the first is for the disk's and the interpreter's caches
        for name in ways if number % 2 else reversed(ways):
            argv, folder = ways[name], work / f"{number} {name}"
            run_folder = [str(folder / "run")] if argv[-1] == "--output" else []
            before = used()
            took = to_first_line([*argv, *run_folder], work, folder)
            if number >= 0:
                seconds[name].append(took)
                processor[name].append(used() - before)
    return seconds, processor


def used() -> float:
    """Processor seconds of all children so far that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def to_first_line(argv: Sequence[str], work: Path, folder: Path) -> float:
    """Seconds until both ranks have come to their first line."""
    (folder / "first").mkdir(parents=True)
    environ = os.environ | {"FIRST_LINES": str(folder / "first"), "OMP_NUM_THREADS": "1"}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    began = time.clock_gettime(time.CLOCK_MONOTONIC)
    done = subprocess.run(argv, cwd=work, env=environ, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{argv[0]} broke: {done.stderr[-2000:]}")
    lines = [float(path.read_text()) for path in (folder / "first").iterdir()]
    if len(lines) != 2:
        raise RuntimeError(f"{' '.join(argv)}: {len(lines)} ranks, not 2")
    return max(lines) - began


def added(values: dict[str, list[float]], backend: str) -> list[float]:
    """What launching takes more than the command that it prints, per round."""
    return [a - b for a, b in pairs(values, f"launch {backend}", f"printed {backend}")]


def pairs(seconds: dict[str, list[float]], one: str, other: str) -> list[tuple[float, float]]:
    """The two ways' times of each round."""
    return list(zip(seconds[one], seconds[other], strict=True))


def spread(values: list[float]) -> dict[str, float]:
    """The median, and the least and the most of the rounds."""
    named = {"median": statistics.median(values), "least": min(values), "most": max(values)}
    return {name: round(value, 4) for name, value in named.items()}


def complaints(report: dict[str, object]) -> list[str]:
    """The targets that were missed."""
    extra, share = report["added by launch"], report["direct of accelerate"]
    assert isinstance(extra, dict)
    assert isinstance(share, dict)
    slow = [
        f"launch adds {value['median']:.3f} s to {name}, more than {MOST_ADDED} s"
        for name, value in extra.items()
        if value["median"] > MOST_ADDED
    ]
    return slow + [
        f"{way} direct takes {value['median']:.2f} of accelerate's time, "
        f"more than {MOST_OF_ACCELERATE}"
        for way, value in share.items()
        if value["median"] > MOST_OF_ACCELERATE
    ]


def show(report: dict[str, object], missed: list[str]) -> None:
    """The table."""
    for title in ("seconds", "added by launch", "processor time added", "direct of accelerate"):
        rows = report[title]
        assert isinstance(rows, dict)
        print(title, file=sys.stderr)
        for name, value in rows.items():
            numbers = f"{value['median']:7.3f}  ({value['least']:.3f} to {value['most']:.3f})"
            print(f"  {name:20}{numbers}", file=sys.stderr)
    for text in missed:
        print(f"MISSED: {text}", file=sys.stderr)


if __name__ == "__main__":
    main()
