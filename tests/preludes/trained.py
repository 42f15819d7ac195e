"""Write down which parameters a script trains, what training did to each, and what it answers."""

import atexit
import json
import os
from pathlib import Path
from typing import Any

import torch

wrapped: list[tuple[torch.nn.Module, dict[str, torch.Tensor]]] = []
answers: list[list[list[float]]] = []  # by batch and example: the classes' probabilities
construct: Any = torch.nn.parallel.DistributedDataParallel.__init__


def constructed(self: object, module: torch.nn.Module, *args: object, **kwargs: object) -> None:
    construct(self, module, *args, **kwargs)
    before = {name: weight.detach().clone() for name, weight in module.named_parameters()}
    wrapped.append((module, before))


def answered(module: torch.nn.Module, given: object, output: Any) -> None:
    if type(module).__name__ == "Model" and not module.training:
        answers.append(output[1].tolist())


def write() -> None:
    seen: dict[str, Any] = {"answers": answers}
    for model, before in wrapped:
        seen["trainable"] = {n: p.numel() for n, p in model.named_parameters() if p.requires_grad}
        seen["frozen"] = {n: p.numel() for n, p in model.named_parameters() if not p.requires_grad}
        seen["changed"] = [
            name for name, p in model.named_parameters() if not torch.equal(p, before[name])
        ]
    Path(os.environ["SEEN"]).write_text(json.dumps(seen))


torch.nn.parallel.DistributedDataParallel.__init__ = constructed  # type: ignore[method-assign]
torch.nn.modules.module.register_module_forward_hook(answered)
atexit.register(write)
