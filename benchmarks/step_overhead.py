"""Time patched scripts beside other loops: python -m ddpfix.benchmarks.step_overhead [--quick].

Fixture scripts as `patch` leaves them, against the same training in three other hands, those of
benchmarks/step_rivals.py: DistributedDataParallel by hand, accelerate, the Trainer of transformers.
Model, data, batches, optimizer and number of evaluations are the same. Two ranks; on the CPU of one
thread each, with gloo, so that two cores are enough.

All trainings of a comparison are started at once and then go on by turns of an epoch and an
evaluation, forwards and backwards through the list (A B C C B A …): what else the machine does
meets all alike. Each ratio is that of two turns of one round, and the medians of the rounds count,
with the quartiles as their spread. Processor time, which the load of others hardly changes, is told
beside the time that went by.

Prints Markdown, with --json OUT also writes all turns. The exit status is 1 where a patched script
has less than 0.98 of the examples a second of the fastest.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import itertools
import json
import os
import platform
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

from attrs import asdict, frozen

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from step_tasks import CASES, Case, Place, build  # noqa: E402

PATCHED, RIVALS = "patched", ("by hand", "accelerate", "Trainer")
LEAST = 0.98  # of the fastest one's examples a second
ACCUMULATIONS = (1, 4)
PATIENCE = 300  # seconds of silence after which a training is taken for stuck
PACKAGES = ("torch", "transformers", "accelerate")


@frozen
class Turn:
    """An evaluation and an epoch: seconds by the slowest rank, and processor seconds of all.

    `first` is the time until the first step behind the evaluation, `step` the median of the others
    (0 where there are none), and `most` the peak so far of each rank's memory in bytes.
    """

    seconds: float
    first: float
    step: float
    processor: float
    most: list[int]


@frozen
class Training:
    """The processes of one training, and pipes to them."""

    name: str
    processes: list[subprocess.Popen[bytes]]
    pipes: list[Connection]
    log: Path

    def report(self) -> Turn:
        """What the turn took that is under way."""
        found = []
        for pipe in self.pipes:
            try:
                if not pipe.poll(PATIENCE):
                    raise EOFError
                found.append(pipe.recv())
            except EOFError:
                tail = self.log.read_text(errors="replace")[-3000:]
                raise SystemExit(f"{self.name} broke:\n{tail}") from None
        steps = [
            statistics.median([b - a for a, b in itertools.pairwise(seconds)] or [0.0])
            for seconds, _, _ in found
        ]
        whole, first = (max(seconds[i] for seconds, _, _ in found) for i in (-1, 0))
        used, most = sum(each[1] for each in found), [each[2] for each in found]
        return Turn(whole, first, max(steps), used, most)

    def go_on(self) -> Turn:
        """Have the next turn."""
        for pipe in self.pipes:
            pipe.send(None)
        return self.report()


def main() -> None:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, to try it out")
    parser.add_argument("--rounds", type=int, help="turns of each training")
    parser.add_argument("--only", nargs="*", metavar="SCRIPT", help="titles of the table")
    parser.add_argument("--cpu", action="store_true", help="leave cards alone")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write all turns")
    arguments = parser.parse_args()
    card, ranks = ("", 2) if arguments.cpu else cards()
    rounds = arguments.rounds or (3 if arguments.quick else 12)
    measured: dict[str, dict[str, list[Turn]]] = {}
    print(about(card, ranks, rounds), heading(), sep="\n\n", flush=True)
    missed = []
    for case, accumulation in itertools.product(CASES, ACCUMULATIONS):
        if arguments.only and case.title not in arguments.only:
            continue
        turns = measure(case, accumulation, ranks, rounds, bool(card))
        print(row(case, accumulation, ranks, turns), flush=True)
        best = ratios(turns, fastest(turns), "seconds")
        if statistics.median(best) < LEAST:
            missed.append(f"{case.title}, accumulation {accumulation}")
        measured[f"{case.title}, accumulation {accumulation}"] = turns
    if arguments.json:
        plain = {
            title: {name: [asdict(turn) for turn in each] for name, each in turns.items()}
            for title, turns in measured.items()
        }
        content = {"about": about(card, ranks, rounds), "turns": plain, "missed": missed}
        arguments.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    if missed:
        print(f"less than {LEAST} of the fastest: {'; '.join(missed)}", file=sys.stderr)
        sys.exit(1)


def cards() -> tuple[str, int]:
    """The first card's name and how many ranks to start; without a card two on the CPU."""
    code = (
        "from torch.cuda import *\n"
        "print(get_device_name() if is_available() else '', device_count(), sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    name, number = done.stdout.splitlines()
    return name, min(2, int(number)) or 2


def measure(
    case: Case, accumulation: int, ranks: int, rounds: int, on_card: bool
) -> dict[str, list[Turn]]:
    """The turns of each training, by its name."""
    with tempfile.TemporaryDirectory(prefix="ddpfix-benchmark-") as name:
        place = build(case, Path(name), ranks, rounds + 3, accumulation)
        (place.folder / "place.json").write_text(json.dumps(place.to_plain()))
        rivals = [rival for rival in RIVALS if case.trainer or rival != "Trainer"]
        with running(place, [PATCHED, *rivals], on_card) as trainings:
            for training in trainings:
                training.report()  # the first epoch, in which everything starts
            for training in trainings:
                training.go_on()  # the first evaluation
            turns: dict[str, list[Turn]] = {training.name: [] for training in trainings}
            for number in range(rounds):
                for training in trainings if number % 2 else reversed(trainings):
                    turns[training.name].append(training.go_on())
    return turns


@contextmanager
def running(place: Place, names: list[str], on_card: bool) -> Iterator[list[Training]]:
    """All trainings of a comparison, ended at the end whatever happens."""
    trainings: list[Training] = []
    try:
        for name in names:
            trainings.append(start(place, name, on_card))
        yield trainings
    finally:
        for process in [process for each in trainings for process in each.processes]:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def start(place: Place, name: str, on_card: bool) -> Training:
    """The ranks of one training."""
    output = place.folder / name
    output.mkdir()
    script = [str(place.script), *place.words(output)]
    if name != PATCHED:
        rivals = str(HERE / "step_rivals.py")
        script = [rivals, name, str(place.folder / "place.json"), str(output)]
    steps = str(-(-place.case.micro_steps // place.accumulation))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environ = os.environ | {
        "WORLD_SIZE": str(place.ranks),
        "LOCAL_WORLD_SIZE": str(place.ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        **({} if on_card else {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}),
    }
    training = Training(name, [], [], output / "log.txt")
    with training.log.open("wb") as log:
        for rank in range(place.ranks):
            ours, theirs = Pipe()
            process = subprocess.Popen(
                [sys.executable, str(HERE / "step_turns.py"), str(theirs.fileno()), steps, *script],
                cwd=output,
                env=environ | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                pass_fds=[theirs.fileno()],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            theirs.close()
            training.processes.append(process)
            training.pipes.append(ours)
    return training


def fastest(turns: dict[str, list[Turn]]) -> str:
    """The name of the fastest training that is not the patched script."""
    others = (name for name in turns if name != PATCHED)
    return min(others, key=lambda name: statistics.median(turn.seconds for turn in turns[name]))


def ratios(turns: dict[str, list[Turn]], other: str, what: str) -> list[float]:
    """By round: what the other takes by what the patched script takes."""
    both = zip(turns[other], turns[PATCHED], strict=True)
    return [getattr(theirs, what) / getattr(ours, what) for theirs, ours in both]


def about(card: str, ranks: int, rounds: int) -> str:
    """Machine and versions."""
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    where = card or f"{os.cpu_count()} cores, one thread a rank, gloo"
    python = platform.python_version()
    return f"{ranks} ranks, {where}; Python {python}, {versions}; medians of {rounds} rounds."


def heading() -> str:
    """The table's first two lines."""
    columns = ["script", "accumulation", "ms a step", "examples/s"]
    columns += [f"of {rival}" for rival in RIVALS] + ["processor time, of by hand"]
    return f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}"


def row(case: Case, accumulation: int, ranks: int, turns: dict[str, list[Turn]]) -> str:
    """A line of the table."""
    ours = turns[PATCHED]
    examples = case.batch * case.micro_steps * ranks + case.valid * case.evaluations
    rates = [examples / turn.seconds for turn in ours]
    cells = [case.title, str(accumulation), f"{1e3 * statistics.median(t.step for t in ours):.1f}"]
    cells.append(f"{statistics.median(rates):.0f}")
    cells += [spread(ratios(turns, r, "seconds")) if r in turns else "" for r in RIVALS]
    cells.append(spread([1 / each for each in ratios(turns, RIVALS[0], "processor")]))
    return f"| {' | '.join(cells)} |"


def spread(values: list[float]) -> str:
    """Median and quartiles."""
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{statistics.median(values):.3f} ({low:.2f}-{high:.2f})"


if __name__ == "__main__":
    main()
