"""Whose gradients are averaged, loop by loop, and what frameworks do for a script."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import found
from ddpfix.patcher.engine.patch import patch
from ddpfix.patcher.findings import Severity

GROUP = """
import torch
import torch.distributed as dist
dist.init_process_group("nccl")
"""
LOOP = """
for batch in loader:
    {model}(batch).backward()
    optimizer.step()
"""


def because(code: str, text: str) -> list[str]:
    return [finding.because for finding in found(code, text)]


WAYS = [
    "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\nmodel = FSDP(net)",
    "from torch.distributed.fsdp import fully_shard\nfully_shard(net)",
    "import deepspeed\nmodel, optimizer, _, _ = deepspeed.initialize(model=net)",
    "import horovod.torch as hvd\noptimizer = hvd.DistributedOptimizer(optimizer)",
    "from accelerate import Accelerator\nmodel = Accelerator().prepare(net)",
    "import lightning\nfabric = lightning.Fabric()\nmodel = fabric.setup(net)",
    "import torch.distributed.rpc as rpc\nrpc.init_rpc('worker')",
    "def average():\n    for p in net.parameters():\n        dist.all_reduce(p.grad)",
]


@pytest.mark.parametrize("way", WAYS)
def test_what_averages_gradients_is_not_asked_for_ddp(way: str) -> None:
    text = f"{GROUP}{{}}\n{LOOP.format(model='model')}"
    assert because("DF301", text.format(way)) == []
    (reason,) = because("DF301", text.format(""))
    assert reason.startswith("no model is wrapped after it")


@pytest.mark.parametrize("way", [*WAYS[2:3], *WAYS[4:7]])
def test_what_deals_data_is_not_asked_for_a_sampler(way: str) -> None:
    loader = "loader = torch.utils.data.DataLoader(data, shuffle=True)\n"
    text = f"{GROUP}{loader}{{}}\n{LOOP.format(model='model')}"
    way = way.replace("model=net", "model=net, training_data=data")  # DeepSpeed deals no other
    assert because("DF401", text.format(way)) == []
    assert because("DF401", text.format("")) == ["it has no sampler"]


def test_another_frameworks_names_are_not_torchs() -> None:
    text = "import {0}, torch\nmodel = {0}.nn.DataParallel(net)\n" + LOOP.format(model="model")
    assert because("DF201", text.format("torch")) == ["this script never makes a process group"]
    assert because("DF201", text.format("paddle")) == []


TWO_LOOPS = """
import torch
def pretrain(args, model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    {first} = torch.nn.parallel.DistributedDataParallel(model)
    for batch in loader:
        {first}(batch).backward()
        optimizer.step()
    {result}
def train(args, model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in loader:
        model(batch).backward()
        {step}
def main(args, model, loader):
    torch.distributed.init_process_group("nccl")
    pretrain(args, model, loader)
    train(args, model, loader)
if __name__ == "__main__":
    main(parse(), build(), load())
"""
OTHER_LOOP = "the wrapper of another training loop does not serve this one"


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({}, [OTHER_LOOP]),
        ({"result": "return wrapped"}, []),  # the caller may pass it on
        ({"first": "args.wrapped"}, []),
        ({"step": "grad = batch.grad"}, []),  # no training: an attack on the model
    ],
)
def test_each_loop_needs_a_wrapper(parts: dict[str, str], expected: list[str]) -> None:
    parts = {"first": "wrapped", "result": "pass", "step": "optimizer.step()", **parts}
    assert because("DF301", TWO_LOOPS.format(**parts)) == expected


@pytest.mark.parametrize(("between", "trains"), [("pass", True), ("optimizer.zero_grad()", False)])
def test_a_loop_whose_batches_add_up_to_one_step_trains(between: str, trains: bool) -> None:
    step = f"pass\n    {between}\n    optimizer.step()"
    text = TWO_LOOPS.format(first="wrapped", result="pass", step=step)
    text = text.replace("load()", "torch.utils.data.DataLoader(data)")
    assert because("DF301", text) == [OTHER_LOOP] * trains


def test_a_wrapper_of_a_caller_serves_the_loop() -> None:
    text = TWO_LOOPS.format(first="wrapped", result="train(args, wrapped, loader)", step="step()")
    text = text.replace("    train(args, model, loader)\n", "")
    text = text.replace("        step()", "        optimizer.step()")
    assert because("DF301", text) == []


def test_a_loop_with_dataparallel_gets_its_own_wrapper(tmp_path: Path) -> None:
    text = """
import argparse
import torch
from torch.utils.data import DataLoader, RandomSampler
from torch.utils.data.distributed import DistributedSampler

def pretrain(args, model, data):
    sampler = RandomSampler(data) if args.local_rank == -1 else DistributedSampler(data)
    loader = DataLoader(data, sampler=sampler, batch_size=args.batch_size)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if args.local_rank != -1:
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[args.local_rank])
    for epoch in range(3):
        for x, y in loader:
            loss = ((model(x.to(args.device)) - y.to(args.device)) ** 2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

def train(args, model, data):
    sampler = RandomSampler(data)
    loader = DataLoader(data, sampler=sampler, batch_size=args.batch_size)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if args.n_gpu > 1:
        model = torch.nn.DataParallel(model)
    for epoch in range(3):
        for x, y in loader:
            loss = ((model(x.to(args.device)) - y.to(args.device)) ** 2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    parser.add_argument("--batch_size", type=int, default=4)
    args = parser.parse_args()
    if args.local_rank == -1:
        args.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        args.n_gpu = torch.cuda.device_count()
    else:
        torch.cuda.set_device(args.local_rank)
        args.device = torch.device("cuda", args.local_rank)
        torch.distributed.init_process_group(backend="nccl")
        args.n_gpu = 1
    data = torch.utils.data.TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
    model = torch.nn.Linear(4, 1).to(args.device)
    pretrain(args, model, data)
    train(args, model, data)

if __name__ == "__main__":
    main()
"""
    run = tmp_path / "run.py"
    run.write_text(text)
    result = patch(run)
    assert result.refusal == ""
    (change,) = result.changes
    assert change.text.count("DistributedDataParallel(") == 2
    assert change.text.count("DistributedSampler(data)") == 2


def test_the_first_of_each_machine_is_no_computed_rank() -> None:
    text = GROUP + "rank = dist.get_rank()\nfirst = {}\n" + LOOP.format(model="model")
    assert because("DF103", text.format("rank % 8 == 0")) == []
    assert because("DF103", text.format("rank % dist.get_world_size()")) == []
    assert because("DF103", text.format("rank % context.group_size")) == []
    cards = "options.cards = torch.cuda.device_count()\n"
    assert because("DF103", text.format("rank % options.cards") + cards) == []
    assert because("DF103", text.format("rank % options.cards"))
    assert because("DF103", text.format("rank % 8")) == ["rank % 8 is no rank of a launcher's"]


def test_a_broadcast_that_both_branches_call_reaches_all() -> None:
    text = (
        GROUP
        + """
if dist.get_rank() == 0:
    dist.broadcast(full, src=0)
else:
    dist.broadcast(empty, src=0)
{}
"""
    )
    assert because("DF506", text.format("")) == []
    alone = "if dist.get_rank() == 0:\n    dist.all_reduce(full)"
    assert because("DF506", text.format(alone)) == ["only rank 0 can reach it"]


def test_a_class_of_the_script_is_no_framework() -> None:
    text = f"{GROUP}class Accelerator:\n    pass\nAccelerator()\n{LOOP.format(model='model')}"
    (reason,) = because("DF301", text)
    assert reason.startswith("no model is wrapped after it")


def test_apex_s_wrapper_averages_gradients_where_it_is_installed() -> None:
    text = """
import torch
from {package} import DistributedDataParallel
torch.distributed.init_process_group("nccl")
model = DistributedDataParallel(net.cuda())
for batch in loader:
    model(batch).backward()
    optimizer.step()
"""
    (finding,) = found("DF301", text.format(package="apex.parallel"))
    assert finding.severity is Severity.DEGRADED
    assert not found("DF301", text.format(package="torch.nn.parallel"))
