"""DF105: The script starts its own ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import changes, fixed, found
from ddpfix.patcher.engine.patch import patch

SCRIPT = """\
import argparse
import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from data import loader

def worker(gpu, {more}):
    {number}
    dist.init_process_group("nccl", {how})
    model = torch.nn.parallel.DistributedDataParallel(net.to(gpu))
    for x in loader:
        model(x).mean().backward()
        optimizer.step()

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--node", type=int, default=0)
    parser.add_argument("--size", type=int, default=1)
    parser.add_argument("--spawn", action="store_true")
    parser.add_argument("--url", default="tcp://localhost:9")
    args = parser.parse_args()
    {above}
    {start}
    {below}

main()
"""
PARTS = {
    "more": "size",
    "number": "pass",
    "how": "rank=gpu, world_size=size",
    "above": "size = torch.cuda.device_count()",
    "start": "mp.spawn(worker, args=(size,), nprocs=size)",
    "below": "print('done')",
}
IN_LAUNCH = "if 'LOCAL_RANK' in os.environ:  # torchrun, accelerate launch"
ONE_MACHINE = """\
+        if os.environ['WORLD_SIZE'] != os.environ['LOCAL_WORLD_SIZE']:
+            raise RuntimeError('the ranks of this script are those of one machine')
"""


def script(**parts: str) -> str:
    return SCRIPT.format(**PARTS | parts)


def in_launch(call: str) -> list[str]:
    return [
        "+    if 'LOCAL_RANK' not in os.environ:",
        "+    else:",
        f"+        {call}",
    ]


NODES = {
    "more": "args",
    "number": "rank = args.node * args.gpus + gpu",
    "how": "rank=rank, world_size=args.size",
    "above": "args.size = args.gpus * args.nodes",
    "start": "mp.spawn(worker, nprocs=args.gpus, args=(args,))",
}
OF_MACHINES = [
    "+        args.node = int(os.environ['RANK']) // int(os.environ['LOCAL_WORLD_SIZE'])",
    "+        args.nodes = int(os.environ['WORLD_SIZE']) // int(os.environ['LOCAL_WORLD_SIZE'])",
    "+        args.gpus = int(os.environ['LOCAL_WORLD_SIZE'])",
]
# A sentence, a script that starts its ranks, and lines that its repair adds; whether for one
# machine alone.
FIX: list[tuple[str, str, list[str], bool]] = [
    ("as many as cards", script(), [
        "+    size = int(os.environ.get('LOCAL_WORLD_SIZE', torch.cuda.device_count()))",
        *in_launch("worker(int(os.environ['LOCAL_RANK']), size)"),
    ], True),
    ("as many as stand there", script(above="size = 4"), [
        "+    size = int(os.environ.get('LOCAL_WORLD_SIZE', 4))",
    ], True),
    ("as many as cards, by no name",
        script(start="mp.spawn(worker, (torch.cuda.device_count(),), torch.cuda.device_count())"),
        ["+        worker(int(os.environ['LOCAL_RANK']), int(os.environ['LOCAL_WORLD_SIZE']))"],
        True),
    ("as many as an option says",
        script(start="mp.spawn(worker, args=(args.gpus,), nprocs=args.gpus)"), [
            f"+    {IN_LAUNCH}",
            "+        args.gpus = int(os.environ['LOCAL_WORLD_SIZE'])",
            *in_launch("worker(int(os.environ['LOCAL_RANK']), args.gpus)"),
        ], True),
    ("a group of a fixed size", script(how="rank=gpu, world_size=2", above="size = 2"), [
        "+    dist.init_process_group(\"nccl\", rank=gpu, "
        "world_size=int(os.environ.get('WORLD_SIZE', 2)))",
    ], True),
    ("an address of an option", script(
        more="args, size", how="init_method=args.url, rank=gpu, world_size=size",
        start="mp.spawn(worker, args=(args, size), nprocs=size)"), [
            "+    dist.init_process_group(\"nccl\", init_method='env://' if 'MASTER_PORT' in "
            "os.environ else args.url, rank=gpu, world_size=size)",
        ], True),
    ("machines by options", script(**NODES), OF_MACHINES, False),
    ("machines by options, in the other order",
        script(**NODES | {"number": "rank = gpu + args.gpus * args.node",
            "above": "args.size = args.nodes * args.gpus"}), OF_MACHINES, False),
    ("a number of a machine that becomes that of the rank", script(**NODES | {
        "number": "args.node = args.node * args.gpus + gpu",
        "how": "rank=args.node, world_size=args.size"}), OF_MACHINES, False),
    ("a number that is added", script(**NODES | {
        "number": "args.size += 0\n    args.first += gpu",
        "how": "rank=args.first, world_size=args.size",
        "above": "args.size = args.gpus * args.nodes\n    args.first = args.node * args.gpus"}),
        OF_MACHINES, False),
    ("a switch that is off by default", script(
        start="if args.spawn:\n        mp.spawn(worker, args=(size,), nprocs=size)\n"
            "    else:\n        worker(0, 1)"), [
            "+        args.spawn = True",
            "+        if 'LOCAL_RANK' not in os.environ:",
        ], True),
    (
        "processes that a loop starts",
        script(
            start="for rank in range(args.gpus):\n        args.number = rank\n        print(\n"
            "            rank)\n        job = mp.Process(target=worker, args=(rank, args.gpus))\n"
            "        job.start()\n        jobs.append(job)",
            below="for job in jobs:\n        job.join()",
        ),
        [
            "+        args.gpus = int(os.environ['LOCAL_WORLD_SIZE'])",
            "+        rank = int(os.environ['LOCAL_RANK'])",
            "+        worker(rank, args.gpus)",
        ],
        True,
    ),
    ("more than one", script(start="if size > 1:\n        mp.spawn(worker, (size,), size)"), [
        "+    if size > 1 or 'LOCAL_RANK' in os.environ:",
        "+            worker(int(os.environ['LOCAL_RANK']), size)",
    ], True),
    ("numbers that are drawn for all ranks", script(
        above="import random\n    seed = random.randint(1, 9)\n    port = str(random.random())\n"
        "    size = 4"), [
        "+    if 'LOCAL_RANK' in os.environ:  # each rank draws what all of them get",
        "+        random.seed(int(os.environ['MASTER_PORT']))",
    ], True),
    ("more than one, in the other branch", script(start="if size < 2 or quick:\n        worker("
        "0, 1)\n    else:\n        return mp.spawn(worker, (size,), size)", above="quick = False\n"
        "    size = torch.cuda.device_count()", below="return 0"), [
        "+    if (size < 2 or quick) and 'LOCAL_RANK' not in os.environ:",
        "+            return worker(int(os.environ['LOCAL_RANK']), size)",
    ], True),
    ("a worker that a caller names", script(below="return\n\ndef start(work, size):\n"
        "    mp.spawn(work, args=(size,), nprocs=size)", start="start(worker, size)"), [
        "+        work(int(os.environ['LOCAL_RANK']), size)",
    ], True),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "lines", "alone"), [pytest.param(*case, id=name) for name, *case in FIX]
)
def test_a_launcher_starts_its_worker(text: str, lines: list[str], alone: bool) -> None:
    patched = fixed("DF105", text)
    diff = changes(text, patched)
    missing = [line for line in lines if f"{line}\n" not in diff]
    assert missing == [], diff
    assert ("those of one machine" in diff) == alone
    assert found("DF105", patched) == []


# A sentence, a script, and why its ranks are left to it.
LEFT: list[tuple[str, str, str]] = [
    ("a queue", script(above="size = 2\n    results = mp.SimpleQueue()"), "processes share"),
    ("what follows", script(below="torch.save(evaluate(), 'scores.pt')"), "runs once its ranks"),
    ("a rank of another order", script(how="rank=size - 1 - gpu, world_size=size"),
        "how size - 1 - gpu in line 10"),
    ("a size of another kind", script(how="rank=gpu, world_size=2 * size + 1"),
        "how 2 * size + 1 in line 10"),
    ("ranks that run beside the script",
        script(start="jobs = mp.spawn(worker, args=(size,), nprocs=size, join=False)"),
        "goes on while its ranks run"),
    ("a test of something else",
        script(start="if os.path.exists('x'):\n        mp.spawn(worker, (size,), size)"),
        "hangs on os.path.exists('x')"),
    ("a loop", script(start="for _ in range(2):\n        mp.spawn(worker, (size,), size)"),
        "stands in a loop"),
    ("a count of something that is not seen", script(above="size, other = ask()"),
        "counts the ranks cannot be told"),
    ("a function that is not seen", script(start="mp.spawn(work(), args=(size,), nprocs=size)\n"
        "    mp.spawn(worker, args=(size,), nprocs=size, join=False)"), "goes on while"),
    ("machines by no option", script(**NODES | {"number": "rank = ask() * args.gpus + gpu"}),
        "how rank in line 10"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "why"), [pytest.param(text, why, id=name) for name, text, why in LEFT]
)
def test_its_ranks_are_left_to_it_for_a_reason(text: str, why: str) -> None:
    (finding,) = found("DF105", text)
    assert why in finding.because
    assert finding.edits == ()


def test_a_script_that_asks_for_a_launcher_first_is_right() -> None:
    start = (
        "if 'LOCAL_RANK' in os.environ:\n        worker(int(os.environ['LOCAL_RANK']), size)\n"
        "        return\n    mp.spawn(worker, args=(size,), nprocs=size)"
    )
    assert found("DF105", script(start=start)) == []


GATED = """\
import argparse
import os
import shutil
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from data import Net, train_set

