"""A traced run is the untraced one, and its trace says what happened in it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from ddpfix.launchers.backends.registry import launcher_command
from ddpfix.launchers.trace.events import (
    Backward,
    Collective,
    Exit,
    File,
    Group,
    Limit,
    Parameters,
    Seed,
)
from ddpfix.launchers.trace.read import RankTrace, disagreement, read
from forked import Forge, Job

TRAIN = """
import argparse, logging, os, random, sys
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

logger = logging.getLogger(__name__)


class Numbers(Dataset):
    def __init__(self, count):
        self.x, self.y = torch.randn(count, 8), torch.randint(0, 2, (count,))

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


def evaluate(args, net, data):
    loader = DataLoader(data, sampler=SequentialSampler(data), batch_size=5)
    net.eval()
    total = 0
    for x, y in loader:
        with torch.no_grad():
            total += nn.functional.cross_entropy(net(x), y).item()
    logger.info("  eval_loss = %s", round(total, 4))


def train(args, model, data, held_out):
    sampler = DistributedSampler(data) if args.world > 1 else RandomSampler(data)
    loader = DataLoader(data, sampler=sampler, batch_size=4, num_workers=2)
    net = model.module if hasattr(model, "module") else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    args.total = args.epochs * len(loader)
    micro = 0
    for epoch in range(args.epochs):
        for x, y in loader:
            model.train()
            loss = nn.functional.cross_entropy(model(x), y) / args.accumulation
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            micro += 1
            # One write: two ranks share the output.
            sys.stdout.write(f"{args.rank} loss {loss.item().hex()} {norm.item().hex()}\\n")
            if micro % args.accumulation == 0:
                optimizer.step()
                optimizer.zero_grad()
                schedule.step()
        evaluate(args, net, held_out)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--accumulation", type=int, default=1)
    parser.add_argument("--output", default="out")
    args = parser.parse_args()
    args.world, args.rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    level = logging.INFO if args.rank == 0 else logging.WARNING
    logging.basicConfig(format="%(filename)s:%(lineno)d %(message)s", level=level)
    random.seed(1), np.random.seed(2), torch.manual_seed(3)
    if args.world > 1:
        torch.distributed.init_process_group("gloo")
    data, held_out = Numbers(22), Numbers(11)
    model = nn.Sequential(
        nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.ReLU(), nn.Linear(16, 2)
    )
    net = model
    if args.world > 1:
        model = nn.parallel.DistributedDataParallel(model)
    train(args, model, data, held_out)
    if args.rank == 0:
        os.makedirs(args.output, exist_ok=True)
        torch.save(net.state_dict(), os.path.join(args.output, "model.bin"))
    print(args.rank, "total", args.total, flush=True)
    if args.world > 1:
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
"""

TRACER = "ddpfix.launchers.trace"
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone")
ACCELERATE = (
    *(sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch", "--multi_gpu"),
    *("--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no"),
    *("--dynamo_backend", "no", "--main_process_port", "0", "--module"),
)


def execute(argv: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **{k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")},
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    return subprocess.run(
        [*argv],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def script(folder: Path, text: str) -> str:
    (folder / "run.py").write_text(text)
    return "run.py"


def traced(
    folder: Path, text: str, *options: str, arguments: Sequence[str] = ()
) -> tuple[subprocess.CompletedProcess[str], RankTrace]:
    """One process under the tracer: what it printed, and its trace."""
    run = [sys.executable, "-m", TRACER, "--out", "trace", *options, script(folder, text)]
    done = execute([*run, *arguments], folder)
    return done, read(folder / "trace")[0]


def begun(
    forge: Forge, folder: Path, text: str, *options: str, arguments: Sequence[str] = ()
) -> tuple[str, RankTrace]:
    """The same where torch is imported already, for what begins only then."""
    path = folder / script(folder, text)
    (done,) = forge.run([Job(folder / "begun", path, arguments, options=options, cwd=folder)])
    assert done.statuses == (0,), done.log
    return done.log, done.ranks[0]


class Run(NamedTuple):
    plain: subprocess.CompletedProcess[str]
    observed: subprocess.CompletedProcess[str]
    traces: list[RankTrace]
    folder: Path


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("single")
    plain = execute([sys.executable, script(folder, TRAIN), "--output", "plain"], folder)
    observed, found = traced(folder, TRAIN)
    assert observed.returncode == plain.returncode == 0, observed.stderr
    return Run(plain, observed, [found], folder)


@pytest.fixture(scope="module")
def double(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("double")
    name = script(folder, TRAIN)
    plain = execute([*TORCHRUN, "--nproc_per_node", "2", name, "--output", "plain"], folder)
    # Under accelerate, as the launcher starts it.
    observed = execute([*ACCELERATE, TRACER, "--out", "trace", name], folder)
    assert observed.returncode == plain.returncode == 0, observed.stderr
    return Run(plain, observed, read(folder / "trace"), folder)


def lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    return sorted(line for line in done.stdout.splitlines() if " loss " in line)


def shown(printed: str) -> list[float]:
    return [float.fromhex(line.split()[2]) for line in printed.splitlines() if " loss " in line]


def test_one_process_computes_the_same_bits_with_and_without_the_tracer(single: Run) -> None:
    assert len(lines(single.plain)) == 12
    assert single.observed.stdout == single.plain.stdout
    assert single.observed.stderr == single.plain.stderr


def test_two_ranks_compute_the_same_bits_with_and_without_the_tracer(double: Run) -> None:
    assert len(lines(double.plain)) == 12
    assert lines(double.observed) == lines(double.plain)


def test_saved_weights_are_the_same_bytes_with_and_without_the_tracer(single: Run) -> None:
    import torch

    plain = torch.load(single.folder / "plain" / "model.bin")
    observed = torch.load(single.folder / "out" / "model.bin")
    assert all(torch.equal(plain[name], observed[name]) for name in plain)


def test_every_step_has_the_exact_loss_norm_and_learning_rate(single: Run) -> None:
    steps = single.traces[0].steps
    assert [step.number for step in steps] == list(range(1, 13))
    assert [step.loss for step in steps] == shown(single.observed.stdout)
    norms = [float.fromhex(line.split()[3]) for line in lines(single.observed)]
    assert sorted(step.norm_before_clipping for step in steps) == sorted(norms)
    assert all(step.grad_norm <= 0.5 < step.norm_before_clipping for step in steps[:3])
    assert [step.lrs for step in steps] == [[1e-2 * (1 / (1 + number))] for number in range(12)]
    assert steps[0].optimizer_class == "AdamW"
    assert all(step.draws for step in steps), "dropout draws"


def test_parameters_have_the_names_of_the_unwrapped_model_on_every_rank(double: Run) -> None:
    first, second = (found.last(Parameters) for found in double.traces)
    assert first is not None
    assert second is not None
    assert sorted(first.tensors) == [
        *("0.bias", "0.weight", "1.bias", "1.weight", "4.bias", "4.weight")
    ]
    assert first.checksum == second.checksum == double.traces[0].steps[-1].checksum


def test_checksums_change_with_every_step_and_end_at_the_saved_weights(single: Run) -> None:
    import torch

    found = single.traces[0]
    sums = [step.checksum for step in found.steps]
    assert len({each.sha256 for each in sums if each}) == 12
    saved = torch.load(single.folder / "out" / "model.bin")
    end = found.last(Parameters)
    assert end is not None
    for name, (total, norm) in end.tensors.items():
        assert total == pytest.approx(saved[name].double().sum().item(), abs=1e-12)
        assert norm == pytest.approx(saved[name].double().norm().item(), rel=1e-12)


def test_indices_drawn_for_two_workers_are_seen_in_order(single: Run) -> None:
    passes = single.traces[0].passes
    assert [one.kind for one in passes] == ["train", "eval", "train", "eval"]
    training = passes[0]
    assert sorted(i for i in training.indices if i is not None) == list(range(22))
    assert training.indices != sorted(range(22)) != passes[2].indices
    assert [len(batch.indices) for batch in training.batches] == [4, 4, 4, 4, 4, 2]
    assert passes[1].indices == list(range(11))
    begin = training.begin
    assert (begin.dataset, begin.length, begin.sampler) == ("Numbers", 22, "RandomSampler")
    assert (begin.batch_size, begin.batches, begin.workers) == (4, 6, 2)
    assert [one.begin.epoch for one in passes] == [0, 0, 1, 0]
    assert str(begin.site).startswith("train run.py:")


def test_a_distributed_sampler_that_repeats_its_order_is_visible(double: Run) -> None:
    shards = [found.passes[0].indices for found in double.traces]
    assert sorted(i for shard in shards for i in shard if i is not None) == list(range(22))
    for found in double.traces:
        first, second = (one for one in found.passes if one.kind == "train")
        assert first.indices == second.indices  # set_epoch is never called
        assert first.begin.sampler == "DistributedSampler"


def test_collectives_of_the_script_and_of_ddp_are_counted_with_their_sites(double: Run) -> None:
    for found in double.traces:
        by_name: dict[str, list[Collective]] = {}
        for one in found.events_of(Collective):
            by_name.setdefault(one.op, []).append(one)
        assert set(by_name) == {"barrier", "ddp_init", "ddp_sync_buffers", "ddp_all_reduce"}
        assert len(by_name["ddp_all_reduce"]) == len(found.steps) == 6
        assert {one.count for one in by_name["ddp_all_reduce"]} == {1}  # one bucket
        assert {one.collectives for one in found.events_of(Backward)} == {1}
        assert str(by_name["barrier"][0].site).startswith("main run.py:")
        assert all(str(one.site).startswith("train") for one in by_name["ddp_all_reduce"])
    first, second = ([step.collectives for step in found.steps] for found in double.traces)
    assert first == second


def test_seeds_are_recorded_where_the_script_sets_them(single: Run) -> None:
    seeds = [one for one in single.traces[0].events_of(Seed) if one.site is not None]
    assert [(one.generator, one.value) for one in seeds] == [
        ("random", "1"),
        ("numpy", "2"),
        ("torch", "3"),
    ]


def test_metrics_are_recorded_on_silenced_ranks_too(double: Run) -> None:
    for found in double.traces:
        metrics = found.metrics
        assert [one.key for one in metrics] == ["eval_loss", "eval_loss"]
        assert {one.shown for one in metrics} == {found.rank == 0}


def test_the_end_of_a_run_and_of_its_process_group_is_recorded(single: Run, double: Run) -> None:
    assert [found.status for found in (*single.traces, *double.traces)] == [0, 0, 0]
    assert all(found.group_destroyed for found in double.traces)
    operations = [one.op for one in double.traces[1].events_of(Group)]
    assert operations == ["init", "destroy"]
    phases = single.traces[0].phases()
    assert all(phases[name] > 0 for name in ("import", "train", "eval"))
    assert sum(phases.values()) == pytest.approx(single.traces[0].events[-1].t, rel=0.01)


def test_only_rank_0_is_seen_to_write_the_checkpoint(double: Run) -> None:
    writers = {
        found.rank
        for found in double.traces
        for one in found.files
        if one.path == str(double.folder / "out" / "model.bin")
    }
    assert writers == {0}


def test_losses_of_an_accumulated_step_are_listed_and_the_last_clip_counts(
    tmp_path: Path, forge: Forge
) -> None:
    words = ["--accumulation", "4", "--epochs", "1"]
    printed, found = begun(forge, tmp_path, TRAIN, arguments=words)
    (step,) = found.steps  # 6 batches: one step of 4, 2 left over
    losses = shown(printed)
    assert step.losses == losses[:4]
    assert step.loss == pytest.approx(sum(losses[:4]), rel=1e-12)
    rows = [line.split() for line in printed.splitlines() if " loss " in line]
    norms = [float.fromhex(row[3]) for row in rows]
    assert [clip.norm for clip in step.clips] == norms[:4]
    assert step.norm_before_clipping == norms[3]


FILES = """
import multiprocessing, os, pathlib, shutil, sys
import numpy as np
import torch
from safetensors.torch import save_file
from torch.utils.data import DataLoader

