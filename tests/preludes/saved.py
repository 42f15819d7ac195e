"""Count the bytes that forward passes save for backward passes."""

import atexit
import os
from pathlib import Path

import torch

saved = 0


def pack(tensor: torch.Tensor) -> torch.Tensor:
    global saved
    saved += tensor.nbytes
    return tensor


def write() -> None:
    Path(os.environ["SEEN"]).write_text(str(saved))


torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor).__enter__()
atexit.register(write)
