"""Programs that train rightly on several GPUs, each by a way of its own: rules leave them alone."""

from __future__ import annotations

import pytest
from cases import found

SPAWNED = """
import torch
from torch.multiprocessing import spawn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from torch_geometric.datasets import Reddit

def make_loader(data, is_distributed=False):
    sampler = DistributedSampler(data) if is_distributed else None
    return DataLoader(data, shuffle=not is_distributed, sampler={sampler})

def fit(rank, model, loader):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

def train(data):
    {alone}
    fit(0, torch.nn.Linear(4, 1), make_loader(data))

def train_in_group(rank, count, data):
    torch.distributed.init_process_group("gloo", rank=rank, world_size=count)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    fit(rank, model, make_loader(data, is_distributed=True))

def main():
    count = torch.cuda.device_count()
    {made}
    if count > 1:
        spawn(train_in_group, args=(count, data), nprocs=count)
    else:
        train(data)

if __name__ == "__main__":
    main()
"""


def spawned(**words: str) -> str:
    own = {"sampler": "sampler", "alone": "pass", "made": "data = load()"}
    return SPAWNED.format(**{**own, **words})


@pytest.mark.parametrize(
    "sampler", ["sampler", "DistributedSampler(data) if is_distributed else None"]
)
def test_a_loader_of_the_process_that_starts_no_ranks_needs_no_sampler(sampler: str) -> None:
    assert not found("DF401", spawned(sampler=sampler))


def test_a_branch_beside_the_start_of_ranks_that_makes_a_group_is_for_ranks_too() -> None:
    (finding,) = found("DF401", spawned(alone="torch.distributed.init_process_group('gloo')"))
    assert "no branch deals by rank" in finding.because


DATA = """
import torch
from torch_geometric.datasets import Reddit
from torch.nn.parallel import DistributedDataParallel

def work(rank, count, data):
    torch.distributed.init_process_group("gloo", rank=rank, world_size=count)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    for x in torch.utils.data.DataLoader(data):
        model(x).backward()

def launch(data):
    torch.multiprocessing.spawn(work, args=(2, data), nprocs=2)

{ends}
"""


@pytest.mark.parametrize(
    ("ends", "count"),
    [
        ("if __name__ == '__main__':\n    launch(Reddit('graphs'))", 0),
        (
            "if __name__ == '__main__':\n    data = Reddit('graphs')\n"
            "    torch.multiprocessing.spawn(work, args=(2, data), nprocs=2)",
            0,
        ),
        ("def main():\n    data = Reddit('graphs')\n    launch(data)\n\nmain()", 0),
        ("data = Reddit('graphs')\nif __name__ == '__main__':\n    launch(data)", 1),
    ],
)
def test_what_is_made_where_ranks_are_started_is_made_once(ends: str, count: int) -> None:
    assert len(found("DF608", DATA.format(ends=ends))) == count


@pytest.mark.parametrize(("first", "count"), [("Reddit('graphs')", 0), ("Planetoid('graphs')", 1)])
def test_what_ranks_make_once_more_is_there(first: str, count: int) -> None:
    text = DATA.replace(
        "    torch.distributed.init", "    data = Reddit('graphs')\n    torch.distributed.init"
    )
    text = text.replace("import Reddit", "import Planetoid, Reddit")
    ends = f"if __name__ == '__main__':\n    launch({first})"
    assert len(found("DF608", text.format(ends=ends))) == count


HOROVOD = """
import torch
import horovod.torch as hvd

hvd.init()
model = torch.nn.Linear(4, 2)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1))
if hvd.rank() == 0:
    checkpoint = torch.load("last.pt")
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
{behind}
for x, y in loader:
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
if hvd.rank() == 0:
    torch.save({{"model": model.state_dict(), "optimizer": optimizer.state_dict()}}, "last.pt")
"""


@pytest.mark.parametrize(
    ("behind", "count"),
    [
        ("hvd.broadcast_optimizer_state(optimizer, root_rank=0)", 0),
        ("state = hvd.elastic.TorchState(model, optimizer)", 0),
        ("hvd.broadcast_parameters(model.state_dict(), root_rank=0)", 1),
    ],
)
def test_horovod_gives_all_ranks_what_rank_0_has_loaded(behind: str, count: int) -> None:
    script = HOROVOD.format(behind=behind)
    assert len(found("DF502", script)) == count
    assert not found("DF604", script)


