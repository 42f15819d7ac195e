"""Numbers of `ddpfix verify --exact` on family A: python benchmarks/exact_families.py [--double].

For both variants (CodeGPT and CodeBERT, tiny), 157 examples in batches of 16: what every optimizer
step of 1, 2 and 3 processes, and of accumulation 2 and 4, is off the untouched script's own. With
``--double`` the models compute in fp64, which tells rounding from other arithmetic: what is left
then is below 1e-12.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from ddpfix.fixtures.tiny import Kind, build_clone_data, build_model, clone_arguments, copy_family
from ddpfix.launchers import compare
from ddpfix.launchers.verdict import match, parameters_apart
from ddpfix.launchers.verify import Verdict, verify

KINDS: dict[str, Kind] = {"CodeGPT": "gpt2", "CodeBERT": "roberta"}
EXAMPLES, BATCH = 157, 16
MADE = "    model=Model(encoder,config,tokenizer,args)\n"


def main() -> None:
    """Print everything on stdout; the exit status is 1 when a promise does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--double", action="store_true")
    double = parser.parse_args().double
    held = True
    with tempfile.TemporaryDirectory(prefix="ddpfix-benchmark-") as name:
        for variant, kind in KINDS.items():
            began = time.perf_counter()
            verdict = judged(Path(name) / variant, kind, double)
            print(f"{variant}: {time.perf_counter() - began:.0f} s")
            print_deviations(verdict)
            for row in verdict.rows:
                print(f"  {row.code} {row.status}: {row.evidence}")
            held &= verdict.holds
    sys.exit(0 if held else 1)


def judged(folder: Path, kind: Kind, double: bool) -> Verdict:
    """The verdict on a script of family A with a tiny model."""
    script = copy_family("bigclonebench", folder / "code")
    if double:
        text = script.read_text("utf-8")
        assert MADE in text
        script.write_text(text.replace(MADE, f"{MADE}    model.double()\n"), "utf-8")
    model = build_model(folder / "model", kind)
    data = build_clone_data(folder / "data", train=EXAMPLES, valid=13, test=11)
    # At the family's usual rate the last gradients are differences of which fp32 keeps 1.5e-5.
    words = clone_arguments(model, data, folder / "out", kind, batch=BATCH, learning_rate=2e-3)
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
            f"norm {found.norm:.1e}, parameters {parameters_apart(base, run):.1e}"
        )


if __name__ == "__main__":
    main()
