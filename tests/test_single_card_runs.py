"""Scripts for one card, patched: two ranks train as one process does at the same global batch."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import written
from ddpfix.patcher.engine.patch import patch
from forked import Forge

HEAD = """\
import json
import os
import sys
from multiprocessing import Pool

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

size = 8 // int(os.environ.get("WORLD_SIZE", 1))
torch.manual_seed(0)
x = torch.randn(32, 4)
data = TensorDataset(x, (x.sum(1, keepdim=True) > 0).float())
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
"""
TAIL = """
with open(f"{sys.argv[1]}.{os.environ.get('RANK', 0)}", "w") as file:
    json.dump([[round(float(v), 6) for v in p.flatten()] for p in net.parameters()], file)
"""
FLAT = """
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for epoch in range(2):
    for inputs, labels in DataLoader(data, batch_size=size):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(inputs.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
"""
SUMMED = FLAT.replace("lr=0.1", "lr=0.01").replace(
    "labels.to(device))", 'labels.to(device), reduction="sum")'
)
OPTIONS = FLAT.replace("batch_size=size", "**options").replace(
    "for epoch", 'options = {"batch_size": size}\noptions["shuffle"] = False\nfor epoch'
)
STEP = """

def train_step(model, batch, optimizer):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(batch[0].to(device)), batch[1].to(device))
    loss.backward()
    optimizer.step()
    return loss.item()


def train(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(2):
        for batch in DataLoader(data, batch_size=size):
            train_step(model, batch, optimizer)


net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).to(device)
train(net)
"""
CLASS = """

class Trainer:
    def __init__(self, model):
        self.model = model.to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)

    def loss_of(self, batch):
        inputs, labels = (part.to(device) for part in batch)
        return nn.functional.binary_cross_entropy_with_logits(self.model(inputs), labels)

    def fit(self, loader):
        for batch in loader:
            loss = self.loss_of(batch)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
            self.optimizer.step()
            self.score(loader)

    @torch.no_grad()
    def score(self, loader):
        self.model.eval()
        losses = [self.loss_of(batch) for batch in loader]
        self.model.train()
        return sum(losses)


net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8, momentum=0.0).eval(), nn.Linear(8, 1))
net[1].train = lambda mode=True: net[1]
Trainer(net).fit(DataLoader(data, batch_size=size))
"""
TWICE = """

def warm_up(model, optimizer):
    for inputs, labels in DataLoader(data, batch_size=size):
        optimizer.zero_grad()
        nn.functional.l1_loss(model(inputs.to(device)), labels.to(device)).backward()
        optimizer.step()


def train(model, optimizer):
    for inputs, labels in DataLoader(data, batch_size=size):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs.to(device)), labels.to(device)).backward()
        optimizer.step()


def train_as_before(model, optimizer, batches):
    for inputs, labels in batches:
        model(inputs.to(device)).mean().backward()
        optimizer.step()


net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).to(device)
adam = torch.optim.Adam(net.parameters(), lr=0.01)
with Pool(2) as pool:
    assert pool.map(len, ["ab", "c"]) == [2, 1]
warm_up(net, adam)
train(net, adam)
"""
SCRIPTS = {
    "flat": FLAT,
    "a sum": SUMMED,
    "options": OPTIONS,
    "a step": STEP,
    "a class": CLASS,
    "a wrapper that is handed on": STEP.replace("train(net)", "train(nn.DataParallel(net))"),
}
PHASES = """
sets = {"train": data, "val": TensorDataset(torch.randn(6, 4), torch.ones(6, 1))}
loaders = {x: DataLoader(sets[x], batch_size=size) for x in ["train", "val"]}


def train(model, loaders, optimizer):
    best, weights = 1e9, None
    for epoch in range(2):
        for phase in ["train", "val"]:
            model.train(phase == "train")
            total, count = 0.0, 0
            for inputs, labels in loaders[phase]:
                optimizer.zero_grad()
                with torch.set_grad_enabled(phase == "train"):
                    loss = nn.functional.mse_loss(model(inputs.to(device)), labels.to(device))
                    if phase == "train":
                        loss.backward()
                        optimizer.step()
                total, count = total + loss.item() * len(inputs), count + len(inputs)
            if phase == "val":
                assert count == 6
                best = min(best, total)


