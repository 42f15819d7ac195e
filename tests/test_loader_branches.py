"""Loaders of which a test picks one: all that a loop may get are dealt by rank."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import fixed, found, module
from ddpfix.patcher.analysis.training.program import Program
from ddpfix.patcher.audit import audit
from ddpfix.patcher.engine.patch import patch

HEAD = """\
import argparse
import torch
from torch.utils.data import DataLoader

"""
MAIN = """\

def main():
    args = argparse.ArgumentParser().parse_args()
    small, large = torch.randn(8, 2), torch.randn(16, 2)
    {made}
    model = torch.nn.DataParallel(torch.nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(2):
        for batch in loader:
            optimizer.zero_grad()
            model(batch).mean().backward()
            optimizer.step()


if __name__ == "__main__":
    main()
"""
TWO_RETURNS = """\
def make(kind):
    if kind == "small":
        return DataLoader(torch.randn(8, 2), batch_size=2, shuffle=True), 2
    return DataLoader(torch.randn(16, 2), batch_size=2, shuffle=True), 2

"""
OF_THE_MODULE = """\
kind = input()
if kind == "small":
    loader = DataLoader(torch.randn(8, 2), batch_size=2, shuffle=True)
else:
    loader = DataLoader(torch.randn(16, 2), batch_size=2, shuffle=True)

"""
TRAIN_OR_TEST = """\
def make(train):
    if train:
        return DataLoader(torch.randn(8, 2), batch_size=2, shuffle=True)
    return DataLoader(torch.randn(16, 2), batch_size=2)

"""
BRANCHES = {
    "a name in two branches": (
        "",
        """\
if args.small:
        loader = DataLoader(small, batch_size=2, shuffle=True)
    else:
        loader = DataLoader(large, batch_size=2, shuffle=True)""",
        2,
    ),
    "three branches": (
        "",
        """\
if args.small:
        loader = DataLoader(small, batch_size=2, shuffle=True)
    elif args.large:
        loader = DataLoader(large, batch_size=2, shuffle=True)
    else:
        loader = DataLoader(small + 1, batch_size=2, shuffle=True)""",
        3,
    ),
    "a function that returns one of two": (TWO_RETURNS, "loader, classes = make(args.kind)", 2),
    "a function that is told which": (TWO_RETURNS, 'loader, classes = make("large")', 1),
    "a function that is told whether": (TRAIN_OR_TEST, "loader = make(True)", 1),
    "a function of another call": (
        TRAIN_OR_TEST,
        "loader, test = make(train=True), make(train=False)",
        1,
    ),
    "names of the module, which a function reads": (OF_THE_MODULE, "pass", 2),
    "two tests without an else": (
        OF_THE_MODULE.replace("else:", 'if kind == "large":'),
        "pass",
        2,
    ),
    "a loader that a test replaces": (
        "",
        """\
loader = DataLoader(small, batch_size=2, shuffle=True)
    if args.large:
        loader = DataLoader(large, batch_size=2, shuffle=True)""",
        2,
    ),
    "a loader that both branches replace": (
        "",
        """\
loader = DataLoader(small, batch_size=2, shuffle=True)
    if args.large:
        loader = DataLoader(large, batch_size=2, shuffle=True)
    else:
        loader = DataLoader(large + 1, batch_size=2, shuffle=True)""",
        2,
    ),
    "a loader in place of another": (
        "",
        "loader = DataLoader(small, batch_size=2)\n    loader = DataLoader(large, batch_size=2)",
        1,
    ),
}


@pytest.mark.parametrize(("head", "made", "count"), BRANCHES.values(), ids=BRANCHES)
def test_each_loader_that_a_loop_may_get_is_found_and_dealt(
    head: str, made: str, count: int, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(HEAD + head + MAIN.format(made=made))
    (loop,) = Program(module(script.read_text())).train_loops
    assert loop.loader is not None
    assert len({loop.loader.call, *(each.call for each in loop.loader.others)}) == count
    result = patch(script)
    assert result.refusal == ""
    assert result.diff().count("else DistributedSampler(") == count


def test_the_audit_names_the_branch_that_was_forgotten(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(HEAD + MAIN.format(made=BRANCHES["a name in two branches"][1]))
    (change,) = patch(script).changes
    sampler = (
        "sampler=None if not torch.distributed.is_initialized() else DistributedSampler(small)"
    )
    assert sampler in change.text
    text = change.text.replace(f", {sampler}", "")
    found = [each for each in audit(Program(module(text))) if each.is_violated]
    assert [
        (each.code, "DataLoader(small" in text.splitlines()[each.line - 1]) for each in found
    ] == [("O4", True)]


def test_a_branch_in_order_keeps_no_other_from_the_number_of_its_epoch(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    made = BRANCHES["a name in two branches"][1].replace(
        "large, batch_size=2, shuffle=True", "large, batch_size=2"
    )
    script.write_text(HEAD + MAIN.format(made=made))
    assert "+            loader.sampler.set_epoch(epoch)\n" in patch(script).diff()
    (change,) = patch(script).changes
    assert not found("DF402", change.text)


def test_sizes_that_differ_between_branches_are_unknown() -> None:
    made = BRANCHES["a name in two branches"][1].replace(
        "small, batch_size=2", "small, batch_size=4"
    )
    (loop,) = Program(module(HEAD + MAIN.format(made=made))).train_loops
    assert loop.loader is not None
    assert loop.loader.batch_size is None


CLASS = """\
import torch
from torch.utils.data import DataLoader


def make(name, **options):
    if name == "a":
        train = DataLoader(torch.randn(8, 2), shuffle=True, **options)
        test = DataLoader(torch.randn(4, 2), **options)
        return train, test
    elif name == "b":
        train = DataLoader(torch.randn(16, 2), shuffle=True, **options)
        test = DataLoader(torch.randn(4, 2), **options)
        return train, test
    raise ValueError(name)


class Runner:
    def __init__(self, name):
        self.train_loader, self.test_loader = make(name, batch_size=2)
        self.model = torch.nn.DataParallel(torch.nn.Linear(2, 2))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)

    def train(self):
        for batch in self.train_loader:
            self.optimizer.zero_grad()
            self.model(batch).mean().backward()
            self.optimizer.step()


