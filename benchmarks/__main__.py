"""All that wants a card, in one command of half an hour: python -m ddpfix.benchmarks [--cpu].

Runs memory_gpu.py, gpu_hooks.py and step_overhead.py one after the other and writes what they print
to benchmarks/results/speed-CARD.md, which has the figures of docs/memory.md and docs/speed.md. What
is not done in its time is ended, and the result says so. Without a card it ends with status 2;
`--cpu` tries the same with small sizes and adds the rows of the CPU, `--quick` in few rounds.
"""

from __future__ import annotations

import argparse
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
NAME = "import torch; print(torch.cuda.get_device_name() if torch.cuda.is_available() else '')"

#: A benchmark's options, and the minutes that it may take.
Job = tuple[str, tuple[str, ...], float]
ON_CARD: tuple[Job, ...] = (
    ("memory_gpu", (), 8),
    ("gpu_hooks", ("--rounds", "1"), 8),
    ("step_overhead", ("--rounds", "6"), 14),
)
ON_CPU: tuple[Job, ...] = (
    ("memory_gpu", ("--tiny",), 5),
    ("gpu_hooks", ("--tiny", "--rounds", "1"), 5),
    ("step_overhead", ("--cpu", "--rounds", "6"), 15),
    ("evaluation_scales", ("--rounds", "2"), 15),
)


def main() -> None:
    """Run all, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cpu", action="store_true", help="small sizes, and the rows of the CPU")
    parser.add_argument("--quick", action="store_true", help="few rounds")
    parser.add_argument("--only", nargs="*", metavar="NAME", help="names of the benchmarks")
    arguments = parser.parse_args()
    done = subprocess.run([sys.executable, "-c", NAME], capture_output=True, text=True, check=True)
    card = "CPU" if arguments.cpu else done.stdout.strip()
    if not card:
        print("no card here; --cpu tries all on the CPU", file=sys.stderr)
        sys.exit(2)
    pages, failed = [f"# {card}\n"], False
    for name, options, minutes in ON_CPU if arguments.cpu else ON_CARD:
        if arguments.only and name not in arguments.only:
            continue
        quick = ("--quick",) if arguments.quick and name == "step_overhead" else ()
        own = tuple(o for o in options if not (quick and o in ("--rounds", "6")))
        print(f"{name}: at most {minutes:.0f} minutes", file=sys.stderr, flush=True)
        status, text = run(name, (*own, *quick), minutes)
        failed |= bool(status)
        pages.append(f"## {name}\n\n{text}\n{status}")
        print(pages[-1], flush=True)
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    path = results / f"speed-{re.sub(r'[^A-Za-z0-9]+', '-', card).strip('-')}.md"
    path.write_text("\n".join(pages), encoding="utf-8")
    print(f"written: {path}")
    sys.exit(failed)


def run(name: str, options: tuple[str, ...], minutes: float) -> tuple[str, str]:
    """Why a benchmark did not end well, if it did not, and what it printed."""
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, str(HERE / f"{name}.py"), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        text, _ = process.communicate(timeout=60 * minutes)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)  # so that it ends what it has started
        text, _ = process.communicate()
        return f"Ended after {minutes:.0f} minutes, before it was done.\n", text
    took = f"{(time.monotonic() - began) / 60:.0f} minutes"
    return (f"Status {process.returncode} after {took}.\n" if process.returncode else ""), text


if __name__ == "__main__":
    main()
