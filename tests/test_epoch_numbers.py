"""DF402 where steps begin their loaders themselves, or their function is told the epoch."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import fixed, found
from ddpfix.patcher.engine.patch import patch

TAKES = """\
import torch
from torch.utils.data import DataLoader, DistributedSampler

def train(model, optimizer, {parameters}):
    {head}
    for step in range(90):
        try:
            x = next(batches)
        except StopIteration:
            batches = {begin}
            x = next(batches)
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

def main(data):
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = DataLoader(data, sampler=DistributedSampler(data))
    for epoch in range(9):
        train(model, optimizer, {passed})

main(torch.rand(64, 4))
"""
NEXT = "loader.sampler.set_epoch(loader.sampler.epoch + 1)"


def takes(begin: str) -> str:
    head = f"batches = {begin}"
    return TAKES.format(head=head, begin=begin, parameters="loader", passed="loader")


@pytest.mark.parametrize("begin", ["iter(loader)", "enumerate(loader)"])
def test_what_begins_a_loader_above_the_steps_takes_the_next_number_too(begin: str) -> None:
    after = fixed("DF402", takes(begin))
    guard = f"if isinstance(loader.sampler, DistributedSampler):\n{{0}}    {NEXT}\n{{0}}batches ="
    assert guard.format(" " * 4) in after
    assert guard.format(" " * 12) in after
    assert found("DF402", after) == []


EPOCHS = """\
import torch
from torch.utils.data import DataLoader, DistributedSampler

def train(number, model, optimizer, loader):
    {head}
    for x in loader:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

def main(data):
    torch.distributed.init_process_group("gloo")
    first = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    second = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    steps1 = torch.optim.SGD(first.parameters(), 0.1)
    steps2 = torch.optim.SGD(second.parameters(), 0.1)
    for epoch in range(9):
        loader = DataLoader(data, sampler=DistributedSampler(data))
        train(epoch, first, steps1, loader)
        train({number}, second, steps2, loader)

main(torch.rand(64, 4))
"""


def test_a_function_that_is_called_twice_in_an_epoch_has_its_number_as_a_parameter() -> None:
    after = fixed("DF402", EPOCHS.format(head="pass", number="epoch"))
    assert "    loader.sampler.set_epoch(number)\n    for x in loader:" in after
    assert found("DF402", after) == []


@pytest.mark.parametrize(
    ("head", "number"), [("pass", "0"), ("number = 0", "epoch"), ("pass", "epoch // 2")]
)
def test_what_is_no_number_of_the_epoch_is_not_taken_for_one(head: str, number: str) -> None:
    after = fixed("DF402", EPOCHS.format(head=head, number=number))
    assert "set_epoch(number)" not in after
    assert "    loader.sampler.set_epoch(loader.sampler.epoch + 1)\n    for x in loader:" in after


PHASES = """\
import torch
from torch.utils.data import DataLoader, DistributedSampler

def run(model, loader, optimizer):
    is_training = optimizer is not None
    model.train() if is_training else model.eval()
    for x in loader:
        loss = model(x).sum()
        if is_training:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

def main(data):
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train_loader = DataLoader(data, sampler=DistributedSampler(data))
    held_out = DataLoader(data)
    for epoch in range(9):
        run(model, train_loader, optimizer)
        run(model, held_out, None)

main(torch.rand(64, 4))
"""


def test_a_function_for_both_phases_trains_where_it_gets_an_optimizer() -> None:
    after = fixed("DF402", PHASES)
    assert "        train_loader.sampler.set_epoch(epoch)\n        run(" in after.replace(
        "    if", "if"
    )


def test_a_loader_in_a_dictionary_is_told_by_its_key() -> None:
    text = takes("iter(loaders['train'])").replace("optimizer, loader", "optimizer, loaders")
    text = text.replace("loader = DataLoader", "loaders = {}; loaders['train'] = DataLoader")
    after = fixed("DF402", text)
    told = "loaders['train'].sampler.set_epoch(loaders['train'].sampler.epoch + 1)"
    assert after.count(told) == 2


BY_PHASE = """\
import torch
from torch.utils.data import DataLoader, DistributedSampler

def run(phase, model, optimizer, batches):
    for x in batches:
        if phase == "train":
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()

torch.distributed.init_process_group("gloo")
data = torch.rand(64, 4)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
loaders = {"train": DataLoader(data, sampler=DistributedSampler(data)), "val": DataLoader(data)}
for epoch in range(9):
    for phase in loaders:
        run(phase, model, optimizer, loaders[phase])
