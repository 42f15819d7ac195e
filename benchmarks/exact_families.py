"""Numbers of `ddpfix verify --exact` on fixture family A: python benchmarks/exact_families.py.

For both variants (CodeGPT and CodeBERT, tiny), 157 examples in batches of 16: what every optimizer
step of 1, 2 and 3 processes, and of accumulation 2 and 4, is off the untouched script's own.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from ddpfix.fixtures.tiny import Kind, build_clone_data, build_model, clone_arguments, copy_family
from ddpfix.launchers import compare
from ddpfix.launchers.verdict import match
from ddpfix.launchers.verify import Verdict, verify

KINDS: dict[str, Kind] = {"CodeGPT": "gpt2", "CodeBERT": "roberta"}
EXAMPLES, BATCH = 157, 16


def main() -> None:
    """Print everything on stdout; the exit status is 1 when a promise does not hold."""
    held = True
    with tempfile.TemporaryDirectory(prefix="ddpfix-benchmark-") as name:
        for variant, kind in KINDS.items():
            began = time.perf_counter()
            verdict = judged(Path(name) / variant, kind)
            print(f"{variant}: {time.perf_counter() - began:.0f} s")
            print_deviations(verdict)
            for row in verdict.rows:
                print(f"  {row.code} {row.status}: {row.evidence}")
            held &= verdict.holds
    sys.exit(0 if held else 1)


def judged(folder: Path, kind: Kind) -> Verdict:
    """The verdict on a script of family A with a tiny model."""
    script = copy_family("bigclonebench", folder / "code")
    model = build_model(folder / "model", kind)
    data = build_clone_data(folder / "data", train=EXAMPLES, valid=13, test=11)
    words = clone_arguments(model, data, folder / "out", kind, batch=BATCH)
    return verify(
        script,
        words,
        exact=True,
        world_sizes=(1, 2, 3),
        accumulations=(1, 2, 4),
        timeout=120,
        folder=folder / "runs",  # the final parameters are read there
    )


def print_deviations(verdict: Verdict) -> None:
    """For each group the largest relative deviations, and where."""
    base = verdict.evidence.reference
    for run in verdict.evidence.groups:
        found = match(base, run)
        first, second = compare.steps(base.ranks), compare.steps(run.ranks)
        worst = compare.deviation(first, second, "loss")
        print(
            f"  {run.name}: {found.steps} steps, loss {worst.largest:.1e} (step {worst.step}), "
            f"norm {found.norm:.1e}, parameters {found.weights or 0:.1e}"
        )


if __name__ == "__main__":
    main()
