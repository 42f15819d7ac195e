"""The command of a training in a shell file, as ``ddpfix recipes new --from`` reads it."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import run
from ddpfix.recipes.parse import parse

# What CUDA_VISIBLE_DEVICES is -> the global batch of a batch of 12, and at most per device.
VISIBLE = [
    ("two cards", "0,1", (12, 6)),
    ("one card", "3", (12, 12)),
    ("no card is read as one process", "''", (12, 12)),
    ("a comma too much counts for nothing", "0,1,2,", (12, 4)),
]


@pytest.mark.parametrize(
    ("cards", "sizes"), [pytest.param(c, s, id=name) for name, c, s in VISIBLE]
)
def test_a_batch_of_one_process_is_shared_by_the_cards_it_sees(
    cards: str, sizes: tuple[int, int], tmp_path: Path
) -> None:
    shell = tmp_path / "run.sh"
    shell.write_text(f"CUDA_VISIBLE_DEVICES={cards} python run.py --do_train --train_batch_size 12")
    done = run("recipes", "new", "--from", shell)
    assert done.exit_code == 0, done.stderr
    batch = parse(done.stdout, source="new.toml", name="new").batch
    assert (batch.global_batch, batch.per_device_cap) == sizes