"""


def test_a_loader_of_the_phase_is_told_where_there_is_a_phase() -> None:
    after = fixed("DF402", BY_PHASE)
    told = "if isinstance(loaders[phase].sampler, DistributedSampler):"
    assert f"for phase in loaders:\n        {told}" in after
    assert found("DF402", after) == []


MADE_ANEW = """\
import torch
from torch.utils.data import DataLoader, DistributedSampler

class Data:
    def __init__(self, data):
        self.data = data

    def batches(self):
        return DataLoader(self.data, sampler=DistributedSampler(self.data))

torch.distributed.init_process_group("gloo")
mine = Data(torch.rand(64, 4))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for epoch in range(9):
    for step, x in enumerate(mine.batches()):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
"""


def test_a_loader_that_a_function_makes_in_each_epoch_gets_a_name_and_is_told() -> None:
    after = fixed("DF402", MADE_ANEW)
    assert (
        "    train_loader = mine.batches()\n"
        "    if isinstance(train_loader.sampler, DistributedSampler):\n"
        "        train_loader.sampler.set_epoch(epoch)\n"
        "    for step, x in enumerate(train_loader):\n"
    ) in after
    assert found("DF402", after) == []


HARDER = """\
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler

class Rows(Dataset):
    def __init__(self, rows):
        self.rows, self.level = rows, 0
        self.sampler = None

    def set_epoch(self, epoch):
        {told}

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i] * self.level

torch.distributed.init_process_group("gloo")
rows = Rows(torch.rand(64, 4))
loader = DataLoader(rows, sampler=DistributedSampler(rows))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for epoch in range(9):
    {call}
    for x in loader:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("call", "told", "is_of_sampler"),
    [
        ("rows.set_epoch(epoch)", "self.level = epoch", False),
        ("loader.dataset.set_epoch(epoch)", "self.level = epoch", False),
        ("rows.set_epoch(epoch)", "self.sampler.set_epoch(epoch)", True),
        ("loader.sampler.set_epoch(epoch)", "self.level = epoch", True),
    ],
)
def test_a_data_set_that_is_told_the_epoch_is_no_sampler(
    call: str, told: str, is_of_sampler: bool
) -> None:
    text = HARDER.format(call=call, told=told)
    after = fixed("DF402", text)
    assert (after == text) is is_of_sampler
    assert ("        loader.sampler.set_epoch(epoch)\n" in after) is not is_of_sampler


MADE_BY_STEPS = """\
import torch
from torch.utils.data import DataLoader, DistributedSampler

def train(model, optimizer, data, size):
    for step in range(90):
        if step % 9 == 0:
            batches = iter(DataLoader(data, size, sampler=DistributedSampler(data)))
        x = next(batches)
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
train(model, torch.optim.SGD(model.parameters(), 0.1), torch.rand(64, 4), 8)
"""


def test_rank_0_draws_the_order_of_a_loader_that_steps_make_anew() -> None:
    after = fixed("DF402", MADE_BY_STEPS)
    drawn = "sampler=DealtBatches(torch.utils.data.RandomSampler(data), size)"
    assert f"batches = iter(DataLoader(data, size, {drawn}))\n" in after
    assert found("DF402", after) == []


ONCE_MORE = """\
    batches = iter(DataLoader(data, size, sampler=DistributedSampler(data)))
    for step in range(90):
        try:
            x = next(batches)
        except StopIteration:
            batches = iter(DataLoader(data, size, sampler=DistributedSampler(data)))
            x = next(batches)
"""


@pytest.mark.parametrize("is_flat", [False, True])
def test_a_loader_that_is_made_again_where_the_first_one_ends_has_another_order(
    is_flat: bool,
) -> None:
    head, _, rest = MADE_BY_STEPS.partition("    for step")
    text = head + ONCE_MORE + rest[rest.index("        optimizer.zero_grad") :]
    if is_flat:
        text = text.replace("def train(model, optimizer, data, size):", "if is_ready():")
        text = text.replace("train(model, torch", "print(model, torch")
    after = fixed("DF402", text)
    assert after.count("sampler=DistributedSampler(data)") == 1
    assert after.count("sampler=DealtBatches(torch.utils.data.RandomSampler(data), size)") == 1
    assert found("DF402", after) == []


