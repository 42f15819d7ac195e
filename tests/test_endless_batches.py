"""Generators that go over a loader without end, in the style of scripts that count steps."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import fixed, found
from ddpfix.patcher.engine.patch import patch

SCRIPT = """
import itertools
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

def {name}(loader):
    {before}
    while True:
        {each_pass}

torch.distributed.init_process_group("gloo")
train = DataLoader(data, batch_size=8, shuffle=True)
batches = {name}({source})
for step in range(100):
    loss = model(next(batches)).mean()
    loss.backward()
    optimizer.step()
"""
SAMPLER = "if isinstance(loader.sampler, DistributedSampler):"
NUMBER = "loader.sampler.set_epoch(loader.sampler.epoch + 1)"
PASSES = {
    "batch by batch": (
        "for batch in loader:\n            yield batch",
        f"{SAMPLER}\n            {NUMBER}\n        for batch in loader:\n            yield batch",
    ),
    "with their numbers": (
        "for _, batch in enumerate(loader):\n            yield batch",
        f"{SAMPLER}\n            {NUMBER}\n        for _, batch in enumerate(loader):\n"
        "            yield batch",
    ),
    "all of a pass": (
        "yield from loader",
        f"{SAMPLER}\n            {NUMBER}\n        yield from loader",
    ),
    "by an iterator that ends": (
        "try:\n            yield next(batches)\n        except StopIteration:\n"
        "            batches = iter(loader)",
        "try:\n            yield next(batches)\n        except StopIteration:\n"
        f"            {SAMPLER}\n                {NUMBER}\n            batches = iter(loader)",
    ),
    "by methods of an iterator that ends": (
        "try:\n            yield batches.__next__()\n        except StopIteration:\n"
        "            batches = loader.__iter__()",
        "try:\n            yield batches.__next__()\n        except StopIteration:\n"
        f"            {SAMPLER}\n                {NUMBER}\n            batches = loader.__iter__()",
    ),
}


def script(each_pass: str, name: str = "infinite", source: str = "train") -> str:
    return SCRIPT.format(
        name=name, each_pass=each_pass, source=source, before="batches = iter(loader)"
    )


@pytest.mark.parametrize("name", ["infinite", "cycle"])
@pytest.mark.parametrize(("each_pass", "told"), PASSES.values(), ids=PASSES)
def test_each_pass_of_a_generator_has_an_order_of_its_own(
    each_pass: str, told: str, name: str
) -> None:
    dealt = fixed("DF401", script(each_pass, name))
    assert "train = DataLoader(data, batch_size=8, shuffle=not torch.distributed" in dealt
    numbered = fixed("DF402", dealt)
    assert told in numbered
    assert found("DF402", numbered) == []


def test_batches_that_itertools_keeps_come_again_in_their_order() -> None:
    text = script("pass").replace("infinite(train)", "itertools.cycle(train)")
    (told,) = found("DF402", fixed("DF401", text))
    assert told.because.startswith("cycle() keeps the first epoch's batches")


def test_what_may_be_no_loader_is_not_asked_for_its_sampler() -> None:
    text = script("yield from loader") + "\nothers = infinite(names)\n"
    (told,) = found("DF402", fixed("DF401", text))
    assert told.edits == ()


@pytest.mark.parametrize(
    "each_pass",
    [
        "for batch in other:\n            yield batch",
        "loader = sets.pop()\n        yield from loader",
    ],
)
def test_a_generator_over_something_else_is_no_loader(each_pass: str) -> None:
    assert "shuffle=True" in fixed("DF401", script(each_pass))


MADE = """
def sampler_of(data, distributed):
    if distributed:
        return torch.utils.data.{kind}
    return torch.utils.data.RandomSampler(data)
