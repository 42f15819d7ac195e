"""Write down what a script has compiled, and what of it had to be compiled again.

Graphs are traced, cut for DDP and differentiated as ever; they then run as they are, for the
C++ of one tiny model takes a minute to compile.
"""

import atexit
import json
import os
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.utils import counters

modes: list[str] = []
graphs_before_step: list[int] = []
compiled: Any = torch.compile
step: Any = torch.optim.AdamW.step


def compile_without_code(model: object, mode: str) -> object:
    modes.append(mode)
    return compiled(model, backend="aot_eager")


def stepped(self: object, *args: object, **kwargs: object) -> object:
    graphs_before_step.append(counters["stats"]["unique_graphs"])
    return step(self, *args, **kwargs)


def write() -> None:
    Path(os.environ["SEEN"]).write_text(json.dumps({"modes": modes, "graphs": graphs_before_step}))


torch.compile = compile_without_code  # type: ignore[assignment]
torch.optim.AdamW.step = stepped  # type: ignore[method-assign]
atexit.register(write)
