"""Spell programs another way, and see whether findings and patch stay the same.

    python benchmarks/spellings.py --count 2000 --seed 1 [--show 3] [--kind NAME] [SCRIPT…]

Scripts are those of fixtures/ unless named. Per kind: how many mutants come out the same, with
other findings, with the same findings and another patch, with a traceback, or with a patch that a
second run changes. The exit status is 1 unless 99 % are the same and none of the last two occurs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from spelling_cases import KINDS, Baselines, fixture_scripts, judge, mutants  # noqa: E402


def main() -> None:
    """Judge mutants and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scripts", nargs="*", type=Path)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=0, help="mutants per kind that are described")
    parser.add_argument("--kind", choices=sorted(KINDS))
    options = parser.parse_args()
    scripts = options.scripts or fixture_scripts()
    kinds = [options.kind] if options.kind else list(KINDS)
    verdicts: dict[str, Counter[str]] = defaultdict(Counter)
    with tempfile.TemporaryDirectory() as folder:
        bases = Baselines(Path(folder))
        for mutant in mutants(scripts, kinds, options.count, options.seed):
            verdict, details = judge(bases, mutant)
            verdicts[mutant.kind][verdict] += 1
            wrong = sum(verdicts[mutant.kind].values()) - verdicts[mutant.kind]["same"]
            if verdict != "same" and wrong <= options.show:
                print(f"{mutant.kind} {mutant.script} seed {mutant.seed}: {verdict}\n{details}")
    columns = ("same", "findings", "patch", "traceback", "unstable")
    print(f"{'kind':24}" + "".join(f"{name:>11}" for name in columns))
    total: Counter[str] = Counter()
    for kind in kinds:
        total += verdicts[kind]
        print(f"{kind:24}" + "".join(f"{verdicts[kind][name]:11}" for name in columns))
    print(f"{'all':24}" + "".join(f"{total[name]:11}" for name in columns))
    share = total["same"] / max(1, sum(total.values()))
    print(f"{share:.2%} of {sum(total.values())} are the same")
    sys.exit(share < 0.99 or bool(total["traceback"] + total["unstable"]))


if __name__ == "__main__":
    main()
