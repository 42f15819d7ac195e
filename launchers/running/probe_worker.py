"""Run a training script for some optimizer steps and time them, in every rank of a probe.

``python -m ddpfix.launchers.running.probe_worker --out DIR --steps N SCRIPT ARGS…`` ends the
process after one step to warm up and N more. It writes ``DIR/rank{RANK}.json``: the seconds from
each step to the next, after synchronizing with the card, the peak of bytes that torch's allocator
reserved there, and on the CPU the main memory that the second step needs, which is not timed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ..trace.main_module import run_as_main
from ..trace.step_hooks import register_step_hooks
from .main_memory import StepMemory, most_resident

RECORDED = 2
"""The step whose memory is recorded, where there are others to time."""


def main(argv: Sequence[str]) -> None:
    """Time one script. Its process ends here if it takes enough steps."""
    parser = argparse.ArgumentParser(
        prog="python -m ddpfix.launchers.running.probe_worker", allow_abbrev=False
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args(argv)
    time_steps(options.out, options.steps)
    sys.argv = [options.script, *options.arguments]
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = str(Path(options.script).resolve().parent)
    run_as_main(options.script)


def time_steps(folder: Path, steps: int) -> None:
    """Time the first optimizer that steps, and end the process with the last of `steps` steps."""
    import torch

    first: list[torch.optim.Optimizer] = []
    times: list[float] = []
    on_card = torch.cuda.is_available()
    memory = StepMemory(torch)

    def after_step(optimizer: torch.optim.Optimizer, *_: object) -> None:
        first[:] = first or [optimizer]
        if optimizer is not first[0]:
            return
        if on_card:
            torch.cuda.synchronize()
        times.append(time.perf_counter())
        if len(times) == RECORDED:
            memory.stop()
        if len(times) > steps:
            _write(folder, times, torch.cuda.max_memory_reserved() if on_card else None, memory)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)  # whatever the script would still do or save at its end
        if len(times) == RECORDED - 1 and steps > 1 and not on_card:
            memory.start()

    register_step_hooks(torch, lambda *_: None, after_step)


def _write(folder: Path, times: Sequence[float], reserved: int | None, memory: StepMemory) -> None:
    seconds = [after - before for before, after in zip(times, times[1:])]
    if memory.most:
        del seconds[RECORDED - 2]  # records take time
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"rank{os.environ.get('RANK', '0')}.json"
    found = {
        "seconds": seconds,
        "reserved": reserved,
        "main_memory": memory.most or most_resident(),
    }
    path.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
