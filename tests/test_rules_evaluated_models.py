"""DF504: where an evaluation takes the module out of its wrapper, and that it does so once."""

from __future__ import annotations

import pytest
from cases import fixed, found

WRAP = "model = torch.nn.parallel.DistributedDataParallel(model)\n"
EVALUATION = """\
import torch
def evaluate(model, tasks):
    for task in tasks:
        {above}
        for batch in torch.utils.data.DataLoader(task):
            model.eval()
            with torch.no_grad():
                model(batch)
"""
TAKEN = "model = getattr(model, 'module', model)"
METHOD = """\
import torch
class Trainer:
    def __init__(self, model):
        self.model = torch.nn.parallel.DistributedDataParallel(model)
    def evaluate(self, data):
        for batch in torch.utils.data.DataLoader(data):
            self.model.eval()
            with torch.no_grad():
                self.model(batch)
"""


@pytest.mark.parametrize(
    ("above", "before"),
    [
        ("layers = range(model.num_layers)", "        layers = range(model.num_layers)\n"),
        ("if task:\n            print(model.config)", "        if task:\n"),
        ("model.to('cpu')", "            model.eval()\n"),
    ],
)
def test_the_module_is_out_before_it_is_asked_for_what_the_wrapper_lacks(
    above: str, before: str
) -> None:
    text = fixed("DF504", EVALUATION.format(above=above) + WRAP)
    indent = before[: len(before) - len(before.lstrip())]
    assert f"{indent}{TAKEN}\n{before}" in text
    assert text.count(TAKEN) == 1


def test_a_mode_that_is_set_in_the_loop_is_set_once_repaired() -> None:
    text = fixed("DF504", METHOD)
    assert "        eval_model = getattr(self.model, 'module', self.model)\n        for " in text
    assert "eval_model.eval()" in text
    assert "eval_model(batch)" in text
    assert not found("DF504", text)


PAIR = """\
import torch
def fit(data):
    body = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    head = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    for epoch in range(3):
        for x in torch.utils.data.DataLoader(data):
            head(body(x)).sum().backward()
        body.eval()
        head.eval()
        with torch.no_grad():
            for x in torch.utils.data.DataLoader(data):
                hidden = body(x)
                print(head(hidden))
fit(data)
"""


def test_two_models_of_one_evaluation_have_names_of_their_own() -> None:
    text = fixed("DF504", PAIR)
    assert "            eval_model = getattr(body, 'module', body)\n" in text
    assert "            eval_head = getattr(head, 'module', head)\n" in text
    assert "hidden = eval_model(x)\n                print(eval_head(hidden))" in text
    assert not found("DF504", text)


SAVES = """\
import torch
def test(net, data, path):
    net.eval()
    for batch in torch.utils.data.DataLoader(data):
        with torch.no_grad():
            net(batch)
    {save}
"""


@pytest.mark.parametrize(
    ("save", "stays"),
    [
        ("torch.save(net.state_dict(), path)", True),
        ("state = {'net': net.state_dict()}", True),
        ("save_checkpoint(net, path)", True),
        ("torch.save(net.module.state_dict(), path)", False),
        ("print(net)", False),
        ("keep(1, model=net)\n\ndef keep(n, model):\n    torch.save(model.state_dict(), n)", True),
        ("keep(net)\n\ndef keep(model):\n    torch.save(model.module.state_dict(), '')", False),
    ],
)
def test_a_model_that_is_saved_keeps_its_wrapper_and_so_its_keys(save: str, stays: bool) -> None:
    text = fixed("DF504", SAVES.format(save=save) + WRAP)
    assert ("    eval_model = getattr(net, 'module', net)\n    for batch in" in text) is stays
    assert ("            eval_model(batch)\n" in text) is stays
    assert ("    net = getattr(net, 'module', net)\n    net.eval()" in text) is not stays
    assert not found("DF504", text)


PASSED = """\
import torch
@torch.no_grad()
def test(net, data):
    net.eval()
    for batch in torch.utils.data.DataLoader(data):
        net(batch)
def main(args, model, data):
    {wrap}
    test({passed}, data)
main(*things())
"""
DDP = "model = torch.nn.parallel.DistributedDataParallel(model)"
HELD = {
    "the module": (DDP, "model.module"),
    "by a name": (f"{DDP}; bare = model.module", "bare"),
    "in a branch": (
        f"if args.ddp:\n        {DDP}\n        bare = model.module\n"
        "    else:\n        bare = model",
        "bare",
    ),
    "in a conditional": (f"{DDP}; bare = model.module if args.ddp else model", "bare"),
}  # fmt: skip


@pytest.mark.parametrize(("wrap", "passed"), HELD.values(), ids=HELD)
def test_an_evaluation_that_gets_the_module_is_left_alone(wrap: str, passed: str) -> None:
    assert found("DF504", PASSED.format(wrap=wrap, passed=passed)) == []


@pytest.mark.parametrize("wrap", [DDP, f"{DDP}; bare = model.module"])
def test_an_evaluation_that_gets_the_wrapper_is_told(wrap: str) -> None:
    (finding,) = found("DF504", PASSED.format(wrap=wrap, passed="model"))
    assert finding.edits


OLD = """\
import torch
from torch.autograd import Variable
def validate(loader, model, lose):
    model.eval()
    for images, labels in loader:
        labels = labels.cuda()
        {moved}
        output = model({given})
        print(lose(output, labels).item())
loader = torch.utils.data.DataLoader(data, batch_size=4)
model = torch.nn.parallel.DistributedDataParallel(model.cuda(), device_ids=[0])
validate(loader, model, torch.nn.CrossEntropyLoss().cuda())
"""


@pytest.mark.parametrize(
    ("moved", "given", "stays"),
    [
        ("pass", "images", True),
        ("images = Variable(images, volatile=True)", "images", True),
        ("inputs, labels = Variable(images), Variable(labels)", "inputs.float()", True),
        ("images = images.cuda(non_blocking=True)", "images", False),
        ("images, labels = images.cuda(), labels.cuda()", "images", False),
        ("images, labels = move(images, labels)", "images", False),
        ("if torch.cuda.is_available():\n            images = images.cuda()", "images", False),
        ("pass", "images.cuda()", False),
    ],
)
def test_a_wrapper_that_alone_moves_the_batches_to_the_card_stays(
    moved: str, given: str, stays: bool
) -> None:
    text = OLD.format(moved=moved, given=given)
    assert (found("DF504", text) == []) is stays
    assert (fixed("DF504", text) == text) is stays
