"""What a rank holds of a sharded model, predicted and measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from ddpfix.launchers.memory.sharded import Weight, sharded_states
from sharded_step import made
from torch import nn

STEP = Path(__file__).with_name("sharded_step.py")


def weights(*modules: nn.Module) -> list[Weight]:
    """The shapes of the weights, as plain numbers."""
    return [
        Weight(len(one), one[0].numel() * one.itemsize, one.requires_grad)
        for module in modules
        for one in module.parameters()
    ]


def test_a_real_step_on_two_ranks_holds_what_is_predicted(tmp_path: Path) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, STEP, str(rank), "2", tmp_path / "store"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    measured = json.loads("".join(rank.communicate(timeout=120)[0] for rank in ranks))
    assert [rank.returncode for rank in ranks] == [0, 0]
    first, *blocks, last = made().children()
    told = sharded_states(weights(first, last), [weights(block) for block in blocks], 2)
    assert {name: getattr(told, name) for name in measured} == measured


def test_each_rank_has_its_rows_padded_to_as_many_on_all() -> None:
    assert [Weight(10, 4).shard(ranks) for ranks in (1, 2, 3, 4, 16)] == [40, 20, 16, 12, 4]


def test_during_a_step_the_root_and_two_blocks_are_there_as_a_whole() -> None:
    root, block = [Weight(10, 4)], [Weight(7, 8), Weight(7, 8, trained=False)]
    told = sharded_states(root, [block, block], 2, accumulates=True)
    assert (told.root, told.root_gradients) == (40, 40)
    assert (told.block, told.next_block) == (2 * 2 * 32, 2 * 2 * 32)  # a row of padding each
    assert (told.block_gradients, told.scattered, told.unreduced) == (56, 64, 40 + 2 * 56)
    alone = sharded_states(root, [block], 2)
    assert (alone.next_block, alone.unreduced) == (0, 0)
