"""What a rank holds of a model that FSDP2 has sharded, in bytes, from the shapes of its weights.

torch.distributed.fsdp.fully_shard, as the code of torch 2.6 to 2.13 has it (in
torch/distributed/fsdp/_fully_shard, or in _composable/fsdp before):

- FSDPParam._init_sharded_param splits each weight along its first dimension, as torch.chunk does,
  and pads every rank's part to ceil(rows / ranks) rows. Gradients and optimizer states have the
  shape of these parts.
- foreach_all_gather gathers all parts of a block into one buffer, padding included;
  foreach_all_gather_copy_out copies it into the weights, whose memory is padded as well. In forward
  and backward the buffer of the next block is there while one block computes.
- The root group, all that is outside of the blocks, is gathered once and kept until its backward
  pass is over (fully_shard: reshard_after_forward is not for the root).
- foreach_reduce copies the gradients of a block into one padded buffer, and then releases them.
- Without gradient synchronization all gradients stay whole until the last micro-batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...record import record


@record
class Weight:
    """A weight of so many rows, each of `row` bytes; one without dimensions has one row."""

    rows: int
    row: int
    trained: bool = True

    @property
    def size(self) -> int:
        """The bytes of the whole."""
        return self.rows * self.row

    def shard(self, ranks: int) -> int:
        """The bytes of a rank's part, padded."""
        return math.ceil(self.rows / ranks) * self.row


@record
class ShardedStates:
    """Bytes on a rank of a sharded model, by what they are for.

    `parameters`, `gradients` and `optimizer` are what is there between two steps (the gradients
    until they are zeroed). During a step come on top: `root` and `root_gradients`, `block`, the
    weights of the largest block as it computes, `next_block`, the buffer of the one gathered ahead,
    `block_gradients`, the gradients of a block, and `scattered`, their copy to be reduced.
    `unreduced` are the gradients that accumulation keeps whole.
    """

    parameters: int
    gradients: int
    optimizer: int
    root: int
    root_gradients: int
    block: int
    next_block: int
    block_gradients: int
    scattered: int
    unreduced: int


def sharded_states(
    root: Sequence[Weight],
    blocks: Sequence[Sequence[Weight]],
    ranks: int,
    *,
    moments: int = 2,
    accumulates: bool = False,
) -> ShardedStates:
    """Add up what each rank holds; `moments` are the optimizer's numbers per trained weight."""
    weights = [*root, *(weight for block in blocks for weight in block)]
    gathered = [_gathered(block, ranks) for block in blocks]
    largest = max(gathered, default=0)
    trained = [_trained(block) for block in blocks]
    sizes = [sum(weight.size for weight in block) for block in trained]
    gradients = sum(weight.shard(ranks) for weight in _trained(weights))
    return ShardedStates(
        parameters=sum(weight.shard(ranks) for weight in weights),
        gradients=gradients,
        optimizer=moments * gradients,
        root=_gathered(root, ranks),
        root_gradients=sum(weight.size for weight in _trained(root)),
        block=largest,
        next_block=largest if len(blocks) > 1 else 0,
        block_gradients=max(sizes, default=0),
        scattered=max((_gathered(group, ranks) for group in (_trained(root), *trained)), default=0),
        unreduced=sum(weight.size for weight in _trained(weights)) if accumulates else 0,
    )


def _gathered(group: Sequence[Weight], ranks: int) -> int:
    """The bytes of a group's weights on one rank, padding included."""
    return ranks * sum(weight.shard(ranks) for weight in group)


def _trained(group: Sequence[Weight]) -> list[Weight]:
    return [weight for weight in group if weight.trained]
