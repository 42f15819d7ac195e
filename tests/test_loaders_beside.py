"""DF401 and DF402 for steps that take batches of several loaders."""

from __future__ import annotations

import pytest
from cases import fixed, found

SCRIPT = """
import torch
from itertools import cycle
from torch.utils.data import DataLoader, DistributedSampler
torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
first = DataLoader(torch.rand(8, 4), shuffle=True)
second = DataLoader(torch.rand(80, 4), shuffle=True)
others = iter(second)
for epoch in range(3):
    for {target} in {source}:
        {other}
        model(x).sum().backward()
        optimizer.step()
"""
AGAIN = """try:
            y = next(others)
        except StopIteration:
            others = iter(second)
            y = next(others)"""
LOOK = """if epoch > 1:
            y = next(others)"""
SHOW = """with torch.no_grad():
            y = next(others)"""


def script(target: str = "x", source: str = "first", other: str = "y = next(others)") -> str:
    return SCRIPT.format(target=target, source=source, other=other)


@pytest.mark.parametrize(
    ("text", "dealt"),
    [
        (script(), 2),
        (script(other="y = others.next()"), 2),
        (script("x, y", "zip(first, second)", "pass"), 2),
        (script("i, (x, y)", "enumerate(zip(first, second))", "pass"), 2),
        (script("x, y", "zip(second, cycle(first))", "pass"), 2),
        (script(other=LOOK), 1),
        (script(other=SHOW), 1),
        (script(other="y = next(iter(first))"), 1),
    ],
)
def test_each_loader_that_every_step_takes_from_is_dealt(text: str, dealt: int) -> None:
    after = fixed("DF401", text)
    assert after.count("else DistributedSampler(") == dealt
    after = fixed("DF402", after)
    assert after.count(".set_epoch(epoch)") == dealt


MADE_BY_ONE = """
def make(data):
    return DataLoader(data, shuffle=True)
"""


@pytest.mark.parametrize(
    ("first", "second"),
    [("make(a)", "make(b)"), ("make(a)", "DataLoader(b, shuffle=True)")],
)
def test_loaders_of_one_function_are_dealt_and_told_alike(first: str, second: str) -> None:
    text = script("x, y", "zip(first, second)", "pass")
    text = text.replace("DataLoader(torch.rand(8, 4), shuffle=True)", first)
    text = text.replace("DataLoader(torch.rand(80, 4), shuffle=True)", second)
    text = text.replace("torch.distributed.init", f"{MADE_BY_ONE}torch.distributed.init", 1)
    after = fixed("DF401", text)
    assert "to_train" not in after
    after = fixed("DF402", after)
    assert "first.sampler.set_epoch(epoch)" in after
    assert "second.sampler.set_epoch(epoch)" in after


OPTIONAL = SCRIPT.replace("others = iter(second)", "if args.semi:\n    others = iter(second)")
TRAINS = """loss = 0
        if args.semi:
            try:
                y = next(others)
            except StopIteration:
                others = iter(second)
                y = next(others)
            extra = {}
            extra["loss"] = model(y).sum()
            loss = loss + extra["loss"]
        loss.backward()"""
BEGINS = [
    # What the steps do beside, and how many loaders are dealt, and begin anew.
    ("a batch that is looked at", "if epoch > 1:\n            show(model(next(others)))", 1, 0),
    ("a batch that an option lets train", TRAINS, 2, 1),
    ("a loader that begins anew where it ends", AGAIN, 2, 1),
    ("a loader that begins anew in each step", "y = next(iter(second))", 2, 1),
    ("the loop's own, looked at", "show(next(iter(first)))", 1, 0),
]


@pytest.mark.parametrize(("other", "dealt", "begun"), [row[1:] for row in BEGINS])
def test_a_loader_that_begins_anew_learns_its_next_number(
    other: str, dealt: int, begun: int
) -> None:
    text = OPTIONAL.format(target="x", source="first", other=other)
    after = fixed("DF402", fixed("DF401", text))
    assert after.count("else DistributedSampler(") == dealt
    assert after.count("second.sampler.set_epoch(second.sampler.epoch + 1)") == begun
    assert after.count("first.sampler.set_epoch(epoch)") == 1
    assert found("DF402", after) == []


@pytest.mark.parametrize(("first", "dealt"), [("y = x", 1), ("if epoch == 0: y = x", 2)])
def test_a_batch_that_is_taken_behind_the_losses_trains_if_the_next_step_keeps_it(
    first: str, dealt: int
) -> None:
    text = script(other=first).replace("model(x)", "model(y)")
    text += "        if epoch > 1:\n            y = next(others)\n            show(model(y))\n"
    assert fixed("DF401", text).count("else DistributedSampler(") == dealt


def test_a_loader_that_may_be_missing_is_told_where_the_steps_begin_it() -> None:
    text = script("x, y", "zip(first, second)", "pass")
    text = text.replace("second = Data", "if args.semi:\n    second = Data")
    after = fixed("DF402", fixed("DF401", text))
    told = "second.sampler.set_epoch(second.sampler.epoch + 1)"
    assert f"        {told}\n    for x, y in zip(first, second):" in after
    assert after.count("first.sampler.set_epoch(epoch)") == 1
    assert found("DF402", after) == []


FOREVER = """
def forever(loader):
    while True:
        yield from loader
torch.distributed"""