if __name__ == "__main__":
    runner = Runner("a")
    for epoch in range(2):
        runner.train()
"""


def test_a_tuple_that_an_object_keeps_is_followed_into_each_branch(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(CLASS)
    result = patch(script)
    assert result.refusal == ""
    assert result.diff().count("else DistributedSampler(train_dataset)") == 2
    assert "DistributedSampler(torch.randn(4, 2))" not in result.diff()
    assert "+            runner.train_loader.sampler.set_epoch(epoch)\n" in result.diff()


OTHER_SAMPLERS = """\
import torch
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler
torch.distributed.init_process_group("gloo")
if args.shuffle:
    sampler = RandomSampler(data)
else:
    sampler = {other}
for batch in DataLoader(data, sampler=sampler):
    model(batch).backward()
    optimizer.step()
"""


def test_the_sampler_of_each_branch_deals_by_rank() -> None:
    text = fixed("DF401", OTHER_SAMPLERS.format(other="SequentialSampler(data)"))
    alone = "if not torch.distributed.is_initialized() else"
    assert f"sampler = RandomSampler(data) {alone} DistributedSampler(data)\n" in text
    assert (
        f"sampler = SequentialSampler(data) {alone} DistributedSampler(data, shuffle=False)\n"
        in text
    )
    assert not found("DF401", text)


def test_no_branch_is_dealt_where_one_is_of_an_unknown_kind() -> None:
    (finding,) = found("DF401", OTHER_SAMPLERS.format(other="Curriculum(data)"))
    assert not finding.edits


OF_RANKS = """\
import torch
import torch.distributed as dist
from torch.utils.data import BatchSampler, DataLoader
from torch.utils.data.distributed import DistributedSampler

