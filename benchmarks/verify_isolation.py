"""Time what it costs to keep the user's files: python benchmarks/verify_isolation.py [--rounds N].

`ddpfix verify` runs on a small script in the three ways, `overlay`, `copy` and in place, in each
round once, in turning order. What is compared is processor time, of all processes, which other load
hardly changes; ratios are medians of the rounds' own. With --megabytes a file of that size lies
beside the data, which a copy copies for each run.

A table goes to stderr and JSON to stdout; a way that cannot be had here is left out and named.
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
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from sabotage import write

WAYS = ("none", "overlay", "copy")
OPTIONS = ("--world-sizes", "1,2", "--accumulation", "1", "--json")


def verify(way: str, folder: Path) -> tuple[float, float] | str:
    """Processor and wall seconds of a verification, or why there is none."""
    script, *arguments = (folder / "command").read_text().split("\n")
    command = [sys.executable, "-m", "ddpfix", "verify", script, *OPTIONS, "--", *arguments]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"DDPFIX_ISOLATION": way},
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if not done.stdout:
        return done.stderr.strip().splitlines()[-1]
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=0)
    options = parser.parse_args()
    seconds: dict[str, list[tuple[float, float]]] = {}
    refusals: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="verify-isolation-") as name:
        folder = Path(name)
        script, arguments = write(folder / "small")
        (folder / "command").write_text("\n".join([str(script), *arguments]))
        (folder / "small" / "features.bin").write_bytes(os.urandom(options.megabytes << 20))
        for number in range(options.rounds):
            for way in WAYS[number % 3 :] + WAYS[: number % 3]:
                result = verify(way, folder)
                if isinstance(result, str):
                    refusals[way] = result
                else:
                    seconds.setdefault(way, []).append(result)
                    print(f"round {number + 1} {way}: {result[0]:.1f} s", file=sys.stderr)
    report: dict[str, object] = {"rounds": options.rounds, "refused": refusals, "ways": {}}
    for way, rounds in seconds.items():
        ratios = [one[0] / base[0] for one, base in zip(rounds, seconds["none"], strict=False)]
        cpu, wall = (statistics.median(values) for values in zip(*rounds, strict=True))
        row = {"cpu_seconds": cpu, "wall_seconds": wall, "cpu_ratio": statistics.median(ratios)}
        report["ways"] |= {way: row}  # type: ignore[operator]
        print(
            f"{way:8} {cpu:6.1f} s of processor, {wall:6.1f} s in all, x{row['cpu_ratio']:.3f} "
            f"({min(ratios):.3f} to {max(ratios):.3f})",
            file=sys.stderr,
        )
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
