"""Numbers of `ddpfix verify` on fixture family A: python benchmarks/verify_families.py [--naive].

For both variants (CodeGPT and CodeBERT, tiny) at a global batch of 12: the rows of the verdict for
1, 2, 3 and 4 processes, with the largest relative deviations; with ``--naive`` also what the two
usual edits by sed do. Then what tracing costs: seconds per optimizer step with and without it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ddpfix.fixtures.tiny import (
    Kind,
    build_clone_data,
    build_model,
    clone_arguments,
    copy_family,
)
from ddpfix.launchers.traced import prefix
from ddpfix.launchers.verify import verify
from ddpfix.patcher.engine import patch

KINDS: dict[str, Kind] = {"CodeGPT": "gpt2", "CodeBERT": "roberta"}
ROUNDS = 3  # the quickest of them counts
SHORT, LONG = 2, 22  # epochs: the difference is free of imports and set-up
STEPS_PER_EPOCH = 4


def main() -> None:
    """Print everything on stdout."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--naive", action="store_true")
    naive = parser.parse_args().naive
    with tempfile.TemporaryDirectory(prefix="ddpfix-benchmark-") as name:
        for variant, kind in KINDS.items():
            print_verdict(Path(name) / variant, variant, kind, against_naive=False)
            if naive:
                print_verdict(Path(name) / f"{variant}-naive", variant, kind, against_naive=True)
        print_overhead(Path(name) / "overhead")


def material(folder: Path, kind: Kind, epochs: int = 2) -> tuple[Path, list[str]]:
    """A script of family A with a tiny model and data; returns it and its arguments."""
    script = copy_family("bigclonebench", folder / "code")
    model = build_model(folder / "model", kind)
    data = build_clone_data(folder / "data", train=48, valid=13, test=11)
    words = clone_arguments(model, data, folder / "out", kind, batch=12, epochs=epochs)
    return script, words


def print_verdict(folder: Path, variant: str, kind: Kind, *, against_naive: bool) -> None:
    """One verdict: its rows and seconds."""
    script, words = material(folder, kind)
    began = time.perf_counter()
    verdict = verify(
        script,
        words,
        world_sizes=(1, 2) if against_naive else (1, 2, 3, 4),
        accumulations=(1,) if against_naive else (1, 2),
        against_naive=against_naive,
        timeout=60,
    )
    edits = ", two edits by sed" if against_naive else ", patched"
    print(f"{variant}{edits}: {time.perf_counter() - began:.0f} s")
    for row in verdict.rows:
        print(f"  {row.code} {row.status}: {row.evidence}")


def print_overhead(folder: Path) -> None:
    """Seconds per optimizer step (with its share of evaluations), untraced and traced."""
    seconds: dict[tuple[bool, int], float] = {}
    for epochs in (SHORT, LONG):
        script, words = material(folder / str(epochs), "gpt2", epochs)
        patch(script).write()
        for traced in (False, True):
            rounds = []
            for number in range(ROUNDS):
                out = folder / f"trace-{epochs}-{number}"
                own = prefix(out, ["--threads", "1"]) if traced else ()
                rounds.append(run([sys.executable, *own, str(script), *words]))
            seconds[traced, epochs] = min(rounds)
    steps = (LONG - SHORT) * STEPS_PER_EPOCH
    plain, traced_ = (
        (seconds[traced, LONG] - seconds[traced, SHORT]) / steps for traced in (False, True)
    )
    print(f"tracing: {1e3 * plain:.1f} ms per step without, {1e3 * traced_:.1f} ms with it")
    whole = seconds[True, SHORT] / seconds[False, SHORT]
    print(f"  ratio {traced_ / plain:.2f} per step, {whole:.2f} for a whole run of 8 steps")


def run(argv: list[str]) -> float:
    """Wall seconds of a command that must end well."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    began = time.perf_counter()
    subprocess.run(argv, env=environment, check=True, capture_output=True)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