def main(args, data, model):
    dist.init_process_group("nccl")
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    if {test}:
        sampler = DistributedSampler(data, shuffle=False)
        loader = DataLoader(data, {deals})
    else:
        loader = DataLoader(data, batch_size=2, shuffle=True)
    for batch in loader:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()

main(*things())
"""


@pytest.mark.parametrize(
    ("test", "deals", "is_right"),
    [
        ("dist.is_initialized()", "2, sampler=sampler", True),
        ("args.distributed", "2, sampler=sampler", True),
        ("args.local_rank != -1", "batch_sampler=BatchSampler(sampler, 2, True)", True),
        ("args.distributed", "2", False),
        ("args.small", "2, sampler=sampler", False),
    ],
)
def test_a_test_of_ranks_leaves_the_other_loader_to_one_process(
    test: str, deals: str, is_right: bool
) -> None:
    text = OF_RANKS.format(test=test, deals=deals)
    assert (found("DF401", text) == []) is is_right
    verdicts = audit(Program(module(text)))
    assert ([each.because for each in verdicts if each.code == "O4"] == []) is is_right


CHOSEN = """\
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
def make(data, distributed, train):
    sampler = {sampler}
    loader = DataLoader(data, batch_size=4, sampler={choice})
    if train:
        return loader, sampler
    return loader, None
@torch.no_grad()
def test(net, loader):
    net.eval()
    for batch in loader:
        print(net(batch))
def main(args, model, data):
    torch.distributed.init_process_group("nccl")
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader, sampler = make(data, True, train=True)
    held_out, _ = make(data, True, train=False)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for batch in loader:
            optimizer.zero_grad()
            model(batch).mean().backward()
            optimizer.step()
        test(model.module, held_out)
main(*things())
"""
DEALT = "DistributedSampler(data, shuffle=train) if distributed else None"
CHOICES = {
    "for the training": ("sampler if train else None", []),
    "for ranks": ("sampler if distributed else None", ["DF503"]),
    "not for the evaluation": ("None if not train else sampler", []),
}


@pytest.mark.parametrize(("choice", "codes"), CHOICES.values(), ids=CHOICES)
def test_a_sampler_that_a_conditional_names_deals(choice: str, codes: list[str]) -> None:
    text = CHOSEN.format(sampler=DEALT, choice=choice)
    assert [code for code in ("DF401", "DF402", "DF503") if found(code, text)] == codes


def test_a_sampler_that_a_conditional_names_and_that_deals_nothing_is_told() -> None:
    text = CHOSEN.format(
        sampler="torch.utils.data.RandomSampler(data)", choice="sampler if train else None"
    )
    assert [each.because.partition(";")[0] for each in found("DF401", text)] == [
        "no branch deals by rank"
    ]


def test_the_loader_of_another_branch_is_no_share_of_the_evaluation() -> None:
    text = (
        HEAD
        + """\
def test(loader):
    model.eval()
    total = 0
    for batch in loader:
        total += model(batch).item()
    return total

def main(data, several):
    if several:
        sampler = torch.utils.data.DistributedSampler(data, shuffle=False)
        loader = DataLoader(data, batch_size=2, sampler=sampler)
    else:
        loader = DataLoader(data, batch_size=2)
    torch.distributed.init_process_group("gloo")
    print(test(loader))
main(data, True)
"""
    )
    assert "sampler = torch.utils.data.SequentialSampler(data)\n" in fixed("DF503", text)


EVALUATED = """
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

def make(data, distributed):
    if not distributed:
        return DataLoader(data, batch_size=2)
    return DataLoader(data, batch_size=2, sampler=DistributedSampler(data, shuffle=False))

def evaluate(model, loader):
    model.eval()
    right = []
    with torch.no_grad():
        for batch in loader:
            right.append(model(batch))
    return right

torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
evaluate(model, make([1], args.distributed))
"""


def test_a_loader_of_another_branch_is_not_shared_out() -> None:
    assert "SequentialSampler" in fixed("DF503", EVALUATED)  # it was asked of it, and failed


MADE_BY_A_FUNCTION = """
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

