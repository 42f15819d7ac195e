"""DF401: loaders of a class that hands its own arguments to torch's constructor, and properties."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import RULES, fixed, found
from ddpfix.patcher.analysis.training.load import read_program
from ddpfix.patcher.engine.rounds import apply_round

SCRIPT = """\
import torch
from torch.utils.data import DataLoader
{own}

class Trainer:
    def __init__(self):
        {made}

    def fit(self):
        for epoch in range(3):
            for batch in self.loader:
                model(batch).mean().backward()
                optimizer.step()

torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
Trainer().fit()
for batch in Toys("val", 4):
    print(batch)
"""
OWN = """
class Toys({base}):
    def __init__(self, split, size, shuffle=False):
        self.data = read(split)
        {options}
        super().__init__({passed})
"""
BASE = """
class Base(DataLoader):
    def __init__(self, data, size, shuffle):
        super().__init__(data, batch_size=size, shuffle=shuffle)
"""
PLAIN = OWN.format(
    base="DataLoader", options="", passed="self.data, batch_size=size, shuffle=shuffle"
)
KEPT = OWN.format(
    base="DataLoader",
    options="self.kwargs = {'dataset': self.data, 'batch_size': size, 'shuffle': shuffle}",
    passed="**self.kwargs",
)
DERIVED = BASE + OWN.format(base="Base", options="", passed="self.data, size, shuffle")
SAMPLER = "sampler=None if (not torch.distributed.is_initialized() or split != 'train') else Dist"


def test_the_construction_inside_is_dealt_where_it_trains() -> None:
    script = SCRIPT.format(own=PLAIN, made='self.loader = Toys("train", 4, True)')
    text = fixed("DF401", script)
    assert SAMPLER in text
    assert "shuffle=shuffle and (not torch.distributed.is_initialized() or" in text
    assert not found("DF401", text)
    assert "self.loader.sampler.set_epoch(epoch)" in fixed("DF402", text)


@pytest.mark.parametrize("own", [KEPT, DERIVED], ids=["options", "class between"])
def test_its_arguments_are_found(own: str) -> None:
    script = SCRIPT.format(own=own, made='self.loader = Toys("train", 4, True)')
    text = fixed("DF401", script)
    assert "DistributedSampler(" in text
    assert not found("DF401", text)


ITERATES = (
    PLAIN
    + """
    def __iter__(self):
        for start in range(0, len(self.dataset), self.batch_size):
            yield self.dataset[start : start + self.batch_size]
"""
)
MOVES = (
    PLAIN
    + """
    def __iter__(self):
        for batch in super().__iter__():
            yield batch.cuda()
"""
)


@pytest.mark.parametrize(("own", "dealt"), [(ITERATES, "share_of_batches("), (MOVES, SAMPLER)])
def test_a_class_that_goes_over_its_data_by_itself_asks_no_sampler(own: str, dealt: str) -> None:
    text = fixed("DF401", SCRIPT.format(own=own, made='self.loader = Toys("train", 4, True)'))
    assert dealt in text
    assert ("DistributedSampler(" in text) is (own is MOVES)


FACTORY = """
def make(split):
    return DataLoader(read(split), batch_size=4, shuffle=split == "train")

def build():
    {filled}

def Toys(split, size):
    return [split]
"""
FILLED = {
    "a tuple": 'return tuple(make(s) for s in ("train", "val"))',
    "a list": 'return [make(s) for s in ["train", "val"]]',
    "a loop": "found = []\n    for s in ('train', 'val'):\n"
    "        found.append(make(s))\n    return found",
    "line by line": "found = []\n    found.append(make('train'))\n"
    "    found.append(make('val'))\n    return found",
}


@pytest.mark.parametrize("filled", FILLED.values(), ids=FILLED)
def test_a_list_is_unpacked(filled: str) -> None:
    own = FACTORY.format(filled=filled)
    text = fixed("DF401", SCRIPT.format(own=own, made="self.loader, self.val = build()"))
    assert SAMPLER in text
    assert not found("DF401", text)


def test_names_are_zipped_with_loaders() -> None:
    own = FACTORY.format(filled=FILLED["a tuple"])
    made = 'self.loaders = dict(zip(("train", "val"), build()))'
    script = SCRIPT.format(own=own, made=made).replace("self.loader:", 'self.loaders["train"]:')
    assert SAMPLER in fixed("DF401", script)
    other = script.replace('zip(("train", "val")', 'zip(("val", "train")')
    assert SAMPLER.replace("train", "val") in fixed("DF401", other)


PROPERTY = """
class Data:
    def __init__(self):
        self.kept = None

    @property
    def train(self):
        if self.kept is None:
            self.kept = DataLoader(read("train"), batch_size=4, shuffle=True)
        return self.kept

def Toys(split, size):
    return [split]