here = pathlib.Path("work")


class Writes(list):
    def __getitem__(self, index):
        (here / f"worker{index}").write_text("x")
        return index


def child(index):
    with open(here / f"pool{index}", "w") as f:
        f.write("x")


def main():
    here.mkdir()
    with open(here / "written", "w") as f:
        f.write("x")
    with open(here / "written") as f:
        f.read()
    with open(here / "written", "a") as f:
        f.write("x")
    with open(here / "written", "r+") as f:
        f.write("y")
    with open(here / "new", "x") as f:
        f.write("x")
    os.replace(here / "new", here / "renamed")
    os.remove(here / "renamed")
    os.link(here / "written", here / "linked")
    os.symlink("written", here / "pointer")
    os.truncate(here / "written", 1)
    torch.save({"a": torch.ones(2)}, here / "model.bin")
    save_file({"a": torch.ones(2)}, str(here / "model.safetensors"))
    np.save(here / "array.npy", np.ones(2))
    os.chdir(here)
    open("relative", "w").close()
    os.chdir("..")
    open(os.devnull, "w").close()
    list(DataLoader(Writes([0, 0]), num_workers=1))
    with multiprocessing.Pool(1) as pool:
        pool.map(child, range(2))
    os.makedirs(here, exist_ok=True)
    os.makedirs(here / "folder")
    open(here / "folder" / "deep", "w").close()
    shutil.rmtree(here / "folder")


