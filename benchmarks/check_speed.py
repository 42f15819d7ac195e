"""Time ddpfix against other tools: python benchmarks/check_speed.py FOLDER [--rounds N].

`check` of one script, of all and of every file, and `patch --dry-run` of one, which has no rival.

Whole processes, each tool once per round, so that what else the machine does meets all alike; the
ratios are medians of the rounds' own ratios. FOLDER is any tree of Python files; its training
scripts are those named run*.py. A table goes to stderr and JSON to stdout.

`pip install '.[benchmarks]'`, without `-c constraints.txt`, brings the other tools: torchfix needs
an older libcst. What is not beside this Python is looked for on the path. An editable install of
ddpfix starts some 15 ms later than that of a wheel. A Python built without --enable-optimizations,
as pyenv builds it unasked, is a sixth slower than a distribution's: name in a report which it was.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

TOOLS = ("ddpfix", "ruff", "pyupgrade", "torchfix")
SKIPPED = {".git", "build", "dist", "node_modules", "site-packages", "__pycache__"}

# Most seconds, and most times another tool's median: what the project promises.
TARGETS: dict[str, tuple[float | None, dict[str, float]]] = {
    "one script": (None, {"pyupgrade": 1.2}),
    "run scripts": (None, {}),
    "all files": (None, {"ruff": 4.0}),
    "all files again": (0.150, {}),
    "patch one script": (0.700, {}),
}


def main() -> None:
    """Print both, and end with 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    programs = {tool: program(tool) for tool in TOOLS}
    missing = [tool for tool, path in programs.items() if path is None]
    if missing:
        sys.exit(refuse(f"{', '.join(missing)} not found: pip install '.[benchmarks]'"))
    everything = sorted(files_below(arguments.folder))
    scripts = [path for path in everything if Path(path).name.startswith("run")]
    if not scripts:
        sys.exit(refuse(f"{arguments.folder}: no run*.py in this folder; name a corpus of scripts"))
    cases = {
        "one script": [scripts[len(scripts) // 2]],
        "run scripts": scripts,
        "all files": everything,
        "all files again": everything,
        "patch one script": [scripts[len(scripts) // 2]],
    }
    with tempfile.TemporaryDirectory(prefix="ddpfix-benchmark-") as work:
        rows = {
            name: measure(
                name, paths, arguments.rounds, {k: str(v) for k, v in programs.items()}, Path(work)
            )
            for name, paths in cases.items()
        }
    print(json.dumps({"files": {k: len(v) for k, v in cases.items()}, "cases": rows}, indent=2))
    show(rows)
    sys.exit(1 if any(row["missed"] for row in rows.values()) else 0)


def refuse(text: str) -> int:
    """Exit status 2, with one line that says why."""
    print(f"check_speed: {text}", file=sys.stderr)
    return 2


def program(tool: str) -> str | None:
    """The tool beside this interpreter, else on the path."""
    beside = Path(sys.executable).with_name(tool)
    return str(beside) if beside.exists() else shutil.which(tool)


def files_below(folder: Path) -> list[str]:
    """All Python files that a tool would look at."""
    return [
        str(path)
        for path in folder.rglob("*.py")
        if not SKIPPED & set(path.relative_to(folder).parts)
    ]


def measure(
    name: str, paths: Sequence[str], rounds: int, programs: dict[str, str], work: Path
) -> dict[str, object]:
    """Medians in seconds and ratios of one case."""
    warm = name.endswith("again")
    copy = work / "copy.py"  # pyupgrade writes what it changes
    if name.startswith("patch"):
        commands = {"ddpfix": [programs["ddpfix"], "patch", "--dry-run", *paths]}
    else:
        commands = checks(paths, programs, copy)
        if not warm:
            commands["ruff"].append("--no-cache")
    seconds: dict[str, list[float]] = {tool: [] for tool in commands}
    for number in range(-1, rounds):  # the first is for the disk's and the interpreter's caches
        for tool, command in commands.items():
            if not warm:
                shutil.rmtree(work / "cache", ignore_errors=True)
            shutil.copyfile(paths[0], copy)
            took = run(command, work)
            if number >= 0:
                seconds[tool].append(took)
    ours = seconds["ddpfix"]
    ratios = {
        tool: statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
        for tool, theirs in seconds.items()
        if tool != "ddpfix"
    }
    most, against = TARGETS[name]
    median = statistics.median(ours)
    missed = [f"{median:.3f} s > {most:.3f} s"] if most and median > most else []
    missed += [
        f"{ratios[tool]:.2f} x {tool} > {limit} x"
        for tool, limit in against.items()
        if ratios[tool] > limit
    ]
    return {
        "seconds": {tool: statistics.median(values) for tool, values in seconds.items()},
        "ratios": ratios,
        "missed": missed,
    }


def checks(paths: Sequence[str], programs: dict[str, str], copy: Path) -> dict[str, list[str]]:
    """The command of each tool that checks ``paths``; pyupgrade and torchfix take one alone."""
    commands = {
        "ddpfix": [programs["ddpfix"], "check", *paths],
        "ruff": [programs["ruff"], "check", "--isolated", *paths],
    }
    if len(paths) == 1:
        commands["pyupgrade"] = [programs["pyupgrade"], "--py311-plus", str(copy)]
        commands["torchfix"] = [programs["torchfix"], *paths]
    return commands


def run(command: Sequence[str], work: Path) -> float:
    """Seconds of one process. Raises RuntimeError when it breaks."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment |= {
        "DDPFIX_CACHE_DIR": str(work / "cache"),
        "RUFF_CACHE_DIR": str(work / "ruff"),
        "PYTHONPYCACHEPREFIX": str(work / "bytecode"),
    }
    began = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    took = time.perf_counter() - began
    if done.returncode not in (0, 1, 2) or "Traceback" in done.stderr:
        raise RuntimeError(f"{command[0]} broke: {done.stderr[-2000:]}")
    return took


def show(rows: dict[str, dict[str, object]]) -> None:
    """The table."""
    for name, row in rows.items():
        seconds, ratios = row["seconds"], row["ratios"]
        assert isinstance(seconds, dict)
        assert isinstance(ratios, dict)
        cells = [f"{tool} {value * 1e3:6.0f} ms" for tool, value in seconds.items()]
        cells += [f"{value:5.2f} x {tool}" for tool, value in ratios.items()]
        missed = row["missed"]
        assert isinstance(missed, list)
        print(
            f"{name:16}", *cells, *(f"MISSED: {text}" for text in missed), sep="  ", file=sys.stderr
        )


if __name__ == "__main__":
    main()
