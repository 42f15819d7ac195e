"""DF504: what an evaluation asks of its model, once the module is out of its wrapper."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from cases import fixed, found

SCRIPT = """
import torch
from torch.utils.data import DataLoader

def evaluate(model, data):
    model.eval()
    names = []
    with torch.no_grad():
        for x in DataLoader(data):
            names.append({name}[model(x).argmax()])
    return names

def main(data, net):
    torch.distributed.init_process_group("gloo")
    net = torch.nn.parallel.DistributedDataParallel(net)
    for x in data:
        net(x).mean().backward()
        optimizer.step()
    return evaluate(net, data)
"""


class Net(torch.nn.Linear):
    names = ("a", "b")


@pytest.mark.parametrize(
    "name", ["model.module.names", "(model.module if hasattr(model, 'module') else model).names"]
)
def test_the_module_is_found_with_and_without_a_wrapper(name: str) -> None:
    text = fixed("DF504", SCRIPT.format(name=name))
    assert found("DF504", text) == []
    names: dict[str, object] = {}
    exec(text, names)
    scored = names["evaluate"](torch.nn.DataParallel(Net(3, 2)), torch.ones(2, 3))  # type: ignore[operator]
    assert set(scored) <= {"a", "b"}


def test_of_an_attribute_too() -> None:
    text = fixed(
        "DF504",
        SCRIPT.format(name="self.model.module.names")
        .replace("evaluate(model, data)", "evaluate(self, data)")
        .replace(" model.eval()", " self.model.eval()")
        .replace("model(x)", "self.model(x)"),
    )
    assert "names.append(eval_model.names[eval_model(x).argmax()])" in text


NAMES = """
import torch
from torch.utils.data import DataLoader

class Anchor:
    def __init__(self, model):
        self.weights = {{name: p.detach().clone() for name, p in model.named_parameters()}}
    def penalty(self, model):
        {first}
        return sum((p - self.weights[n]).pow(2).sum() for n, p in model.named_parameters())

def main(data, net):
    torch.distributed.init_process_group("gloo")
    net = torch.nn.parallel.DistributedDataParallel(net)
    anchor = Anchor(net)
    for x in data:
        (net(x).mean() + anchor.penalty(net)).backward()
        optimizer.step()
    net.eval()
    total = 0
    with torch.no_grad():
        for x in DataLoader(data):
            total += net(x).mean() + anchor.penalty(net)
    return total
"""


@pytest.mark.parametrize(("first", "passed"), [("pass", "net"), ("model(0)", "eval_model")])
def test_what_goes_by_the_names_of_parameters_gets_the_wrapper_as_in_training(
    first: str, passed: str
) -> None:
    text = fixed("DF504", NAMES.format(first=first))
    assert f"total += eval_model(x).mean() + anchor.penalty({passed})" in text
    assert found("DF504", text) == []


STATES = """
import torch
from torch.utils.data import DataLoader

def evaluate(model, data, path):
    model.load_state_dict(torch.load(path))
    model.eval()
    scores = []
    with torch.no_grad():
        for x in DataLoader(data):
            scores += model(x).tolist()
    return scores

def main(data, net, path):
    torch.distributed.init_process_group("gloo")
    net = {wrapper}(net)
    for x in data:
        net(x).mean().backward()
        optimizer.step()
    torch.save({saved}.state_dict(), path)
    return evaluate(net, data, path)
"""


@pytest.mark.parametrize(
    ("saved", "wrapper"),
    [
        ("net", "torch.nn.parallel.DistributedDataParallel"),
        ("net", "torch.nn.DataParallel"),
        ("net.module", "torch.nn.parallel.DistributedDataParallel"),
    ],
)
def test_a_state_goes_into_what_has_its_keys(saved: str, wrapper: str, tmp_path: Path) -> None:
    text = fixed("DF504", STATES.format(saved=saved, wrapper=wrapper))
    assert "getattr(model, 'module', model)" in text
    names: dict[str, object] = {}
    exec(text, names)
    net = torch.nn.DataParallel(Net(3, 2))
    torch.save((net if saved == "net" else net.module).state_dict(), tmp_path / "model.pt")
    scored = names["evaluate"](net, torch.ones(1, 3), tmp_path / "model.pt")  # type: ignore[operator]
    assert scored == net.module(torch.ones(1, 3)).tolist()
