"""How exact `ddpfix patch --exact` is: PYTHONPATH=tests python benchmarks/exact_families.py.

For both variants of family A (CodeGPT and CodeBERT, tiny) and every shape, 157 examples in batches
of 16: how far the optimizer steps of 1, 2 and 3 processes, each with accumulation 1, 2 and 4, are
off those of the untouched script alone, relative to these. With ``--double`` models compute in
fp64, which tells rounding from other arithmetic: what is left then is below 1e-14, but for
generation_loop and hf_args, whose norms or loss transformers computes in fp32 all the same. Names
given as arguments leave the other fixtures out; ``--steps`` prints what every step of every run is
off.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from ddpfix.launchers.verify import trace_compare as compare
from ddpfix.launchers.verify.tolerances import FP32
from exact_runs import FIXTURES, parameters_apart
from forked import Forge, Run

WORLDS, ACCUMULATIONS = (1, 2, 3), (1, 2, 4)
STEPS = {"loss": FP32.loss, "norm": FP32.norm, "lr": 0.0}
TOLERANCES = STEPS | {"parameters": FP32.weights}


def main() -> None:
    """Print a row for each fixture; the exit status is 1 when a tolerance is not kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--double", action="store_true")
    parser.add_argument("--steps", action="store_true")
    parser.add_argument("fixtures", nargs="*", choices=[*FIXTURES, []])
    args = parser.parse_args()
    holds = True
    print(f"{'fixture':26} examples steps runs" + "".join(f" {name:>10}" for name in TOLERANCES))
    with tempfile.TemporaryDirectory(prefix="ddpfix-benchmark-") as place, Forge() as forge:
        for name in args.fixtures or FIXTURES:
            began = time.perf_counter()
            base, groups = runs(forge, name, Path(place) / name, args.double)
            found = {split: apart(base, run) for split, run in groups.items()}
            for split, run in groups.items() if args.steps else ():
                print_steps(split, base, run)
            worst = {what: max(each[what] for each in found.values()) for what in TOLERANCES}
            beyond = [what for what, most in TOLERANCES.items() if not worst[what] <= most]
            holds &= not beyond
            drawn = {index for draw in compare.global_batches(base.ranks) for index in draw.indices}
            print(
                f"{name:26} {len(drawn):8} {len(base.ranks[0].steps):5} {len(groups):4}"
                + "".join(f" {each:10.1e}" for each in worst.values())
                + f"  {time.perf_counter() - began:.0f} s"
                + (f"  BEYOND THE TOLERANCE: {', '.join(beyond)}" if beyond else ""),
                flush=True,
            )
    sys.exit(0 if holds else 1)


def runs(
    forge: Forge, name: str, folder: Path, double: bool
) -> tuple[Run, dict[tuple[int, int], Run]]:
    """The untouched script's run, and those of every world size and accumulation."""
    pair = FIXTURES[name](folder, double=double)
    (base,) = forge.run([pair.alone(pair.untouched)])
    groups: dict[tuple[int, int], Run] = {}
    for world in WORLDS:
        splits = [(world, each) for each in ACCUMULATIONS if pair.accumulates or each == 1]
        groups |= zip(splits, forge.run([pair.group(*split) for split in splits]), strict=True)
    for run in (base, *groups.values()):
        assert set(run.statuses) == {0}, run.log
    return base, groups


def apart(base: Run, run: Run) -> dict[str, float]:
    """The largest relative differences over all steps, and that of the final parameters."""
    first, second = compare.steps(base.ranks), compare.steps(run.ranks)
    found = {what: compare.deviation(first, second, what).largest for what in STEPS}
    return found | {"parameters": parameters_apart(base, run)}


def print_steps(split: tuple[int, int], base: Run, run: Run) -> None:
    """What each step's loss and norm are off, absolute and relative."""
    first, second = compare.steps(base.ranks), compare.steps(run.ranks)
    print(f"  world size {split[0]}, accumulation {split[1]}")
    for number, (one, other) in enumerate(zip(first, second, strict=False), 1):
        print(
            f"    {number:4} loss {one.loss:.9f} off {abs(one.loss - other.loss):.1e}"
            f" ({compare.deviation([one], [other], 'loss').largest:.1e})"
            f" norm {one.norm:.9f} off {compare.deviation([one], [other], 'norm').largest:.1e}"
        )


if __name__ == "__main__":
    main()
