"""DF401: a loader whose sampler is None on some way is dealt there, too."""

from __future__ import annotations

import pytest
from cases import fixed, found

SCRIPT = """import torch
from torch.utils.data import DataLoader, WeightedRandomSampler
from torch.utils.data.distributed import DistributedSampler

def train(args, data, weights, model):
    torch.distributed.init_process_group("nccl")
    {sampler}
    loader = DataLoader(data, batch_size=4, shuffle={shuffle}, sampler=sampler)
    for batch in loader:
        model(batch).sum().backward()
        optimizer.step()
"""
ELSE = """if args.balanced:
        sampler = WeightedRandomSampler(weights, 9)
    else:
        sampler = None"""
ABOVE = """sampler = None
    if args.balanced:
        sampler = WeightedRandomSampler(weights, 9)"""
ALONE = "not torch.distributed.is_initialized()"


@pytest.mark.parametrize("sampler", [ELSE, ABOVE])
@pytest.mark.parametrize(
    ("shuffle", "of_one", "how"),
    [
        ("sampler is None", f"sampler is None and {ALONE}", ""),
        ("not args.balanced", f"not args.balanced and {ALONE}", ", shuffle=not args.balanced"),
        ("False", "False", ", shuffle=False"),
    ],
)
def test_both_ways_are_dealt(sampler: str, shuffle: str, of_one: str, how: str) -> None:
    text = SCRIPT.format(sampler=sampler, shuffle=shuffle)
    after = fixed("DF401", text)
    dealt = f"sampler if sampler is not None or {ALONE} else DistributedSampler(data{how})"
    assert f"batch_size=4, shuffle={of_one}, sampler={dealt})" in after
    assert f"WeightedRandomSampler(weights, 9) if {ALONE} else DealtSampler(" in after
    assert found("DF401", after) == []


@pytest.mark.parametrize(
    "sampler",
    [
        ABOVE.replace("Weighted", "Own"),
        ELSE.replace("Weighted", "Own"),
    ],
)
def test_a_sampler_of_the_scripts_own_is_only_told(sampler: str) -> None:
    told = found("DF401", SCRIPT.format(sampler=sampler, shuffle="sampler is None"))
    assert [each.edits for each in told] == [()]


OWN = """
class OwnRandomSampler:
    def __init__(self, weights, number):
        self.weights = weights
    def __iter__(self):
        return iter(draw(self.weights))
    def __len__(self):
        return 9
"""
CHOSEN = "sampler = OwnRandomSampler(weights, 9) if args.balanced else None"


@pytest.mark.parametrize(
    "sampler", [ABOVE.replace("Weighted", "Own"), ELSE.replace("Weighted", "Own"), CHOSEN]
)
def test_ranks_take_turns_at_the_batches_of_the_scripts_own(sampler: str) -> None:
    after = fixed("DF401", OWN + SCRIPT.format(sampler=sampler, shuffle="sampler is None"))
    dealt = "DistributedSampler(data) if sampler is None else DealtBatches(sampler, 4)"
    assert f"sampler=sampler if {ALONE} else {dealt})" in after
    assert f"shuffle=sampler is None and {ALONE}," in after
    assert found("DF401", after) == []


@pytest.mark.parametrize("kind", ["OwnRandomSampler", "WeightedRandomSampler"])
@pytest.mark.parametrize("is_first", [True, False])
def test_so_they_do_where_it_is_chosen_in_place(kind: str, is_first: bool) -> None:
    made = f"{kind}(weights, 9)"
    choice = f"{made} if args.balanced else None" if is_first else f"None if args.all else {made}"
    text = SCRIPT.format(sampler="pass", shuffle="False").replace("=sampler)", f"={choice})")
    after = fixed("DF401", OWN + text)
    of_one = f"({made} if {ALONE} else DealtBatches({made}, 4))"
    of_none = f"(None if {ALONE} else DistributedSampler(data, shuffle=False))"
    choice = f"{of_one} if args.balanced else {of_none}"
    choice = choice if is_first else f"{of_none} if args.all else {of_one}"
    assert f"sampler={choice})" in after
    assert found("DF401", after) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("        return 9", "        return 9\n\n    def more(self):\n        pass"),
        ("return iter(draw(self.weights))", "while True:\n            yield draw(self.weights)"),
        ("    def __len__(self):\n        return 9\n", ""),
    ],
)
def test_samplers_without_an_end_are_only_told(old: str, new: str) -> None:
    text = OWN.replace(old, new) + SCRIPT.format(sampler=CHOSEN, shuffle="sampler is None")
    told = found("DF401", text)
    assert [bool(each.edits) for each in told] == ["more" in new]


