"""A program that ends up without a process group gets no gates that ask one for the rank."""

from __future__ import annotations

from pathlib import Path

import pytest
from ddpfix.patcher.analysis.training.load import read_program
from ddpfix.patcher.engine.check import check
from ddpfix.patcher.engine.patch import patch
from ddpfix.patcher.findings import Safety
from ddpfix.patcher.rules import all_rules

SCRIPT = """\
import argparse
import json

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
args = parser.parse_args()
{group}
data = torch.utils.data.DataLoader(torch.randn(8, 2), batch_size=2)
first, second = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
closure = None  # such a step is not shared among ranks
optimizers = [torch.optim.SGD(each.parameters(), 0.1) for each in (first, second)]
for batch in data:
    {model}.mean().backward()
    for optimizer in optimizers:
        optimizer.step(closure)
        optimizer.zero_grad()
with open("done.json", "w") as file:
    json.dump({{"batches": len(data)}}, file)
"""
GATE = "if is_main_process():\n+    with open("


def patched(folder: Path, group: str) -> tuple[str, list[str]]:
    """The diff of the patch, and what is said of files that every rank writes."""
    script = folder / "train.py"
    script.write_text(SCRIPT.format(group=group, model="second(first(batch))"))
    result = patch(script)
    assert not result.refusal
    return result.diff(), [each.because for each in result.findings_after if each.code == "DF602"]


def test_what_no_group_tells_apart_is_left_and_told(tmp_path: Path) -> None:
    diff, said = patched(tmp_path, "")
    assert "is_main_process" not in diff
    checked = check(read_program(str(tmp_path / "train.py")), all_rules())
    assert [each.safety for each in checked if each.code == "DF602"] == [Safety.REPORT]
    assert said == [
        "every rank writes it; the script makes no process group, so that each process takes"
        " itself for rank 0"
    ]


def test_a_checkpoint_of_ranks_without_a_group_stays_as_it_is(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    text = SCRIPT.format(group="", model="second(first(batch))")
    script.write_text(f"{text}torch.save(first.state_dict(), 'first.pt')\n")
    result = patch(script)
    assert "save_on_main" not in result.diff(), "all ranks would race for its partial file"
    (said,) = [each.because for each in result.findings_after if each.code == "DF601"]
    assert said.endswith("each process takes itself for rank 0")


@pytest.mark.parametrize(
    "group",
    [
        "from .setup import ranks\nranks()",
        "import accelerate as a\na.Accelerator()",
    ],
)
def test_a_group_that_another_makes_is_asked(group: str, tmp_path: Path) -> None:
    diff, said = patched(tmp_path, group)
    assert GATE in diff
    assert said == []


UNDER_HOROVOD = """\
import horovod.torch as hvd
import torch

hvd.init()
model = torch.nn.Linear(2, 2)
if hvd.rank() == 0:
    model = torch.nn.DataParallel(model).module
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1))
data = torch.utils.data.DataLoader(torch.randn(8, 2), batch_size=2)
for batch in data:
    model(batch).mean().backward()
    optimizer.step()
if isinstance(model, torch.nn.DataParallel):
    model = model.module
torch.save(model.state_dict(), "model.pt")
"""


def test_torch_is_not_asked_for_ranks_of_horovod(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(UNDER_HOROVOD)
    result = patch(script)
    assert not result.changes
    told = {finding.code for finding in result.findings_before}
    assert "DF601" in told
    assert not told & {"DF201", "DF305"}
