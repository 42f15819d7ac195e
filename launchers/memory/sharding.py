"""Divide a network under fake tensors among ranks by FSDP2, without other ranks.

It is torch's own ``fully_shard`` that is traced, with a process group whose collectives do nothing
(torch.testing._internal.distributed.fake_pg). So a trace has what torch/distributed/fsdp/
_fully_shard does on every rank:

* weights, their gradients and the optimizer's states in parts: each weight is divided along its
  first dimension, into parts of ceil(rows / ranks) rows (FSDPParam._init_sharded_param);
* the gathered weights of a block while it computes, forward and again backward, and beside them the
  next block's, which backward gathers ahead (FSDPParamGroup._backward_prefetch); the weights
  outside of all blocks, as embeddings and heads, from their first use to the end of the backward
  pass, as the root is not resharded after its forward;
* the buffer that is gathered into, from which the weights are copied, and which in the forward pass
  lives until the next one is filled (foreach_all_gather, AllGatherState);
* the gradients of a block, their copy to be reduced, and one more in flight (foreach_reduce).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

LEAST_SHARE = 10
"""A list of layers is divided into blocks if it has at least a tenth of all weights."""


def sharding_blocks(model: nn.Module) -> list[nn.Module]:
    """The layers that are gathered one at a time, as ``ddpfix patch --with fsdp`` finds them.

    They are the members of lists of alike layers; weights used elsewhere too keep a layer out. Of
    the rest, parts whose weights are of another type are for themselves.
    """
    total = sum(weight.numel() for weight in model.parameters())
    blocks: list[nn.Module] = []
    inside: set[nn.Module] = set()
    for part in model.modules():
        members = [*dict.fromkeys(part.children())]
        alike = len(members) > 1 and len({type(member) for member in members}) == 1
        size = sum(weight.numel() for weight in part.parameters())
        is_list = isinstance(part, (nn.ModuleList, nn.Sequential))
        if part not in inside and is_list and alike and LEAST_SHARE * size >= total:
            blocks += members
            inside.update(part.modules())
    users: dict[Tensor, set[nn.Module]] = {}
    for part in model.modules():
        for weight in part._parameters.values():
            if weight is not None:
                users.setdefault(weight, set()).add(part)
    blocks = [
        block
        for block in blocks
        if all(users[weight] <= {*block.modules()} for weight in block.parameters())
    ]
    return [*blocks, *_of_other_types(model, blocks, users)]


def _of_other_types(
    model: nn.Module, blocks: Sequence[nn.Module], users: Mapping[Tensor, set[nn.Module]]
) -> Iterator[nn.Module]:
    """Parts outside of the blocks with trained weights of another type than the model's first."""
    types = [weight.dtype for weight in model.parameters() if weight.requires_grad]
    inside = {part for block in blocks for part in block.modules()}
    for part in model.modules():
        own = [weight for weight in part.parameters(recurse=False) if weight.requires_grad]
        is_other = any(weight.dtype != types[0] for weight in own) and part is not model
        if is_other and part not in inside and all(users[weight] == {part} for weight in own):
            yield part


@contextlib.contextmanager
def fake_ranks(world: int) -> Iterator[DeviceMesh]:
    """Be rank 0 of a process group of so many ranks of which no other exists."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    store: Any = FakeStore()
    distributed.init_process_group("fake", store=store, rank=0, world_size=world)
    try:
        yield init_device_mesh("cpu", (world,))
    finally:
        distributed.destroy_process_group()


def shard(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """Divide a model among the ranks of a mesh, block by block."""
    from torch.distributed.fsdp import fully_shard

    for block in [*sharding_blocks(model), model]:
        fully_shard(block, mesh=mesh)
    return model


class LocalParts:
    """One rank's parts of a sharded model's weights, as plain tensors for the optimizer.

    An optimizer does to the part that a rank has what it would do to the weight, and needs no
    collective for it.
    """

    def __init__(self, model: nn.Module) -> None:
        self._whole: dict[str, Any] = dict(model.named_parameters())
        self._parts = {
            name: nn.Parameter(weight.to_local().detach(), weight.requires_grad)
            for name, weight in self._whole.items()
        }

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The parts under the names of their weights."""
        yield from self._parts.items()

    def parameters(self) -> Iterator[nn.Parameter]:
        """The parts."""
        yield from self._parts.values()

    def take_gradients(self) -> None:
        """Move the gradients of the weights to the parts."""
        for name, weight in self._whole.items():
            if weight.grad is not None:
                self._parts[name].grad, weight.grad = weight.grad.to_local(), None


@contextlib.contextmanager
def gathered_for_evaluation(model: nn.Module) -> Iterator[None]:
    """Hold all weights, as the patched script does in eval mode, and then this rank's parts."""
    parts: list[Any] = [part for part in model.modules() if hasattr(part, "unshard")]
    with torch.no_grad():
        for part in parts:
            part.unshard()
        yield
        for part in parts:
            part.reshard()
