"""DF604: a checkpoint of a settings object, which one function saves and another one reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from ddpfix.patcher.engine.patch import patch

SCRIPT = """\
import torch
from torch.utils.data import DataLoader


class Config:
    def __init__(self):
        self.save_path = "best.pt"


def train(config, model, data):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(2):
        for batch in DataLoader(data):
            model(batch).mean().backward()
            optimizer.step()
        torch.save(model.state_dict(), config.save_path)
    {call}


def test({parameter}, model):
    model.load_state_dict(torch.load({parameter}.save_path))


train(Config(), torch.nn.Linear(2, 1), [torch.ones(2)])
"""
WAIT = """\
    if torch.distributed.is_initialized():
        torch.distributed.barrier()  # rank 0 may still be writing
    {call}
"""


@pytest.mark.parametrize(
    ("parameter", "call", "waits"),
    [
        ("config", "test(config, model)", True),
        ("settings", "test(settings=config, model=model)", True),
        ("config", "test(Config(), model)", False),
    ],
    ids=["one name", "another name", "another object"],
)
def test_ranks_wait_for_rank_0(tmp_path: Path, parameter: str, call: str, waits: bool) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(parameter=parameter, call=call))
    result = patch(script)
    assert result.refusal == ""
    assert (WAIT.format(call=call) in result.changes[0].text) is waits