parser = argparse.ArgumentParser()
parser.add_argument("--world-size", type=int, default=1)
parser.add_argument("--rank", type=int, default=0)
parser.add_argument("--url", default="tcp://localhost:9")
parser.add_argument("--spawn", action="store_true")

def main():
    args = parser.parse_args()
    args.distributed = args.world_size > 1 or args.spawn
    cards = torch.cuda.device_count()
    if args.spawn:
        args.world_size = cards * args.world_size
        mp.spawn(worker, nprocs=cards, args=(cards, args))
    else:
        worker(0, cards, args)

def worker(gpu, ngpus_per_node, args):
    if args.distributed:
        if args.spawn:
            args.rank = args.rank * ngpus_per_node + gpu
        dist.init_process_group("gloo", init_method=args.url, world_size=args.world_size,
                                rank=args.rank)
    model = torch.nn.parallel.DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    sampler = DistributedSampler(train_set)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(train_set, sampler=sampler):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        if not args.spawn or (args.spawn and args.rank % ngpus_per_node == 0):
            torch.save(model.module.state_dict(), "last.pt")
            shutil.copyfile("last.pt", "best.pt")
            print(len(torch.load("best.pt", map_location="cpu")))

if __name__ == "__main__":
    main()
"""


def test_a_gate_by_the_ranks_of_a_machine_keeps_the_others_away(tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text(GATED)
    result = patch(path)
    assert result.refusal == ""
    assert result.audit == ()
    assert [finding.code for finding in result.findings_after] == ["DF104"]  # on several machines
    (change,) = result.changes
    assert "barrier()" not in change.text  # which one rank of each machine would come to
    assert "args.spawn = True" in change.text


def test_what_keeps_an_edit_from_being_made_is_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text(GATED.replace("print(len", "dist.barrier()\n            print(len"))
    result = patch(path)
    assert "DF506" in result.refusal
    assert "starts its own ranks" not in result.refusal


CONFIGURED = script(
    more="args",
    number="args.rank = args.rank * args.cards + gpu",
    how="rank=args.rank, world_size=args.world_size",
    above="args = load(parser.parse_args())\n    args.cards = len(args.train_gpu)\n"
    "    if len(args.train_gpu) == 1:\n        args.several = False",
    start="if args.several:\n        args.world_size = args.cards * args.world_size\n"
    "        mp.spawn(worker, nprocs=args.cards, args=(args,))",
).replace("    args = parser.parse_args()\n", "")


def test_settings_that_a_file_gives_are_set_where_it_is_read() -> None:
    diff = changes(CONFIGURED, fixed("DF105", CONFIGURED))
    assert (
        f"+    {IN_LAUNCH}\n"
        "+        args.rank = int(os.environ['RANK']) // int(os.environ['LOCAL_WORLD_SIZE'])\n"
    ) in diff
    assert "+        args.several = True\n" in diff
    assert "+    if len(args.train_gpu) == 1 and 'LOCAL_RANK' not in os.environ:\n" in diff
    assert "those of one machine" not in diff
