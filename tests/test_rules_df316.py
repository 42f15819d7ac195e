"""DF316: Each rank copies or draws weights of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import fixed, found, written
from ddpfix.patcher.api import patch
from forked import Forge

SCRIPT = """\
import copy, os
import torch
from torch.utils.data import DataLoader

if 'LOCAL_RANK' in os.environ:
    torch.distributed.init_process_group('gloo')
{seed}
def reset(part):
    if isinstance(part, torch.nn.Linear):
        torch.nn.init.normal_(part.weight)
def scale(part):
    part.weight.data.mul_(0.5)
def anew(net):
    net.module.apply(reset)
class Average:
    def __init__(self, model):
        self.module = copy.deepcopy(model)
model = torch.nn.Linear(2, 1)
{copy}
{wrap}
optimizer = torch.optim.SGD(model.parameters(), 0.1)
{behind}
for epoch in range(2):
    for batch in DataLoader(data):
        model(batch).mean().backward()
        optimizer.step()
    {end}
"""
PARTS = {
    "seed": "",
    "copy": "teacher = copy.deepcopy(model)",
    "wrap": "model = torch.nn.parallel.DistributedDataParallel(model)",
    "behind": "",
    "end": "",
}


def script(**parts: str) -> str:
    return SCRIPT.format(**{**PARTS, **parts})


BY_HAND = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
{seed}
model = torch.nn.Linear(2, 1)
{begin}
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for batch in torch.utils.data.DataLoader(data):
    model(batch).mean().backward()
    for weight in model.parameters():
        dist.all_reduce(weight.{reduced})
        weight.grad /= dist.get_world_size()
    optimizer.step()
"""
BROADCAST = "for weight in model.parameters():\n    dist.broadcast(weight.data, 0)"
MEANT = "for weight in model.parameters():\n    dist.all_reduce(weight.data)\n    weight.data /= 2"


def by_hand(seed: str = "torch.manual_seed(rank)", begin: str = "", reduced: str = "grad") -> str:
    return BY_HAND.format(seed=seed, begin=begin, reduced=reduced)


@pytest.mark.parametrize("seed", ["torch.manual_seed(rank)", ""])
def test_gradients_averaged_by_hand_of_unequal_weights_are_reported(seed: str) -> None:
    (finding,) = found("DF316", by_hand(seed))
    assert "nothing broadcasts rank 0's" in finding.because
    assert finding.edits == ()


# A sentence, and a script that comes close and is right.
NOOP: list[tuple[str, str]] = [
    ("a seed", script(seed="torch.manual_seed(1)")),
    ("a seed in the guard", script(seed="if __name__ == '__main__':\n    torch.manual_seed(1)")),
    ("rank 0's numbers already", script().replace("'gloo')\n", "'gloo')\n    draw_alike()\n")),
    ("no copy", script(copy="")),
    ("a copy of what the wrapper has made equal", script(copy="", behind=PARTS["copy"])),
    ("a class that copies it behind the wrapper", script(copy="", behind="Average(model)")),
    ("the best weights so far, from the first on", script(
        copy="best = copy.deepcopy(model.state_dict())",
        end="best = copy.deepcopy(model.state_dict())")),
    ("a copy of another model", script(copy="teacher = copy.deepcopy(other)")),
    ("the best weights so far", script(copy="", end="best = copy.deepcopy(model)")),
    ("weights drawn before they are wrapped", script(copy="model.apply(reset)")),
    ("weights that are only scaled", script(copy="", behind="model.apply(scale)")),
    ("noise that a training draws", script(copy="", behind="fit(model)").replace(
        "class Average",
        "def fit(net):\n    noise.uniform_(-1, 1)\n    net(noise).sum().backward()\n"
        "class Average")),
    ("noise that an attack draws", script(copy="", behind="attack(model)").replace(
        "class Average", "def attack(net):\n    noise.uniform_(-1, 1)\n"
        "    torch.autograd.grad(net(noise).sum(), noise)\nclass Average")),
    ("a number that a function draws", script(copy="", behind="score(model)").replace(
        "class Average", "def score(net):\n    import random\n"
        "    return net(data * random.uniform(0.4, 0.6))\nclass Average")),
    ("another model", script(copy="", behind="other.apply(reset)")),
    ("gradients averaged by hand under one seed", by_hand("torch.manual_seed(1)")),
    ("gradients averaged by hand, and a seed that is the same in the end",
        by_hand("seed = 1\nseed += rank\nrandom.seed(seed)\ntorch.manual_seed(seed - rank)")),
    ("weights that rank 0 broadcasts", by_hand(begin=BROADCAST)),
    ("the mean of all ranks' weights", by_hand(begin=MEANT)),
    ("no gradients", by_hand(reduced="size")),
    ("a checkpoint", script(copy="model.load_state_dict(torch.load('model.pt'))")),
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in NOOP])
def test_left_alone(text: str) -> None:
    assert [finding.because for finding in found("DF316", text)] == []


