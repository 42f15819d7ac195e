"""DF401: batches of a batch_sampler, which another sampler may deal by rank."""

from __future__ import annotations

import itertools
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from cases import fixed, found, written
from ddpfix.patcher.api import patch
from ddpfix.patcher.editing.helpers import helper_code
from ddpfix.patcher.findings import Severity
from forked import Forge

SCRIPT = """
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler
from torch.utils.data.distributed import DistributedSampler
torch.distributed.init_process_group("nccl")
{made}
loader = DataLoader(data, batch_sampler=batches)
for x in loader:
    model(x).backward()
    optimizer.step()
"""
BRANCHES = """
if torch.distributed.is_initialized():
    sampler = DistributedSampler(data)
else:
    sampler = RandomSampler(data)
"""
FUNCTIONS = """
def samplers(data, shared):
    if shared:
        return DistributedSampler(data)
    return RandomSampler(data)
def in_batches(sampler, size):
    batches = BatchSampler(sampler, size, drop_last=True)
    return Endless(batches)
class Endless(BatchSampler):
    def __init__(self, batches):
        self.batches = batches
batches = in_batches(samplers(data, args.shared), 8)
"""
NAMED = """
def samplers(data, shared):
    sampler = None
    if shared:
        sampler = DistributedSampler(data)
    else:
        sampler = RandomSampler(data)
    return sampler
def in_batches(sampler, size):
    plain = BatchSampler(sampler, size, drop_last=True)
    endless = Endless(plain)
    return endless
class Endless(BatchSampler):
    def __init__(self, batches):
        self.batches = batches
first = samplers(data, args.shared)
sampler = first
made = in_batches(sampler, 8)
batches = made
"""
OWN = """
class OfClasses:
    def __init__(self, data):
        {first}
        self.data = data
batches = OfClasses(data)
"""


def severities(made: str) -> list[Severity]:
    text = SCRIPT.format(made=textwrap.dedent(made))
    return [finding.severity for finding in found("DF401", text)]


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(BRANCHES + "batches = BatchSampler(sampler, 8, False)", id="two branches"),
        pytest.param(FUNCTIONS, id="by functions, in a class around it"),
        pytest.param(NAMED, id="by many names"),
        pytest.param(OWN.format(first="self.rank = get_rank()"), id="by a class that knows ranks"),
    ],
)
def test_a_sampler_behind_the_batches_deals_them(made: str) -> None:
    assert severities(made) == []


@pytest.mark.parametrize(
    "made",
    [
        pytest.param("batches = BatchSampler(RandomSampler(data), 8, False)", id="at random"),
        pytest.param(OWN.format(first="pass"), id="by a class of the program"),
    ],
)
def test_batches_that_no_rank_tells_apart_are_an_error(made: str) -> None:
    assert severities(made) == [Severity.ERROR]


def test_a_sampler_that_is_not_read_is_a_warning() -> None:
    assert severities("from library import batches_of\nbatches = batches_of(data)") == [
        Severity.DEGRADED
    ]


def test_in_a_script_that_knew_no_ranks_it_is_an_error() -> None:
    text = SCRIPT.format(made="from library import batches_of\nbatches = batches_of(data)")
    ours = "if 'LOCAL_RANK' in os.environ:\n    torch.distributed.init_process_group()"
    (finding,) = found("DF401", text.replace('torch.distributed.init_process_group("nccl")', ours))
    assert finding.severity is Severity.ERROR


