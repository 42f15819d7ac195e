"""Predicted against real peak memory on a card: python benchmarks/memory_gpu.py.

Every setting of `SETTINGS` runs in a process of its own, with random weights and three steps; the
prediction is made before. Compared are what torch has allocated and reserved at most, and what the
driver says that the process uses; which attention ran is read from a profile of one more step.
Then the largest batch is looked for: under a limit of memory the predicted one has to run, and one
that is a tenth larger must not.

Writes benchmarks/results/memory_gpu-CARD.json and prints a table. Ends with 1 where the mean error
is above 3 % or one is above 6 %, with 2 where there is no card; `--tiny` tries everything on the
CPU with small networks and writes nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ddpfix.launchers.memory.peak import Curve, Peak
from ddpfix.launchers.memory.predict import predict
from ddpfix.launchers.memory.process_overhead import NCCL_BYTES
from ddpfix.launchers.memory.step import TrainingStep, step_of
from ddpfix.recipes.load import load
from ddpfix.record import as_dict, replace

RESULTS = Path(__file__).parent / "results"
GIB = 1 << 30
MEAN, WORST = 0.03, 0.06  # of the real peak
FULL = 0.85  # of the card that a setting may take as predicted; else its batch is made smaller
LIMIT = 16 * GIB  # within which the largest batch is looked for
TINY: dict[str, Any] = {
    "vocabulary": 300,
    "hidden": 64,
    "layers": 1,
    "heads": 2,
    "intermediate": 128,
}
MEASURED = ("allocated", "reserved", "total")


def of_recipe(name: str, **more: Any) -> TrainingStep:
    """The step of a known recipe, otherwise as given."""
    recipe = load(name)
    step = step_of(recipe, recipe.arguments)
    assert step is not None
    return replace(step, **more)


GPT, BERT, GRAPH = "codegpt-bigclonebench", "codebert-bigclonebench", "graphcodebert-clonedetection"
SETTINGS: dict[str, tuple[TrainingStep, int]] = {
    "CodeGPT": (of_recipe(GPT), 8),
    "CodeGPT bf16": (of_recipe(GPT, precision="bf16"), 8),
    "CodeGPT fp16, accumulated": (of_recipe(GPT, precision="fp16", accumulates=True), 8),
    "CodeGPT eager": (of_recipe(GPT, attention="eager"), 4),
    "CodeGPT DDP": (of_recipe(GPT, world=2), 8),
    "CodeGPT checkpointing": (of_recipe(GPT, checkpointing=True), 16),
    "CodeGPT legacy": (of_recipe(f"{GPT}-legacy"), 8),
    "CodeBERT": (of_recipe(BERT), 16),
    "CodeBERT bf16, DDP": (of_recipe(BERT, precision="bf16", world=2), 16),
    "CodeBERT LoRA": (of_recipe(BERT, lora_rank=8), 16),
    "CodeBERT evaluation": (of_recipe(BERT, training=False), 32),
    "GraphCodeBERT": (of_recipe(GRAPH), 8),
    "GraphCodeBERT bf16": (of_recipe(GRAPH, precision="bf16"), 16),
    "GraphCodeBERT bf16, checkpointing": (
        of_recipe(GRAPH, precision="bf16", checkpointing=True),
        32,
    ),
    "anchors, large": (of_recipe("anchor-xlmr-large"), 64),
    "anchors, XL": (of_recipe("anchor-xlmr-xl"), 32),
    "anchors, XXL": (of_recipe("anchor-xlmr-xxl"), 16),
    "detector fp16": (of_recipe("code-detector"), 32),
}
SEARCHED = ("CodeGPT bf16", "CodeBERT", "GraphCodeBERT bf16")


def main() -> None:
    """Predict, measure, print, write, judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="small networks on the CPU, no file")
    parser.add_argument("--only", nargs="*", metavar="SETTING", default=list(SETTINGS))
    parser.add_argument("--one", help=argparse.SUPPRESS)  # a process of this program's own
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measured(**json.loads(arguments.one))))
        return
    card = facts(arguments.tiny)
    if not card:
        print("memory_gpu: no card here; --tiny tries it on the CPU", file=sys.stderr)
        sys.exit(2)
    found: dict[str, dict[str, Any]] = {}
    searched: dict[str, dict[str, Any]] = {}
    with contextlib.suppress(KeyboardInterrupt):  # where its time is up; what is measured counts
        for name in SETTINGS:
            if name in arguments.only:
                found[name] = compared(name, card)
                show(name, found[name])
        for name in SEARCHED:
            if name in arguments.only:
                searched[name] = search(name, card)
                print(f"largest batch, {name}: {searched[name]}", flush=True)
    errors = summary(found)
    print(json.dumps(errors))
    if card["device"] == "cuda":
        write(card, {"settings": found, "search": searched, "errors": errors})
        sys.exit(errors["mean"] > MEAN or errors["worst"] > WORST or not right(searched))