net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).to(device)
train(net, loaders, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9))
"""
TWO_MODELS = """
def make():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).to(device)


net, critic = make(), make()
critic_steps = torch.optim.SGD(critic.parameters(), lr=0.1)
steps = torch.optim.Adam(net.parameters(), lr=0.01)
for epoch in range(3):
    for number, (inputs, labels) in enumerate(DataLoader(data, batch_size=size)):
        steps.zero_grad()
        made = net(inputs) * labels
        critic(inputs * made).mean().backward()
        if number % 2:
            nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        steps.step()
        critic_steps.zero_grad()
        critic(inputs).mean().backward()
        (-critic(inputs * made.detach()).mean()).backward()
        mixed = (inputs * made.detach()).requires_grad_()
        slope = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)[0]
        ((slope.norm(dim=1) - 1) ** 2).mean().backward()
        critic_steps.step()
        for each in critic.parameters():
            each.data.clamp_(-0.3, 0.3)
net = nn.ModuleList([net, critic])
"""
ATTACKED = """

def attack(model, inputs, labels):
    model.eval()
    inputs = inputs.clone().requires_grad_()
    for _ in range(3):
        nn.functional.mse_loss(model(inputs), labels).backward()
        inputs.data += 0.01 * inputs.grad.sign()
    return inputs.detach()


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def go_back(self, inputs, labels):
        loss = nn.functional.mse_loss(self.model(inputs), labels)
        (loss + nn.functional.l1_loss(self.model(inputs * 0.9), labels)).backward()

    def step(self, batch):
        worse = attack(self.model, *batch)
        self.optimizer.zero_grad()
        self.go_back(worse, batch[1])
        nn.utils.clip_grad_norm_(self.model.parameters(), 0.2)
        self.optimizer.step()


net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).to(device)
trainer = Trainer(net)
for epoch in range(2):
    for batch in DataLoader(data, batch_size=size):
        trainer.step(batch)
"""
ON_WEIGHTS = """

class Attack:
    def __init__(self, model):
        self.model, self.kept, self.gradients = model, {}, {}

    def keep(self):
        for name, each in self.model.named_parameters():
            self.gradients[name] = each.grad.clone()

    def move(self, size):
        for name, each in self.model.named_parameters():
            self.kept.setdefault(name, each.data.clone())
            each.data.add_(size * each.grad / each.grad.norm())

    def restore(self):
        for name, each in self.model.named_parameters():
            each.data = self.kept.pop(name)

    def add_gradients(self):
        for name, each in self.model.named_parameters():
            each.grad = self.gradients[name]


net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
attack = Attack(net)
for inputs, labels in DataLoader(data, batch_size=size):
    nn.functional.mse_loss(net(inputs), labels).backward()
    attack.keep()
    for turn in range(3):
        attack.move(0.3)
        optimizer.zero_grad()
        if turn == 2:
            attack.add_gradients()
        nn.functional.mse_loss(net(inputs), labels).backward()
    attack.restore()
    optimizer.step()
    optimizer.zero_grad()
