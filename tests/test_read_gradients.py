"""DF204: gradients that an attack on weights reads are averaged before it, as before a step."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import fixed, found
from ddpfix.patcher.analysis.training.load import read_program
from ddpfix.patcher.fixes.read_gradients import read_between_passes

SCRIPT = """\
import torch
from torch.utils.data import DataLoader
class Attack:
    def move(self, model):
        for name, each in model.named_parameters():
            each.data.add_({read})
def look(model):
    print(model.head.weight.grad)
def adversarial(model, batch):
    Attack().move(model)
    model(batch).mean().backward()
def train(model, attack, args):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for batch in DataLoader(args.data):
        model(batch).mean().backward()
        {step}
        optimizer.step()
train(torch.nn.Linear(2, 2), {attack}, args)
"""
READ = "each.grad"
AGAIN = "model(batch).mean().backward()"
AVERAGE = "average_gradients(optimizer)"


def script(step: str, read: str = READ, attack: str = "Attack()") -> str:
    return SCRIPT.format(step=step, read=read, attack=attack)


def averaged(text: str) -> list[str]:
    """The lines before which gradients are averaged."""
    lines = [line.strip() for line in fixed("DF204", text).splitlines()]
    return [lines[i + 1] for i, line in enumerate(lines) if line == AVERAGE]


@pytest.mark.parametrize(
    ("step", "read", "before"),
    [
        (f"attack.move(model)\n        {AGAIN}", READ, ["attack.move(model)"]),
        (f"attack.move(model)\n        {AGAIN}", "each.grad.data", ["attack.move(model)"]),
        (f"if args.attack:\n            attack.move(model)\n            {AGAIN}", READ,
         ["attack.move(model)"]),
        (f"for each in model.parameters():\n            each.data += each.grad\n        {AGAIN}",
         READ, ["for each in model.parameters():"]),
        (f"norm = sum(x.grad.norm() for x in model.parameters())\n        {AGAIN}", READ,
         ["norm = sum(x.grad.norm() for x in model.parameters())"]),
        (f"for turn in range(3):\n            {AGAIN}\n            attack.move(model)", READ,
         ["attack.move(model)"]),
        (f"look(model)\n        {AGAIN}", READ, ["look(model)"]),
        (f"weights = list(model.parameters())\n        own = [x.grad.clone() for x in weights]\n"
         f"        {AGAIN}", READ, ["own = [x.grad.clone() for x in weights]"]),
        (f"attack.move(model)\n        {AGAIN}", "0.1", []),
        (f"batch.data += batch.grad\n        {AGAIN}", READ, []),  # an attack on the input
        (AGAIN, READ, []),
    ],
)  # fmt: skip
def test_gradients_are_averaged_before_they_are_read(
    step: str, read: str, before: list[str]
) -> None:
    assert averaged(script(step, read)) == [*before, "optimizer.step()"]


def test_an_attack_that_goes_back_itself_is_refused() -> None:
    (finding,) = found("DF204", script(f"adversarial(model, batch)\n        {AGAIN}"))
    assert finding.edits == ()
    assert "line 10 reads gradients between two backward passes" in finding.because


def test_an_attack_that_may_be_none_may_read_them() -> None:
    step = f"if attack is not None:\n            attack.move(model)\n        {AGAIN}"
    made = "{'fgm': Attack()}.get(args.attack)"
    assert averaged(script(step, attack=made)) == ["attack.move(model)", "optimizer.step()"]


def test_an_attack_of_another_folder_is_read(tmp_path: Path) -> None:
    text = script(f"attack.move(model)\n        {AGAIN}")
    attack = text[text.index("class Attack") : text.index("def look")]
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "attack.py").write_text(attack)
    path = tmp_path / "train.py"
    path.write_text(f"from tools.attack import Attack\n{text.replace(attack, '')}")
    program = read_program(str(path))
    (read,) = read_between_passes(program, program.train_loops)
    assert read[0].text(read[1]) == "attack.move(model)"


ACCUMULATING = """
import torch
from torch.utils.data import DataLoader
class Attack:
    def __init__(self, model):
        self.model = model
    def move(self):
        for name, each in self.model.named_parameters():
            each.data.add_(each.grad)
    def train(self, batch):
        self.move()
        self.model(batch).mean().backward()
def train(model, args):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model = torch.nn.parallel.DistributedDataParallel(model)
    attack = Attack(model)
    loader = DataLoader(args.data)
    for step, batch in enumerate(loader):
        last_micro_step = (step + 1) % args.accumulation == 0 or step + 1 == len(loader)
        model(batch).mean().backward()
        {attacks}
        if last_micro_step:
            optimizer.step()
            optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("attacks", "told"),
    [
        ("pass", ["an all-reduce per micro-batch"]),
        ("attack.move()", ["an all-reduce per micro-batch"]),
        ("attack.train(batch)", []),
        ("attack.move()\n        model(batch).mean().backward()", []),
    ],
)
def test_micro_batches_are_averaged_each_for_an_attack(attacks: str, told: list[str]) -> None:
    text = ACCUMULATING.format(attacks=attacks)
    reasons = [each.because for each in found("DF703", text)]
    assert [each for each in reasons if "no loss" not in each] == told
