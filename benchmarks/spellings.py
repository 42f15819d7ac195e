"""Spell programs another way, and see whether findings and patch stay the same.

    python benchmarks/spellings.py --count 2000 --seed 1 [--show 3] [--kind NAME] [SCRIPT…]
    python benchmarks/spellings.py --results FILE [--from 0 --to 1000]

Scripts are those of fixtures/ unless named. Per kind: how many mutants come out the same, with
other findings, with the same findings and another patch, with a traceback, or with a patch that a
second run changes. The exit status is 1 unless 99 % are the same and none of the last two occurs.

With --results each verdict is a line of FILE as soon as it is known, and the table is that of all
lines. What is in the file is not judged again: a run that was stopped goes on where it was, and
runs with other --from and --to can share the work and the file. Delete it when ddpfix has changed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from spelling_cases import KINDS, Baselines, Mutant, fixture_scripts, judge, mutants  # noqa: E402

COLUMNS = ("same", "findings", "patch", "traceback", "unstable")


@dataclass
class Judged:
    """A mutant by its number among those of a seed, and what became of it."""

    number: int
    kind: str
    script: str
    seed: int
    verdict: str
    details: str


def judged_before(results: Path | None) -> list[Judged]:
    """The lines of a result file, where there is one."""
    if results is None or not results.exists():
        return []
    return [Judged(**json.loads(line)) for line in results.read_text().splitlines()]


def judge_each(numbered: Iterable[tuple[int, Mutant]]) -> Iterator[Judged]:
    """Judge mutants, one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        bases = Baselines(Path(folder) / "program")
        for number, mutant in numbered:
            verdict, details = judge(bases, mutant)
            yield Judged(number, mutant.kind, str(mutant.script), mutant.seed, verdict, details)


def show_table(judged: Iterable[Judged]) -> bool:
    """Print a table of verdicts by kind; returns whether they are good enough."""
    verdicts: dict[str, Counter[str]] = defaultdict(Counter)
    for each in judged:
        verdicts[each.kind][each.verdict] += 1
        verdicts["all"][each.verdict] += 1
    print(f"{'kind':24}" + "".join(f"{name:>11}" for name in COLUMNS))
    for kind in (*KINDS, "all"):
        if counts := verdicts[kind]:
            print(f"{kind:24}" + "".join(f"{counts[name]:11}" for name in COLUMNS))
    total = verdicts["all"]
    share = total["same"] / max(1, total.total())
    print(f"{share:.2%} of {total.total()} are the same")
    return share >= 0.99 and not total["traceback"] + total["unstable"]


def main() -> None:
    """Judge mutants and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scripts", nargs="*", type=Path)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=0, help="mutants per kind that are described")
    parser.add_argument("--kind", choices=sorted(KINDS))
    parser.add_argument("--from", dest="first", type=int, default=0, help="number of the first one")
    parser.add_argument("--to", type=int, help="number behind the last one (default: --count)")
    parser.add_argument("--results", type=Path, help="file of verdicts, which is added to")
    options = parser.parse_args()
    kinds = [options.kind] if options.kind else list(KINDS)
    judged = judged_before(options.results)
    known = {each.number for each in judged}
    made = mutants(options.scripts or fixture_scripts(), kinds, options.count, options.seed)
    part = islice(enumerate(made), options.first, options.to)
    shown: Counter[str] = Counter()
    for each in judge_each(one for one in part if one[0] not in known):
        judged.append(each)
        if options.results:
            with options.results.open("a") as file:
                print(json.dumps(asdict(each)), file=file)
        if each.verdict != "same" and shown[each.kind] < options.show:
            shown[each.kind] += 1
            print(f"{each.kind} {each.script} seed {each.seed}: {each.verdict}\n{each.details}")
    # What another process has added in the meantime counts, too.
    sys.exit(not show_table(judged_before(options.results) or judged))


if __name__ == "__main__":
    main()
