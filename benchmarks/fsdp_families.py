"""Training with --fsdp held to that without: PYTHONPATH=tests python benchmarks/fsdp_families.py.

For the fixture families' scripts (or those named), patched ``--with fsdp,resume``, what `verify
--with fsdp -- … --fsdp` says at 1, 2 and 4 processes with accumulation 1 and 4; then each is killed
after 3 optimizer steps on 2 ranks, goes on on 4, is killed after 3 more, and goes on on one. Prints
the tables of docs/fsdp.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from ddpfix.fixtures.families import VARIANTS, Variant
from ddpfix.launchers.verify.request import VerifyRequest
from ddpfix.launchers.verify.verifier import Verdict, verify
from ddpfix.patcher.capabilities import select_capabilities
from ddpfix.patcher.engine.patch import patch
from forked import Forge, Job

TITLES = ("CodeGPT", "CodeBERT", "GraphCodeBERT", "GraphCodeBERT, local rank", "Anchors")
RESUMED = TITLES[:4]  # a checkpoint to resume from needs an option for the output folder
WORLDS, ACCUMULATIONS = (1, 2, 4), (1, 4)
EXAMPLES, BATCH = 192, 48  # global batches of 48: 4 steps in each of 2 epochs
KILLS = ((2, 3), (4, 3), (1, 0))  # ranks, and the step of this start at which they die; 0: none
KILLING = Path(__file__).resolve().parent.parent / "tests" / "preludes" / "killing.py"


def main() -> None:
    """Print both tables; the exit status is 1 when something does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("titles", nargs="*", choices=[*TITLES, []])
    titles = parser.parse_args().titles or TITLES
    holds, resumed = True, []
    print("| script | promises | C3 |\n|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="ddpfix-benchmark-") as name, Forge() as forge:
        for title in titles:
            variant, place = VARIANTS[title], Path(name) / title
            verdict = judged(forge, place, variant)
            holds &= verdict.holds
            print(f"| {title} | {states(verdict)} | {verdict.row('C3').evidence} |", flush=True)
            for row in verdict.rows:
                print(f"{title}: {row.code} {row.status}: {row.evidence}", file=sys.stderr)
            if title in RESUMED:
                off, steps = interrupted(forge, place / "resumed", variant)
                holds &= off < 1e-6
                resumed.append(f"| {title} | {steps} | {off:.1e} |")
                print(resumed[-1], file=sys.stderr)
    print("\n| script | steps by 2, 4 and 1 ranks | parameters apart |\n|---|---|---|")
    print(*resumed, sep="\n")
    sys.exit(0 if holds else 1)


def judged(forge: Forge, folder: Path, variant: Variant) -> Verdict:
    """What verify says of a script with --fsdp."""
    script, words = variant.build(folder, train=EXAMPLES)
    return verify(
        VerifyRequest(
            script,
            [*words(folder / "out", BATCH, 1), "--fsdp"],
            capabilities=["fsdp"],
            unsafe=variant.unsafe,
            world_sizes=WORLDS,
            accumulations=ACCUMULATIONS,
            all_splits=True,
            timeout=240,
            isolation="none",  # processes are forked, and not started
        ),
        start=forge.trace,
    )


def states(verdict: Verdict) -> str:
    """The promises by what became of them: ``C1-C9 hold`` where all do."""
    other = [f"{row.code} {row.status}" for row in verdict.rows if row.status != "holds"]
    return ", ".join(other) or f"all {len(verdict.rows)} hold"


def interrupted(forge: Forge, folder: Path, variant: Variant) -> tuple[float, str]:
    """How far the weights of a run by 2, 4 and 1 ranks are from those of one by 2 in DDP."""
    script, words = variant.build(folder, train=EXAMPLES, dropout=0.0)
    result = patch(script, capabilities=select_capabilities(["fsdp", "resume"]))
    assert (result.refusal, result.capability_failures) == ("", ())
    result.write()

    def job(name: str, out: str, world: int, kill: int, *more: str) -> Job:
        here = folder / name
        here.with_suffix(".json").write_text(json.dumps(kill))
        training = words(folder / out, BATCH // (2 * world) if world > 1 else BATCH // 2, 2)
        saving = ("--save_steps=1", "--save_total_limit=1", *more)
        return Job(here, script, [*training, *saving], world, prelude=KILLING)

    (whole,) = forge.run([job("whole", "whole out", 2, 0)])
    assert set(whole.statuses) == {0}, whole.log
    taken = []
    for world, kill in KILLS:
        # A step and what is written behind it are three events each: step, write, rename; and the
        # removal of an old checkpoint a fourth.
        events = 4 * kill - 2 if kill else 0
        (run,) = forge.run([job(f"{world} ranks", "out", world, events, "--fsdp", "--resume")])
        assert (set(run.statuses) == {0}) is (kill == 0), run.log
        taken.append(run.seen[0]["events"].count("step"))
    one, other = (weights_of(folder / out) for out in ("whole out", "out"))
    assert one.keys() == other.keys()
    off = max(float((one[name] - values).abs().max()) for name, values in other.items())
    return off, " + ".join(map(str, taken))


def weights_of(folder: Path) -> dict[str, Any]:
    """The weights in the last checkpoint to go on from, which a run writes at its end."""
    path = max((folder / "resumable").glob("step-*.pt"))
    state: dict[str, Any] = torch.load(path, weights_only=True)
    assert state["finished"]
    weights: dict[str, Any] = state["parts"]["model"]
    return weights


if __name__ == "__main__":
    main()