@pytest.mark.parametrize(
    "copy",
    [
        PARTS["copy"],
        "first = copy.deepcopy(model.state_dict())",
        "teacher = torch.nn.Linear(2, 1)\nteacher.load_state_dict(model.state_dict())",
        "average = Average(model)",
        "for p, q in zip(model.parameters(), teacher.parameters()):\n    q.data.copy_(p.data)",
    ],
    ids=[
        "deepcopy",
        "a state to begin again with",
        "load_state_dict",
        "a class",
        "parameter by parameter",
    ],
)
@pytest.mark.parametrize("seed", ["", "random.seed(1)", "if args.seed:\n    torch.manual_seed(1)"])
def test_ranks_draw_rank_0s_weights(copy: str, seed: str) -> None:
    before = script(copy=copy, seed=seed)
    after = fixed("DF316", before)
    assert "init_process_group('gloo')\n    draw_alike()\n" in after
    assert found("DF316", after) == []


def test_where_ranks_are_the_scripts_own_it_is_told() -> None:
    text = script().replace("if 'LOCAL_RANK' in os.environ:", "if args.distributed:")
    (finding,) = found("DF316", text)
    assert finding.edits == ()


@pytest.mark.parametrize(
    "drawn", ["model.apply(reset)", "model.module.apply(reset)", "anew(model)"]
)
def test_ranks_get_the_weights_that_rank_0_draws_behind_the_wrapper(drawn: str) -> None:
    text = script(copy="", behind=drawn)
    after = fixed("DF316", text)
    assert f"{drawn}\nif torch.distributed.is_initialized():\n    for weight in model.para" in after
    assert found("DF316", after) == []


@pytest.mark.parametrize("inner", ["model.module", "getattr(model, 'module', model)"])
def test_so_do_those_of_what_is_in_it_by_another_name(inner: str) -> None:
    drawn = f"bare = {inner}\ntorch.nn.init.normal_(bare.head.weight)"
    after = fixed("DF316", script(copy="", behind=drawn))
    assert f"{drawn}\nif torch.distributed.is_initialized():\n    for weight in bare.para" in after
    assert found("DF316", after) == []


BEGUN_AGAIN = """\
import torch
from torch.utils.data import DataLoader
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train(net):
    for x, y in DataLoader(data, 4, shuffle=True):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
for epoch in range(9):
    if epoch == 3:
        {drawn}
    train(model)
"""