if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def writing(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RankTrace]:
    """The folder and the trace of a run that changes files."""
    folder = tmp_path_factory.mktemp("writing")
    done, found = traced(folder, FILES)
    assert done.returncode == 0, done.stderr
    return folder, found


def test_every_change_to_a_file_is_recorded_with_its_line(writing: tuple[Path, RankTrace]) -> None:
    folder, found = writing
    work = folder / "work"
    source = FILES.splitlines()
    seen = []
    for one in found.files:
        assert one.site is not None, one
        assert one.path.startswith(str(work)), one
        seen.append((one.op, os.path.relpath(one.path, work), one.via))
        if one.via != "audit":
            assert one.via.split(".")[0] in source[one.site.line - 1].replace("save_file", one.via)
    assert seen == [
        ("mkdir", ".", "audit"),
        ("write", "written", "audit"),
        ("append", "written", "audit"),
        ("update", "written", "audit"),
        ("create", "new", "audit"),
        ("rename", "new", "audit"),
        ("remove", "renamed", "audit"),
        ("link", "linked", "audit"),
        ("symlink", "pointer", "audit"),
        ("truncate", "written", "audit"),
        ("write", "model.bin", "torch.save"),
        ("write", "model.safetensors", "safetensors"),
        ("write", "array.npy", "audit"),
        ("write", "relative", "audit"),
        ("mkdir", ".", "audit"),  # exist_ok: the attempt, of what existed
        ("mkdir", "folder", "audit"),
        ("write", "folder/deep", "audit"),
        ("remove", "folder/deep", "audit"),
        ("rmdir", "folder", "audit"),
        ("write", "worker0", "audit"),
        ("write", "worker1", "audit"),
        ("write", "pool0", "audit"),
        ("write", "pool1", "audit"),
    ]
    assert {one.op: one.to for one in found.files if one.to is not None} == {
        "rename": str(work / "renamed"),
        "link": str(work / "written"),
        "symlink": "written",
    }
    assert [one.existed for one in found.files if one.op == "mkdir"] == [False, True, False]