"""
SCRIPTS["phases"] = PHASES
SCRIPTS["two models and gradients of gradients"] = TWO_MODELS
SCRIPTS["several forward passes, and an attack"] = ATTACKED
SCRIPTS["an attack on weights"] = ON_WEIGHTS
SCRIPTS["two trainings, and one that nothing calls"] = TWICE


@pytest.mark.parametrize("body", SCRIPTS.values(), ids=SCRIPTS)
def test_two_ranks_end_with_the_parameters_of_one_process(
    body: str, forge: Forge, tmp_path: Path
) -> None:
    text = HEAD + body + TAIL
    script = tmp_path / "train.py"
    script.write_text(text)
    result = patch(script)
    assert result.refusal == ""
    (change,) = result.changes
    assert {each.code for each in result.findings_before} & {"DF201", "DF204"}
    assert "DF204" not in {each.code for each in result.findings_after}
    assert "O2" not in {each.code for each in result.audit}  # nor is it unknown
    (alone,) = written(forge, tmp_path, "original", text, None)
    (patched,) = written(forge, tmp_path, "patched", change.text, None)
    assert patched == alone
    first, second = written(forge, tmp_path, "ranks", change.text, 2)
    assert first == second
    for ours, theirs in zip(first, alone, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4, abs=2e-6)


def test_ranks_that_draw_weights_of_their_own_train_those_of_rank_0(
    forge: Forge, tmp_path: Path
) -> None:
    drawn = TWO_MODELS.replace(
        "critic_steps = torch.optim.SGD",
        "torch.manual_seed(int(os.environ.get('RANK', 0)))\n"
        "for each in (*net.parameters(), *critic.parameters()):\n"
        "    each.data.uniform_(-1, 1)\ncritic_steps = torch.optim.SGD",
    )
    text = HEAD + drawn + TAIL
    script = tmp_path / "train.py"
    script.write_text(text)
    (change,) = patch(script).changes
    (alone,) = written(forge, tmp_path, "original", text, None)
    first, second = written(forge, tmp_path, "ranks", change.text, 2)
    assert first == second
    for ours, theirs in zip(first, alone, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4, abs=2e-6)


MADE = "net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).to(device)\n"
DRAWN = """
def init_weights(model):
    for each in model.parameters():
        each.data.normal_()


net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).to(device)
net = nn.DataParallel(net)
init_weights(net)
"""
DRAWN_BEHIND = FLAT.replace(MADE, DRAWN)
PARTS = """

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features, self.last = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, inputs):
        return self.last(self.features(inputs).relu())


net = Net()
net.features = torch.nn.DataParallel(net.features)
net.to(device)
"""
PART = FLAT.replace(MADE, PARTS)
METHOD = """

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 1)

    def encode(self, inputs):
        return self.first(inputs).relu()

    def decode(self, hidden):
        return self.last(hidden)


net = nn.DataParallel(Net().to(device))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for epoch in range(2):
    for inputs, labels in DataLoader(data, batch_size=size):
        optimizer.zero_grad()
        hidden = net.module.encode(inputs.to(device))
        nn.functional.mse_loss(net.module.decode(hidden), labels.to(device)).backward()
        optimizer.step()
"""
BESIDE_TEACHER = """

def distill(student, teacher, optimizer):
    for inputs, labels in DataLoader(data, batch_size=size):
        target = teacher(inputs.to(device)).detach()
        optimizer.zero_grad()
        nn.functional.mse_loss(student(inputs.to(device)), target).backward()
        optimizer.step()


teacher = nn.DataParallel(nn.Linear(4, 1).to(device))
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).to(device)
distill(net, teacher, torch.optim.SGD(net.parameters(), lr=0.1))
"""
IN_DICTIONARY = FLAT.replace(
    "for epoch",
    """nets = {"one": net}
for name in nets:
    nets[name] = nn.DataParallel(nets[name])
for epoch""",
).replace("net(inputs", 'nets["one"](inputs')
BY_HAND = {
    "a part": PART,
    "in a dictionary": IN_DICTIONARY,
    "weights drawn behind": DRAWN_BEHIND,
    "methods of the model": METHOD,
    "a student beside": BESIDE_TEACHER,
}


@pytest.mark.parametrize("body", BY_HAND.values(), ids=BY_HAND)
def test_ranks_average_by_hand_what_ddp_cannot_wrap(
    body: str, forge: Forge, tmp_path: Path
) -> None:
    text = HEAD + body + TAIL
    script = tmp_path / "train.py"
    script.write_text(text)
    result = patch(script)
    assert result.refusal == ""
    (change,) = result.changes
    assert "average_gradients(optimizer)" in change.text
    assert "DistributedDataParallel" not in change.text
    assert not result.audit
    (alone,) = written(forge, tmp_path, "original", text, None)
    (patched,) = written(forge, tmp_path, "patched", change.text, None)
    assert patched == alone
    first, second = written(forge, tmp_path, "ranks", change.text, 2)
    assert first == second
    for ours, theirs in zip(first, alone, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4, abs=2e-6)


GROUP = """
if "LOCAL_RANK" in os.environ:
    torch.distributed.init_process_group("gloo")
