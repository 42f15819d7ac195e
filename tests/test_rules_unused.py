"""DF302: parameters that no loss depends on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cases import fixed, found, module
from ddpfix.patcher.analysis.training.program import Program
from ddpfix.patcher.findings import Severity
from ddpfix.patcher.fixes.process_group import unused_parameters_option

MODEL = """\
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)

    def forward(self, x):
        return self.first(x)

def train(model, batches):
    model = DDP(model)
    for batch in batches:
        model(batch).sum().backward()

train(Model(), [torch.ones(2, 4)] * 3)
"""
POOLER = """\
import torch
from transformers import RobertaModel

encoder = RobertaModel.from_pretrained(name)
model = torch.nn.parallel.DistributedDataParallel(encoder, device_ids=[args.local_rank])
for ids in batches:
    model(ids)[0].sum().backward()
"""

TASKS = (
    MODEL.replace("self.second = nn.Linear(4, 4)", "self.heads = nn.ModuleList(heads)")
    .replace("forward(self, x)", "forward(self, x, task)")
    .replace("return self.first(x)", "return self.heads[task](self.first(x))")
    .replace("model(batch)", "model(batch, choose())")
)
EACH = "return sum(head(self.first(x)) for head in self.heads)"

NOOP = [
    ("each head is called", TASKS.replace("return self.heads[task](self.first(x))", EACH)),
    ("always the same head", TASKS.replace("self.heads[task]", "self.heads[0]")),
    ("numbers and not layers", TASKS.replace("nn.ModuleList(heads)", "list(heads)")),
    ("every layer is called", MODEL.replace("self.first(x)", "self.second(self.first(x))")),
    ("it is looked for", MODEL.replace("DDP(model)", "DDP(model, find_unused_parameters=True)")),
    ("the graph is static", MODEL.replace("DDP(model)", "DDP(model, static_graph=True)")),
    ("options of which nothing is known", MODEL.replace("DDP(model)", "DDP(model, **options)")),
    ("called by its name", MODEL.replace("first(x)", "first(getattr(self, 'second')(x))")),
    ("called with its siblings", MODEL.replace("self.first(x)", "list(self.children())[1](x)")),
    ("the pooler is read", POOLER.replace("[0]", "[1]")),
    ("no pooler", POOLER.replace("RobertaModel", "GPT2Model")),
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(t, id=name) for name, t in NOOP])
def test_models_whose_unused_parameters_do_no_harm_are_left_alone(text: str) -> None:
    assert [finding.because for finding in found("DF302", text)] == []


def test_unused_parameters_are_looked_for_where_a_step_takes_one_head_of_several() -> None:
    (finding,) = found("DF302", TASKS)
    assert finding.severity is Severity.DEGRADED
    assert finding.because == "Model.forward calls self.heads[task] alone, and not the others"
    assert "DDP(model, find_unused_parameters=True)" in fixed("DF302", TASKS)
    step = "        model(batch, choose()).sum().backward()\n"
    assert step in TASKS
    loss = "        loss = (model(batch, 0) + model(batch, choose())).sum()\n"
    several = TASKS.replace(step, f"        model.zero_grad()\n{loss}        loss.backward()\n")
    assert found("DF302", several)[0].edits == ()  # and no graph is like the first


def test_unused_parameters_are_looked_for_where_a_layer_is_never_called() -> None:
    (finding,) = found("DF302", MODEL)
    assert finding.severity is Severity.ERROR
    assert finding.because == "Model.second is made and never called"
    new = fixed("DF302", MODEL)
    looks = "    model = DDP(model, find_unused_parameters=True)\n"
    assert new == MODEL.replace("    model = DDP(model)\n", looks)
    assert found("DF302", new) == []


def test_unused_parameters_are_looked_for_where_a_pooler_is_not_read() -> None:
    (finding,) = found("DF302", POOLER)
    assert finding.severity is Severity.DEGRADED
    assert "device_ids=[args.local_rank], find_unused_parameters=True)" in fixed("DF302", POOLER)


def test_a_graph_of_several_forwards_is_static() -> None:
    text = POOLER.replace(
        "    model(ids)[0].sum().backward()",
        "    a = model(ids)[0]\n    b = model(ids)[0]\n    (a - b).sum().backward()\n"
        "    model.zero_grad()",
    )
    assert "static_graph=True" in fixed("DF302", text)


TRAINER = """\
class Trainer:
    def __init__(self, net):
        self.net = net
    def fit(self, loader, optimizer):
        self.learn()
        for source, target in loader:
            scores = self.net(source)
            features = self.net(target, "features")
            loss = scores.sum() + features.sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    def learn(self):
        self.net.train()
"""


def test_a_trainer_calls_its_model_twice_though_another_method_tells_what_the_model_is() -> None:
    assert unused_parameters_option(Program(module(TRAINER))) == "static_graph"
    once = TRAINER.replace("features = self.net(target, ", "features = other(target, ")
    assert unused_parameters_option(Program(module(once))) == "find_unused_parameters"


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    import torch

    place = f"file://{tmp_path / 'store'}"
    torch.distributed.init_process_group("gloo", init_method=place, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("group")
def test_the_second_step_raises_without_and_runs_with() -> None:
    names: dict[str, Any] = {"__name__": "script"}
    with pytest.raises(RuntimeError, match="prior iteration"):
        exec(MODEL, names)
    exec(fixed("DF302", MODEL), names)
