"""One rank of a real step of fully_shard on the CPU: prints as JSON what it holds, in bytes."""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import destroy_process_group, init_process_group
from torch.distributed.fsdp import fully_shard

WIDTH, LAYERS, TOKENS = 65, 3, 101  # none is a multiple of two


def made() -> nn.Module:
    """A model with an embedding, alike blocks and a head, one block's bias frozen."""
    torch.manual_seed(0)
    blocks = [
        nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        for _ in range(LAYERS)
    ]
    model = nn.Sequential(nn.Embedding(TOKENS, WIDTH), *blocks, nn.Linear(WIDTH, 3))
    for block in blocks:
        block[0].bias.requires_grad_(False)
    return model


def main(rank: int, ranks: int, store: str) -> None:
    """Train a step and measure storages; rank 0, whose parts are the fullest, prints."""
    init_process_group("gloo", f"file://{store}", rank=rank, world_size=ranks)
    model = made()
    blocks: list[Any] = [*model][1:-1]
    for block in [*blocks, model]:
        fully_shard(block)
    optimizer = torch.optim.AdamW(model.parameters())
    gathered: list[int] = []
    blocks[1][1].register_forward_hook(
        lambda *_: gathered.append(_bytes(weight.data for weight in blocks[1].parameters()))
    )
    model(torch.arange(TOKENS)).sum().backward()
    optimizer.step()
    states = [
        value for own in optimizer.state.values() for name, value in own.items() if name != "step"
    ]
    if rank == 0:
        trained = [one for one in model.parameters() if one.requires_grad]
        measured = {
            "parameters": _bytes(one.detach().to_local() for one in model.parameters()),
            "gradients": _bytes(one.grad.to_local() for one in trained),
            "optimizer": _bytes(one.to_local() for one in states),
            "block": gathered[0],
        }
        print(json.dumps(measured))
    destroy_process_group()


def _bytes(tensors: Any) -> int:
    """The bytes of the storages, each once."""
    found: dict[int, Tensor] = {one.untyped_storage().data_ptr(): one for one in tensors}
    return sum(one.untyped_storage().nbytes() for one in found.values())


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