STREAM = """
import deepspeed
import torch
from {package} import {name}

{made}
loader = torch.utils.data.DataLoader(data, batch_size=4)
{group}
for batch in loader:
    engine.backward(engine(batch).mean())
    engine.step()
"""
OWN = "class Texts(StreamingDataset):\n    pass\n\ndata = Texts(local='shards')"
ENGINE = "engine, _, _, _ = deepspeed.initialize(model=net, config=c)"


@pytest.mark.parametrize(
    ("package", "name", "made", "count"),
    [
        ("streaming", "StreamingDataset", "data = StreamingDataset(local='shards')", 0),
        ("streaming", "StreamingDataset", OWN, 0),
        ("litdata", "StreamingDataset", "data = StreamingDataset('shards')", 0),
        ("streaming", "Stream", "data = load(Stream(local='shards'))", 1),
        ("pipes", "Pipe", "data = Pipe('shards').sharding_filter()", 0),
    ],
)
def test_a_library_that_deals_its_data_by_rank_needs_no_sampler(
    package: str, name: str, made: str, count: int
) -> None:
    group = (
        "torch.distributed.init_process_group('gloo')\n"
        "engine = torch.nn.parallel.DistributedDataParallel(net)"
    )
    for each in (ENGINE, group):
        script = STREAM.format(package=package, name=name, made=made, group=each)
        assert len(found("DF401", script)) == count


MPI = """
import torch
from mpi4py import MPI

comm = {communicator}

def sync(sums):
    return comm.allgather(sums)

def validate(model, loader):
    model.eval()
    right = 0
    with torch.no_grad():
        for x, y in loader:
            right += (model(x).argmax(1) == y).sum().item()
    return sync(right)

torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
sampler = torch.utils.data.DistributedSampler(held_out)
validate(model, torch.utils.data.DataLoader(held_out, sampler=sampler))
"""


@pytest.mark.parametrize(
    ("communicator", "because"),
    [("MPI.COMM_WORLD", "combines the ranks' parts"), ("Pool()", "scores this rank's part")],
)
def test_parts_are_brought_together_by_mpi(communicator: str, because: str) -> None:
    (finding,) = found("DF503", MPI.format(communicator=communicator))
    assert because in finding.because


SAMPLER = """
import torch
import torch.distributed as dist

class Dealt({base}):
    def __init__(self, data):
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.total_size = -(-len(data) // self.world_size) * self.world_size

    def __iter__(self):
        {deals}

for batch in torch.utils.data.DataLoader(data, sampler=Dealt(data)):
    model(batch).backward()
"""
SHARE = "return iter(indices[self.rank : {end} : self.world_size])"
TURNS = "{loop}:\n            if i % self.world_size == self.rank:\n                yield i"


@pytest.mark.parametrize(
    ("base", "deals", "count"),
    [
        ("torch.utils.data.Sampler", SHARE.format(end="self.total_size"), 0),
        ("torch.utils.data.Sampler", SHARE.format(end=""), 1),
        ("torch.utils.data.Sampler", SHARE.format(end="len(indices)"), 1),
        ("torch.utils.data.Dataset", SHARE.format(end="self.total_size"), 1),
        ("torch.utils.data.Sampler", TURNS.format(loop="while True"), 0),
        ("torch.utils.data.Sampler", TURNS.format(loop="for i in range(9)"), 1),
    ],
)
def test_shares_of_equal_length_are_left(base: str, deals: str, count: int) -> None:
    assert len(found("DF403", SAMPLER.format(base=base, deals=deals))) == count


GROUP = """
import torch
import torch.distributed as dist
{asserts}
def alone():
    if not dist.is_initialized():
        dist.init_process_group(world_size=1, rank=0, store={store}, timeout=t)

alone()
for x, y in loader:
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
dist.destroy_process_group()
"""


@pytest.mark.parametrize(("store", "count"), [("dist.HashStore()", 0), ("own_store()", 2)])
def test_a_group_of_one_in_memory_has_numbers_of_its_own(store: str, count: int) -> None:
    assert len(found("DF106", GROUP.format(asserts="", store=store))) == count


