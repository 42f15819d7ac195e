"""Training and validation by one function, and trainers that a table picks (DF401, DF402)."""

from __future__ import annotations

import ast

import pytest
from cases import fixed, found, module
from ddpfix.patcher.analysis.language.objects import class_of
from ddpfix.patcher.analysis.training.program import Program

EPOCH = """
import torch
from torch.utils.data import DataLoader

def one_epoch({parameters}):
    {before}
    for batch in loader:
        loss = model(batch).mean()
        if {test}:
            loss.backward()
            optimizer.step()

{between}
def main():
    torch.distributed.init_process_group("gloo")
    valid = DataLoader(valid_set)
    train = DataLoader(train_set, shuffle=True)
    for epoch in range(3):
        {validates}
        {trains}
main()
"""
BETWEEN = """
def validate(model, loader):
    one_epoch("valid", loader, model, None)

def train_on(model, loader, optimizer):
    one_epoch("train", loader, model, optimizer)

"""
CLASSES = """
class Base:
    def train(self, loader):
        one_epoch("train", loader, self.model, self.optimizer)
    def valid(self, loader):
        one_epoch("valid", loader, self.model, self.optimizer)

class One(Base):
    pass

class Two(Base):
    pass

TRAINERS = {"one": One, "two": Two}
"""
BY_PHASE = {
    "a name of the phase": {
        "parameters": "phase, loader, model, optimizer",
        "test": 'phase == "train"',
        "validates": 'one_epoch("valid", valid, model, optimizer)',
        "trains": 'one_epoch("train", train, model, optimizer)',
    },
    "a name among others": {
        "parameters": "phase, loader, model, optimizer",
        "test": 'phase in ("train", "all")',
        "validates": 'one_epoch("valid", valid, model, optimizer)',
        "trains": 'one_epoch("train", train, model, optimizer)',
    },
    "a part of the name": {
        "parameters": "phase, loader, model, optimizer",
        "test": '"train" in phase',
        "validates": 'one_epoch("valid_2", valid, model, optimizer)',
        "trains": 'one_epoch("train_2", train, model, optimizer)',
    },
    "how the name begins": {
        "parameters": "phase, loader, model, optimizer",
        "test": 'phase.startswith("train")',
        "validates": 'one_epoch("valid_2", valid, model, optimizer)',
        "trains": 'one_epoch("train_2", train, model, optimizer)',
    },
    "no optimizer": {
        "parameters": "loader, model, optimizer=None",
        "test": "optimizer is not None",
        "validates": "one_epoch(valid, model)",
        "trains": "one_epoch(train, model, optimizer)",
    },
    "a name for the test": {
        "parameters": "loader, model, optimizer=None",
        "test": "is_train",
        "before": "is_train = optimizer is not None\n    model.train(is_train)",
        "validates": "one_epoch(valid, model)",
        "trains": "one_epoch(train, model, optimizer)",
    },
    "a flag": {
        "parameters": "loader, model, optimizer, is_train=False",
        "test": "is_train",
        "validates": "one_epoch(valid, model, optimizer)",
        "trains": "one_epoch(train, model, optimizer, is_train=True)",
    },
    "the model's mode": {
        "parameters": "loader, model, optimizer",
        "test": "model.training",
        "validates": "net.eval(); one_epoch(valid, net, optimizer)",
        "trains": "net.train()\n        if epoch:\n            one_epoch(train, net, optimizer)",
    },
    "a mode that is off": {
        "parameters": "loader, model, optimizer",
        "test": "model.training",
        "validates": "net.train(False); one_epoch(valid, net, None)",
        "trains": "net.train(); one_epoch(train, net, optimizer)",
    },
    "functions between": {
        "parameters": "phase, loader, model, optimizer",
        "test": 'phase == "train"',
        "between": BETWEEN,
        "validates": "validate(model, valid)",
        "trains": "train_on(model, train, optimizer)",
    },
}  # fmt: skip


def script(**parts: str) -> str:
    return EPOCH.format(**{"between": "", "before": "pass", **parts})


@pytest.mark.parametrize("parts", BY_PHASE.values(), ids=BY_PHASE)
def test_only_the_loader_of_the_phase_that_trains_is_dealt(parts: dict[str, str]) -> None:
    dealt = fixed("DF401", script(**parts))
    assert "valid = DataLoader(valid_set)\n" in dealt
    assert "train = DataLoader(train_set, shuffle=not torch" in dealt
    told = fixed("DF402", dealt)
    assert "for epoch in range(3):\n        if isinstance(train.sampler" in told
    assert found("DF402", told) == []