METHODS = """\
import torch
from tqdm import tqdm
from torch.utils.data import DataLoader, DistributedSampler

class Trainer:
    def __init__(self, data):
        torch.distributed.init_process_group("gloo")
        self.loader = DataLoader(data, sampler=DistributedSampler(data))
        self.model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)

    def epochs(self):
        return tqdm(list(range(9)))

    def batches(self):
        bar = {bar}
        return bar

    def train(self, epoch):
        batches = self.batches()
        for x in batches:
            self.optimizer.zero_grad()
            self.model(x).sum().backward()
            self.optimizer.step()

    def run(self):
        for epoch in {epochs}:
            self.train(epoch)

Trainer(torch.rand(64, 4)).run()
"""


@pytest.mark.parametrize("epochs", ["range(9)", "list(range(9))", "self.epochs()"])
@pytest.mark.parametrize("bar", ["tqdm(self.loader)", "self.loader"])
def test_a_bar_that_a_method_returns_is_told_no_epoch(bar: str, epochs: str) -> None:
    text = fixed("DF402", METHODS.format(bar=bar, epochs=epochs))
    told = "batches" if bar == "self.loader" else "self.loader"
    assert f"    {told}.sampler.set_epoch(epoch)\n" in text
    assert not found("DF402", text)


@pytest.mark.parametrize("epochs", ["[0, 1, 2]", "list(data)", "self.batches()"])
def test_a_list_of_anything_counts_no_epochs(epochs: str) -> None:
    text = METHODS.format(bar="tqdm(self.loader)", epochs=epochs)
    assert ".set_epoch(epoch)" not in fixed("DF402", text)


ROUNDS = """\
import torch
from torch.utils.data import DataLoader, DistributedSampler

class Client:
    def __init__(self, data):
        self.loader = DataLoader(data, sampler={sampler})

    def train(self, model, optimizer):
        for epoch in range(2):
            self.loader.sampler.set_epoch(epoch)
            for x in self.loader:
                optimizer.zero_grad()
                model(x).sum().backward()
                optimizer.step()

def main(parts):
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for turn in {turns}:
        {inner}
            Client(part).train(model, optimizer)

main(torch.rand(64, 4).split(16))
"""
DEALT = "DistributedSampler(data)"


@pytest.mark.parametrize(
    ("sampler", "turns", "inner", "count"),
    [
        (DEALT, "range(5)", "for part in parts:", 1),
        (DEALT, "range(5)", "if (part := parts[turn]) is not None:", 0),
        (DEALT, "seen", "for part in parts:", 0),
        ("DistributedSampler(data, shuffle=False)", "range(5)", "for part in parts:", 0),
    ],
    ids=["rounds of clients", "folds", "any things", "in order"],
)
def test_rounds_that_make_their_loaders_anew_are_told_of(
    sampler: str, turns: str, inner: str, count: int
) -> None:
    findings = found("DF402", ROUNDS.format(sampler=sampler, turns=turns, inner=inner))
    told = "each round of line 20 makes this loader anew, in its first orders"
    assert [finding.because for finding in findings] == [told] * count


FILES_IN_TURN = """\
import torch
from torch.utils.data import DataLoader, DistributedSampler

def loaders(files):
    for file in files:
        data = read(file)
        yield DataLoader(data, sampler=DistributedSampler(data))

torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for epoch in range(9):
    for loader in loaders(files):
        for x in loader:
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
"""


def test_loaders_of_files_that_come_in_turn_are_told_the_epoch_and_no_more() -> None:
    after = fixed("DF402", FILES_IN_TURN)
    assert "loader.sampler.set_epoch(epoch)\n        for x in loader:\n" in after
    assert found("DF402", after) == []


STEPS_APART = """\
import torch
from torch.utils.data import DataLoader, DistributedSampler
from steps import train

def main():
    torch.distributed.init_process_group("gloo")
    data = torch.rand(64, 4)
    loader = DataLoader(data, sampler=DistributedSampler(data))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(9):
        train(model, loader, optimizer, epoch)

if __name__ == "__main__":
    main()
"""
STEPS = """\
import torch
def train(model, loader, optimizer, epoch):
    for x in loader:
        {more}
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    print(epoch)
"""


def test_long_steps_of_another_module_make_no_loader(tmp_path: Path) -> None:
    """Places in two modules were compared as if they were of one."""
    script = tmp_path / "run.py"
    script.write_text(STEPS_APART)
    (tmp_path / "steps.py").write_text(STEPS.format(more="; ".join(["x = x + 1"] * 60)))
    text = "".join(change.text for change in patch(script).changes)
    assert text.count("loader.sampler.set_epoch(epoch)\n") == 1
