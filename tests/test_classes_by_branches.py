"""Objects that are of one class or another, as an option tells: what both do counts."""

from __future__ import annotations

import ast

import pytest
from cases import fixed, found, module
from ddpfix.patcher.analysis.language.objects import classes_of
from ddpfix.patcher.analysis.training.program import Program

POLICIES = """
import torch
from torch.utils.data import DataLoader

def build():
    model = torch.nn.Linear(4, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)

class Smooth:
    def __init__(self):
        self.model, self.optimizer = build()

    def __call__(self, x, y):
        return torch.nn.functional.mse_loss(self.model(x), y)

class Rough:
    def __init__(self):
        self.model, self.optimizer = build()

    def __call__(self, x, y):
        return torch.nn.functional.l1_loss(self.model(x), y)

def make(kind):
    {make}
    return policy

def forward_pass(batch, policy):
    x, y = batch
    return policy(x, y){more}

def main(kind, data):
    policy = make(kind)
    optimizer = policy.optimizer
    for epoch in range(2):
        for batch in DataLoader(data, batch_size=8, shuffle=True):
            loss = forward_pass(batch, policy)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

main("smooth", load())
"""
BY_TEST = 'if kind == "smooth":\n        policy = Smooth()\n    else:\n        policy = Rough()'
BY_CHOICE = 'policy = Smooth() if kind == "smooth" else Rough()'


@pytest.mark.parametrize("make", [BY_TEST, BY_CHOICE])
def test_each_of_two_policies_has_its_gradients_averaged(make: str) -> None:
    repaired = fixed("DF204", POLICIES.format(make=make, more=""))
    assert "mse_loss(over_ranks(self.model, find_unused_parameters=True)(x), y)" in repaired
    assert "l1_loss(over_ranks(self.model, find_unused_parameters=True)(x), y)" in repaired


def test_two_policies_that_one_step_calls_are_no_branches() -> None:
    repaired = fixed("DF204", POLICIES.format(make=BY_TEST, more=" + Rough()(x, y)"))
    assert "over_ranks(self.model" not in repaired


TRAINERS = """
import torch
from torch.nn.parallel import DistributedDataParallel

class Plain:
    def fit(self, model, loader):
        for x, y in loader:
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
        torch.save(model.state_dict(), "plain.pt")

class Careful:
    def fit(self, model, loader):
        for x, y in loader:
            torch.nn.functional.l1_loss(model(x), y).backward()
            optimizer.step()
        torch.save(model.state_dict(), "careful.pt")

torch.distributed.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
sampler = torch.utils.data.DistributedSampler(data)
if kind == "plain":
    trainer = Plain()
else:
    trainer = Careful()
trainer.fit(model, torch.utils.data.DataLoader(data, sampler=sampler))
"""


def test_methods_of_both_classes_are_run() -> None:
    program = Program(module(TRAINERS))
    (call,) = program.script.calls_to("fit")
    names = {owner.name for _, owner in classes_of(program, program.script, call.func.value)}
    assert names == {"Plain", "Careful"}
    assert len(program.callees(program.script, call)) == 2
    assert len(found("DF601", TRAINERS)) == 2


VIDEO = """
import cv2
import torch

torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
for x in torch.utils.data.DataLoader(data, sampler=torch.utils.data.DistributedSampler(data)):
    model(x).backward()
video = cv2.VideoWriter(path, cv2.VideoWriter_fourcc(*"mp4v"), 25, (8, 8))
for image in images:
    video.write(image)
video.release()
{behind}
"""


@pytest.mark.parametrize(
    ("behind", "is_repaired"),
    [
        ("print('done')", True),
        ("show(cv2.VideoCapture(path))", False),
        ("show(path)", False),
    ],
)
def test_other_ranks_fill_videos_that_nobody_looks_at(behind: str, is_repaired: bool) -> None:
    (finding,) = found("DF607", VIDEO.format(behind=behind))
    assert bool(finding.edits) is is_repaired
    if is_repaired:
        repaired = fixed("DF607", VIDEO.format(behind=behind))
        assert (
            "VideoWriter(path if is_main_process() else os.path.join(tempfile.mkdtemp()" in repaired
        )


HANDED_ON = """
import torch
from torch.utils.data import DataLoader

def errors(made, wanted):
    return (made - wanted).pow(2).mean()

def step(model, x, criterion):
    return criterion(model(x), x)

def train(model, loader, criterion):
    for x in loader:
        step(model, x, criterion).backward()

net = torch.nn.Linear(4, 4)
{name}train(net, DataLoader(data), {passed})
"""


@pytest.mark.parametrize(
    ("name", "passed", "count"),
    [("", "errors", 1), ("loss = errors\n", "loss", 1), ("", "unknown", 0)],
)
def test_a_function_that_functions_hand_on_is_called_at_the_end(
    name: str, passed: str, count: int
) -> None:
    program = Program(module(HANDED_ON.format(name=name, passed=passed)))
    (call,) = program.script.calls_to("criterion")
    assert len(program.callees(program.script, call)) == count


def test_objects_of_many_classes_that_are_handed_on_end_no_stack() -> None:
    """Each method's object is known by who calls the method before it, which asks the next one."""
    classes = "".join(
        f"class C{i}:\n    def m{i}(self, x):\n        x.m{i - 1}(x)\n\n\n" for i in range(1, 300)
    )
    first = "class C0:\n    def m0(self, x):\n        x.forward(x)\n\n\n"
    last = "def main(x):\n    x.m299(x)\n\n\nmain(C299())\n"
    program = Program(module(first + classes + last))
    call = program.script.calls_to("forward")[0].func
    assert isinstance(call, ast.Attribute)
    assert classes_of(program, program.script, call.value) == []