def make_sampler(data, shuffle, distributed):
    if distributed:
        return {made}
    sampler = torch.utils.data.RandomSampler(data)
    return sampler

def make_loader(data, args):
    sampler = make_sampler(data, args.shuffle, args.distributed)
    return DataLoader(data, sampler=sampler)

torch.distributed.init_process_group("gloo")
loader = make_loader(data, args)
for epoch in range(3):
    for batch in loader:
        model(batch).backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("made", "told"),
    [("DistributedSampler(data, shuffle=shuffle)", 1), ("samplers.DistributedSampler(data)", 0)],
)
def test_a_sampler_that_a_function_makes_learns_the_epoch(made: str, told: int) -> None:
    text = MADE_BY_A_FUNCTION.format(made=made)
    assert len(found("DF402", text)) == told
    after = fixed("DF402", text)
    assert after.count("loader.sampler.set_epoch(epoch)") == told
    assert found("DF402", after) == []


OF_EITHER_BRANCH = """
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

def train(loader):
    for epoch in range(3):
        {told}
        for batch in loader:
            model(batch).backward()
            optimizer.step()

if distributed:
    torch.distributed.init_process_group("gloo")
    loader = DataLoader(data, sampler=DistributedSampler(data{order}))
else:
    loader = DataLoader(data, shuffle=True)
train(loader)
"""


@pytest.mark.parametrize(
    ("told", "order", "count"),
    [
        ("pass", "", 1),
        ("pass", ", shuffle=False", 0),
        ("if distributed: loader.sampler.set_epoch(epoch)", "", 0),
    ],
)
def test_a_loader_of_the_branch_that_ranks_take_learns_the_epoch(
    told: str, order: str, count: int
) -> None:
    text = OF_EITHER_BRANCH.format(told=told, order=order)
    assert len(found("DF402", text)) == count
    after = fixed("DF402", text)
    assert after.count("loader.sampler.set_epoch(epoch)") == ("set_epoch" in told) + count
    assert found("DF402", after) == []


AROUND_THE_FUNCTION = """
import torch
from torch.utils.data import DataLoader

def main(model, data):
    def train(step):
        for batch in loader:
            model(batch).mean().backward()
            optimizer.step()
            if torch.distributed.get_rank() == 0:
                print(validate())

    def validate():
        model.eval()
        total = 0
        with torch.no_grad():
            for batch in held:
                total += model(batch).sum().item()
        return total

    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = DataLoader(data[0])
    held = {held}
    train(0)

main(*things())
"""


@pytest.mark.parametrize(("held", "told"), [("DataLoader(data[1])", 1), ("range(3)", 0)])
def test_a_loader_of_the_function_around_is_one(held: str, told: int) -> None:
    text = AROUND_THE_FUNCTION.format(held=held)
    assert len(found("DF401", text)) == 1  # the training's, and no sampler deals it
    assert len(found("DF501", text)) == len(found("DF504", text)) == told


BEHIND_A_METER = """
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

torch.distributed.init_process_group("gloo")
loader = DataLoader(data, sampler=DistributedSampler({data}))
for epoch in range(3):
    {told}
    for batch in Meter(loader):
        model(batch).backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("data", "told", "count"),
    [
        ("data", "pass", 1),
        ("data, shuffle=False", "pass", 0),
        ("data", "tell(loader.sampler.set_epoch, epoch)", 0),
    ],
)
def test_a_sampler_that_nothing_tells_the_epoch_is_told_of(
    data: str, told: str, count: int
) -> None:
    findings = found("DF402", BEHIND_A_METER.format(data=data, told=told))
    assert [bool(each.edits) for each in findings] == [False] * count


TRAINED_BEHIND_A_METER = """
torch.distributed.init_process_group("gloo")
loader = make(data, args.distributed)
for batch in Meter({source}):
    model(batch).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("source", "mended"), [("loader", False), (None, True)])