CARDS = """
import torch
import torch.distributed as dist
{asserts}
dist.init_process_group("nccl", timeout=t)
model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[card])
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    ("asserts", "count"),
    [
        ("assert torch.cuda.is_available(), 'cards'", 0),
        ("if bits:\n    assert torch.cuda.is_available()", 2),
        ("assert cards", 2),
    ],
)
def test_what_insists_on_cards_may_name_their_back_end(asserts: str, count: int) -> None:
    assert len(found("DF202", CARDS.format(asserts=asserts))) == count


EVALUATION = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.Linear(4, 2)
{wraps}
loader = torch.utils.data.DataLoader(data, sampler=torch.utils.data.DistributedSampler(data))
for x, y in loader:
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
if dist.get_rank() == 0:
    model.eval()
    scores = []
    for x, y in torch.utils.data.DataLoader(held_out):
        with torch.no_grad():
            scores.append(model.module(x))
"""


@pytest.mark.parametrize(
    ("wraps", "count"),
    [
        ("model = torch.nn.parallel.DistributedDataParallel(model)", 0),
        ("if several:\n    model = torch.nn.parallel.DistributedDataParallel(model)", 1),
    ],
)
def test_a_model_that_is_always_wrapped_is_taken_out_by_its_name(wraps: str, count: int) -> None:
    assert len(found("DF504", EVALUATION.format(wraps=wraps))) == count


@pytest.mark.parametrize(("asks", "count"), [("import deepspeed", 0), ("import nothing", 1)])
def test_deepspeed_passes_the_spelling_that_it_knows(asks: str, count: int) -> None:
    script = f"""
import argparse
{asks}
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=0)
args = parser.parse_args()
engine, _, _, _ = {asks.split()[1]}.initialize(args=args, model=net)
for batch in loader:
    engine.backward(engine(batch).mean())
    engine.step()
"""
    spelled = [f for f in found("DF101", script) if "only the spelling" in f.because]
    assert len(spelled) == count


CACHE = """
import os
from contextlib import contextmanager
import torch
import torch.distributed as dist
from accelerate import Accelerator

@contextmanager
def zero_comes_first(rank):
    if rank not in [-1, 0]:
        dist.barrier()
    yield
    if rank == 0:
        dist.barrier()

@contextmanager
def measured(rank):
    yield

def prepare(path):
    {test}
        torch.save(load(), path)
    return torch.load(path, map_location="cpu")

dist.init_process_group("gloo")
rank = int(os.environ["LOCAL_RANK"])
accelerator = Accelerator()
with {context}:
    data = prepare("cache.pt")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
for x, y in torch.utils.data.DataLoader(data, sampler=torch.utils.data.DistributedSampler(data)):
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""
IF_MISSING = "if not os.path.exists(path):"


@pytest.mark.parametrize(
    ("context", "test", "is_told"),
    [
        ("zero_comes_first(rank)", IF_MISSING, False),
        ("accelerator.main_process_first()", IF_MISSING, False),
        ("training_args.main_process_first(desc='data')", IF_MISSING, False),
        ("measured(rank)", IF_MISSING, True),
        ("zero_comes_first(rank)", "if True:", True),
    ],
)
def test_others_find_what_rank_0_has_made_ahead_of_them(
    context: str, test: str, is_told: bool
) -> None:
    text = CACHE.format(context=context, test=test)
    told = [each.because for code in ("DF406", "DF601") for each in found(code, text)]
    assert bool(told) is is_told
    early = [each for each in found("DF604", text) if "still be writing" in each.because]
    assert bool(early) is (context == "measured(rank)")


STEPS = """
import torch

class State:
    def __init__(self, step):
        self.step = step

    def save(self):
        torch.save(self.step, "step.pt")

    def load(self):
        self.step = torch.load("step.pt", map_location="cpu")

state = State(0)
{count}
"""


@pytest.mark.parametrize(("count", "is_told"), [("state.step += 1", False), ("pass", True)])
def test_a_number_that_is_counted_on_loads_as_it_is(count: str, is_told: bool) -> None:
    assert bool(found("DF606", STEPS.format(count=count))) is is_told
