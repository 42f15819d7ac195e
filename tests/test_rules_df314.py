"""DF314: A file holds the wrapper of the model."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from cases import fixed, found

SCRIPT = """\
import torch
torch.distributed.init_process_group("gloo")
net = {made}
def keep(model, epoch):
    state = {{"net": net, "epoch": epoch}}
    torch.save({saved}, "best.pt")
for epoch in range(3):
    for batch in loader:
        net(batch).mean().backward()
        optimizer.step()
    keep(net, epoch)
"""
WRAP = "torch.nn.parallel.DistributedDataParallel(Net())"


def script(saved: str, made: str = WRAP) -> str:
    return SCRIPT.format(saved=saved, made=made)


@pytest.mark.parametrize(
    ("saved", "name", "made"),
    [
        ("state", "net", WRAP),
        ('{"net": net}', "net", WRAP),
        ("(net, epoch)", "net", WRAP),
        ("dict(net=net)", "net", f"{WRAP}.cuda()"),
        ("model", "model", WRAP),
        ("torch.nn.Sequential(model)", "model", WRAP),
        ("state", "net", f"{WRAP}\nnet = net.cuda()"),
    ],
)
def test_the_module_inside_is_saved(saved: str, name: str, made: str) -> None:
    text = script(saved, made)
    inside = f"getattr({name}, 'module', {name}) if torch.distributed.is_initialized() else {name}"
    new = fixed("DF314", text)
    assert new.count(inside) == 1
    assert new.replace(inside, name) == text
    assert found("DF314", new) == []


@pytest.mark.parametrize(
    ("saved", "made"),
    [
        ("state", "Net()"),
        ("state", f"{WRAP}\nnet = net.module\nnet = net.to(device)"),
        ("state", f"torch.compile({WRAP})"),
        ("model.state_dict()", WRAP),
        ("epoch", WRAP),
        ("len(model)", WRAP),
        ('{"net": net.module}', WRAP),
    ],
)
def test_what_is_no_wrapper_is_left_alone(saved: str, made: str) -> None:
    assert found("DF314", script(saved, made)) == []


TRAINER = """\
import torch
torch.distributed.init_process_group("gloo")

class Trainer:
    def __init__(self, model, path):
        self.model = {kept}
        self.path = path

    def save(self):
        torch.save({saved}, self.path)

net = torch.nn.parallel.DistributedDataParallel(Net())
Trainer({passed}, "best.pt").save()
"""


@pytest.mark.parametrize(
    ("kept", "saved", "passed", "count"),
    [
        ("model", "self.model", "net", 1),
        ("model", '{"net": self.model}', "net", 1),
        (WRAP, "self.model", "net", 1),
        ("model", "self.model", "net.module", 0),
        ("model.module", "self.model", "net", 0),
        ("model", "self.model.state_dict()", "net", 0),
    ],
)
def test_a_wrapper_that_an_object_holds_is_saved_without_it(
    kept: str, saved: str, passed: str, count: int
) -> None:
    text = TRAINER.format(kept=kept, saved=saved, passed=passed)
    assert fixed("DF314", text).count("getattr(self.model, 'module', self.model) if") == count


@pytest.mark.parametrize(("use", "edits"), [("best = last", 2), ("last(batch)", 0)])
def test_a_container_that_is_saved_later_is_made_of_the_module_inside(use: str, edits: int) -> None:
    text = script("best", WRAP).replace(
        "    state =", f"    last = best = torch.nn.Sequential(net)\n    {use}\n    state ="
    )
    (finding,) = found("DF314", text)
    assert len(finding.edits) == edits


def test_a_model_that_a_group_of_one_does_not_wrap_is_saved_as_it_is() -> None:
    made = "Net()\nif torch.distributed.get_world_size() > 1:\n    net = " + WRAP.replace(
        "Net()", "net"
    )
    line = next(
        line.strip()
        for line in fixed("DF314", script("state", made)).splitlines()
        if line.strip().startswith("state = ")
    )
    bare = object()
    joined = SimpleNamespace(distributed=SimpleNamespace(is_initialized=lambda: True))
    names = {"net": bare, "torch": joined, "epoch": 0}
    exec(line, names)
    assert names["state"] == {"net": bare, "epoch": 0}


@pytest.mark.parametrize(("saved", "told"), [("model", 1), ("inside", 0)])
def test_what_the_program_s_own_saver_saves_is_read_there(saved: str, told: int) -> None:
    saver = "inside = getattr(model, 'module', model)\n    torch.save({saved}, path)"
    text = f"""\
import torch
torch.distributed.init_process_group("gloo")
def save(model, path):
    {saver.format(saved=saved)}
net = {WRAP}
for batch in loader:
    net(batch).mean().backward()
    optimizer.step()
save(net, "net.pt")
"""
    assert len(found("DF314", text)) == told


@pytest.mark.parametrize(
    ("passed", "told"),
    [('{"net": net}', True), ('{"net": net.module}', False), ("net.state_dict()", False)],
)
def test_what_callers_hand_to_a_saver_is_read_there(passed: str, told: bool) -> None:
    text = f"""\
import torch
torch.distributed.init_process_group("gloo")
def keep(state, path):
    torch.save(state, path)
def save(state):
    keep(state, "last.pt")
net = {WRAP}
for batch in loader:
    net(batch).mean().backward()
    optimizer.step()
save({passed})
"""
    assert [each.at.id for each in found("DF314", text) if hasattr(each.at, "id")] == ["net"] * told
