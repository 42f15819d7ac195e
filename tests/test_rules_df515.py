"""DF515: Ranks decide by an evaluation that draws."""

from __future__ import annotations

import pytest
from cases import fixed, found
from ddpfix.patcher.findings import Severity

SCRIPT = """
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, DistributedSampler

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self.weight = torch.nn.Parameter(torch.randn(2))

    def forward(self, x):
        return self.layer({noise})

    def noisy(self, x):
        return x + torch.randn_like(x)

def evaluate(net, loader):
    net.eval()
    total = 0
    with torch.no_grad():
        for batch in loader:
            total += net(batch).mean().item()
    return {result}

def main(data):
    torch.manual_seed({seed})
    torch.distributed.init_process_group("gloo")
    net = torch.nn.parallel.DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    loader = DataLoader(data, sampler=DistributedSampler(data))
    for epoch in range(9):
        net.train()
        for batch in loader:
            optimizer.zero_grad()
            net(batch).mean().backward()
            optimizer.step()
        score = {call}
        {decision}

main(things())
"""
PARTS = {
    "noise": "x + torch.randn_like(x)",
    "result": "total",
    "seed": "torch.distributed.get_rank()",
    "call": "evaluate(net.module, DataLoader(data))",
    "decision": "schedule.step(score)",
}
OF_RANK_0 = {"call": f"what_rank_0_has({PARTS['call']})"}


def script(**parts: str) -> str:
    return SCRIPT.format(**{**PARTS, **parts})


# A sentence, and a script that comes close and is right.
NOOP: list[tuple[str, str]] = [
    ("nothing is drawn but weights", script(noise="x")),
    ("noise in training alone", script(noise="x + torch.randn_like(x) if self.training else x")),
    ("a method for training alone", script(noise="self.noisy(x) if self.training else x")),
    ("nothing hangs on the score", script(decision="print(score)")),
    ("rank 0 alone saves by it", script(decision="if score > best and "
        "torch.distributed.get_rank() == 0:\n            torch.save(net.module, 'best.pt')")),
    ("ranks draw alike", script(seed="1")),
    ("ranks join their scores", script(result="mean_of_ranks(total)")),
    ("each takes rank 0's already", script(**OF_RANK_0)),
    ("or the mean", script(call="mean_of_ranks(evaluate(net.module, DataLoader(data)))")),
    ("dropout that knows the mode", script(noise="F.dropout(x, 0.1, self.training)")),
]  # fmt: skip

# A sentence, and the parts of a script that is wrong.
FIX: list[tuple[str, dict[str, str]]] = [
    ("a schedule steps by it", {}),
    ("the training is left by it", {"decision": "if score > 1:\n            break"}),
    ("a method draws", {"noise": "self.noisy(x)"}),
    ("dropout in both modes", {"noise": "F.dropout(x, 0.1)"}),
    ("a distribution", {"noise": "torch.distributions.Normal(x, 1).rsample()"}),
]


def test_both_tables_are_filled() -> None:
    assert NOOP, "write down a script that DF515 leaves alone"
    assert FIX, "write down a script that DF515 finds something in, and what patch makes of it"


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in NOOP])
def test_left_alone(text: str) -> None:
    assert [finding.because for finding in found("DF515", text)] == []


@pytest.mark.parametrize("parts", [pytest.param(parts, id=name) for name, parts in FIX])
def test_found_and_repaired(parts: dict[str, str]) -> None:
    before = script(**parts)
    after = fixed("DF515", before)
    assert after.endswith(script(**parts, **OF_RANK_0)[before.index("def main") :])
    assert "\ndef what_rank_0_has(value):" in after
    assert found("DF515", after) == []


DATA = """
import random
class Rows:
    def __init__(self, split):
        self.split = split
    def __getitem__(self, index):
        {item}
    def other(self):
        return random.randint(1, 9)
{begin}main(Rows("valid"))
"""


@pytest.mark.parametrize(
    ("item", "is_told"),
    [
        ("return random.random()", True),
        ("return self.other() if self.split != 'train' else index", True),
        ("return random.random() if self.split == 'train' else index", False),
        ("if not self.training:\n            return index\n        return self.other()", False),
        ("return index", False),
    ],
)
def test_a_data_set_draws_for_its_examples(item: str, is_told: bool) -> None:
    text = script(seed="1", noise="x").replace("def main(data)", "def main(data: Rows)")
    text = text.replace("main(things())\n", DATA.format(item=item, begin=""))
    told = found("DF515", text)
    assert [each.because.startswith("random.") for each in told] == [True] * is_told
    assert bool(told and told[0].edits) is is_told


def test_an_evaluation_among_the_training_is_told() -> None:
    text = script(
        call="0",
        decision="net.eval()\n        for batch in DataLoader(data):\n            score += "
        "net.module(batch).mean().item()\n        if score > 1:\n            break",
    )
    (finding,) = found("DF515", text)
    assert (finding.severity, finding.edits) == (Severity.DEGRADED, ())
    assert finding.because.startswith("torch.randn_like() in line 12 draws in the evaluation in ")


def test_an_exit_by_something_else_hangs_on_no_evaluation() -> None:
    text = script(
        call="0",
        decision="net.eval()\n        for batch in DataLoader(data):\n            score += "
        "net.module(batch).mean().item()\n        if epoch > 5:\n            break",
    )
    assert found("DF515", text) == []


def test_ranks_that_are_made_to_draw_apart_are_told() -> None:
    text = script(seed="1").replace("    for epoch", "    draw_apart()\n    for epoch")
    assert found("DF515", text)


CROPS = "transforms.Compose([transforms.{crop}, transforms.ToTensor()])"


@pytest.mark.parametrize(
    ("crop", "seed", "is_told"),
    [
        ("RandomCrop(32)", PARTS["seed"], True),
        ("ColorJitter(0.4)", PARTS["seed"], True),
        ("CenterCrop(32)", PARTS["seed"], False),
        ("RandomCrop(32)", "1", False),
    ],
)
def test_a_transform_draws_for_the_examples_of_an_evaluation(
    crop: str, seed: str, is_told: bool
) -> None:
    call = "evaluate(net.module, DataLoader(Folder('valid', crops)))"
    text = script(noise="x", seed=seed, call=call)
    made = f"crops = {CROPS.format(crop=crop)}\n"
    told = found("DF515", text.replace("def main", f"{made}def main"))
    assert [each.because.split("(")[0] for each in told] == [
        f"transforms.{crop.split('(')[0]}"
    ] * is_told
