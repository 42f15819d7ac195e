"""Predicted against real peak memory of steps with FSDP2 on two ranks of the CPU, in bytes.

python benchmarks/memory_sharded.py prints JSON: each setting with its prediction and measurement,
of rank 0. A step ends with all weights gathered, as for an evaluation.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from ddpfix.launchers.memory.curves import trace_curve
from ddpfix.launchers.memory.networks import make_optimizer
from ddpfix.launchers.memory.peak import Curve
from ddpfix.launchers.memory.process_overhead import add_process_overhead
from ddpfix.launchers.memory.sharding import gathered_for_evaluation, shard
from ddpfix.launchers.memory.step import TrainingStep
from ddpfix.record import replace
from memory_cpu import BATCH, CASES, memory_events  # type: ignore[import-not-found]
from memory_step import forward, real  # type: ignore[import-not-found]
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.profiler import ProfilerActivity, profile

WORLD = 2
NAMES = ("a pair, RoBERTa", "bf16", "bf16, checkpointing, accumulated", "anchors", "GPT-2, LoRA")


def main() -> None:
    """Predict, then measure with a second process."""
    os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX2"
    warnings.simplefilter("ignore")
    steps = {name: replace(CASES[name], sharded=True, world=WORLD) for name in NAMES}
    found = {}
    for name, step in steps.items():
        curve = trace_curve(step, (BATCH,))
        if not isinstance(curve, Curve):
            raise SystemExit(f"{name}: not predicted: {curve.because}")
        found[name] = [add_process_overhead(curve, step).at(BATCH).total]
    with tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        rank = 0 if child else 1
        store = f"file://{Path(folder) / 'meeting'}"
        distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=WORLD)
        for name, step in steps.items():
            found[name].append(measured(step))
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
    print(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)


def measured(step: TrainingStep) -> int:
    """The most bytes that a real second step has at once, by torch's own records."""
    model, _ = real(step, "cpu")
    sharded: Any = shard(model, init_device_mesh("cpu", (WORLD,)))
    optimizer = make_optimizer(sharded, foreach=False)
    train(sharded, optimizer, step)
    tensors: list[Any] = [*sharded.parameters()]
    for state in optimizer.state.values():
        tensors += [tensor for name, tensor in state.items() if name != "step"]
    local = [*(tensor.to_local() for tensor in tensors), *sharded.buffers()]
    storages = {tensor.untyped_storage()._cdata: tensor.untyped_storage() for tensor in local}
    now = most = sum(storage.nbytes() for storage in storages.values())
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as records:
        train(sharded, optimizer, step)
        with gathered_for_evaluation(sharded):
            pass
    for event in sorted(memory_events(records), key=lambda event: event.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return int(most)


def train(model: Any, optimizer: torch.optim.Optimizer, step: TrainingStep) -> None:
    """One step, whose gradients are divided with the last micro-batch."""
    for left in reversed(range(1 + step.accumulates)):
        model.set_requires_gradient_sync(not left)
        loss = forward(model, step, BATCH, "cpu")
        torch.autograd.backward(loss)
        del loss
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


if __name__ == "__main__":
    main()
