"""A progress bar around a loader without a name, and an accumulation that is computed."""

from __future__ import annotations

import pytest
from cases import fixed, found

EPOCHS = """\
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from tqdm import tqdm
for epoch in range(3):
    {bar}
    for step, batch in enumerate({over}):
        model(batch).backward()
        if (step + 1) % {accumulation} == 0:
            optimizer.step()
"""
MADE = "DataLoader(data, sampler=DistributedSampler(data))"


def script(bar: str, over: str = "bar", accumulation: str = "4") -> str:
    return EPOCHS.format(bar=bar, over=over, accumulation=accumulation)


@pytest.mark.parametrize("around", ["tqdm({}, desc='x')", "iter({})", "progress_bar({}, parent=x)"])
def test_the_epoch_goes_to_the_loader_and_not_to_the_bar(around: str) -> None:
    text = fixed("DF402", script("bar = " + around.format(MADE)))
    assert (
        f"    train_loader = {MADE}\n"
        "    if isinstance(train_loader.sampler, DistributedSampler):\n"
        "        train_loader.sampler.set_epoch(epoch)\n"
        f"    bar = {around.format('train_loader')}\n"
    ) in text
    assert found("DF402", text) == []
    assert "step + 1 == len(train_loader)" in fixed("DF703", text)


def test_a_bar_of_epochs_counts_them() -> None:
    text = script("bar = progress_bar(" + MADE + ", parent=all_epochs)").replace(
        "for epoch in range(3)", "all_epochs = master_bar(range(3))\nfor epoch in all_epochs"
    )
    assert "train_loader.sampler.set_epoch(epoch)" in fixed("DF402", text)


def test_a_bar_of_epochs_that_is_entered_counts_them() -> None:
    text = script(f"loader = {MADE}", "loader").split("for epoch in range(3):\n")
    turns = text[1].replace("\n    ", "\n        ").replace("    ", "        ", 1)
    whole = f"{text[0]}with tqdm(range(3)) as bar:\n    for epoch in bar:\n{turns}"
    assert "loader.sampler.set_epoch(epoch)" in fixed("DF402", whole)


@pytest.mark.parametrize(("rank", "added"), [("== 0", 2), (">= 0", 0), ("!= -1", 0)])
def test_an_epoch_that_only_rank_0_hears_of_is_told_to_all(rank: str, added: int) -> None:
    told = f"if torch.distributed.get_rank() {rank}: loader.sampler.set_epoch(epoch)"
    text = script(f"loader = {MADE}", "loader").replace("for epoch", "{}for epoch", 1)
    text = text.format(f"loader = {MADE}\n").replace(f"    loader = {MADE}", f"    {told}")
    assert fixed("DF402", text).count("\n") - text.count("\n") == added


def test_an_epoch_that_an_object_counts_reaches_the_sampler() -> None:
    text = script(f"loader = {MADE}", "loader").replace("for epoch", "for self.epoch", 1)
    assert "loader.sampler.set_epoch(self.epoch)" in fixed("DF402", text)


SHARED = """
import torch
from torch.utils.data import DataLoader, DistributedSampler
def run(model, loader, optimizer=None):
    for batch in loader:
        loss = model(batch).mean()
        if optimizer:
            loss.backward()
            optimizer.step()
def main(model, data, tests, optimizer):
    sampler = DistributedSampler(data)
    loader = DataLoader(data, sampler=sampler)
    for epoch in range(3):
        {told}
        run(model, loader, optimizer)
        run(model, DataLoader(tests))
"""


def test_an_epoch_that_a_caller_of_two_passes_tells_is_told() -> None:
    assert found("DF402", SHARED.format(told="pass"))
    assert found("DF402", SHARED.format(told="sampler.set_epoch(epoch)")) == []


ONCE = """
import torch
from torch.utils.data import DataLoader, DistributedSampler
def train(loader, model):
    for batch in loader:
        model(batch).backward()
        optimizer.step()
def main(data, model):
    loader = DataLoader(data, sampler=DistributedSampler(data))
    {around}train(loader, model)
main(*read())
"""


