"""Write down what a script has compiled, what of it had to be compiled again, and what is trained.

In a process group graphs are traced, cut for DDP and differentiated as ever, by a lone process
traced only; they then run as they are, for the C++ of one tiny model takes a minute to compile.
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
trained_in_step: list[int] = []  # tensors with a gradient
compiled: Any = torch.compile
step: Any = torch.optim.AdamW.step


def compile_without_code(model: object, mode: str) -> object:
    modes.append(mode)
    return compiled(model, backend="aot_eager" if "RANK" in os.environ else "eager")


def stepped(self: Any, *args: object, **kwargs: object) -> object:
    graphs_before_step.append(counters["stats"]["unique_graphs"])
    parameters = [each for group in self.param_groups for each in group["params"]]
    trained_in_step.append(sum(each.grad is not None for each in parameters))
    return step(self, *args, **kwargs)


def write() -> None:
    seen = {"modes": modes, "graphs": graphs_before_step, "trained": trained_in_step}
    Path(os.environ["SEEN"]).write_text(json.dumps(seen))


torch.compile = compile_without_code  # type: ignore[assignment]
torch.optim.AdamW.step = stepped  # type: ignore[method-assign]
atexit.register(write)
