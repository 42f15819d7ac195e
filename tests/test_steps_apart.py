"""Gradients are averaged by hand only where all ranks come to each step together."""

from __future__ import annotations

import pytest
from cases import found

SCRIPT = """\
import random
import torch
from torch.utils.data import DataLoader

class Pair:
    def __init__(self, net, critic, args):
        self.net, self.critic, self.args, self.made = net, critic, args, None
        self.steps = torch.optim.SGD(net.parameters(), 0.1)
        self.critic_steps = torch.optim.SGD(critic.parameters(), 0.1)

    def take(self, batch):
        self.made = self.net(batch)

    def loss(self):
        return self.critic(self.made).mean()

    def step(self, batch, number):
        self.take(batch)
        loss = self.loss()
        loss.backward()
        if {test}:
            self.steps.step()
        {behind}
        self.critic_steps.step()

def main(args):
    pair = Pair(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1), args)
    for epoch in range(3):
        for number, batch in enumerate(DataLoader(examples)):
            {before}
            pair.step(batch, number)

if __name__ == "__main__":
    main(parser.parse_args())
"""
EVALUATED = """total = 0
            for number, batch in enumerate({data}):
                total += batch.mean()
            if total > 2:
                pair.net.eval()"""
TOGETHER = {
    "by the number": {"test": "number % 5 == 0"},
    "by an option": {"test": "self.args.twice"},
    "by the epoch": {"before": "if epoch < 1:\n                continue"},
    "as often as its examples say": {
        "behind": "for part in range(len(self.made)):\n            self.loss().backward()"
    },
    "by what is printed": {"behind": "if loss.item() > 2:\n            print(loss)"},
    "by how many examples all have": {"before": "if len(batch) < 4:\n                continue"},
    "by the first dimension": {
        "before": "rows, _ = batch.shape\n            if rows < 4:\n                continue"
    },
    "by what size() gives first": {
        "before": "if batch.size()[0] < 4:\n                continue\n            "
        "batch, rows = Variable(batch.cuda()), len(batch)"
    },
    "by a score of other data that have the same name": {
        "before": "kept = batch.mean()\n            if number % 5 == 0:\n"
        "                total = 0\n"
        "                for number, batch in enumerate(DataLoader(others)):\n"
        "                    kept = measure(batch)\n                    total += kept\n"
        "                if total > 3:\n                    torch.save(total, 'best.pt')"
    },
    "by the score of other data, called batches as well": {
        "before": EVALUATED.format(data="held_out")
    },
    "by an error, which ends all ranks": {
        "behind": "if loss.isnan():\n            raise FloatingPointError"
    },
    "by a test around a loss": {"behind": "if loss > 1:\n            loss = self.loss() * 2"},
    "by a file that cannot be written": {
        "behind": "try:\n            torch.save(loss, 'loss.pt')\n        except OSError:\n"
        "            print('full')"
    },
    "by an error that ends the training": {
        "before": "if batch.isnan().any():\n                raise ValueError('no numbers')"
    },
    "by an iterator that ends": {
        "before": "try:\n                more = next(others)\n            except StopIteration:\n"
        "                others = iter(examples)"
    },
}
APART = {
    "by the loss": ({"test": "loss.item() > 0.1"}, "line 22, which hangs on the test in line 21"),
    "by the score of parts of the batch": (
        {"before": EVALUATED.format(data="batch.split(2)")}, "the test in line 33"
    ),
    "by an attribute": ({"test": "self.made.max() < 9"}, "the test in line 21"),
    "by the batch": (
        {"before": "if batch.isnan().any():\n                continue"}, "the test in line 30"
    ),
    "by a second pass": (
        {"behind": "if loss > 1:\n            self.loss().backward()"}, "the test in line 23"
    ),
    "by another dimension": (
        {"before": "_, width = batch.shape\n            if width < 4:\n                continue"},
        "the test in line 31",
    ),
    "by a score of other data, and of the batch": (
        {
            "before": "kept = batch.mean()\n            if number % 5 == 0:\n"
            "                total = 0\n                for batch in DataLoader(others):\n"
            "                    total += kept * measure(batch)\n"
            "                if total > 3:\n                    torch.save(total, 'best.pt')"
        },
        "the test in line 35",
    ),
    "by how much is computed": (
        {
            "before": "batch = batch[batch > 0]\n            if len(batch) < 4:\n"
            "                continue"
        },
        "the test in line 31",
    ),
    "by an error": (
        {"behind": "try:\n            self.loss().backward()\n        except ValueError: pass"},
        "may skip a step on one rank alone",
    ),
    "by an error that is taken up": (
        {"before": "if batch.isnan().any():\n                raise Skipped"}, "the test in line 30"
    ),
    "as often as the loss says": (
        {
            "behind": "rounds = 2 if loss.item() > 1 else 1\n"
            "        for _ in range(rounds):\n            self.loss().backward()"
        },
        "as often as their own batches say in line 24",
    ),
    "by chance": ({"test": "random.random() < 0.5"}, "line 21 draws by chance whether to step"),
}  # fmt: skip


def script(parts: dict[str, str]) -> str:
    return SCRIPT.format(**{"test": "True", "behind": "", "before": ""} | parts)


@pytest.mark.parametrize("parts", TOGETHER.values(), ids=TOGETHER)
def test_ranks_share_steps_that_all_of_them_take(parts: dict[str, str]) -> None:
    (finding,) = found("DF204", script(parts))
    assert finding.edits, finding.because


@pytest.mark.parametrize(("parts", "because"), APART.values(), ids=APART)
def test_ranks_do_not_share_steps_that_each_decides_on(parts: dict[str, str], because: str) -> None:
    (finding,) = found("DF204", script(parts))
    assert finding.because.endswith(because)
    assert not finding.edits


def test_all_ranks_pass_a_loss_or_none() -> None:
    text = (
        script({})
        .replace("        loss.backward()\n", "        self.back(loss)\n")
        .replace(
            "    def step(",
            "    def back(self, loss=None):\n        if loss is not None:\n"
            "            loss.backward()\n\n    def step(",
        )
    )
    (finding,) = found("DF204", text)
    assert finding.edits, finding.because
    asked = text.replace("loss=None", "loss")
    assert "would not all come to line" in found("DF204", asked)[0].because


def test_a_function_without_a_step_may_return_early() -> None:
    result = "return self.critic(self.made).mean()"
    early = f"if self.made.max() > 3:\n            return self.made.mean()\n        {result}"
    (finding,) = found("DF204", script({}).replace(result, early))
    assert finding.edits, finding.because
