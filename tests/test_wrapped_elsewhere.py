"""DF301 and O2: a wrapper in one class does not average what another class trains."""

from __future__ import annotations

import pytest
from audited import audited, program_of
from cases import found
from ddpfix.patcher.audit import audit

SCRIPT = """
import torch

class Whole:
    def __init__(self, model):
        self.model = torch.nn.parallel.DistributedDataParallel(model)
    def fit(self, data):
        for x in data:
            self.model(x).mean().backward()
            self.optimizer.step()

class Parts{bases}:
    def __init__(self, model, other):
        {binding}
        self.other = other
    def fit(self, data):
        for x in data:
            {model}(x).mean().backward()
            self.optimizer.step()

def main(model, data):
    torch.distributed.init_process_group("gloo")
    whole = Whole(model)
    whole.fit(data)
    Parts(model, whole).fit(data)

main(read(), load())
"""


def script(model: str = "self.model", binding: str = "self.model = model", bases: str = "") -> str:
    return SCRIPT.format(model=model, binding=binding, bases=bases)


def test_a_class_with_a_bare_model_of_its_own_trains_alone() -> None:
    (finding,) = found("DF301", script())
    assert "does not serve this one" in finding.because
    assert ("O2", "violated") in {verdict[:2] for verdict in audited(script())}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(script(model="self.other.model"), id="the other's model"),
        pytest.param(script(binding="pass"), id="a model that it gets otherwise"),
        pytest.param(script(bases="(Whole)"), id="a class below"),
        pytest.param(
            script(model="model").replace("def fit(self, data)", "def fit(self, data, model=None)"),
            id="a model that is passed",
        ),
    ],
)
def test_a_class_that_may_have_the_wrapped_model_is_left(text: str) -> None:
    assert found("DF301", text) == []


SWITCH = """\
import torch
from torch.utils.data import DataLoader, DistributedSampler

def main(model, data, optimizer):
    distributed = {value}
    sampler = None
    if distributed:
        torch.distributed.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(model)
        sampler = DistributedSampler(data)
    for epoch in range(3):
        for batch in DataLoader(data, sampler=sampler):
            model(batch).backward()
            optimizer.step()

main(*things())
"""


def test_a_switch_that_is_off_is_named() -> None:
    said = [each for each in audit(program_of(SWITCH.format(value="False"))) if each.code == "O2"]
    assert [each.line for each in said] == [5]
    assert "with `distributed = False` no rank wraps the model" in said[0].because
    assert not [e for e in audit(program_of(SWITCH.format(value="True"))) if e.code == "O2"]