"""


def test_ranks_that_nothing_wraps_share_the_training(forge: Forge, tmp_path: Path) -> None:
    """A process group is made, as in many scripts, and the model is never wrapped."""
    text = HEAD + GROUP + STEP + TAIL
    script = tmp_path / "train.py"
    script.write_text(text)
    result = patch(script)
    assert result.refusal == ""
    assert "DF301" in {each.code for each in result.findings_before}
    (change,) = result.changes
    (alone,) = written(forge, tmp_path, "original", text, None)
    first, second = written(forge, tmp_path, "ranks", change.text, 2)
    assert first == second
    for ours, theirs in zip(first, alone, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4, abs=2e-6)


@pytest.mark.parametrize(
    "loaders",
    [
        '{x: DataLoader(sets[x], batch_size=size) for x in ["train", "val"]}',
        '{"train": DataLoader(data, batch_size=size), "val": DataLoader(sets["val"])}',
        '{}\nloaders["train"] = DataLoader(data, size)\nloaders["val"] = DataLoader(sets["val"])',
        "{x: DataLoader(sets[x], size, shuffle=(x != 'val')) for x in sets}",
        "{x: DataLoader(each, size, shuffle=(x != 'val')) for x, each in sets.items()}",
        '{}\nfor x in ["train", "val"]:\n    loaders[x] = DataLoader(sets[x], size)',
        '{}\nfor key in ["train", "val"]:\n    if key == "train": made = DataLoader(data, size)'
        "\n    else:\n        made = DataLoader(sets[key])\n    loaders[key] = made",
        "0\ndef make():\n    made = dict(train=DataLoader(data, size), val=DataLoader(sets['val']))"
        "\n    return made\nloaders = make()",
    ],
    ids=[
        "made alike",
        "listed",
        "put in",
        "of a dictionary",
        "of its items",
        "put in by a loop",
        "put in by a test",
        "returned",
    ],
)
def test_the_loader_of_the_phase_that_trains_is_dealt(loaders: str, tmp_path: Path) -> None:
    made = 'loaders = {x: DataLoader(sets[x], batch_size=size) for x in ["train", "val"]}'
    text = HEAD + PHASES.replace(made, f"loaders = {loaders}")
    text = text.replace("net = nn.Sequential(", "net = nn.DataParallel(nn.Sequential(").replace(
        "nn.Linear(8, 1)).to", "nn.Linear(8, 1))).to"
    )
    script = tmp_path / "train.py"
    script.write_text(text)
    result = patch(script)
    assert result.refusal == ""
    (change,) = result.changes
    # What does not shuffle needs no epoch.
    assert ("loaders['train'].sampler.set_epoch(epoch)" in change.text) is ("shuffle" in loaders)
    (line,) = [line for line in change.text.splitlines() if "else DistributedSampler(" in line]
    assert ("x != 'train'" in line) is ("for x" in loaders)


@pytest.mark.parametrize("test", ["key == 'train' or key == 'val'", "not key == 'train'"])
def test_a_loader_that_a_test_may_make_for_another_phase_is_not_dealt(
    test: str, tmp_path: Path
) -> None:
    made = 'loaders = {x: DataLoader(sets[x], batch_size=size) for x in ["train", "val"]}'
    put = f"""loaders = {{}}
for key in ["train", "val"]:
    made = DataLoader(sets[key], 4)
    if {test}:
        made = DataLoader(data, size)
    loaders[key] = made"""
    script = tmp_path / "train.py"
    script.write_text(HEAD + PHASES.replace(made, put))
    result = patch(script)
    assert not result.changes or "DistributedSampler(" not in result.changes[0].text