def test_a_sampler_that_a_training_may_get_as_well_is_left(
    source: str | None, mended: bool
) -> None:
    training = TRAINED_BEHIND_A_METER.format(source=source) if source else ""
    (finding,) = found("DF503", EVALUATED + training)
    assert bool(finding.edits) is mended
    assert ("may have it from the same function" in finding.because) is not mended


OF_OBJECT = """\
import torch
from torch.utils.data import DataLoader, RandomSampler
from torch.utils.data.distributed import DistributedSampler
torch.distributed.init_process_group("gloo")
class Trainer:
    def __init__(self, args, model, data):
        self.model, self.optimizer = model, args.optimizer
        self.sampler = {sampler}
        self.loader = DataLoader(data, sampler=self.sampler)
    def train(self):
        for batch in self.loader:
            self.model(batch).backward()
            self.optimizer.step()
Trainer(args, model, data).train()
"""
DEALT = "RandomSampler(data) if args.rank < 0 else DistributedSampler(data)"


def test_the_sampler_that_an_object_keeps_is_found() -> None:
    assert found("DF401", OF_OBJECT.format(sampler=DEALT)) == []
    once = fixed("DF401", OF_OBJECT.format(sampler="RandomSampler(data)"))
    alone = "if not torch.distributed.is_initialized() else"
    assert f"self.sampler = RandomSampler(data) {alone} DistributedSampler(data)\n" in once
    assert found("DF401", once) == []


def test_a_sampler_of_another_class_or_of_another_object_is_not() -> None:
    text = OF_OBJECT.format(sampler="args.sampler") + f"class Other:\n    sampler = {DEALT}\n"
    (finding,) = found("DF401", text)
    assert not finding.edits


ROUNDS = """\
import torch
from torch.utils.data import DataLoader, Subset


def main():
    data = torch.randn(16, 2)
    model = torch.nn.DataParallel(torch.nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = DataLoader(data, batch_size=2, shuffle=True)
    for number in range(3):
        {again}
        for epoch in range(2):
            for batch in loader:
                optimizer.zero_grad()
                model(batch).mean().backward()
                optimizer.step()
        loader = DataLoader(Subset(data, range(8 + number)), batch_size=2, shuffle=True)
    test = DataLoader(data[:4])


if __name__ == "__main__":
    main()
"""
IN_METHODS = """\
import torch
from torch.utils.data import DataLoader, Subset


class Runner:
    def __init__(self, data):
        self.data = data
        self.model = torch.nn.DataParallel(torch.nn.Linear(2, 2))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        self.loader = DataLoader(data, batch_size=2, shuffle=True)

    def choose(self):
        self.loader = {chosen}

    def train(self):
        for epoch in range(2):
            for batch in self.loader:
                self.optimizer.zero_grad()
                self.model(batch).mean().backward()
                self.optimizer.step()
            self.choose()


if __name__ == "__main__":
    Runner(torch.randn(16, 2)).train()
"""
ANOTHER = "DataLoader(Subset(self.data, range(8)), batch_size=2, shuffle=True)"
AGAIN = "loader = DataLoader(data[number:], batch_size=2, shuffle=True)"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (ROUNDS.format(again="pass"), 2),
        (ROUNDS.format(again=AGAIN), 1),
        (IN_METHODS.format(chosen=ANOTHER), 2),
        (IN_METHODS.replace("choose", "test").format(chosen=ANOTHER), 1),
        (IN_METHODS.format(chosen="list(self.loader)"), 1),
    ],
    ids=[
        "behind the epochs of a round",
        "at the head of a round",
        "in another method",
        "in a method that evaluates",
        "a list of its batches",
    ],
)
def test_a_loader_for_the_next_round_is_dealt_as_the_first(
    text: str, count: int, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(text)
    (loop,) = Program(module(text)).train_loops
    assert loop.loader is not None
    assert len({loop.loader.call, *(each.call for each in loop.loader.others)}) == count
    assert patch(script).diff().count("else DistributedSampler(") == count