OWN_BATCHES = """\
import json
import os
import random
import sys

import torch
from torch.utils.data import DataLoader


class Pairs:
    def __init__(self, count):
        self.count = count

    def __iter__(self):
        {first}
        rows = random.sample(range(self.count), self.count)
        {result}

    def __len__(self):
        return self.count {length}


random.seed(1)
data = torch.arange(40.0).reshape(20, 2)
{loader}
model = torch.nn.DataParallel(torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.001)
taken = []
for epoch in range(3):
    for batch in loader:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
        taken.append([epoch, len(loader), batch[:, 0].tolist()])
with open(f"{{sys.argv[1]}}.{{os.environ.get('RANK', 0)}}", "w") as file:
    json.dump(taken, file)
"""
KINDS = {
    "batches": {
        "loader": "loader = DataLoader(data, batch_sampler=Pairs(20))",
        "result": "return iter([rows[at : at + 2] for at in range(0, self.count, 2)])",
        "length": "// 2",
    },
    "examples": {
        "loader": "sampler = Pairs(20)\nloader = DataLoader(data, batch_size=2, sampler=sampler)",
        "result": "return iter(rows)",
        "length": "",
    },
}


def own(kind: str, **parts: str) -> str:
    return OWN_BATCHES.format(**{"first": "pass", **KINDS[kind], **parts})


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_take_turns_at_the_batches_that_one_process_has(
    kind: str, forge: Forge, tmp_path: Path
) -> None:
    path = tmp_path / "run.py"
    path.write_text(own(kind))
    result = patch(path)
    assert result.refusal == ""
    (change,) = result.changes
    assert "set_epoch" not in change.text
    (alone,) = written(forge, tmp_path, "alone", change.text, None)
    assert len(alone) == 30
    first, second = written(forge, tmp_path, "ranks", change.text, 2)
    for epoch in range(3):
        turns = [[row[2] for row in rank if row[0] == epoch] for rank in (first, second)]
        both = [batch for turn in zip(*turns, strict=True) for batch in turn]
        assert both == [row[2] for row in alone if row[0] == epoch]
    assert {row[1] for row in first + second} == {5}


def test_three_ranks_fill_up_the_last_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {"torch": torch, "itertools": itertools}
    exec(helper_code("DealtBatches"), names)
    monkeypatch.setattr(torch.distributed, "broadcast_object_list", lambda _: None)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 3)
    shares = []
    for rank in range(3):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        dealt = names["DealtBatches"]([*range(10)], 2)
        shares.append(list(dealt))
        assert len(dealt) == len(shares[-1]) == 4
    assert shares == [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 0, 1]]


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("batches", {"first": "while True: yield random.sample(range(self.count), 2)"}),
        ("examples", {"first": "while True:\n            yield from rows\n\n    def more(self):"}),
        ("examples", {"result": "return iter(self.drawn(rows))\n\n    def drawn(self, rows):\n"
                                "        while True:\n            yield from rows"}),
        ("examples", {"result": "import itertools\n        return itertools.cycle(rows)"}),
    ],
    ids=["batches", "examples", "its helper", "a cycle"],
)  # fmt: skip
def test_ranks_take_turns_without_an_end(kind: str, parts: dict[str, str]) -> None:
    group = "import torch\nif 'RANK' in os.environ:\n    torch.distributed.init_process_group()\n"
    after = fixed("DF401", own(kind, **parts).replace("import torch\n", group, 1))
    size = ", 2" if kind == "examples" else ""
    assert f"{size}, ends=False)" in after.partition("\nloader = ")[2].partition("\n")[0]
    assert found("DF401", after) == found("DF402", after) == []


def test_each_rank_has_turns_of_what_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {"torch": torch, "itertools": itertools}
    exec(helper_code("DealtBatches"), names)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 3)
    shares = []
    for rank in range(3):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        dealt = iter(names["DealtBatches"](itertools.count(), 2, ends=False))
        shares.append(list(itertools.islice(dealt, 4)))
    assert shares == [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11]]


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("batches", {"loader": "from library import Pairs as Other\n"
                               "loader = DataLoader(data, batch_sampler=Other(20))"}),
        ("examples", {"first": "yield from itertools.islice(self.drawn(), 9)\n\n"
                               "    def drawn(self):\n        while True:\n            yield 1\n\n"
                               "    def more(self):"}),
        ("examples", {"loader": KINDS["examples"]["loader"]
                      + "\nif torch.distributed.get_rank() == 0:\n    show(next(iter(loader)))"}),
    ],
    ids=["it is not read", "its helper never ends, and is cut", "rank 0 alone begins it once"],
)  # fmt: skip
def test_only_told_of(kind: str, parts: dict[str, str]) -> None:
    group = "import torch\nif 'RANK' in os.environ:\n    torch.distributed.init_process_group()\n"
    text = own(kind, **parts).replace("import torch\n", group, 1)
    (finding,) = found("DF401", text)
    assert finding.edits == ()


