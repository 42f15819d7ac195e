"""Run a training by turns with others: python step_turns.py PIPE STEPS SCRIPT ARGS….

After every STEPS optimizer steps a rank sends what they took through the inherited PIPE, a number,
and waits until it is this training's turn again. So an evaluation at the end of an epoch belongs to
the next turn. A training that waits takes no time of the machine.
"""

from __future__ import annotations

import resource
import runpy
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook


class Turns:
    """Counts optimizer steps and speaks with the process that gives the turns."""

    def __init__(self, pipe: int, steps: int) -> None:
        self.steps, self.pipe = steps, Connection(pipe)
        self.begin()

    def begin(self) -> None:
        """Start the clocks of a turn."""
        self.processor, self.start = processor_seconds(), time.perf_counter()
        self.seconds: list[float] = []

    def stepped(self, *_: object) -> None:
        """Note when a step is done, the card waited for; at the end of a turn tell, and wait."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.seconds.append(time.perf_counter() - self.start)
        if len(self.seconds) == self.steps:
            most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10  # bytes, of Linux
            self.pipe.send((self.seconds, processor_seconds() - self.processor, most))
            self.pipe.recv()
            self.begin()


def processor_seconds() -> float:
    """Processor time of all threads, and of the loaders' processes that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


if __name__ == "__main__":
    pipe, steps, *sys.argv = sys.argv[1:]
    register_optimizer_step_post_hook(Turns(int(pipe), int(steps)).stepped)
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
