"""DF301: gradients that DistributedDataParallel does not see, of scripts with DataParallel."""

from __future__ import annotations

from pathlib import Path

from ddpfix.patcher.engine.patch import patch

SCRIPT = """\
import higher
import torch
from torch.func import functional_call
from torch.utils.data import DataLoader

data = [torch.rand(4) for _ in range(24)]
model = torch.nn.DataParallel(torch.nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inner = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x in DataLoader(data, batch_size=4, shuffle=True):
        {step}
        optimizer.step()
        optimizer.zero_grad()
"""
INNER_LOOP = """\
with higher.innerloop_ctx(model, inner, copy_initial_weights=False) as (fast, steps):
            steps.step(fast(x).mean())
            fast(x).square().mean().backward()"""
PASSED = """\
weights = {name: 2 * each for name, each in model.named_parameters()}
        functional_call(model, weights, (x,)).mean().backward()"""


def test_gradients_are_averaged_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT.replace("{step}", PASSED))
    result = patch(path)
    assert result.refusal == ""
    (change,) = result.changes
    assert "DistributedDataParallel(" not in change.text
    assert change.text.count("        average_gradients(optimizer)\n") == 1


def test_an_inner_loop_with_steps_of_its_own_is_told(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT.replace("{step}", INNER_LOOP))
    assert "trains a copy of the model" in patch(path).refusal


def test_the_model_itself_gets_the_wrapper(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT.replace("{step}", "model(x).mean().backward()"))
    (change,) = patch(path).changes
    assert "DistributedDataParallel(" in change.text


RETURNED = """\
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        self.log_scale = torch.nn.Parameter(torch.zeros(2))
    def forward(self, x):
        return self.layer(x), self.log_scale

"""


def test_a_parameter_that_is_returned_is_averaged_by_hand(tmp_path: Path) -> None:
    text = SCRIPT.replace("{step}", "y, s = model(x)\n        (y * s.exp()).mean().backward()")
    text = text.replace("torch.nn.Linear(4, 2))\n", "Net())\n")
    path = tmp_path / "train.py"
    path.write_text(text.replace("data = ", RETURNED + "data = "))
    (change,) = patch(path).changes
    assert "DistributedDataParallel(" not in change.text
    assert change.text.count("        average_gradients(optimizer)\n") == 1