ANEW = """\
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
def fit(data, size):
    for batch in DataLoader(data, size, sampler=None if alone else DistributedSampler(data)):
        model(batch).backward()
        optimizer.step()
fit(labelled, 8)
"""


def test_rank_0_draws_for_a_loader_that_each_call_makes() -> None:
    text = ANEW + "for turn in range(9):\n    fit(chosen(), 8)\n"
    assert "else DealtBatches(torch.utils.data.RandomSampler(data), size)):" in fixed("DF402", text)


def test_one_pass_needs_no_number() -> None:
    assert found("DF402", ANEW) == []


BEHIND_A_METER = """
import ranks
import torch

class Batches(torch.utils.data.Sampler):
    def __init__(self, length, rank, {count}):
        cuts = torch.linspace(0, length, {count} + 1, dtype=torch.int)
        self.own = range(length)[cuts[rank] : cuts[rank + 1]]
    def __iter__(self):
        yield from self.own

torch.distributed.init_process_group("gloo")
loader = torch.utils.data.DataLoader(data, batch_sampler=Batches(9, ranks.rank(), ranks.size()))
meter = Meter()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
for batch in meter.log_every(iter(loader), "train"):
    loss = model(batch).mean()
    if not math.isfinite(loss.item()):
        sys.exit(1)
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("count", "told"), [("world_size", 0), ("parts", 1)])
def test_a_loop_that_may_go_over_a_loader_that_deals_is_left(count: str, told: int) -> None:
    assert len(found("DF401", BEHIND_A_METER.format(count=count))) == told


def test_none_is_no_batch_sampler() -> None:
    text = SCRIPT.format(made="pass").replace("batch_sampler=batches", "batch_sampler=None")
    (finding,) = found("DF401", text)
    assert finding.because == "it has no sampler"
    assert "batch_sampler=None, sampler=" in fixed("DF401", text)


STREAMS = """\
import itertools, random, os, torch
from torch.utils.data import DataLoader
if 'RANK' in os.environ:
    torch.distributed.init_process_group("gloo")

class Streams:
    def __init__(self, first, second):
        self.first, self.second = first, second

    def __iter__(self):
        one, other = {one}(self.first), ever(self.second)
        return (a + b for a, b in zip(by(one, 2), by(other, 2)))

    def __len__(self):
        return len(self.first) // 2

def once(numbers):
    return random.sample(numbers, len(numbers))

def ever(numbers):
    def turns():
        while True:
            {turn}
    return itertools.chain.from_iterable(turns())

def by(numbers, size):
    return zip(*[iter(numbers)] * size)

model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
loader = DataLoader(data, batch_sampler=Streams([*range(8)], [*range(8, 12)]))
for epoch in range(9):
    for x in loader:
        model(x).sum().backward()
        optimizer.step()
"""
ANEW_EACH_TURN = "yield random.sample(numbers, len(numbers))"


@pytest.mark.parametrize(
    ("one", "turn", "is_dealt"),
    [
        ("once", ANEW_EACH_TURN, True),
        ("ever", ANEW_EACH_TURN, False),  # nothing ends it
        ("once", "random.shuffle(numbers)", False),  # it never gives a batch
    ],
)
def test_batches_of_two_streams_end_with_the_one_that_ends(
    one: str, turn: str, is_dealt: bool
) -> None:
    (finding,) = found("DF401", STREAMS.format(one=one, turn=turn))
    assert bool(finding.edits) is is_dealt
