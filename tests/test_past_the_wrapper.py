"""DF305: training steps that call a method of a model past its wrapper."""

from __future__ import annotations

import pytest
from cases import found

SCRIPT = """\
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.head = nn.Linear(8, 2)
        self.scale = nn.Parameter(torch.zeros(()))
        self.bound = 3

    def forward(self, x):
        return self.through(x)

    def through(self, x):
        return self.body(x)

    def clipped(self, x):
        return self.body(x).clamp(max=self.bound)

    def scores(self, x):
        return self.scaled(x)

    def scaled(self, x):
        return x * self.scale

def bare(net):
    return net.module if hasattr(net, "module") else net

def loss_of(net, x):
    return {inner}

def main(loader):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model = {wrap}
    model.module.report()
    for x in loader:
        loss = {loss}
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            model.module.scores(x)
"""
UNUSED = "nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)"
SAID = {
    "never": "and no step calls that: ranks do not average their gradients; call it in forward()",
    "unused": "for scale, which DistributedDataParallel takes for unused in the forward pass:"
    " torch raises in the backward pass; call it in forward()",
}


def script(loss: str, inner: str = "0", wrap: str = UNUSED) -> str:
    return SCRIPT.format(loss=loss, inner=inner, wrap=wrap)


NOOP = [
    ("the wrapper alone", script("model(x).sum()")),
    ("a method that has no weights of its own", script("model.module.clipped(model(x)).sum()")),
    ("every weight gets a gradient, and torch waits for all of them",
        script("model.module.scores(model(x)).sum()", wrap=UNUSED.replace("True", "False"))),
    ("the wrapper, in a function below", script("loss_of(model, x)", "net(x).sum()")),
    ("the wrapper, in a function that is not read", script("other(model) + model.module.f(x)")),
    ("a model that no optimizer has", script("model.module.scores(x).sum()").replace(
        "SGD(model.", "SGD(other.")),
    ("gradients that are averaged by hand", script("model.module.scores(x).sum()").replace(
        "        optimizer.step", "        for p in model.parameters():\n"
        "            torch.distributed.all_reduce(p.grad)\n        optimizer.step")),
    ("the wrapper behind its mode, beside a method", script("model.train().forward(x).sum()"
        "\n        if done:\n            path = model.module.save(x)\n        loss = loss * 1")),
    ("the inner model beside the wrapper", script("model(x).sum() + model.module(x).sum()")),
    ("a model with a module of its own", script("model.module.scores(x).sum()").replace(
        "self.bound = 3", "self.module = nn.Linear(8, 8)")),
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(t, id=name) for name, t in NOOP])
def test_a_step_through_the_wrapper_is_left_alone(text: str) -> None:
    assert [finding.because for finding in found("DF305", text)] == []


TOLD = [
    ("a method, and never the wrapper", "model.module.scores(x).sum()", "0", "never"),
    ("a part, and never the wrapper", "model.module.body(x).sum()", "0", "never"),
    ("the model itself", "model.module(x).sum()", "0", "never"),
    ("a method by its name", "getattr(model.module, args.entry)(x).sum()", "0", "never"),
    ("taken out by a function", "bare(model).scores(x).sum()", "0", "never"),
    ("taken out on the spot", 'getattr(model, "module", model).scores(x).sum()', "0", "never"),
    ("in a function below", "loss_of(model, x)", "net.module.scores(x).sum()", "never"),
    ("weights that the forward pass lacks", "model.module.scores(model(x)).sum()", "0", "unused"),
    ("such, in a function below", "loss_of(model, x)", "bare(net).scores(net(x)).sum()", "unused"),
]


@pytest.mark.parametrize(
    ("loss", "inner", "said"),
    [pytest.param(*row, id=name) for name, *row in TOLD],
)
@pytest.mark.parametrize("wrap", [UNUSED, "nn.DataParallel(model)"])
def test_a_step_past_the_wrapper_is_told(loss: str, inner: str, said: str, wrap: str) -> None:
    told = found("DF305", script(loss, inner, wrap))
    if said == "unused" and wrap != UNUSED:
        assert told == []  # DataParallel waits for nothing
        return
    (finding,) = told
    assert not finding.edits
    assert finding.because.endswith(SAID[said])


def test_the_loss_tells_what_is_trained_where_no_optimizer_does() -> None:
    inner = "inner = model.module if hasattr(model, 'module') else model\n        loss = {}"
    text = script("X").replace("loss = X", inner.format("inner(x).sum() if args.model else 0"))
    text = text.replace("model.parameters()", "weights_of([model])")
    (finding,) = found("DF305", text)
    assert finding.because.endswith(SAID["never"])
    assert found("DF305", text.replace("loss.backward()", "other(x).backward()")) == []