"""


@pytest.mark.parametrize(
    ("kind", "is_dealt"),
    [("distributed.DistributedSampler(data)", True), ("SequentialSampler(data)", False)],
)
def test_a_sampler_that_a_function_makes_has_an_order_in_each_pass(
    kind: str, is_dealt: bool
) -> None:
    text = script(PASSES["batch by batch"][0])
    text = text.replace("shuffle=True", "sampler=sampler_of(data, True)")
    text = text.replace("\ntorch.dist", MADE.format(kind=kind) + "\ntorch.dist")
    assert (NUMBER in fixed("DF402", text)) is is_dealt


OBJECT = """class Endless:
    def __init__(self, loader, device=None):
        self.device = device
        {kept}
        self.batches = iter(self.loader)

    def {next}(self):
        try:
            return next(self.batches)
        except StopIteration:
            {again}
            return next(self.batches)

def infinite(loader):"""
ANEW = "self.batches = iter(self.loader)"


def of_object(kept: str = "self.loader = loader", again: str = ANEW, name: str = "__next__") -> str:
    text = script("pass").replace("infinite(train)", "Endless(train)")
    code = OBJECT.format(kept=kept, again=again, next=name)
    text = text.replace("def infinite(loader):", code)
    return (
        text if name == "__next__" else text.replace("next(batches)).mean", "batches.next()).mean")
    )


@pytest.mark.parametrize("name", ["__next__", "next"])
def test_each_pass_of_an_object_has_an_order_of_its_own(name: str) -> None:
    dealt = fixed("DF401", of_object(name=name))
    assert "train = DataLoader(data, batch_size=8, shuffle=not torch.distributed" in dealt
    numbered = fixed("DF402", dealt)
    own, number = SAMPLER.replace("loader", "self.loader"), NUMBER.replace("lo", "self.lo")
    assert f"StopIteration:\n            {own}\n                {number}\n" in numbered
    assert found("DF402", numbered) == []


@pytest.mark.parametrize(
    "parts",
    [
        {"kept": "self.loader = loader\n        self.loader = Other(loader)"},
        {"again": "self.batches = iter(other)"},
        {"again": "raise"},
    ],
    ids=["goes over something else", "goes on with something else", "ends"],
)
def test_another_object_is_not_taken_for_one_without_end(parts: dict[str, str]) -> None:
    text = of_object(**parts)
    assert "self.loader.sampler" not in fixed("DF402", fixed("DF401", text))


IN_A_FUNCTION = """
import torch
from torch.utils.data import DataLoader

def infinite(loader):
    while True:
        yield from loader

def train(step):
    loss = model(next(batches)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()

def validate():
    model.eval()
    total = 0
    with torch.no_grad():
        for batch in DataLoader(held_out, batch_size=8):
            total += model(batch).sum().item()
    return total

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
batches = infinite(DataLoader(data, batch_size=8, shuffle=True))
for step in range(100):
    loss = train(step)
    if {test}:
        {then}
"""


@pytest.mark.parametrize(
    ("test", "then", "is_told"),
    [
        ("step % 10 == 0", "print(validate())", False),
        ("step == 50", "break", False),
        ("loss < 0.1", "break", True),
    ],
)
def test_a_function_of_each_step_draws_its_batch(
    test: str, then: str, is_told: bool, tmp_path: Path
) -> None:
    path = tmp_path / "train.py"
    path.write_text(IN_A_FUNCTION.format(test=test, then=then))
    diff = patch(path).diff()
    assert "over_ranks(model, find_unused_parameters=True)(next(batches))" in diff
    assert "loader.sampler.set_epoch(loader.sampler.epoch + 1)" in diff
    assert ("mean_of_ranks(loss)" in diff) is is_told


@pytest.mark.parametrize(
    ("target", "is_shared"), [("read", True), ("fit", False), ("unknown", False)]
)
def test_processes_that_only_read_data_train_nothing(target: str, is_shared: bool) -> None:
    text = (
        IN_A_FUNCTION.format(test="step % 10 == 0", then="print(validate())")
        + "\ndef read(name):\n    return open(name).read()\n"
        "\ndef fit(name):\n    model(read(name)).backward()\n"
        f"\nfrom multiprocessing import Process\nProcess(target={target}, args=(9,)).start()\n"
    )
    (finding,) = found("DF204", text)
    assert bool(finding.edits) is is_shared