def test_files_of_workers_and_pools_are_in_files_of_their_own(
    writing: tuple[Path, RankTrace],
) -> None:
    folder, found = writing
    assert len(found.children) == 2
    assert found.start.pid not in found.children
    for pid, events in found.children.items():
        assert {one.pid for one in events if isinstance(one, File)} == {pid}
        assert (folder / "trace" / f"rank0.pid{pid}.jsonl").exists()


HANG = """
import multiprocessing, os, sys, time
import torch
import torch.distributed as dist
from torch import nn


def idle(_):
    time.sleep(1000)


def evaluate():
    results = [None, None]
    dist.all_gather_object(results, 1)  # gathers


def train(model):
    loss = model(torch.ones(2, 4)).sum()
    loss.backward()  # reduces


def main():
    dist.init_process_group("gloo")
    pool = multiprocessing.get_context("fork").Pool(2)
    pool.map_async(idle, range(2))
    model = nn.parallel.DistributedDataParallel(nn.Linear(4, 1))
    train(model)
    train(model)  # the reducer rebuilds its buckets once
    if dist.get_rank() == 0:
        evaluate()
    else:
        train(model)


main()
"""


def processes_with(text: str) -> list[str]:
    """Command lines of living processes that contain ``text``."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in words:
            found.append(words)
    return found


def test_a_hang_names_the_place_of_both_ranks_and_leaves_no_process(tmp_path: Path) -> None:
    name = script(tmp_path, HANG)
    done = execute(
        [
            *launcher_command("direct", 2, 1, ("-m", TRACER, "--out", str(tmp_path / "trace"))),
            *("--phase-timeout", "20", name),  # longer than torch takes to be imported
        ],
        tmp_path,
    )
    traces = read(tmp_path / "trace")
    source = HANG.splitlines()
    gather = next(n for n, line in enumerate(source, 1) if "# gathers" in line)
    reduce = next(n for n, line in enumerate(source, 1) if "# reduces" in line)
    assert disagreement(traces) == (
        f"rank 0 is in evaluate run.py:{gather} (all_gather_object), "
        f"rank 1 in train run.py:{reduce} (backward)"
    )
    for found in traces:
        assert found.status is None
        hang = found.hang
        assert hang is not None
        assert any("run.py" in frame for frame in hang.stacks["MainThread"])
    # The launcher may end one rank first, but one of them left with the tracer's own status.
    assert done.returncode == 75
    assert "ended with exit status 75; the other ranks are stopped" in done.stderr
    assert processes_with(str(tmp_path)) == []


def test_a_slow_rank_that_waits_alone_is_reported_where_it_stands(tmp_path: Path) -> None:
    text = "import time\n\n\ndef wait():\n    time.sleep(100)\n\n\nwait()\n"
    done, found = traced(tmp_path, text, "--phase-timeout", "1")
    assert done.returncode == 75
    assert disagreement([found]) == "rank 0 is in wait run.py:5"
    assert "rank 0 hangs in wait run.py:5" in done.stderr


def test_a_deep_stack_is_reported_from_its_inner_end(tmp_path: Path) -> None:
    text = "import time\ndef deep(n):\n    return deep(n - 1) if n else time.sleep(100)\ndeep(99)\n"
    _, found = traced(tmp_path, text, "--phase-timeout", "1")
    assert found.hang is not None
    stack = found.hang.stacks["MainThread"]
    assert len(stack) == 60
    assert all("deep" in frame for frame in stack)


def test_a_rank_that_hangs_does_not_wait_for_the_report_of_one_that_is_gone(
    tmp_path: Path,
) -> None:
    run = [sys.executable, "-m", TRACER, "--out", "trace", "--phase-timeout", "1"]
    name = script(tmp_path, "import time\ntime.sleep(100)\n")
    done = execute(["env", "RANK=0", "WORLD_SIZE=2", *run, name], tmp_path)
    assert done.returncode == 75
    assert "rank 0 hangs in run.py:2" in done.stderr


def test_training_stops_after_the_steps_asked_for_and_the_rest_still_runs(
    tmp_path: Path, forge: Forge
) -> None:
    limits = ("--max-steps", "2", "--max-eval-batches", "1")
    printed, found = begun(forge, tmp_path, TRAIN, *limits)
    assert len(found.steps) == 2
    assert "total 12" in printed  # len(loader) is what it was
    assert [(one.kind, one.end.limit if one.end else None) for one in found.passes] == [
        ("train", "max-steps"),
        ("eval", "max-eval-batches"),
        ("eval", "max-eval-batches"),
    ]
    assert [len(one.batches) for one in found.passes] == [2, 1, 1]
    assert (tmp_path / "out" / "model.bin").exists()


def test_training_stops_after_the_epochs_asked_for(tmp_path: Path, forge: Forge) -> None:
    words = ["--epochs", "3"]
    _, found = begun(forge, tmp_path, TRAIN, "--max-epochs", "1", arguments=words)
    assert len(found.steps) == 6
    assert [one.kind for one in found.passes] == ["train", "eval", "eval", "eval"]


SHARED = """
import sys
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

