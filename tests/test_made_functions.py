"""Steps that are functions made for it: by functools.partial, or inside another function."""

from __future__ import annotations

import pytest
from cases import module
from ddpfix.patcher.analysis.language.passed_arguments import argument_for_parameter
from ddpfix.patcher.analysis.training.program import Program

PARTIAL = """\
from functools import partial

def train_step(model, optimizer, batch, weight=1):
    loss = model(batch).mean() * weight
    loss.backward()
    optimizer.step()

def main(loader, net, sgd):
    step = partial(train_step, net, sgd, weight=2)
    for batch in loader:
        step(batch)

main(loader, net, sgd)
"""
INNER = """\
def make(model, optimizer):
    def train_step(batch):
        loss = model(batch).mean()
        loss.backward()
        optimizer.step()
    return train_step

def main(loader, net, sgd):
    step = make(net, sgd)
    for batch in loader:
        step(batch)

main(loader, net, sgd)
"""


@pytest.mark.parametrize("text", [PARTIAL, INNER], ids=["partial", "inner"])
def test_its_call_is_known(text: str) -> None:
    program = Program(module(text))
    step = next(f for f in program.script.all_functions if f.name == "train_step")
    ((where, call),) = program.callers(step)
    assert where.text(call) == "step(batch)"
    assert program.callees(where, call) == [(where, step)]
    assert not program.possible_callers(step)
    assert [loop.steps.lineno for loop in program.train_loops] == [call.lineno - 1]


def test_arguments_of_partial_come_first() -> None:
    program = Program(module(PARTIAL))
    script = program.script
    step = next(f for f in script.all_functions if f.name == "train_step")
    ((_, call),) = program.callers(step)
    passed = {
        name: argument_for_parameter(script, step, call, name)
        for name in ("model", "optimizer", "batch", "weight")
    }
    texts = {name: value and script.text(value) for name, value in passed.items()}
    assert texts == {"model": "net", "optimizer": "sgd", "batch": "batch", "weight": "2"}


@pytest.mark.parametrize("use", ["other(step)", "run = step", "self.step = step"])
def test_it_is_not_known_where_it_is_handed_on(use: str) -> None:
    program = Program(module(PARTIAL.replace("    for batch", f"    {use}\n    for batch")))
    step = next(f for f in program.script.all_functions if f.name == "train_step")
    assert program.possible_callers(step)