def facts(tiny: bool) -> dict[str, Any]:
    """What the first card is; the CPU's stand-in where everything is tiny; empty without either."""
    import torch

    if tiny:
        return {"device": "cpu", "name": "CPU", "capability": [8, 0], "memory": 64 * GIB}
    if not torch.cuda.is_available():
        return {}
    known = torch.cuda.get_device_properties(0)
    return {
        "device": "cuda",
        "name": known.name,
        "capability": [known.major, known.minor],
        "memory": known.total_memory,
        "torch": torch.__version__,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def on(name: str, card: dict[str, Any]) -> TrainingStep:
    """A setting on this card, with a small network where it is none."""
    step = replace(SETTINGS[name][0], capability=tuple(card["capability"]))
    if card["device"] == "cuda":
        return step
    length = min(step.length, 64)
    # A real step on the CPU knows no flash attention, and fp16 not everywhere.
    network = replace(step.network, **TINY, positions=80)
    half = "fp32" if step.precision == "fp32" else "bf16"
    return replace(step, network=network, length=length, precision=half)


def predicted(step: TrainingStep) -> Curve:
    """The curve of a step; ranks on one machine's only card are not more than one to NCCL."""
    (curve,) = predict([step])
    if not isinstance(curve, Curve):
        raise SystemExit(f"{step}: {curve.because}")
    if step.world > 1:
        return curve.map_peaks(lambda peak: replace(peak, context=peak.context - NCCL_BYTES))
    return curve


def compared(name: str, card: dict[str, Any]) -> dict[str, Any]:
    """A setting's prediction and measurement in bytes, at the batch given or one that fits."""
    step = on(name, card)
    curve = predicted(step)
    batch = min(SETTINGS[name][1], curve.largest_batch(int(FULL * card["memory"])))
    if batch < 1:
        return {"failed": "a batch of 1 is predicted not to fit"}
    real = run(step, batch, card)
    peak = curve.at(batch)
    return {"batch": batch, "predicted": as_plain(peak), **real}


def as_plain(peak: Peak) -> dict[str, int]:
    """A peak's parts and sums."""
    return {**as_dict(peak), **{name: getattr(peak, name) for name in MEASURED}}


def run(step: TrainingStep, batch: int, card: dict[str, Any], limit: int = 0) -> dict[str, Any]:
    """Three steps in another process: what it measured, or how it failed."""
    arguments = {"plain": step.to_json(), "batch": batch, "device": card["device"], "limit": limit}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, "--one", json.dumps(arguments)],
        env=os.environ | ({} if card["device"] == "cuda" else {"CUDA_VISIBLE_DEVICES": ""}),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        return {"failed": last, "out_of_memory": "OutOfMemoryError" in done.stderr}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measured(plain: dict[str, Any], batch: int, device: str, limit: int) -> dict[str, Any]:
    """What three steps take in this process, and which attention a fourth one uses."""
    import torch
    from memory_step import first_trained, real, train  # type: ignore[import-not-found]

    step = TrainingStep.from_json(plain)
    if limit and device == "cuda":
        whole = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(limit / whole)
    model, optimizer = real(step, device)
    scaler = torch.amp.GradScaler(device, enabled=step.precision == "fp16")
    with in_group(step.world > 1, device):
        if step.world > 1:
            wrapped = torch.nn.parallel.DistributedDataParallel
            model = wrapped(model, find_unused_parameters=True)
        if not step.training:
            train(model, optimizer, first_trained(step), 1, device, scaler)
        for _ in range(3):
            train(model, optimizer, step, batch, device, scaler)
        found: dict[str, Any] = {**peaks(device)}
        with torch.profiler.profile() as records:
            train(model, optimizer, step, batch, device, scaler)
    names = {event.key for event in records.key_averages()}
    attention = r"scaled_dot_product_\w+|flash\w*|fmha\w*|cudnn\w*sdpa\w*"
    found["attention"] = sorted({m for n in names for m in re.findall(attention, n)})
    return found


