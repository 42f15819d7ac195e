"""DF504: what an evaluation asks of model.module, once the module is out of its wrapper."""

from __future__ import annotations

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
