"""DF301, DF303: steps that go back twice through one forward pass, of scripts with DataParallel."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import found
from ddpfix.patcher.engine.patch import patch
from forked import Forge
from started_ranks import results

SCRIPT = """\
import json
import os
import sys

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

torch.manual_seed(0)
data = [(torch.rand(4), index % 2, index % 3) for index in range(24)]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 8)
        self.heads = torch.nn.ModuleList([torch.nn.Linear(8, 2), torch.nn.Linear(8, 3)])

    def forward(self, x):
        x = torch.tanh(self.body(x))
        return self.heads[0](x), self.heads[1](x)


model = torch.nn.DataParallel(Net())
optimizer = torch.optim.SGD(model.module.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=int(sys.argv[1]), shuffle=False)
for epoch in range(2):
    for x, y, z in loader:
        first, second = model(x)
        optimizer.zero_grad()
        {steps}
weights = [parameter.sum().item() for parameter in model.module.parameters()]
with open(sys.argv[2] + os.environ.get("RANK", ""), "w") as file:
    json.dump(weights, file)
"""
ONE, TWO = "F.cross_entropy(first, y)", "F.cross_entropy(second, z)"
STEP = "optimizer.step()"


def script(*steps: str) -> str:
    return SCRIPT.replace("{steps}", "\n        ".join(steps))


AGAIN = {
    "a step for each": (f"{ONE}.backward(retain_graph=True)", STEP, "optimizer.zero_grad()",
                        f"{TWO}.backward()", STEP),
    "one step for both": (f"{ONE}.backward(retain_graph=True)", f"{TWO}.backward()", STEP),
    "a loop": (f"for loss in ({ONE}, {TWO}):\n            loss.backward(retain_graph=True)", STEP),
}  # fmt: skip


@pytest.mark.parametrize("steps", AGAIN.values(), ids=AGAIN)
def test_gradients_are_averaged_by_hand(steps: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(script(*steps))
    result = patch(path)
    assert result.refusal == ""
    (change,) = result.changes
    assert "DistributedDataParallel(" not in change.text
    assert change.text.count("        average_gradients(optimizer)\n") == steps.count(STEP)


ONCE = {
    "one backward pass": (f"({ONE} + {TWO}).backward(retain_graph=True)", STEP),
    "either of two": ("if args.first:", f"    {ONE}.backward(retain_graph=True)", "else:",
                      f"    {TWO}.backward()", STEP),
    "a graph that is not kept": (f"{ONE}.backward(retain_graph=False)", f"{TWO}.backward()", STEP),
}  # fmt: skip


@pytest.mark.parametrize("steps", ONCE.values(), ids=ONCE)
def test_one_backward_pass_gets_the_wrapper(steps: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(script(*steps))
    (change,) = patch(path).changes
    assert "DistributedDataParallel(" in change.text
    assert "average_gradients" not in change.text


def test_what_ranks_cannot_average_is_told() -> None:
    text = script(*AGAIN["one step for both"]).replace(STEP, "optimizer.step(lambda: loss)")
    text = "import torch\ntorch.distributed.init_process_group('gloo')\n" + text
    (finding,) = found("DF301", text)
    assert "does not average, and " in finding.because
    assert finding.because.endswith(": add the losses, and go back once")
    assert not finding.edits


def test_ranks_end_with_the_weights_of_one_process(tmp_path: Path, forge: Forge) -> None:
    original, script_of_ranks = tmp_path / "one.py", tmp_path / "train.py"
    original.write_text(script(*AGAIN["a step for each"]))
    script_of_ranks.write_text(original.read_text())
    patch(script_of_ranks).write()
    alone, ranks = results(forge, original, script_of_ranks, 8)
    assert ranks[0] == ranks[1]
    assert ranks[0] == pytest.approx(alone, rel=1e-4)


@pytest.mark.parametrize(
    "made",
    [
        "model = torch.nn.DataParallel(Net())\n    return model",
        "return torch.nn.DataParallel(Net())",
    ],
)
def test_the_model_may_be_wrapped_in_another_module_than_it_is_stepped(
    made: str, tmp_path: Path
) -> None:
    text = script(*AGAIN["one step for both"])
    head, rest = text.split("class Net", 1)
    net, train = rest.split("model = torch.nn.DataParallel(Net())\n")
    nets = f"import torch\n\n\nclass Net{net}def make():\n    {made}\n"
    (tmp_path / "nets.py").write_text(nets)
    path = tmp_path / "train.py"
    path.write_text(f"{head}from nets import make\nmodel = make()\n{train}")
    result = patch(path)
    assert result.refusal == ""
    texts = {Path(each.source.name).name: each.text for each in result.changes}
    assert "average_gradients(optimizer)" in texts["train.py"]
    assert "[torch.cuda.current_device()] if" in texts["nets.py"]