def peaks(device: str) -> dict[str, int | None]:
    """Bytes at most, as torch and the driver count them; 0 on the CPU."""
    import torch

    if device == "cpu":
        return dict.fromkeys(MEASURED, 0)
    torch.cuda.synchronize()
    return {
        "allocated": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.max_memory_reserved(),
        "total": used_by_this_process(),
    }


def used_by_this_process() -> int | None:
    """What NVML says; in a container, which hides process ids, all that the card has in use."""
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    mine = [one.usedGpuMemory for one in processes if one.pid == os.getpid()]
    if mine and mine[0]:
        return int(mine[0])
    return int(pynvml.nvmlDeviceGetMemoryInfo(handle).used) if len(processes) < 2 else None


@contextlib.contextmanager
def in_group(wanted: bool, device: str) -> Any:
    """A process group of one, as DDP needs it."""
    import torch.distributed as dist

    if not wanted:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="ddpfix-benchmark-") as folder:
        backend = "nccl" if device == "cuda" else "gloo"
        dist.init_process_group(backend, f"file://{folder}/store", rank=0, world_size=1)
        try:
            yield
        finally:
            dist.destroy_process_group()


def search(name: str, card: dict[str, Any]) -> dict[str, Any]:
    """Whether the largest batch that is predicted to fit does, and one a tenth larger does not."""
    step = on(name, card)
    curve = predicted(step)
    context = curve.at(1).context
    limit = min(LIMIT, card["memory"] - context) if card["device"] == "cuda" else GIB >> 4
    batch = curve.largest_batch(limit + context)
    more = max(batch + 1, -(-batch * 11 // 10))
    fits, larger = (run(step, size, card, limit) for size in (batch, more))
    return {
        "limit": limit,
        "batch": batch,
        "runs": "failed" not in fits,
        "larger": more,
        "larger_runs": "failed" not in larger,
    }


def right(searched: dict[str, Any]) -> bool:
    """Whether every search found the largest batch within a tenth."""
    return all(one["runs"] and not one["larger_runs"] for one in searched.values())


def errors_of(one: dict[str, Any]) -> dict[str, float]:
    """Relative errors, above 0 where too much is predicted; none where nothing was measured."""
    return {name: one["predicted"][name] / one[name] - 1 for name in MEASURED if one.get(name)}


def summary(found: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Mean and worst of the errors of what is allocated and reserved, and the most below."""
    errors = [
        error for one in found.values() for name, error in errors_of(one).items() if name != "total"
    ] or [0.0]
    return {
        "mean": statistics.fmean(map(abs, errors)),
        "worst": max(map(abs, errors)),
        "most_below": -min(0.0, *errors),
    }


def show(name: str, one: dict[str, Any]) -> None:
    """A line for a setting: GiB predicted, and the errors."""
    if "failed" in one:
        print(f"{name:36} failed: {one['failed']}", flush=True)
        return
    peak = one["predicted"]
    text = f"{name:36} {one['batch']:4}"
    for size in MEASURED:
        text += f" {peak[size] / GIB:8.2f}"
        if one.get(size):
            text += f" ({100 * (peak[size] / one[size] - 1):+5.1f} %)"
    print(text, *one["attention"], flush=True)


def write(card: dict[str, Any], content: dict[str, Any]) -> None:
    """Results with the card's name, torch's version and the date, beside an earlier run's."""
    RESULTS.mkdir(exist_ok=True)
    name = re.sub(r"[^A-Za-z0-9]+", "-", card["name"]).strip("-")
    path = RESULTS / f"memory_gpu-{name}.json"
    if path.exists():
        earlier = json.loads(path.read_text(encoding="utf-8"))
        for part in ("settings", "search"):
            content[part] = {**earlier[part], **content[part]}
        content["errors"] = summary(content["settings"])
    path.write_text(json.dumps({"card": card, **content}, indent=2) + "\n", encoding="utf-8")
    print(f"written: {path}")


if __name__ == "__main__":
    main()