@pytest.mark.parametrize(
    ("kind", "validates"),
    [
        ("a flag", "one_epoch(valid, model, optimizer, flags[0])"),
        ("the model's mode", "other.eval(); one_epoch(valid, net, optimizer)"),
        ("the model's mode", "net.eval() if epoch else 0; one_epoch(valid, net, optimizer)"),
    ],
)
def test_a_phase_of_which_nothing_is_known_trains_on_both_loaders(
    kind: str, validates: str
) -> None:
    parts = BY_PHASE[kind] | {"validates": validates}
    dealt = fixed("DF401", script(**parts))
    assert "valid = DataLoader(valid_set, " in dealt


@pytest.mark.parametrize(
    ("made", "name"),
    [
        ('TRAINERS["one"]()', "Base"),
        ("TRAINERS[kind]()", "Base"),
        ("TRAINERS.get(kind)()", "Base"),
        ("Chosen()", "Base"),
        ("OTHERS[kind]()", ""),
        ("MIXED[kind]()", ""),
    ],
)
def test_an_object_of_a_table_has_the_class_that_all_of_it_inherit(made: str, name: str) -> None:
    text = (
        f"{CLASSES}\nclass Lone:\n    pass\n\nOTHERS = {{1: One, 2: Lone}}\n"
        f"MIXED = {{1: One, 2: print}}\n\ndef main(kind):\n    Chosen = TRAINERS[kind]\n"
        f"    trainer = {made}\n    trainer.train(1)\n"
    )
    whole = Program(module(text))
    (call,) = (each for each in whole.script.calls_to("train"))
    assert isinstance(call.func, ast.Attribute)
    owner = class_of(whole, whole.script, call.func.value)
    assert ("" if owner is None else owner[1].name) == name


def test_the_loader_that_a_trainer_of_a_table_gets_is_dealt_and_learns_the_epoch() -> None:
    parts = BY_PHASE["a name of the phase"] | {
        "between": CLASSES,
        "validates": "TRAINERS[kind]().valid(valid)",
        "trains": "trainer = TRAINERS[kind]()\n        trainer.train(train)",
    }
    dealt = fixed("DF401", script(**parts))
    assert "valid = DataLoader(valid_set)\n" in dealt
    assert "train = DataLoader(train_set, shuffle=not torch" in dealt
    told = fixed("DF402", dealt)
    assert "for epoch in range(3):\n        if isinstance(train.sampler" in told


CHOSEN = """
import torch
from torch.utils.data import DataLoader

def one_epoch(train, test_set, train_set):
    if train:
        loader = DataLoader(train_set, shuffle=True)
    else:
        loader = DataLoader(test_set, shuffle=True)
    for batch in loader:
        loss = model(batch).mean()
        if {test}:
            loss.backward()
            optimizer.step()

def main():
    torch.distributed.init_process_group("gloo")
    for epoch in range(3):
        one_epoch(True, test_set, train_set)
        one_epoch(False, test_set, train_set)
main()
"""


@pytest.mark.parametrize(
    ("test", "dealt"),
    [("train", ["train_set"]), ("train and loss > 0", ["train_set", "test_set"])],
)
def test_a_loader_of_the_branch_that_never_steps_is_not_dealt(test: str, dealt: list[str]) -> None:
    text = fixed("DF401", CHOSEN.format(test=test))
    for data in ("train_set", "test_set"):
        assert (f"DistributedSampler({data})" in text) is (data in dealt)


STEPPER = """
import torch
from torch.utils.data import DataLoader

class Trainer:
    def step(self, batch, train):
        loss = self.model(batch).mean()
        if train:
            loss.backward()
            self.optimizer.step()
    def run_epoch(self, loader, train):
        for batch in loader:
            self.step(batch, {phase})

def main():
    torch.distributed.init_process_group("gloo")
    loader = DataLoader(rows, sampler=torch.utils.data.distributed.DistributedSampler(rows))
    trainer = Trainer()
    for epoch in range(3):
        trainer.run_epoch(loader, True)
        {validation}
main()
"""


@pytest.mark.parametrize(
    ("phase", "validation"),
    [
        ("train", "trainer.run_epoch(DataLoader(others), False)"),
        (
            "torch.is_grad_enabled()",
            "with torch.no_grad():\n            trainer.run_epoch(DataLoader(others), False)",
        ),
    ],
)
def test_a_method_that_steps_is_told_the_phase(phase: str, validation: str) -> None:
    text = STEPPER.format(phase=phase, validation=validation)
    sampler = "loader.sampler"
    kind = "torch.utils.data.distributed.DistributedSampler"
    told = f"        if isinstance({sampler}, {kind}):\n            {sampler}.set_epoch(epoch)\n"
    assert f"range(3):\n{told}" in fixed("DF402", text)
