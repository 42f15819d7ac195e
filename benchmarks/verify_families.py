"""Numbers of `ddpfix verify`: PYTHONPATH=tests python benchmarks/verify_families.py [NAME…].

For every variant of the families (or those named) in fp32 and, with `patch --with amp`, in bf16,
192 examples in global batches of 48: the rows of the verdict for 1, 2, 3 and 4 processes, each with
accumulation 1 and 4. The processes are forked from one that has imported torch.
``--write`` puts them into docs/families/verified.json, from which docs/family_pages.py makes pages;
``--precision`` leaves the other out. ``--naive`` shows what the two usual edits by sed do to
scripts that they fit, and ``--overhead`` what tracing costs: seconds per optimizer step with
and without it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import transformers
from ddpfix.errors import InputError
from ddpfix.fixtures.families import VARIANTS, Variant
from ddpfix.launchers.verify import trace_compare as compare
from ddpfix.launchers.verify.evidence import RunTrace
from ddpfix.launchers.verify.request import VerifyRequest
from ddpfix.launchers.verify.traced_run import tracer_prefix
from ddpfix.launchers.verify.verifier import Verdict, verify
from ddpfix.patcher.engine.patch import patch
from forked import Forge

WRITTEN = Path(__file__).resolve().parent.parent / "docs" / "families" / "verified.json"
WORLDS, ACCUMULATIONS = (1, 2, 3, 4), (1, 4)
EXAMPLES, BATCH = 192, 48  # so that 1 to 4 ranks can accumulate 4 micro-batches
PRECISIONS = ("fp32", "bf16")
ROUNDS = 3  # the quickest of them counts
SHORT, LONG = 2, 22  # epochs: the difference is free of imports and set-up
STEPS_PER_EPOCH = 4


def main() -> None:
    """Print everything on stdout; the exit status is 1 when a promise is not kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--precision", choices=PRECISIONS)
    parser.add_argument("--naive", action="store_true")
    parser.add_argument("--overhead", action="store_true")
    parser.add_argument("variants", nargs="*", choices=[*VARIANTS, []])
    args = parser.parse_args()
    holds = True
    with tempfile.TemporaryDirectory(prefix="ddpfix-benchmark-") as name, Forge() as forge:
        for title in args.variants or VARIANTS:
            variant, place = VARIANTS[title], Path(name) / title
            for precision in variant.precisions:
                if args.precision not in (None, precision):
                    continue
                verdict = judged(forge, place / precision, variant, precision)
                holds &= verdict.holds
                if args.write:
                    write(f"{title}, {precision}", facts(verdict))
            if args.naive:
                print_naive(forge, place / "naive", variant)
        if args.overhead:
            print_overhead(Path(name) / "overhead")
    sys.exit(0 if holds else 1)


def judged(forge: Forge, folder: Path, variant: Variant, precision: str) -> Verdict:
    """One verdict on the patched script; its rows and seconds are printed."""
    script, words = variant.build(folder, train=EXAMPLES)
    low = precision != "fp32"
    began = time.perf_counter()
    verdict = verify(
        VerifyRequest(
            script,
            [*words(folder / "out", BATCH, 1), *(["--amp", precision] if low else [])],
            capabilities=["amp"] if low else [],
            unsafe=variant.unsafe,
            world_sizes=WORLDS,
            accumulations=ACCUMULATIONS,
            all_splits=True,
            timeout=120,
            isolation="none",  # processes are forked, and not started
        ),
        start=forge.trace,
    )
    print_rows(f"{variant.title}, {precision}: {time.perf_counter() - began:.0f} s", verdict)
    return verdict


def print_naive(forge: Forge, folder: Path, variant: Variant) -> None:
    """The verdict on the two edits by sed, or why they cannot be made."""
    script, words = variant.build(folder, train=EXAMPLES)
    title = f"{variant.title}, two edits by sed"
    try:
        verdict = verify(
            VerifyRequest(
                script,
                words(folder / "out", BATCH, 1),
                accumulations=(1,),
                against_naive=True,
                timeout=120,
                isolation="none",
            ),
            start=forge.trace,
        )
    except InputError as error:
        print(f"{title}: {error}")
        return
    print_rows(title, verdict)


def print_rows(title: str, verdict: Verdict) -> None:
    """A verdict's rows, under a title."""
    print(title)
    for row in verdict.rows:
        print(f"  {row.code} {row.status}: {row.evidence}", flush=True)


def facts(verdict: Verdict) -> dict[str, Any]:
    """What a page tells of a verdict."""
    evidence = verdict.evidence
    return {
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "rows": [[row.code, row.title, row.status, row.evidence] for row in verdict.rows],
        "runs": [group_facts(evidence.reference_of(run), run) for run in evidence.groups],
    }


def group_facts(reference: RunTrace, run: RunTrace) -> dict[str, Any]:
    """One process group: its first and last loss, and how far it is off the one it follows."""
    steps, base = compare.steps(run.ranks), compare.steps(reference.ranks)
    off = {what: compare.deviation(base, steps, what).largest for what in ("loss", "norm", "lr")}
    return {
        "world": run.world_size,
        "accumulation": run.accumulation,
        "steps": len(steps),
        "losses": [round(step.loss, 7) for step in (steps[0], steps[-1])],
        "off": {what: float(f"{value:.1e}") for what, value in off.items()},
        "f1": compare.metric_values(run.ranks, "eval_f1")[-1:],
    }


def write(name: str, found: dict[str, Any]) -> None:
    """Put one verdict in the place of its last one."""
    known = json.loads(WRITTEN.read_text("utf-8")) if WRITTEN.exists() else {}
    known[name] = found
    text = json.dumps(dict(sorted(known.items())), indent=1, ensure_ascii=False)
    WRITTEN.write_text(text + "\n", "utf-8")


def print_overhead(folder: Path) -> None:
    """Seconds per optimizer step (with its share of evaluations), untraced and traced."""
    seconds: dict[tuple[bool, int], float] = {}
    for epochs in (SHORT, LONG):
        script, words = VARIANTS["CodeGPT"].build(folder / str(epochs), epochs=epochs)
        patch(script).write()
        for traced in (False, True):
            rounds = []
            for number in range(ROUNDS):
                out = folder / f"trace-{epochs}-{number}"
                own = tracer_prefix(out, ["--threads", "1"]) if traced else ()
                rounds.append(
                    run([sys.executable, *own, str(script), *words(folder / "out", 12, 1)])
                )
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
