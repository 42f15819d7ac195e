"""Write down in which precision a script's layers compute, its losses stand and its weights step.

SCALED_TO_NOTHING=1 makes rank 0's third scaled loss infinite, so that its gradients overflow.
"""

import atexit
import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook

seen: dict[str, set[str]] = defaultdict(set)
scales: list[float] = []
backward: Any = torch.Tensor.backward
scale: Any = torch.amp.GradScaler.scale


def forwarded(layer: torch.nn.Module, inputs: object, output: Any) -> None:
    if isinstance(layer, torch.nn.Linear) or type(layer).__name__ == "Conv1D":
        seen["training" if torch.is_grad_enabled() else "evaluation"].add(str(output.dtype))


def backwarded(self: torch.Tensor, *args: Any, **kwargs: Any) -> None:
    seen["loss"].add(str(self.dtype))
    backward(self, *args, **kwargs)


def stepping(optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
    for group in optimizer.param_groups:
        for weight in group["params"]:
            seen["weights"].add(str(weight.dtype))
            if weight.grad is not None:
                seen["gradients"].add(str(weight.grad.dtype))


def scaled(self: Any, outputs: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = scale(self, outputs)
    scales.append(self.get_scale())
    spoilt = os.environ.get("SCALED_TO_NOTHING") and os.environ.get("RANK", "0") == "0"
    return found * float("inf") if spoilt and len(scales) == 3 else found


def write() -> None:
    found = {name: sorted(kinds) for name, kinds in seen.items()} | {"scales": scales}
    Path(os.environ["SEEN"]).write_text(json.dumps(found))


register_module_forward_hook(forwarded)
register_optimizer_step_pre_hook(stepping)
torch.Tensor.backward = backwarded  # type: ignore[method-assign]
torch.amp.GradScaler.scale = scaled  # type: ignore[assignment, method-assign]
atexit.register(write)
