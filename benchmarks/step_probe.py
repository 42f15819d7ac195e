"""Run a training script and write down its steps: python step_probe.py OUT.json SCRIPT ARGS….

Seconds from each optimizer step to the next, the card waited for, and the peak of allocated bytes
on it (0 on a CPU). What is written holds for the steps made, however the script ends.
"""

from __future__ import annotations

import atexit
import itertools
import json
import runpy
import sys
import time
from pathlib import Path

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

out = Path(sys.argv[1])
times: list[float] = []
on_card = torch.cuda.is_available()


def stepped(*_: object) -> None:
    """Note the time at which the card has done a step."""
    if on_card:
        torch.cuda.synchronize()
    times.append(time.perf_counter())


def write() -> None:
    """Differences of the times, and the peak."""
    seconds = [after - before for before, after in itertools.pairwise(times)]
    peak = torch.cuda.max_memory_allocated() if on_card else 0
    if seconds:
        out.write_text(json.dumps({"seconds": seconds, "peak": peak}))


register_optimizer_step_post_hook(stepped)
atexit.register(write)
sys.argv = sys.argv[2:]
sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
runpy.run_path(sys.argv[0], run_name="__main__")