def test_a_sampler_that_takes_the_place_of_none_is_always_there() -> None:
    sampler = "sampler = None\n    sampler = WeightedRandomSampler(weights, 9)"
    after = fixed("DF401", SCRIPT.format(sampler=sampler, shuffle="False"))
    assert "sampler is not None" not in after
    assert "DealtSampler(WeightedRandomSampler(weights, 9))" in after


MADE = """
def balanced(weights):
    kind = WeightedRandomSampler
    sampler = {made}
    print("made")
    return sampler
"""


@pytest.mark.parametrize(
    ("made", "is_dealt"),
    [
        ("WeightedRandomSampler(weights, 9)", True),
        ("WeightedRandomSampler(weights, 9) if weights else None", False),
        ("Own(weights)", False),
        ("kind(weights, 9)", False),
    ],
)
def test_what_a_sampler_draws_that_a_function_makes_is_dealt(made: str, is_dealt: bool) -> None:
    script = SCRIPT.format(
        sampler=ABOVE.replace("WeightedRandomSampler(weights, 9)", "balanced(weights)"),
        shuffle="sampler is None",
    )
    (told,) = found("DF401", script + MADE.format(made=made))
    assert bool(told.edits) is is_dealt
    if is_dealt:
        after = fixed("DF401", script + MADE.format(made=made))
        assert f"balanced(weights) if {ALONE} else DealtSampler(balanced(weights))" in after
        assert found("DF401", after) == []


CLASS = """import torch
from torch.utils.data import DataLoader, DistributedSampler

class Batches:
    def __init__(self, data, shuffle=False, cards=1):
        {sampler}
        self.loader = DataLoader(data, batch_size=4, shuffle=shuffle, sampler=self.sampler)

def train(data, held_out, model):
    torch.distributed.init_process_group("nccl")
    {made}
    for epoch in range(9):
        for batch in {loader}:
            model(batch).sum().backward()
            optimizer.step()
        for batch in others:
            score(model, batch)
"""
BY_CARDS = """if cards > 1:
            self.sampler = DistributedSampler(data)
        else:
            self.sampler = None"""
AT_ONCE = "loader = Batches(data, shuffle=True).loader; others = Batches(held_out).loader"
HELD = "kept = Batches(data, shuffle=True); others = Batches(held_out).loader"


@pytest.mark.parametrize("sampler", [BY_CARDS, "self.sampler = None"])
@pytest.mark.parametrize(("made", "loader"), [(AT_ONCE, "loader"), (HELD, "kept.loader")])
def test_the_one_object_of_a_class_that_trains_is_dealt(
    sampler: str, made: str, loader: str
) -> None:
    text = CLASS.format(sampler=sampler, made=made, loader=loader)
    after = fixed("DF401", text)
    assert f"{ALONE} or not shuffle" in after
    assert after.count("else DistributedSampler(data") == 1
    after = fixed("DF402", after)
    assert f"            {loader}.sampler.set_epoch(epoch)" in after
    assert found("DF402", after) == []


def test_a_class_whose_objects_cannot_be_told_apart_is_told_which_one_trains() -> None:
    text = CLASS.format(sampler="self.sampler = None", made=AT_ONCE, loader="loader")
    after = fixed("DF401", text.replace("data, shuffle=True", "data"))
    assert "def __init__(self, data, shuffle=False, cards=1, to_train=False):" in after
    assert "loader = Batches(data, to_train=True).loader; others = Batches(held_out)" in after
