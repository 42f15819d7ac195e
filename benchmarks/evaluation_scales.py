"""Time an evaluation by one and by two ranks: python -m ddpfix.benchmarks.evaluation_scales.

Fixture scripts as `patch` leaves them evaluate behind each epoch, here of a single step; one rank
and two do so by turns, of one thread each. The ratio is that of two ranks' time to one's, in the
median of the rounds. Reading and tokenizing the examples, which these scripts do on each rank at
every evaluation, is in it. Beside it stands the processor time of each of two ranks against that of
one, which the load of others hardly changes. Memory is the peak of each rank.

Prints Markdown; the exit status is 1 where two ranks take more than 0.6 of the time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from attrs import evolve
from step_overhead import PATCHED, Turn, about, running, spread
from step_tasks import CASES, GENERATION, Case, build

MOST = 0.6  # of one rank's time
TITLES = ("CodeGPT", "GraphCodeBERT", GENERATION.title)
EXAMPLES, QUICK = 4000, 400


def main() -> None:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the examples")
    parser.add_argument("--examples", type=int, help="how many to evaluate")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=TITLES, metavar="SCRIPT")
    arguments = parser.parse_args()
    examples = arguments.examples or (QUICK if arguments.quick else EXAMPLES)
    print(about("", 2, arguments.rounds), "", sep="\n")
    print(
        "| script | examples | one rank, s | two ranks, s | ratio "
        "| processor time | MiB of one | MiB of two |"
    )
    print(f"|{'---|' * 8}", flush=True)
    slow = False
    for case in (each for each in (*CASES, GENERATION) if each.title in arguments.only):
        valid = examples // 2 if case is GENERATION else examples  # a minute of one rank, too
        sized = evolve(*(case,), hidden=256, layers=4, micro_steps=1, valid=valid, evaluations=1)
        alone, both = measure(sized, arguments.rounds)
        ratios = [b.seconds / a.seconds for a, b in zip(alone, both, strict=True)]
        used = [b.processor / 2 / a.processor for a, b in zip(alone, both, strict=True)]
        slow |= statistics.median(ratios) > MOST
        times = [f"{statistics.median(t.seconds for t in each):.1f}" for each in (alone, both)]
        memory = [", ".join(str(m >> 20) for m in each[-1].most) for each in (alone, both)]
        cells = [case.title, str(valid), *times, spread(ratios), spread(used), *memory]
        print(f"| {' | '.join(cells)} |", flush=True)
    sys.exit(slow)


def measure(case: Case, rounds: int) -> tuple[list[Turn], list[Turn]]:
    """The turns of one rank and of two, in rounds."""
    turns: dict[int, list[Turn]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory(prefix="ddpfix-benchmark-") as name, ExitStack() as stack:
        groups = {}
        for ranks in turns:
            place = build(case, Path(name) / str(ranks), ranks, rounds + 3, 1)
            (place.folder / "place.json").write_text(json.dumps(place.to_plain()))
            (groups[ranks],) = stack.enter_context(running(place, [PATCHED], False))
        for training in groups.values():
            training.report()
        for training in groups.values():
            training.go_on()  # fills the caches
        for number in range(rounds):
            for ranks in groups if number % 2 else reversed(groups):
                turns[ranks].append(groups[ranks].go_on())
    return turns[1], turns[2]


if __name__ == "__main__":
    main()