@pytest.mark.parametrize(
    ("made", "source", "other"),
    [
        ("pairs = zip(first, second)", "pairs", "y = 0"),
        ("pairs = zip(first, second)", "tqdm(pairs, total=9)", "y = 0"),
        ("pairs = zip(forever(first), forever(second))", "range(9)", "x, y = next(pairs)"),
    ],
)
def test_loaders_that_are_zipped_by_a_name_are_dealt(made: str, source: str, other: str) -> None:
    text = script("x", source, other).replace("    for x in", f"    {made}\n    for x in", 1)
    text = text.replace("\ntorch.distributed", FOREVER, 1)
    after = fixed("DF402", fixed("DF401", text))
    assert after.count("else DistributedSampler(") == 2
    told = after.count(".sampler.set_epoch(epoch)")
    assert told == 2 or "loader.sampler.set_epoch(loader.sampler.epoch + 1)" in after
    assert found("DF402", after) == []


def test_a_generator_that_begins_its_loader_anew_is_no_cycle() -> None:
    text = script(other="y = next(forever(first))").replace("in first", "in range(9)")
    text = text.replace("model(x)", "model(y)").replace("\ntorch.distributed", FOREVER, 1)
    assert not any("alone too" in each.because for each in found("DF402", text))


PEEK = """if i % 5 == 0:
            j, x = next(enumerate(second))
            show(model.eval()(x))"""


def test_a_batch_that_is_looked_at_behind_the_losses_may_have_a_number_of_its_own() -> None:
    text = script("i, x", "enumerate(first)", "pass") + f"        {PEEK}\n"
    assert fixed("DF401", text).count("else DistributedSampler(") == 1


def test_steps_that_begin_their_loader_get_another_batch_each_time() -> None:
    text = script("i", "range(9)", "x = next(iter(first))")
    after = fixed("DF402", fixed("DF401", text))
    assert "first.sampler.set_epoch(first.sampler.epoch + 1)\n        x = next(iter(" in after


KIND = """
import torch
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler
{group}
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
kind = RandomSampler if args.local_rank == -1 else {kind}
loader = DataLoader(data, sampler=kind(data))
for epoch in range(3):
    {set_epoch}
    for x in loader:
        model(x).sum().backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("kind", "set_epoch", "codes"),
    [
        ("DistributedSampler", "loader.sampler.set_epoch(epoch)", []),
        ("DistributedSampler", "pass", ["DF402"]),
        ("SequentialSampler", "pass", ["DF401"]),
    ],
)
def test_the_kind_of_sampler_may_be_chosen_first(
    kind: str, set_epoch: str, codes: list[str]
) -> None:
    text = KIND.format(
        group="torch.distributed.init_process_group('gloo')", kind=kind, set_epoch=set_epoch
    )
    assert [code for code in ("DF401", "DF402") if found(code, text)] == codes
    if codes == ["DF402"]:
        assert "if isinstance(loader.sampler, DistributedSampler):" in fixed("DF402", text)


FILES = """
import torch
from torch.utils.data import DataLoader, DistributedSampler
torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
for epoch in range(3):
    for part in range(2):
        data = read(part)
        loader = DataLoader(data, sampler=DistributedSampler(data))
        for x in loader:
            model(x).sum().backward()
            optimizer.step()
"""


def test_a_loader_of_each_file_has_another_order_in_each_epoch() -> None:
    assert "loader.sampler.set_epoch(epoch + part)" in fixed("DF402", FILES)
    alone = FILES.replace("for part in range(2):", "for part in parts:")
    assert "loader.sampler.set_epoch(epoch)" in fixed("DF402", alone)


def test_two_data_sets_of_one_statement_keep_names_of_their_own() -> None:
    made = "first, second = DataLoader(make(8), shuffle=True), DataLoader(make(80), shuffle=True)\n"
    first, _, second = SCRIPT.partition("first = ")[2].partition("second = ")
    both = f"first = {first}second = {second.partition('others')[0]}"
    text = script("x, y", "zip(first, second)", "pass").replace(both, made)
    after = fixed("DF401", text)
    assert "train_dataset = make(8)\ntraining_dataset = make(80)\n" in after
    assert "DataLoader(train_dataset, " in after
    assert "DataLoader(training_dataset, " in after
    assert "DistributedSampler(training_dataset)" in after


STEPS = """
import torch
from torch.utils.data import DataLoader, DistributedSampler
torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
loader = DataLoader(torch.rand(80, 4), shuffle=True)
for epoch in range(3):
    for x in loader:
        for k in {often}:
            model(x + noise).sum().backward()
            optimizer.step()
        {behind}
"""


@pytest.mark.parametrize(
    "behind", ["pass", "critic(x).backward(); optimizer.step()"], ids=["alone", "and one more"]
)
def test_a_loader_whose_batches_get_several_steps_each_is_dealt(behind: str) -> None:
    after = fixed("DF402", fixed("DF401", STEPS.format(often="range(4)", behind=behind)))
    assert after.count("else DistributedSampler(") == 1
    assert after.count("loader.sampler.set_epoch(epoch)") == 1
    assert [found(code, after) for code in ("DF401", "DF402")] == [[], []]


def test_steps_on_what_a_batch_holds_are_not_told_by_its_loader() -> None:
    (finding,) = found("DF401", STEPS.format(often="parts(x)", behind="pass"))
    assert not finding.edits