"""


def test_a_property_returns_it() -> None:
    made = "data = Data()\n        self.loader = data.train"
    text = fixed("DF401", SCRIPT.format(own=PROPERTY, made=made))
    assert "sampler=None if not torch.distributed.is_initialized() else Dist" in text


def test_a_class_below_binds_two_attributes_at_once() -> None:
    own = FACTORY.format(filled=FILLED["a tuple"])
    script = SCRIPT.format(own=own, made="self.build_data()")
    below = "class Own(Trainer):\n    def build_data(self):\n"
    below += "        self.loader, self.val = build()\n\ntorch.distributed.init"
    script = script.replace("torch.distributed.init", below, 1).replace("Trainer().", "Own().")
    assert SAMPLER in fixed("DF401", script)


MADE_BEFORE = """
from functools import partial

def build():
    make = partial(DataLoader, batch_size=4{more})
    return make(read("train"), shuffle=True), make(read("val"))

def Toys(split, size):
    return [split]
"""


def test_a_constructor_has_some_of_its_arguments_already() -> None:
    made = "self.loader, self.val = build()"
    text = fixed("DF401", SCRIPT.format(own=MADE_BEFORE.format(more=", drop_last=True"), made=made))
    assert "make(train_dataset, shuffle=not torch.distributed.is_initialized(), sampler=" in text
    assert not found("DF401", text)
    shuffled = SCRIPT.format(own=MADE_BEFORE.format(more=", shuffle=False"), made=made)
    assert "DistributedSampler" not in fixed("DF401", shuffled)


TEMPLATE = {
    "run.py": """\
import torch
import loaders

def build(name, package, **options):
    return getattr(package, name)(**options)

def main(config):
    torch.distributed.init_process_group("gloo")
    loader = build(config["type"], loaders, size=4)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(3):
        for batch in loader:
            model(batch).mean().backward()
            optimizer.step()

main(read())
""",
    "loaders.py": """\
from torch.utils.data import DataLoader
from torch.utils.data.sampler import SubsetRandomSampler

class Base(DataLoader):
    def __init__(self, data, size, shuffle, share):
        self.shuffle = shuffle
        self.sampler, self.held_out = self.split(share, len(data))
        self.kwargs = {"dataset": data, "batch_size": size, "shuffle": self.shuffle}
        super().__init__(sampler=self.sampler, **self.kwargs)

    def split(self, share, n):
        if share == 0:
            return None, None
        self.shuffle = False
        order = list(range(n))
        return SubsetRandomSampler(order[share:]), SubsetRandomSampler(order[:share])

class Toys(Base):
    def __init__(self, size, shuffle=True, share=8):
        super().__init__(read(), size, shuffle, share)
""",
}


def test_a_class_is_got_by_its_name_in_a_module_that_is_passed(tmp_path: Path) -> None:
    for name, text in TEMPLATE.items():
        (tmp_path / name).write_text(text)
    program = read_program(tmp_path / "run.py")
    (finding,) = RULES["DF401"].findings(program)
    loaders = finding.module
    assert loaders.source.path.name == "loaders.py"
    assert program.is_live(loaders, finding.at)  # by its name in a string alone
    text = apply_round(program, [finding], {}).modules[1].source.text
    lone = "not torch.distributed.is_initialized()"
    assert f"self.sampler if self.sampler is not None or {lone} else DistributedSampler(" in text
    assert f"**self.kwargs if {lone} else {{**self.kwargs, 'shuffle': False}}" in text
    assert f"if {lone} else DealtSampler(SubsetRandomSampler(order[share:])), Subset" in text


ENDLESS = """\
import torch
from torch.utils.data import DataLoader, DistributedSampler

class Ahead:
    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        ahead = None
        for batch in self.loader:
            if ahead is not None:
                yield ahead
            ahead = batch
        yield ahead

def endless(loader):
    while True:
        for batch in loader:
            yield batch

torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
loader = {made}
batches = endless(loader)
for step in range(99):
    model(next(batches)).mean().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("made", "owner"), [("Ahead({})", "loader.loader"), ("{}", "loader")])
def test_an_endless_generator_tells_the_sampler_behind_an_object(made: str, owner: str) -> None:
    made = made.format("DataLoader(data, batch_size=4, sampler=DistributedSampler(data))")
    text = fixed("DF402", ENDLESS.format(made=made))
    told = f"            {owner}.sampler.set_epoch({owner}.sampler.epoch + 1)\n"
    assert told + "        for batch in loader:" in text
    assert not found("DF402", text)


def test_an_iterator_that_begins_anew_tells_the_sampler_behind_an_object() -> None:
    made = "Ahead(DataLoader(data, batch_size=4, sampler=DistributedSampler(data)))"
    again = (
        "batches = iter(loader)\nfor step in range(99):\n    try:\n        batch = next(batches)\n"
        "    except StopIteration:\n        batches = iter(loader)\n        batch = next(batches)\n"
    )
    text = ENDLESS.format(made=made).replace("next(batches)).mean", "batch).mean")
    text = text.replace("batches = endless(loader)\nfor step in range(99):\n", again)
    assert text.count("iter(loader)") == 2
    text = fixed("DF402", text)
    assert "loader.loader.sampler.set_epoch(loader.loader.sampler.epoch + 1)" in text
    assert "(loader.sampler" not in text