@pytest.mark.parametrize(("around", "told"), [("", 0), ("while not done(): ", 1)])
def test_a_loader_that_is_gone_over_once_has_one_epoch(around: str, told: int) -> None:
    assert len(found("DF402", ONCE.format(around=around))) == told


@pytest.mark.parametrize("bar", ["tqdm(DataLoader(data))", "iter(DataLoader(data))"])
def test_a_bar_alone_is_not_asked_for_what_a_loader_has(bar: str) -> None:
    assert "len(bar)" not in fixed("DF703", script(f"bar = {bar}"))


@pytest.mark.parametrize("number", ["(args.a // args.b)", "args.n", "each['n']"])
def test_a_computed_accumulation_stays_in_its_parentheses(number: str) -> None:
    text = fixed("DF703", script("loader = " + MADE, "loader", number))
    assert f"last_micro_step = (step + 1) % {number} == 0 or step + 1 == len(loader)" in text


def test_the_horizon_is_divided_by_it_as_a_whole() -> None:
    text = script("loader = " + MADE, "loader", "(args.a // args.b)").replace(
        "for epoch", "loader = DataLoader(data)\ntotal = len(loader) * 3\n"
        "schedule = get_linear_schedule_with_warmup(optimizer, 0, total)\nfor epoch", 1
    ).replace("    loader = " + MADE + "\n", "")  # fmt: skip
    assert "steps_per_epoch = -(-len(loader) // (args.a // args.b))" in fixed("DF702", text)


IN_A_FUNCTION = """\
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from tqdm import tqdm

def train(model, optimizer, loader):
    loader = tqdm(loader, desc="train")
    for step, batch in enumerate(loader):
        model(batch).backward()
        loader.desc = f"step {step}"
        optimizer.step()

def main(data):
    batches = DataLoader(data, sampler=DistributedSampler(data))
    for epoch in range(3):
        train(model=model, optimizer=optimizer, loader=batches)

main(data)
"""


def test_a_bar_may_take_the_name_of_a_parameter() -> None:
    after = fixed("DF402", IN_A_FUNCTION)
    assert "        batches.sampler.set_epoch(epoch)\n        train(model=model" in after
    assert found("DF402", after) == []


BAR_OF_RANK_0 = """\
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
from tqdm import tqdm
def bar_on_main(loader):
    if dist.get_rank() == 0:
        return tqdm(loader)
    else:
        return loader
def train(model, optimizer, batches):
    bar = bar_on_main({passed})
    for x in bar:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
train_loader = DataLoader(data, sampler=DistributedSampler(data))
for epoch in range(9):
    train(model, optimizer, train_loader)
"""


@pytest.mark.parametrize("passed", ["train_loader", "batches"])
def test_a_bar_that_a_function_puts_around_a_loader_hides_no_epochs(passed: str) -> None:
    text = fixed("DF402", BAR_OF_RANK_0.format(passed=passed))
    assert "        train_loader.sampler.set_epoch(epoch)\n    train(model" in text
    assert found("DF402", text) == []


BAR_OF_AN_OBJECT = """\
import torch
from torch.utils.data import DataLoader, DistributedSampler
from tqdm import tqdm
class Bar:
    def {method}(self, batches):
        self.bar = tqdm(batches)
        return self.bar
torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
loader = DataLoader(data, sampler=DistributedSampler(data))
bar = Bar()
for epoch in range(9):
    for x in bar{call}(loader):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
"""


@pytest.mark.parametrize(("method", "call"), [("__call__", ""), ("around", ".around")])
def test_the_epoch_is_not_told_to_an_object_s_own_bar(method: str, call: str) -> None:
    text = fixed("DF402", BAR_OF_AN_OBJECT.format(method=method, call=call))
    assert "        loader.sampler.set_epoch(epoch)\n    for x" in text
    assert "self.bar.sampler" not in text
