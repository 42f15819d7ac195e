"""Time `ddpfix plan`: python benchmarks/plan_speed.py [--rounds N].

Whole processes, for cards that are not here. Cold is a setting that nothing is known of, so that
its steps are traced; it is asked once. Warm is the same one again, beside a Python that only says
`pass`, before and after it by turns, so that what else the machine does meets both alike. The
processor time is told beside the time, as other load hardly changes that. Byte code is kept, as
that of an installed package is.

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

MOST_COLD = 10.0  # seconds
MOST_WARM = 0.15

SETTING = ("--recipe", "codegpt-bigclonebench", "--gpus", "2x RTX 6000 Ada", "--", "--block_size")
COMMANDS = {
    "plan, warm": (sys.executable, "-m", "ddpfix", "plan", *SETTING, "512"),
    "python -c pass": (sys.executable, "-c", "pass"),
}


def main() -> None:
    """Print table and JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=11)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="ddpfix-benchmark-") as state:
        environ = os.environ | {"XDG_STATE_HOME": state}
        environ.pop("PYTHONDONTWRITEBYTECODE", None)
        took: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
        cold = timed(COMMANDS["plan, warm"], environ)
        for number in range(-1, rounds):  # the first is for the caches
            for name in COMMANDS if number % 2 else reversed(COMMANDS):
                one = timed(COMMANDS[name], environ)
                if number >= 0:
                    took[name].append(one)
    rows = {"plan, cold": row([cold])} | {name: row(values) for name, values in took.items()}
    limits = {"plan, cold": MOST_COLD, "plan, warm": MOST_WARM}
    missed = [name for name, most in limits.items() if rows[name]["seconds"] > most]
    print(json.dumps({"rounds": rounds, "medians": rows, "missed": missed}, indent=2))
    for name, values in rows.items():
        numbers = "  ".join(f"{what} {value:.3f}" for what, value in values.items())
        print(f"{name:<16}{numbers}{'  MISSED' if name in missed else ''}", file=sys.stderr)
    sys.exit(1 if missed else 0)


def timed(argv: Sequence[str], environ: dict[str, str]) -> tuple[float, float]:
    """Seconds of a process, and processor seconds of it and all that it started."""
    before, began = used(), time.perf_counter()
    subprocess.run(argv, env=environ, check=True, capture_output=True)
    return time.perf_counter() - began, used() - before


def used() -> float:
    """Processor seconds of all children so far that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def row(values: Sequence[tuple[float, float]]) -> dict[str, float]:
    """The medians."""
    seconds, processor = zip(*values, strict=True)
    return {
        "seconds": round(statistics.median(seconds), 4),
        "processor": round(statistics.median(processor), 4),
    }


if __name__ == "__main__":
    main()
