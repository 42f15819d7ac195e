"""Start runs, do them harm, and count what is left: python benchmarks/storm.py --cycles 300.

Each cycle launches ranks on the CPU with a back end, behaviours and a way of starting drawn by the
seed, and after a while drawn too sends a signal to one of its processes, closes its terminal, or
does nothing. Then it waits for the end, at most --deadline seconds, and counts

- orphans: processes that outlive the run. This process is a child subreaper (prctl(2)), so each
  orphan becomes its descendant, whatever it has done to its session and environment;
- untrue records: run.json says something else than what happened, or that the run still goes on;
- wrong statuses: another exit status than that of what happened;
- left-over files: beside what a run is to leave, in its folder, in TMPDIR, and where it started.
  The cache torchinductor_USER in TMPDIR is torch's own, made once for all runs, and not counted.

A table goes to stderr and JSON to stdout, or to --json FILE; the exit status is 1 if anything was
counted.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ddpfix.launchers.running.descent import set_child_subreaper
from storm_cycle import KINDS, Cycle, Harm

SIGNALS = ("INT", "TERM", "HUP", "QUIT", "KILL", "STOP", "SEGV", "none")
TARGETS = ("launcher", "launcher", "back end", "rank", "guardian")
BACKENDS = ("none", "direct", "direct", "accelerate", "torchrun")
BEHAVIOURS = (
    *("ends", "exit 3", "segv", "hang", "fork", "double fork", "empty environment", "deaf"),
    *("deaf double fork", "closed stdout", "prints"),
)
STREAMS = ("files", "closed stdout", "closed stderr", "reader gone", "terminal", "terminal gone")


def draw(chance: random.Random) -> Harm:
    """Draw what a cycle does."""
    backend = chance.choice(BACKENDS)
    early = chance.random() < 0.3
    return Harm(
        backend=backend,
        world=1 if backend == "none" else 2,
        behaviour=chance.choice(BEHAVIOURS),
        streams=chance.choice(STREAMS),
        signal=chance.choice(SIGNALS),
        target=chance.choice(TARGETS),
        early=early,
        moment=chance.random() * (1.5 if early else 1.0),
        grace=chance.choice((1.0, 3.0)),
    )


def cycles(count: int, seed: int, deadline: float) -> Iterator[tuple[int, Cycle]]:
    """Run so many cycles, one after the other."""
    for number in range(count):
        harm = draw(random.Random(f"{seed} {number}"))
        folder = Path(tempfile.mkdtemp(prefix="ddpfix-storm-"))
        cycle = Cycle(folder, harm, deadline)
        cycle.run()
        yield number, cycle
        if not cycle.counted:
            shutil.rmtree(folder)


def main() -> None:
    """Run the storm and print its count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cycles", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--deadline", type=float, default=120.0, help="seconds for a run to end")
    parser.add_argument("--json", type=Path, help="write the report there")
    words = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        # In the background or under nohup they are ignored, which the launchers would inherit.
        signal.signal(number, signal.SIG_DFL)
    set_child_subreaper(True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core would be one more file left over
    total: Counter[str] = Counter(dict.fromkeys(KINDS, 0))
    drawn: Counter[str] = Counter()
    found: list[dict[str, Any]] = []
    began = time.monotonic()
    for number, cycle in cycles(words.cycles, words.seed, words.deadline):
        harm = cycle.harm
        drawn.update(
            (harm.backend, harm.behaviour, harm.streams, f"{harm.signal} to {harm.target}")
        )
        for kind, what in cycle.counted.items():
            total[kind] += len(what)
        if cycle.counted:
            entry = {"cycle": number, **harm._asdict(), "sent": cycle.sent, **cycle.counted}
            found.append(entry | {"folder": str(cycle.folder)})
            sys.stderr.write(f"{json.dumps(found[-1])}\n")
        elif number % 10 == 9:
            sys.stderr.write(f"{number + 1} cycles: {dict(total)}\n")
    report = {
        "cycles": words.cycles,
        "seed": words.seed,
        "seconds": round(time.monotonic() - began, 1),
        "counted": dict(total),
        "drawn": dict(sorted(drawn.items())),
        "found": found,
    }
    text = json.dumps(report, indent=2)
    if words.json:
        words.json.write_text(f"{text}\n")
    else:
        sys.stdout.write(f"{text}\n")
    for kind, count in total.items():
        sys.stderr.write(f"{kind:<16} {count}\n")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
