"""Which DataLoader a training loop goes through, whatever way it takes there."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from cases import module
from ddpfix.patcher.analysis.training.program import Program
from ddpfix.patcher.api import read_program

FOUND = [
    ("a name", """
        loader = DataLoader(mine)
        for batch in loader:
            model(batch).backward()
        """),
    ("wrapped in a bar and numbered", """
        loader = DataLoader(mine)
        for step, batch in enumerate(tqdm(loader), 1):
            model(batch).backward()
        """),
    ("a bar in a with, under another name", """
        with tqdm(DataLoader(mine), unit="batch") as bar:
            for step, batch in enumerate(bar):
                model(batch).backward()
        """),
    ("that of a trainer, which another call makes without one", """
        class Trainer:
            def __init__(self, model, loader, other=None, more=None):
                self.model, self.loader = model, loader
                self.more = more
            def train(self):
                for batch in self.loader:
                    self.model(batch).backward()
        Trainer(model, DataLoader(mine)).train()
        print(Trainer(model, None, DataLoader(yours)).other)
        """),
    ("that which a function gets by one of its calls, and None by default", """
        def train(model, loader=None):
            for batch in loader:
                model(batch).backward()
        train(model, loader=DataLoader(mine))
        train(model)
        """),
    ("the first of a list that is one", """
        loaders = [None, DataLoader(mine), DataLoader(other)]
        for loader in loaders:
            for batch in loader:
                model(batch).backward()
        """),
    ("each of a list of pairs, with which a loop steps", """
        for name, loader in [("a", DataLoader(mine)), ("b", DataLoader(mine))]:
            for batch in loader:
                model(batch).backward()
        """),
    ("what a function of a table returns", """
        def one(size):
            return DataLoader(mine, size)
        def other(size):
            loader = DataLoader(yours, size)
            return loader
        MAKERS = {"one": one, "other": other}
        for batch in MAKERS[args.data](8):
            model(batch).backward()
        """),
    ("the last of a tuple, by its number", """
        loaders = (None, DataLoader(mine))
        for batch in loaders[1]:
            model(batch).backward()
        """),
    ("put under a key of what dict() makes", """
        loaders = dict()
        loaders["train"] = DataLoader(mine)
        for batch in loaders["train"]:
            model(batch).backward()
        """),
    ("a keyword of what dict() makes", """
        loaders = dict(val=DataLoader(other), train=DataLoader(mine))
        for batch in loaders["train"]:
            model(batch).backward()
        """),
    ("each of a comprehension", """
        loaders = [DataLoader(mine) for _ in range(3)]
        for loader in loaders:
            for batch in loader:
                model(batch).backward()
        """),
    ("the second of a tuple that a function returns among other things", """
        def make():
            return (DataLoader(other), DataLoader(mine)), names
        loaders, names = make()
        dev, loader = loaders
        for batch in loader:
            model(batch).backward()
        """),
    ("what a function returns that has the name of a library's", """
        def prepare(settings):
            return DataLoader(mine)
        for batch in prepare(settings):
            model(batch).backward()
        """),
    ("the second that a function returns", """
        def make():
            return DataLoader(other), DataLoader(mine)
        dev, loader = make()
        for batch in loader:
            model(batch).backward()
        """),
    ("the second that a generator yields", """
        def make():
            for part in parts:
                yield part, DataLoader(mine)
        for part, loader in make():
            for batch in loader:
                model(batch).backward()
        """),
    ("an attribute of its object", """
        class Trainer:
            def __init__(self):
                self.dev = DataLoader(other)
                self.loader = DataLoader(mine)
            def train(self):
                for batch in self.loader:
                    model(batch).backward()
        """),
    ("an attribute that is set from outside", """
        class Trainer:
            def train(self):
                for batch in self.loader:
                    model(batch).backward()
        trainer = Trainer()
        trainer.loader = DataLoader(mine)
        trainer.train()
        """),
    ("an attribute of another object", """
        class Data:
            def __init__(self):
                self.loader = DataLoader(mine)
        data = Data()
        for batch in data.loader:
            model(batch).backward()
        """),
    ("an attribute of an attribute's object", """
        class Data:
            def __init__(self):
                self.dev = DataLoader(other)
                self.loader = DataLoader(mine)
        class Trainer:
            def __init__(self):
                self.data = Data()
            def train(self):
                for batch in self.data.loader:
                    model(batch).backward()
        Trainer().train()
        """),
    ("an attribute that a class below sets, where the method is there to be overridden", """
        class Trainer:
            def make(self):
                self.loader = DataLoader(other)
                raise NotImplementedError
            def train(self):
                for batch in self.loader:
                    model(batch).backward()
        class Own(Trainer):
            def make(self):
                self.loader = DataLoader(mine)
        """),
    ("what every caller hands over", """
        def train(model, loader):
            for batch in loader:
                model(batch).backward()
        train(model, loader=DataLoader(mine))
        """),
    ("the one whose batches are taken at several scales", """
        scales = [0.75, 1, 1.25]
        for step, (images, labels) in enumerate(DataLoader(mine)):
            for scale in scales:
                model(resize(images, scale), labels).backward()
                optimizer.step()
        """),
    ("an endless one that next takes from", """
        loader = DataLoader(mine)
        loader = cycle(loader)
        for step in range(9):
            model(next(loader)).backward()
        """),
    ("a list of its batches", """
        loader = DataLoader(mine)
        batches = [batch for batch in tqdm(loader)]
        for epoch in range(2):
            random.shuffle(batches)
            for step, batch in enumerate(batches):
                model(batch).backward()
        """),
    ("a list that takes all of it", """
        batches = list(DataLoader(mine))
        for batch in batches:
            model(batch).backward()
        """),
    ("the one that the name stands for by then", """
        loader = DataLoader(other)
        loader = DataLoader(mine)
        for batch in loader:
            model(batch).backward()
        loader = DataLoader(other)
        """),
    ("fetched ahead by another thread", """
        from prefetch_generator import BackgroundGenerator
        loader = DataLoader(mine)
        for epoch in range(2):
            bar = tqdm(enumerate(BackgroundGenerator(loader)), total=len(loader))
            for step, batch in bar:
                model(batch).backward()
        """),
    ("moved by map", """
        loader = DataLoader(mine)
        for batch in map(to_card, loader):
            model(batch).backward()
        """),
    ("so many of its batches", """
        import itertools
        loader = DataLoader(mine)
        for step, batch in enumerate(itertools.islice(loader, 9)):
            model(batch).backward()
        """),
    ("a generator that gives each batch on", """
        def moved(card, loader):
            for x, y in tqdm(loader):
                x = x.to(card)
                yield x, y.to(card)
        for x, y in moved(0, DataLoader(mine)):
            model(x, y).backward()
        """),
    ("a generator of the object that has it", """
        class Trainer:
            def __init__(self):
                self.loader = DataLoader(mine)
            def batches(self):
                for batch in self.loader:
                    yield batch.cuda()
            def train(self):
                for batch in self.batches():
                    model(batch).backward()
        """),
    ("the one of a list of pairs under whose phase a loop steps", """
        pairs = [("val", DataLoader(other)), ("train", DataLoader(mine))]
        for phase, loader in pairs:
            training = phase == "train"
            for batch in loader:
                loss = model(batch)
                if training:
                    loss.backward()
        """),
    ("the item of a dictionary under whose phase a loop steps", """
        loaders = dict(val=DataLoader(other), train=DataLoader(mine))
        for phase, loader in loaders.items():
            for batch in loader:
                if phase == "train":
                    model(batch).backward()
        """),
    ("what a call passes in the phase that its function trains in", """
        def run(mode, batches):
            for batch in batches:
                if mode == "fit":
                    model(batch).backward()
                    optimizer.step()
        loaders = {"val": DataLoader(other), "fit": DataLoader(mine)}
        for phase in loaders:
            run(phase, loaders[phase])
        """),
    ("the one of pairs that a call passes so", """
        def run(mode, batches):
            for batch in batches:
                if mode == "fit":
                    model(batch).backward()
                    optimizer.step()
        for phase, loader in (("val", DataLoader(other)), ("fit", DataLoader(mine))):
            run(mode=phase, batches=loader)
        """),
    ("what one of two calls passes, the other without gradients", """
        def run(batches):
            for batch in batches:
                loss = model(batch)
                if loss.requires_grad:
                    loss.backward()
        run(DataLoader(mine))
        with torch.no_grad():
            run(DataLoader(other))
        """),
    ("what one of two calls passes, whose steps train in a method below", """
        class Trainer:
            def epoch(self, batches, phase):
                for batch in batches:
                    self.step(batch, phase)
            def step(self, batch, phase):
                loss = self.model(batch)
                if phase == "train":
                    loss.backward()
                    self.optimizer.step()
            def fit(self):
                self.epoch(DataLoader(mine), "train")
                self.epoch(DataLoader(other), "val")
        """),
    ("a name of the module", """
        loader = DataLoader(mine)
        def train():
            for batch in loader:
                model(batch).backward()
        """),
]  # fmt: skip
UNKNOWN = [
    ("the parts of each of its batches, which may be more on one rank", """
        for batch in DataLoader(mine):
            parts = batch.split(2)
            for part in parts:
                model(part).backward()
                optimizer.step()
        """),
    ("a list of none", """
        loaders = [None, parts]
        for loader in loaders:
            for batch in loader:
                model(batch).backward()
        """),
    ("one of two callers hands over something else", """
        def train(model, loader):
            for batch in loader:
                model(batch).backward()
        train(model, DataLoader(mine))
        train(model, batches)
        """),
    ("another of those that a function returns", """
        def make():
            return DataLoader(other), parts
        dev, loader = make()
        for batch in loader:
            model(batch).backward()
        """),
    ("a list of some of its batches", """
        batches = [batch for batch in DataLoader(mine) if len(batch) > 2]
        for batch in batches:
            model(batch).backward()
        """),
    ("what a table of functions and others returns", """
        def one(size):
            return DataLoader(mine, size)
        MAKERS = {"one": one, "other": library.other}
        for batch in MAKERS[args.data](8):
            model(batch).backward()
        """),
    ("a generator that leaves batches out", """
        def long(loader):
            for batch in loader:
                if len(batch) < 2:
                    continue
                yield batch
        for batch in long(DataLoader(mine)):
            model(batch).backward()
        """),
    ("a generator that gives some on", """
        def long(loader):
            for batch in loader:
                if len(batch) > 2:
                    yield batch
        for batch in long(DataLoader(mine)):
            model(batch).backward()
        """),
    ("an attribute outside of a class", """
        def train(self):
            for batch in self.loader:
                model(batch).backward()
        """),
]  # fmt: skip


def dealt_from(text: str) -> str | None:
    """The data set of the loader that the one training loop goes through."""
    unit = Program(module("from torch.utils.data import DataLoader\n" + textwrap.dedent(text)))
    (loop,) = unit.train_loops
    if loop.loader is None:
        return None
    assert loop.loader.dataset is not None
    return loop.loader.module.text(loop.loader.dataset)


@pytest.mark.parametrize("text", [pytest.param(t, id=name) for name, t in FOUND])
def test_the_loader_of_a_training_loop_is_followed_to_where_it_is_made(text: str) -> None:
    assert dealt_from(text) == "mine"


@pytest.mark.parametrize("names", ["*", "make", "make as get"])
def test_what_makes_the_loader_comes_from_another_module(tmp_path: Path, names: str) -> None:
    made = "from torch.utils.data import DataLoader\ndef make():\n    return DataLoader(mine)\n"
    (tmp_path / "data.py").write_text(made)
    script = tmp_path / "train.py"
    call = "get" if "get" in names else "make"
    lines = f"for batch in {call}():\n    model(batch).backward()\n"
    script.write_text(f"import torch\nfrom data import {names}\n{lines}")
    (loop,) = read_program(str(script)).train_loops
    assert loop.loader is not None


@pytest.mark.parametrize("text", [pytest.param(t, id=name) for name, t in UNKNOWN])
def test_a_loop_through_something_else_has_no_loader(text: str) -> None:
    assert dealt_from(text) is None


def test_a_class_below_may_have_another_loader() -> None:
    text = """\
        class Trainer:
            def __init__(self):
                self.loader = DataLoader(mine)
            def train(self):
                for batch in self.loader:
                    model(batch).backward()
        class Other(Trainer):
            def __init__(self):
                super().__init__()
                self.loader = DataLoader(other)
        """
    (loop,) = Program(module(text)).train_loops
    assert loop.loader is not None
    found = [loop.loader, *loop.loader.others]
    assert [each.module.text(each.call) for each in found] == [
        "DataLoader(mine)",
        "DataLoader(other)",
    ]
