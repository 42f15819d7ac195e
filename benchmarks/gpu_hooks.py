"""Step time and peak memory of each capability, alone and together: python benchmarks/gpu_hooks.py.

Fixture family A, patched with all capabilities, in the two sizes its recipes are for, with random
weights: CodeGPT-small (12 layers of 768) on 4 pairs of 1024 tokens a function, so 8 x 1024 tokens a
step, and GraphCodeBERT (the same width) on 8 pairs of 528 tokens, so 16 x (400 + 128). The
vocabulary is the fixtures' small one: embeddings take less memory than those of the real models,
the layers the same. One process on one card. Each variant is a run of its own, `--rounds` times in
turn, and the medians count; a step is timed from one optimizer step to the next with the card
waited for, the first WARM_UP left out.

Writes benchmarks/results/gpu_hooks-CARD.json and prints a table. Ends with 2 where there is no
card; `--tiny` tries everything on the CPU with small sizes and writes nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from attrs import frozen
from ddpfix.fixtures.tiny import (
    Kind,
    build_clone_data,
    build_model,
    clone_arguments,
    copy_family,
)
from ddpfix.patcher.capabilities import all_capabilities
from ddpfix.patcher.engine.patch import patch

RESULTS = Path(__file__).parent / "results"
PROBE = Path(__file__).parent / "step_probe.py"
WARM_UP = 10
VARIANTS = {
    "plain": "",
    "amp bf16": "--amp bf16",
    "amp fp16": "--amp fp16",
    "checkpointing": "--gradient_checkpointing",
    "lora": "--lora_r 8",
    "compile": "--compile",
    "products": "--matmul_precision high",
    "attention eager": "--attn_implementation eager",
    "loader": "--dataloader_num_workers 2 --dataloader_pin_memory 1 "
    "--dataloader_persistent_workers 1",
    "all": "--amp bf16 --gradient_checkpointing --lora_r 8 --compile --matmul_precision high "
    "--dataloader_num_workers 2 --dataloader_pin_memory 1",
}


@frozen
class Size:
    """A model and its batch: pairs per step, tokens per function, of which a pair has two."""

    kind: Kind
    hidden: int
    layers: int
    pairs: int
    block: int
    steps: int


SIZES = {
    "CodeGPT-small 8 x 1024": Size("gpt2", 768, 12, 4, 1024, 40),
    "GraphCodeBERT 16 x (400+128)": Size("roberta", 768, 12, 8, 528, 40),
}
TINY = {
    "gpt2 tiny": Size("gpt2", 32, 2, 2, 64, WARM_UP + 5),
    "roberta tiny": Size("roberta", 32, 2, 2, 64, WARM_UP + 5),
}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="small sizes on the CPU, no file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", metavar="SIZE", help="names of the sizes")
    arguments = parser.parse_args()
    card = "the CPU" if arguments.tiny else card_name()
    if not card:
        print("gpu_hooks: no card here; --tiny tries it on the CPU", file=sys.stderr)
        sys.exit(2)
    found: dict[str, dict[str, Any]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="ddpfix-benchmark-") as name,
        contextlib.suppress(KeyboardInterrupt),  # where its time is up; what is measured counts
    ):
        for title, size in (TINY if arguments.tiny else SIZES).items():
            if arguments.only and title not in arguments.only:
                continue
            runs: dict[str, list[dict[str, Any]]] = {name: [] for name in VARIANTS}
            try:
                measure(Path(name) / size.kind, size, arguments, runs)
            finally:
                found[title] = {name: summary(each) for name, each in runs.items() if each}
                show(title, found[title])
    if not arguments.tiny:
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"gpu_hooks-{re.sub(r'[^A-Za-z0-9]+', '-', card).strip('-')}.json"
        if path.exists():  # of an earlier run, perhaps of other sizes
            found = {**json.loads(path.read_text())["measured"], **found}
        content = {"card": card, "rounds": arguments.rounds, "measured": found}
        path.write_text(json.dumps(content, indent=2) + "\n")
        print(f"written: {path}")


def card_name() -> str:
    """The first card's name; empty where torch sees none."""
    code = "import torch; print(torch.cuda.get_device_name() if torch.cuda.is_available() else '')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def measure(
    folder: Path,
    size: Size,
    arguments: argparse.Namespace,
    runs: dict[str, list[dict[str, Any]]],
) -> None:
    """Run each variant in turn and add what it took to its runs."""
    script = copy_family("bigclonebench", folder / "code")
    result = patch(script, capabilities=all_capabilities())
    result.write()
    for lacking in result.capability_failures:
        print(f"without {lacking.code}: {lacking.because}", file=sys.stderr)
    model = build_model(
        folder / "model", size.kind, hidden=size.hidden, layers=size.layers, block=size.block
    )
    data = build_clone_data(folder / "data", train=size.pairs * size.steps, valid=2, test=2)
    for number in range(arguments.rounds):
        for name, words in VARIANTS.items():
            out = folder / f"{name}-{number}".replace(" ", "-")
            usual = clone_arguments(
                model, data, out, size.kind, batch=size.pairs, epochs=1, block=size.block
            )
            training = [w for w in usual if w not in ("--do_eval", "--do_test")]
            training.remove("--evaluate_during_training")
            words_of_run = [*training, *words.split()]
            runs[name].append(run(script, words_of_run, folder / "seen.json", arguments.tiny))


def run(script: Path, words: list[str], seen: Path, tiny: bool) -> dict[str, Any]:
    """One run: what the probe saw, or the last line of its complaint."""
    seen.unlink(missing_ok=True)
    hidden = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"} if tiny else {}
    done = subprocess.run(
        [sys.executable, str(PROBE), str(seen), str(script), *words],
        env=os.environ | hidden | {"TOKENIZERS_PARALLELISM": "false"},
        capture_output=True,
        text=True,
        check=False,
    )
    # The script asks for the scores of an evaluation that it was not told to make.
    if not seen.exists():
        lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        return {"failed": lines[-1]}
    found: dict[str, Any] = json.loads(seen.read_text())
    return found


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians over runs, whose steps each have a median of their own."""
    failed = [one["failed"] for one in runs if "failed" in one]
    if failed:
        return {"failed": failed[0]}
    steps = [statistics.median(one["seconds"][WARM_UP:]) for one in runs]
    return {
        "seconds_per_step": statistics.median(steps),
        "spread": max(steps) - min(steps),
        "peak_bytes": statistics.median(one["peak"] for one in runs),
    }


def show(title: str, rows: dict[str, Any]) -> None:
    """The table of one size, with ratios against the plain run."""
    print(title, flush=True)
    plain = rows.get("plain", {"failed": "not run"})
    for name, row in rows.items():
        if "failed" in row:
            print(f"  {name:16} failed: {row['failed']}")
            continue
        time = row["seconds_per_step"]
        text = f"  {name:16} {1e3 * time:8.1f} ms/step"
        if "failed" not in plain:
            text += f" ({time / plain['seconds_per_step']:.2f})"
        if row["peak_bytes"]:
            text += f"  {row['peak_bytes'] / 2**30:7.2f} GiB"
            if plain.get("peak_bytes"):
                text += f" ({row['peak_bytes'] / plain['peak_bytes']:.2f})"
        print(text)


if __name__ == "__main__":
    main()