def loader():
    return DataLoader([torch.ones(1)] * 4, batch_size=2, num_workers=1, persistent_workers=True)

def run(batches, train):
    net.train(train)
    for batch in batches:
        loss = checkpoint(net, batch.requires_grad_(), use_reentrant=True).sum()
        if train:
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

net = nn.Linear(1, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
training, held_out = loader(), loader()
for epoch in range(3):
    run(training, True)
    run(held_out, False)
torch.save(net.state_dict(), "trained.bin")
net.load_state_dict({"weight": torch.zeros(1, 1), "bias": torch.zeros(1)})
"""


def test_one_loop_for_training_and_evaluation_is_told_apart_pass_by_pass(
    tmp_path: Path, forge: Forge
) -> None:
    _, found = begun(forge, tmp_path, SHARED, "--max-epochs", "2", "--keep-parameters")
    kinds = [(one.kind, one.begin.loader, one.begin.epoch) for one in found.passes]
    # A limit that ends training must not end the evaluation at the same line.
    assert kinds == [
        *(("train", 0, 0), ("eval", 1, 0), ("train", 0, 1), ("eval", 1, 1)),
        ("eval", 1, 2),
    ]
    assert all(one.indices == [0, 1, 2, 3] for one in found.passes)
    # Checkpointing runs a backward inside the backward; the loss is the outer one.
    assert [len(step.losses) for step in found.steps] == [1, 1, 1, 1]


def test_trained_parameters_are_kept_before_others_are_loaded(tmp_path: Path, forge: Forge) -> None:
    import numpy
    import torch

    _, found = begun(forge, tmp_path, SHARED, "--keep-parameters", "--checksum-every", "4")
    before, end = found.events_of(Parameters)
    assert (before.reason, end.reason) == ("load_state_dict", "exit")
    assert before.after_step == 6
    assert [step.number for step in found.steps if step.checksum] == [4]
    saved = torch.load(tmp_path / "trained.bin")
    assert before.file is not None
    kept = numpy.load(tmp_path / "begun" / "trace" / before.file)
    assert all((kept[name] == saved[name].numpy()).all() for name in ("weight", "bias"))
    assert end.checksum.norm == 0.0


CYCLE = """
import itertools
import torch
from torch import nn
from torch.utils.data import DataLoader


def cycle(loader):
    while True:
        for batch in loader:
            yield batch


net = nn.Linear(1, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
batches = BATCHES(DataLoader([torch.ones(1)] * 4))
for step in range(100):
    net(next(batches)).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize("way", ["cycle", "iter"])
def test_a_script_that_asks_for_batches_for_ever_is_ended_at_the_limit(
    tmp_path: Path, way: str, forge: Forge
) -> None:
    _, found = begun(forge, tmp_path, CYCLE.replace("BATCHES", way), "--max-steps", "3")
    assert len(found.steps) == 3
    assert [one.forced for one in found.events_of(Limit)] == [False, True]


DROPOUT = """
import hashlib
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
x = torch.randn(2, 3, 4)
before = torch.get_rng_state()
parts = {
    "module": nn.Dropout(0.9)(x), "function": F.dropout(x, 0.9),
    "native": torch.dropout(x, 0.9, True),
    "alpha": F.alpha_dropout(x, 0.9, True), "feature": F.feature_alpha_dropout(x, 0.9, True),
    "plane": F.dropout1d(x, 0.9), "in place": F.dropout(x.clone(), 0.9, inplace=True),
}
same = {name: torch.equal(part, x) for name, part in parts.items()}
causal = F.scaled_dot_product_attention(x, x, x, is_causal=True, dropout_p=0.9)
same["attention"] = torch.equal(causal, F.scaled_dot_product_attention(x, x, x, is_causal=True))
same["random numbers"] = torch.equal(before, torch.get_rng_state())
network = nn.LSTM(4, 5, num_layers=2, dropout=0.9)
packed = nn.utils.rnn.pack_sequence([x[0], x[1][:2]])
for name, given in (("recurrent", x), ("packed", packed)):
    state = torch.get_rng_state()
    first, second = network(given)[1][0], network.train(False)(given)[1][0]
    network.train()
    same[name] = torch.equal(first, second) and torch.equal(state, torch.get_rng_state())
norm = nn.BatchNorm1d(3)
same["batch norm"] = torch.equal(norm(x), norm.eval()(x)) and not norm.running_mean.any()
print(sorted(name for name, held in same.items() if not held))
"""


def test_without_dropout_every_kind_is_the_identity_and_draws_nothing(
    tmp_path: Path, forge: Forge
) -> None:
    printed, _ = begun(forge, tmp_path, DROPOUT, "--no-dropout")
    assert printed == "[]\n"


def test_left_alone_every_kind_of_dropout_acts(tmp_path: Path, forge: Forge) -> None:
    printed, _ = begun(forge, tmp_path, DROPOUT)
    assert len(printed.split(",")) == 12, printed


def test_threads_and_seeds_are_set_before_the_script_computes(tmp_path: Path, forge: Forge) -> None:
    text = (
        "import random, numpy, torch\n"
        "print(torch.get_num_threads(), random.random(), numpy.random.rand(), torch.rand(1).item())"
    )
    options = ("--threads", "3", "--seed", "5")
    done, _ = traced(tmp_path, text, *options)
    assert done.stdout.split()[0] == "3"
    printed, _ = begun(forge, tmp_path, text, *options)
    assert printed == done.stdout


LEGACY = """
from transformers import (WEIGHTS_NAME, AdamW, get_linear_schedule_with_warmup,
                          GPT2Config, GPT2Model)
import torch, transformers
from transformers.optimization import AdamW as same
assert AdamW is same is transformers.AdamW
model = GPT2Model(GPT2Config(n_layer=1, n_head=1, n_embd=4, vocab_size=9))
optimizer = AdamW(model.parameters(), lr=1e-3)
print(optimizer.defaults["weight_decay"], optimizer.defaults["eps"], 8 // torch.cuda.device_count())
print(model.config.torchscript, torch.cuda.LongTensor(1).fill_(3).tolist())
"""


def test_the_legacy_shim_provides_adamw_and_one_card_and_nothing_does_without(
    tmp_path: Path, forge: Forge
) -> None:
    done, _ = traced(tmp_path, LEGACY, "--shim-legacy")
    assert done.stdout == "0.0 1e-06 8\nFalse [3]\n", done.stderr
    (without,) = forge.run([Job(tmp_path / "without", tmp_path / "run.py", [])])
    assert without.statuses == (1,)
    end = without.ranks[0].last(Exit)
    assert end is not None
    assert end.failure is not None
    assert end.failure.type == "ImportError"
    assert "AdamW" in end.failure.message


SELF = """
import __main__, sys
print(sys.argv, sys.path[0], __name__, __file__, __main__.__file__, __spec__, __package__)
print(sorted(name for name in globals() if name != "__annotations__"), type(__loader__))
import helper
print(helper.__file__)
"""


def test_the_script_finds_itself_as_it_would_under_python(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "helper.py").touch()
    (tmp_path / "sub" / "run.py").write_text(SELF)
    words = ["sub/run.py", "--out", "a b", "--", "$x"]
    plain = execute([sys.executable, *words], tmp_path)
    observed = execute([sys.executable, "-m", TRACER, "--out", "trace", *words], tmp_path)
    assert plain.returncode == 0, plain.stderr
    assert observed.stdout == plain.stdout
    assert read(tmp_path / "trace")[0].start.argv == words[1:]


@pytest.mark.parametrize(
    ("text", "status", "failure"),
    [
        ("import sys; sys.exit(3)", 3, None),
        ("raise SystemExit", 0, None),
        ("import sys; sys.exit('said')", 1, None),
        ("def f():\n    raise ValueError('a\\nb')\nf()", 1, "ValueError"),
        ("syntax error", 1, "SyntaxError"),
    ],
    ids=["status", "no status", "message", "exception", "syntax"],
)
def test_a_script_ends_as_under_python(
    tmp_path: Path, text: str, status: int, failure: str | None
) -> None:
    name = script(tmp_path, text)
    plain = execute([sys.executable, name], tmp_path)
    done, found = traced(tmp_path, text)
    assert done.returncode == plain.returncode == found.status == status
    end = found.last(Exit)
    assert end is not None
    assert (end.failure.type if end.failure else None) == failure
    assert done.stderr == plain.stderr
    if failure == "ValueError":
        assert end.failure is not None
        assert str(end.failure.site) == "f run.py:2"


def test_a_killed_process_keeps_its_trace_up_to_the_end(tmp_path: Path) -> None:
    text = "import os, random, signal\nrandom.seed(7)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    done, found = traced(tmp_path, text)
    assert done.returncode == -9
    assert found.status is None
    assert found.group_destroyed is None
    assert [one.value for one in found.events_of(Seed)] == ["7"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--out", "t", "missing.py"], "missing.py: no such script"),
        (["run.py"], "--out"),
        (["--out", "t", "--max-steps", "0", "run.py"], "'0' is not a whole number above 0"),
        (["--out", "run.py/t", "run.py"], "run.py/t: Not a directory"),
    ],
    ids=["no script", "no folder", "bad number", "folder is a file"],
)
def test_bad_usage_is_one_line_and_status_2(tmp_path: Path, words: list[str], says: str) -> None:
    script(tmp_path, "raise SystemExit(0)")
    done = execute([sys.executable, "-m", TRACER, *words], tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "t").exists()
