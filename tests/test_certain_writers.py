"""An error is what certainly happens: a checkpoint in a function that every rank calls."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_line import run

HEAD = """\
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for batch in batches:
    model(batch).backward()


"""
SAVE = 'torch.save(model.state_dict(), "model.pt")'
SCRIPTS = [
    pytest.param(f"def save(model):\n    {SAVE}\n\n\nsave(model)\n", "error", id="called"),
    pytest.param(
        f"def save(model):\n    {SAVE}\n\n\ndef main():\n    save(model)\n\n\nmain()\n",
        "error",
        id="called by what is called",
    ),
    pytest.param(
        f"class Trainer:\n    def save(self):\n        {SAVE}\n\n\n"
        "trainer = Trainer()\ntrainer.save()\n",
        "error",
        id="a method of a known object",
    ),
    pytest.param(
        f"def work(rank, model):\n    {SAVE}\n\n\ntorch.multiprocessing.spawn(work, (model,), 2)\n",
        "error",
        id="passed on to be called",
    ),
    pytest.param(f"def save(model):\n    {SAVE}\n", "warning", id="called by nothing that is read"),
    pytest.param(
        f"class Saver:\n    def save(self):\n        {SAVE}\n\n\nmade_elsewhere().save()\n",
        "warning",
        id="a method that may be this one",
    ),
    pytest.param(
        f"def save(model):\n    {SAVE}\n\n\ndef convert(model):\n    save(model)\n",
        "warning",
        id="called by what nothing calls",
    ),
]


@pytest.mark.parametrize(("script", "severity"), SCRIPTS)
def test_every_rank_writes_it_for_certain_only_where_it_is_called(
    tmp_path: Path, script: str, severity: str
) -> None:
    path = tmp_path / "train.py"
    path.write_text(HEAD + script)
    output = run("check", "--select", "DF601", "--output-format", "concise", path).stdout
    (told,) = re.findall(r"DF601 (\w+): ", output)
    assert told == severity


def test_a_loop_of_unknown_data_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        HEAD + "for _ in range(10):\n    loss = model(torch.rand(4)).sum()\n    loss.backward()\n"
        "    optimizer.step()\n"
    )
    output = run("check", "--select", "DF401", "--output-format", "concise", path).stdout
    assert set(re.findall(r"DF401 (\w+): ", output)) == {"warning"}