@pytest.mark.parametrize(
    ("drawn", "draws"),
    [
        ("model.head.reset_parameters()", True),
        ("model.head.weight.data.normal_(0, 0.1)", True),
        ("torch.nn.init.xavier_uniform_(model.head.weight)", True),
        ("model.head.weight.data.zero_()", False),
        ("other.head.reset_parameters()", False),
    ],
)
def test_so_do_they_where_a_part_begins_again(drawn: str, draws: bool, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(BEGUN_AGAIN.format(drawn=drawn))
    (change,) = patch(path).changes
    assert ("torch.distributed.broadcast(weight.data, 0)" in change.text) is draws


AVERAGE = """\
class Average:
    def step(self, ema, net):
        if self.number < 9:
            self.reset_parameters(ema, net)
    def reset_parameters(self, ema, net):
        {copies}
average, ema = Average(), Net()
"""


@pytest.mark.parametrize(
    ("copies", "draws"),
    [
        ("ema.load_state_dict(net.state_dict())", False),
        ("torch.nn.init.normal_(net.weight)", True),
    ],
)
def test_a_method_that_is_named_like_an_initializer_may_copy(
    copies: str, draws: bool, tmp_path: Path
) -> None:
    text = BEGUN_AGAIN.format(drawn="average.step(ema, model)")
    path = tmp_path / "train.py"
    path.write_text(text.replace("def train", AVERAGE.format(copies=copies) + "def train"))
    (change,) = patch(path).changes
    assert ("torch.distributed.broadcast(weight.data, 0)" in change.text) is draws


REDRAWN = """\
import json, os, sys
import torch
torch.distributed.init_process_group("gloo")
torch.seed()
def reset(part):
    torch.nn.init.normal_(part.weight)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
model.module.apply(reset)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in torch.ones(4, 2, 2):
    optimizer.zero_grad()
    model(batch).mean().backward()
    optimizer.step()
with open(f"{sys.argv[1]}.{os.environ['RANK']}", "w") as file:
    json.dump(model.module.weight.tolist(), file)
torch.distributed.destroy_process_group()
"""


@pytest.mark.parametrize("is_fixed", [False, True])
def test_ranks_that_draw_behind_the_wrapper_end_with_one_model(
    is_fixed: bool, forge: Forge, tmp_path: Path
) -> None:
    text = fixed("DF316", REDRAWN) if is_fixed else REDRAWN
    first, second = written(forge, tmp_path, "redrawn", text, 2)
    assert (first == second) is is_fixed


RUN = """\
import copy
import json
import os
import sys

import torch
from torch.utils.data import DataLoader

model = torch.nn.Linear(2, 1)
teacher = copy.deepcopy(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in DataLoader(torch.ones(8, 2), batch_size=2, shuffle=True):
    optimizer.zero_grad()
    model(batch).mean().backward()
    optimizer.step()
with open(f"{sys.argv[1]}.{os.environ.get('RANK', 0)}", "w") as file:
    json.dump(teacher.weight.tolist(), file)
"""


def test_all_ranks_have_one_teacher(forge: Forge, tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text(RUN)
    (change,) = patch(path).changes
    first, second = written(forge, tmp_path, "alike", change.text, 2)
    assert first == second
    apart = change.text.replace("    draw_alike()\n", "    torch.seed()\n")
    first, second = written(forge, tmp_path, "apart", apart, 2)
    assert first != second


@pytest.mark.parametrize(
    ("made", "seed", "is_told"),
    [
        ("torch.randn(2, 2)", "", True),
        ("torch.randn(2, 2).to(device) / 3", "", True),
        ("torch.randn(2, 2)", "torch.manual_seed(1)", False),
        ("torch.ones(2, 2)", "", False),
        ("torch.nn.Linear(int(torch.randint(1, 3, (1,))), 2)", "", False),
    ],
)
def test_what_all_losses_are_made_of_is_drawn_alike(made: str, seed: str, is_told: bool) -> None:
    text = script(copy=f"turn = {made}", seed=seed)
    text = text.replace("model(batch).mean().backward()", "model(batch @ turn).mean().backward()")
    assert bool(found("DF316", text)) is is_told
    assert ("    draw_alike()\n" in fixed("DF316", text)) is is_told


def test_a_tensor_that_no_loss_is_made_of_may_be_each_ranks_own() -> None:
    text = script(copy="seen = torch.randn(9, 2)", end="print(model(seen))")
    assert not found("DF316", text)
    own = script(copy="turn = torch.randn(2, 2)").replace(
        "for batch in DataLoader(data)", "for batch in [turn]"
    )
    assert not found("DF316", own)
