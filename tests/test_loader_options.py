"""DF401: loaders that get their sampler by ``**options``; DF702: horizons by counts of cards."""

from __future__ import annotations

import pytest
from cases import fixed, found

SCRIPT = """
import torch
from torch.utils.data import DataLoader, RandomSampler
from torch.utils.data.distributed import DistributedSampler
torch.distributed.init_process_group('gloo')
alone = args.local_rank == -1
sampler = {sampler}
{options}
loader = DataLoader(data, **options)
total = len(data) // args.size // {cards} * 3
schedule = get_linear_schedule_with_warmup(optimizer, 0, num_training_steps=total)
for epoch in range(3):
    {first}
    for batch in loader:
        model(batch).backward()
        optimizer.step()
        schedule.step()
"""
DEALT = "RandomSampler(data) if alone else DistributedSampler(data)"
OPTIONS = [
    "options = {'batch_size': args.size, 'sampler': sampler}",
    "options = dict(batch_size=args.size, sampler=sampler)",
    "options = {'batch_size': args.size}\noptions['sampler'] = sampler",
]


def script(options: str, sampler: str = DEALT, cards: str = "1") -> str:
    first = "if not alone:\n        sampler.set_epoch(epoch)"
    return SCRIPT.format(options=options, sampler=sampler, cards=cards, first=first)


@pytest.mark.parametrize("options", OPTIONS)
def test_a_sampler_among_options_deals(options: str) -> None:
    assert found("DF401", script(options)) == []
    new = fixed("DF401", script(options, "RandomSampler(data)"))
    assert "sampler = RandomSampler(data) if not torch.distributed.is_initialized() else" in new
    assert "DataLoader(data, **options)" in new


def test_a_number_tells_whether_a_loader_shuffles() -> None:
    text = script(OPTIONS[0]).replace("**options", "batch_size=8, shuffle={}")
    assert "DistributedSampler(data))" in fixed("DF401", text.replace("{}", "1", 1))
    assert "DistributedSampler(data, shuffle=False))" in fixed("DF401", text.replace("{}", "0"))


def test_no_second_sampler_is_given_beside_options_that_may_have_one() -> None:
    (finding,) = found("DF401", script("options = read()\nprint(options['sampler'])"))
    assert finding.edits == ()


def test_a_horizon_is_divided_once_by_the_cards_of_all_ranks() -> None:
    counted = "args.n_gpu = len(args.cards.split(','))\n"
    assert "args.size * world_size" in fixed("DF702", script(OPTIONS[0]))
    assert fixed("DF702", text := script(counted + OPTIONS[0], cards="args.n_gpu")) == text.lstrip()


CALLED = """
import torch
from torch.utils.data import DataLoader, DistributedSampler
def train(batches, model, optimizer, schedule):
    for batch in batches:
        model(batch).backward()
        optimizer.step()
        schedule.step()
def main(args, rows, tests, model):
    torch.distributed.init_process_group('gloo')
    data = TensorDataset(rows)
    loader = DataLoader(data, sampler=DistributedSampler(data), batch_size=args.size)
    steps = int({examples} / args.size * args.epochs)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, total_iters=steps)
    for epoch in range(args.epochs):
        train(loader, model, optimizer, schedule)
main(*read())
"""


def test_a_horizon_beside_the_calls_of_the_function_that_trains_is_divided() -> None:
    for examples in ("len(rows)", "len(data)"):
        new = fixed("DF702", CALLED.format(examples=examples))
        assert f"{examples} / (args.size * world_size) * args.epochs" in new
        assert found("DF702", new) == []
    for right in ("len(tests)", "len(rows) // torch.distributed.get_world_size()"):
        assert fixed("DF702", text := CALLED.format(examples=right)) == text.lstrip()


EVALUATED = """
import torch
from torch.utils.data import DataLoader
torch.distributed.init_process_group('gloo')
options = {options}
loader = DataLoader(data, batch_size=8{told}, **options)
def test(model):
    model.eval()
    hits = 0
    with torch.no_grad():
        for x, y in loader:
            hits += (model(x).argmax(1) == y).sum().item()
    return hits / len(loader.dataset)
test(model)
"""


def evaluated(options: str, told: str = "") -> str:
    return EVALUATED.format(options=options, told=told)


def test_a_share_is_not_shuffled_by_options_of_the_loader() -> None:
    options = "{}\nif has_card():\n    options.update({'shuffle': True})"
    new = fixed("DF505", evaluated(options))
    assert found("DF505", new) == []
    dealt = "{**options, 'shuffle': False, 'sampler': shard_of_batches(data, 8)}"
    assert f"batch_size=8, **options if not torch.distributed.is_initialized() else {dealt})" in new
    assert found("DF505", new) == []
    for text in (evaluated("{'a': 1}"), evaluated("read()", ", shuffle=False")):
        assert ", **options, sampler=None if" in fixed("DF505", text)
    mixed = evaluated("{'sampler': read()}")
    assert fixed("DF505", mixed) == mixed.lstrip()
