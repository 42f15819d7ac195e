"""Where writes go (DF601, DF602, DF604), loaders without a name (DF402), and ranks of a script."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from cases import RULES, changes, fixed, found
from ddpfix.patcher.api import read_program

NOOP = [
    ("DF602", "a file that might be written, and is only read", """
        import json, torch
        torch.distributed.init_process_group("gloo")
        file = open("words", "r+")
        words = json.load(file)
        with open("lines", "r+") as lines:
            for line in lines:
                words.append(line)
        """),
    ("DF601", "memory is no file", """
        import io, torch
        def f(model):
            buffer = io.BytesIO()
            torch.save(model, buffer)
        """),
    ("DF601", "memory that a with statement holds", """
        import tempfile, torch
        with tempfile.TemporaryFile() as buffer:
            torch.save(model, buffer)
        """),
    ("DF601", "each rank has a file of its own", """
        import torch
        torch.save(part, f"part_{args.local_rank}.pt")
        """),
    ("DF601", "a path with the rank has a name", """
        import os, torch
        def f(part):
            rank = torch.distributed.get_rank()
            name = f"{rank}.pt"
            path = os.path.join("parts", name)
            torch.save(part, path)
        """),
    ("DF601", "the rank is a parameter", """
        import torch
        def write(part, local_rank):
            torch.save(part, "part_" + str(local_rank) + ".pt")
        write(part, torch.distributed.get_rank())
        """),
    ("DF601", "the number of a spawned process", """
        import torch
        def worker(gpu, n):
            torch.distributed.init_process_group("gloo", rank=gpu, world_size=n)
            torch.save(part, "part%d.pt" % gpu)
        """),
    ("DF601", "every caller names the rank", """
        import torch
        def write(part, path):
            torch.save(part, path)
        write(part, f"{args.rank}.pt")
        write(part, path=f"other{args.rank}.pt")
        """),
    ("DF601", "a shard that is named by a group's rank, of a library that is not read", """
        import os, torch
        from parallel import groups
        def save(state, folder):
            tensor_rank = groups.get_tensor_parallel_rank()
            torch.save(state, os.path.join(folder, f"{tensor_rank:02d}", "weights.pt"))
            torch.save(state, os.path.join(folder, f"{groups.get_tensor_parallel_rank()}.pt"))
            torch.save(state, os.path.join(folder, f"{groups.data_rank}.pt"))
        """),
    ("DF601", "a shard whose path a method makes", """
        import os, torch
        from parallel import groups
        class Shards:
            def __init__(self):
                self.tensor_rank = groups.tensor_rank
            def path(self, folder):
                return os.path.join(folder, f"shard{self.tensor_rank}.pt")
            def save(self, state, folder):
                path = self.path(folder)
                torch.save(state, path)
        Shards().save({}, "out")
        """),
    ("DF601", "a folder of its own that an object keeps", """
        import pathlib, torch, uuid
        class Probe:
            def __init__(self, file):
                self.folder = pathlib.Path(f"{file}-{str(uuid.uuid4())[:8]}")
            def save(self, state, name):
                torch.save(state, self.folder / f"{name}.pt")
        Probe("out").save({}, "first")
        """),
    ("DF602", "a name of letters that each process chooses", """
        import secrets, string, torch
        torch.distributed.init_process_group("gloo")
        name = "".join(secrets.choice(string.ascii_letters) for _ in range(8))
        with open(f"out/{name}.txt", "w") as file:
            file.write("edges")
        """),
    ("DF602", "a temporary file that a static method gets by name", """
        import tempfile, torch
        torch.distributed.init_process_group("gloo")
        class Config:
            @staticmethod
            def fill(path, into):
                with open(into, "w") as file:
                    file.write(path)
        with tempfile.NamedTemporaryFile(delete=False) as copy:
            Config.fill("base", copy.name)
        """),
    ("DF601", "a function that some call for a file of each rank", """
        import torch
        def write(part, name):
            torch.save(part, name)
        write(part, f"rank{args.rank}.pt")
        if args.rank == 0:
            write(whole, "whole.pt")
        """),
    ("DF601", "a library that writes on its main process", """
        import torch
        accelerator.unwrap_model(model).save_pretrained(
            "out", is_main_process=accelerator.is_main_process)
        """),
    ("DF602", "a log of each rank, by a number that is not read, or the standard output", """
        import sys, torch
        from cluster import number
        class Log:
            def __init__(self, target):
                self.file = open(target, "w") if isinstance(target, str) else target
        def make(kind, end):
            return Log(sys.stdout) if kind == "text" else Log("log%s.txt" % end)
        def configure(end=""):
            rank = number()
            if rank > 0:
                end = end + "-%03i" % rank
            return make("json", end)
        torch.distributed.init_process_group("gloo")
        configure()
        """),
    ("DF602", "a log of each rank", """
        import torch, logging
        torch.distributed.init_process_group("gloo")
        with open(f"log{torch.distributed.get_rank()}.txt", "w") as file:
            file.write("x")
        handler = logging.FileHandler("log%s" % args.rank)
        """),
    ("DF602", "the null device, to which the other ranks print", """
        import os, sys, torch
        torch.distributed.init_process_group("gloo")
        if torch.distributed.get_rank() != 0:
            sys.stdout = open(os.devnull, "w")
        """),
    ("DF604", "memory that each rank has for itself", """
        import io, torch
        def f(model, other):
            buffer = io.BytesIO()
            torch.save(model, buffer)
            other.load_state_dict(torch.load(buffer))
        """),
    ("DF601", "the best weights in a temporary folder, which each rank has another of", """
        import os, tempfile, torch
        with tempfile.TemporaryDirectory() as folder:
            best = os.path.join(folder, "best.pt")
            torch.save(model.state_dict(), best)
            model.load_state_dict(torch.load(best, map_location="cpu"))
        """),
    ("DF604", "the best weights in a temporary folder, which each rank has another of", """
        import os, tempfile, torch
        with tempfile.TemporaryDirectory() as folder:
            best = os.path.join(folder, "best.pt")
            torch.save(model.state_dict(), best)
            model.load_state_dict(torch.load(best, map_location="cpu"))
        """),
    ("DF407", "no sampler, one that may be none, and no shuffling", """
        from torch.utils.data import DataLoader, DistributedSampler
        sampler = DistributedSampler(data) if several else None
        DataLoader(data, shuffle=True)
        DataLoader(data, shuffle=True, sampler=None)
        DataLoader(data, shuffle=True, sampler=sampler)
        DataLoader(data, shuffle=sampler is None, sampler=DistributedSampler(data))
        """),
    ("DF105", "processes that join no group", """
        import torch
        from multiprocessing import Process
        def read(path):
            return open(path).read()
        def main():
            torch.distributed.init_process_group("gloo")
            Process(target=read, args=(path,)).start()
        main()
        """),
    ("DF105", "processes that get no function that joins a group", """
        import torch
        from multiprocessing import Process
        def train(rank):
            torch.distributed.init_process_group("gloo")
        def read(path):
            return open(path).read()
        def quietly(run, path):
            run(path)
        def main():
            Process(target=quietly, args=(read, path)).start()
            train(rank)
        main()
        """),
    ("DF105", "another script, and this one once", """
        import subprocess, sys, torch
        torch.distributed.init_process_group("gloo")
        for path in paths:
            subprocess.run([sys.executable, "convert.py", path])
        subprocess.run([sys.executable, *sys.argv])
        """),
    ("DF105", "somebody else's spawn", """
        import torch, mine
        def worker(rank):
            torch.distributed.init_process_group("gloo", rank=rank)
        mine.spawn(worker)
        """),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "text"), [pytest.param(c, t, id=f"{c} {name}") for c, name, t in NOOP]
)
def test_what_every_rank_has_for_itself_is_left_alone(code: str, text: str) -> None:
    assert [finding.because for finding in found(code, text)] == []


FIX = [
    ("DF602", "a file that a callee writes and all ranks score", """
        import torch
        def write(rows, path):
            with open(path, "w") as file:
                file.write(str(rows))
        def main(rows):
            path = "rows.txt"
            write(rows, path)
            print(score(path))
            other = "other.txt"
            write(rows, other)
        main(rows)
        """, """
        @@ -1,5 +1,11 @@
         import torch
        +
        +
        +def is_main_process(): ...
         def write(rows, path):
        -    with open(path, "w") as file:
        -        file.write(str(rows))
        +    if is_main_process():
        +        with open(path, "w") as file:
        +            file.write(str(rows))
         def main(rows):
        @@ -7,2 +13,4 @@
             write(rows, path)
        +    if torch.distributed.is_initialized():
        +        torch.distributed.barrier()  # rank 0 may still be writing
             print(score(path))
        """),
    ("DF602", "a file that one line writes, and somebody else's function reads", """
        import json
        import torch
        import scorer
        torch.distributed.init_process_group("gloo")
        def score(rows, folder):
            path = folder + "/rows.json"
            json.dump(rows, open(path, "w"))
            return scorer.load(path)
        score([1], "out")
        """, """
        @@ -4,5 +4,13 @@
         torch.distributed.init_process_group("gloo")
        +
        +
        +def is_main_process(): ...
         def score(rows, folder):
             path = folder + "/rows.json"
        -    json.dump(rows, open(path, "w"))
        +    if is_main_process():
        +        json.dump(rows, open(path, "w"))
        +    if torch.distributed.is_initialized():
        +        torch.distributed.barrier()  # rank 0 may still be writing
             return scorer.load(path)
        """),
    ("DF602", "what a model says is written, and the path returned from behind the block", """
        import torch
        torch.distributed.init_process_group("gloo")
        def label(model, loader, folder):
            path = folder + "/labels.txt"
            with torch.no_grad():
                with open(path, "w") as file:
                    for number in range(len(loader)):
                        file.write(str(model(number)))
            return path
        label(model, [1], "out")
        """, """
        @@ -1,3 +1,9 @@
         import torch
        +import os
         torch.distributed.init_process_group("gloo")
        +
        +
        +def is_main_process(): ...
         def label(model, loader, folder):
        @@ -5,5 +11,7 @@
             with torch.no_grad():
        -        with open(path, "w") as file:
        +        with open(path if is_main_process() else os.devnull, "w") as file:
                     for number in range(len(loader)):
                         file.write(str(model(number)))
        +        if torch.distributed.is_initialized():
        +            torch.distributed.barrier()  # rank 0 may still be writing
             return path
        """),
    ("DF602", "files of one folder that are only written", """
        import json
        import torch
        torch.distributed.init_process_group("gloo")
        def store(rows, marks, name):
            folder = "out/" + name
            json.dump(rows, open(folder + "/rows.json", "w"))
            json.dump(marks, open(folder + "/marks.json", "w"))
        store([1], [2], "a")
        """, """
        @@ -3,6 +3,13 @@
         torch.distributed.init_process_group("gloo")
        +
        +
        +def is_main_process(): ...
         def store(rows, marks, name):
             folder = "out/" + name
        -    json.dump(rows, open(folder + "/rows.json", "w"))
        -    json.dump(marks, open(folder + "/marks.json", "w"))
        +    if is_main_process():
        +        json.dump(rows, open(folder + "/rows.json", "w"))
        +    if is_main_process():
        +        json.dump(marks, open(folder + "/marks.json", "w"))
         store([1], [2], "a")
        """),
    ("DF505", "named tuples of a class inside the function", """
        import collections
        import torch
        def evaluate(model, data):
            Result = collections.namedtuple("Result", ["index", "score"])
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            model.eval()
            results = []
            for x in loader:
                out = model(x)
                for i in range(len(out)):
                    results.append(Result(index=i, score=out[i].item()))
            return results
        def main(model):
            torch.distributed.init_process_group("gloo", timeout=t)
            for x in torch.utils.data.DataLoader(train):
                model(x).backward()
            evaluate(model, data)
        main(model)
        """, """
        @@ -1,6 +1,36 @@
         import collections
        +import pickle
         import torch
        +
        +
        +def shard_of_batches(dataset, batch_size): ...
        +
        +
        +def gathered(value): ...
         def evaluate(model, data):
             Result = collections.namedtuple("Result", ["index", "score"])
        -    loader = torch.utils.data.DataLoader(data, batch_size=4)
        +    loader = torch.utils.data.DataLoader(data, batch_size=4, sampler=None if not torch.distributed.is_initialized() else shard_of_batches(data, 4))
             model.eval()
        @@ -11,2 +41,3 @@
                     results.append(Result(index=i, score=out[i].item()))
        +    results = [Result(*each) for each in gathered([tuple(each) for each in results])]
             return results
        """),  # noqa: E501
    ("DF601", "a file that is opened for the checkpoint alone", """
        import torch
        with open(path, "wb") as file:
            torch.save(model, file)
        """, """
        @@ -1,3 +1,20 @@
         import torch
        -with open(path, "wb") as file:
        -    torch.save(model, file)
        +import shutil
        +import os
        +
        +
        +def is_main_process(): ...
        +
        +
        +def save_on_main(obj, path, **options): ...
        +save_on_main(model, path)
        """),
    ("DF407", "the sampler shuffles", """
        import torch
        sampler = torch.utils.data.DistributedSampler(data)
        loader = torch.utils.data.DataLoader(data, sampler=sampler, shuffle=True)
        """, """
        @@ -2,2 +2,2 @@
         sampler = torch.utils.data.DistributedSampler(data)
        -loader = torch.utils.data.DataLoader(data, sampler=sampler, shuffle=True)
        +loader = torch.utils.data.DataLoader(data, sampler=sampler, shuffle=False)
        """),
    ("DF402", "a loader of module level, and the epochs around a call", """
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        loader = DataLoader(data, sampler=DistributedSampler(data))
        def train(epoch):
            for batch in loader:
                model(batch).backward()
        for epoch in range(first, first + 9):
            train(epoch)
        """, """
        @@ -7,2 +7,4 @@
         for epoch in range(first, first + 9):
        +    if isinstance(loader.sampler, DistributedSampler):
        +        loader.sampler.set_epoch(epoch)
             train(epoch)
        """),
    ("DF402", "a loader that is there only where its training is asked for", """
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        if args.train:
            loader = DataLoader(data, sampler=DistributedSampler(data))
        for epoch in range(9):
            if args.train:
                for batch in loader:
                    model(batch).backward()
        """, """
        @@ -6,2 +6,4 @@
             if args.train:
        +        if isinstance(loader.sampler, DistributedSampler):
        +            loader.sampler.set_epoch(epoch)
                 for batch in loader:
        """),
    ("DF402", "a loop that adds to the epoch, around a call", """
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        def train(epoch, batches):
            for batch in batches:
                model(batch).backward()
        loader = DataLoader(data, sampler=DistributedSampler(data))
        epoch = first
        while epoch < last + 1:
            train(epoch, loader)
            epoch += 1
        """, """
        @@ -8,2 +8,4 @@
         while epoch < last + 1:
        +    if isinstance(loader.sampler, DistributedSampler):
        +        loader.sampler.set_epoch(epoch)
             train(epoch, loader)
        """),
    ("DF402", "the batches of an epoch, which players count in turn", """
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        loader = DataLoader(data, sampler=DistributedSampler(data))
        for epoch in range(9):
            batches, i = iter(loader), 0
            while i < len(loader):
                critic = 0
                while critic < 5 and i < len(loader):
                    critic += 1
                    i += 1
                    model(next(batches)).backward()
        """, """
        @@ -4,2 +4,4 @@
         for epoch in range(9):
        +    if isinstance(loader.sampler, DistributedSampler):
        +        loader.sampler.set_epoch(epoch)
             batches, i = iter(loader), 0
        """),
    ("DF402", "a loop without end that adds to the epoch", """
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        loader = DataLoader(data, sampler=DistributedSampler(data))
        while True:
            for batch in loader:
                model(batch).backward()
                steps += 1
            if epoch == last:
                break
            epoch += 1
        """, """
        @@ -4,2 +4,4 @@
         while True:
        +    if isinstance(loader.sampler, DistributedSampler):
        +        loader.sampler.set_epoch(epoch)
             for batch in loader:
        """),
    ("DF402", "a loop until enough steps are taken", """
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        loader = DataLoader(data, sampler=DistributedSampler(data))
        while step < steps:
            for batch in loader:
                model(batch).backward()
                step += 1
        """, """
        @@ -4,2 +4,4 @@
         while step < steps:
        +    if isinstance(loader.sampler, DistributedSampler):
        +        loader.sampler.set_epoch(step)
             for batch in loader:
        """),
    ("DF402", "a loader without a name gets one", """
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        for epoch in range(3):
            for step, batch in enumerate(DataLoader(data, sampler=DistributedSampler(data))):
                model(batch).backward()
        """, """
        @@ -3,3 +3,6 @@
         for epoch in range(3):
        -    for step, batch in enumerate(DataLoader(data, sampler=DistributedSampler(data))):
        +    train_loader = DataLoader(data, sampler=DistributedSampler(data))
        +    if isinstance(train_loader.sampler, DistributedSampler):
        +        train_loader.sampler.set_epoch(epoch)
        +    for step, batch in enumerate(train_loader):
                 model(batch).backward()
        """),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "text", "diff"), [pytest.param(c, t, d, id=f"{c} {name}") for c, name, t, d in FIX]
)
def test_it_is_repaired_exactly_like_this(code: str, text: str, diff: str) -> None:
    text = textwrap.dedent(text).lstrip("\n")
    new = fixed(code, text)
    assert changes(text, new) == textwrap.dedent(diff).lstrip("\n")
    assert found(code, new) == []


REPORTED = [
    ("DF602", "a file that a static method gets beside a temporary one", """
        import tempfile, torch
        torch.distributed.init_process_group("gloo")
        class Config:
            @staticmethod
            def fill(path, into):
                file = open(path, "r+")
                file.write(into)
        with tempfile.NamedTemporaryFile(delete=False) as copy:
            Config.fill("base", copy.name)
        """),
    ("DF602", "a file that a function gets, and may write", """
        import torch
        torch.distributed.init_process_group("gloo")
        file = open("words", "r+")
        words = file.readlines()
        fill(file)
        """),
    ("DF602", "a file that is read as well as written", """
        import mmap, torch
        torch.distributed.init_process_group("gloo")
        class Table:
            def __init__(self, path):
                self.file = open(path, "r+b")
                self.rows = mmap.mmap(self.file.fileno(), 0)
        Table("rows.bin")
        """),
    ("DF602", "a file that is fetched where there is none, and read by whoever asked for it", """
        import os, torch
        torch.distributed.init_process_group("gloo")
        def fetch(url, name):
            with open(name, "wb") as file:
                file.write(get(url))
        def prepare(split):
            name = os.path.join("data", split)
            if not os.path.exists(name):
                fetch(url, name)
        def examples(split):
            prepare(split)
            return read(os.path.join("data", split))
        examples("train")
        """),
    ("DF505", "objects of a class inside the function", """
        import torch
        def evaluate(model, data):
            class Result:
                def __init__(self, score):
                    self.score = score
            loader = torch.utils.data.DataLoader(data, batch_size=4)
            model.eval()
            results = []
            for x in loader:
                result = Result(model(x))
                results.append(result)
            return results
        def main(model):
            torch.distributed.init_process_group("gloo", timeout=t)
            for x in torch.utils.data.DataLoader(train):
                model(x).backward()
            evaluate(model, data)
        main(model)
        """),
    ("DF601", "the weights may have to be collected from all ranks", """
        import torch
        model.save_pretrained("out", state_dict=accelerator.get_state_dict(model))
        """),
    ("DF601", "a file in which more is written", """
        import torch
        with open(path, "wb") as file:
            file.write(head)
            torch.save(model, file)
        """),
    ("DF601", "a file with a remark", """
        import torch
        with open(path, "wb") as file:
            # the best one
            torch.save(model, file)
        """),
    ("DF601", "a file that is read as well", """
        import torch
        with open(path, "rb+") as file:
            torch.save(model, file)
        """),
    ("DF402", "a loader whose new names are taken", """
        from torch.utils.data import DataLoader
        from torch.utils.data.distributed import DistributedSampler
        for epoch in range(3):
            for batch in DataLoader(train_loader[epoch_loader], sampler=DistributedSampler(data)):
                model(batch).backward()
        """),
    ("DF105", "a worker that joins a group in a function of its own", """
        import torch
        import torch.multiprocessing as mp
        def join(rank, size):
            torch.distributed.init_process_group("gloo", rank=rank, world_size=size)
        def worker(rank, size):
            join(rank, size)
        mp.spawn(worker, nprocs=2, args=(4,))
        """),
    ("DF105", "a worker that runs a function that it gets, which joins a group", """
        import multiprocessing as mp
        import torch
        def train(rank):
            torch.distributed.init_process_group("gloo")
        def quietly(run, rank):
            run(rank)
        def launch(run, count):
            for rank in range(count):
                mp.Process(target=quietly, args=(run, rank)).start()
        launch(train, 2)
        """),
    ("DF105", "a worker that a caller names", """
        import torch
        import torch.multiprocessing as mp
        def train(rank, size):
            torch.distributed.init_process_group("gloo", rank=rank, world_size=size)
        def launch(work, size):
            mp.spawn(work, args=(size,), nprocs=size)
        launch(train, 2)
        """),
    ("DF105", "a script that starts itself once more for each card", """
        import subprocess, sys, torch
        def start(count):
            for rank in range(count):
                argv = list(sys.argv)
                argv += [f"rank={rank}"]
                subprocess.Popen([sys.executable] + argv)
        def work(rank):
            torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
        work(1) if args.rank else start(2)
        """),
    ("DF105", "a process for each card", """
        import torch
        from torch.multiprocessing import Process
        def worker(rank, size):
            torch.distributed.init_process_group("gloo", rank=rank, world_size=size)
        for rank in range(2):
            Process(target=worker, args=(rank, 2)).start()
        """),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "text"), [pytest.param(c, t, id=f"{c} {name}") for c, name, t in REPORTED]
)
def test_it_is_reported_and_not_touched(code: str, text: str) -> None:
    (finding,) = found(code, text)
    assert finding.edits == ()


@pytest.mark.parametrize(("what", "edited"), [("model", False), ("tokenizer", True)])
def test_a_model_whose_weights_may_be_dealt_is_left_to_all_ranks(what: str, edited: bool) -> None:
    text = (
        "from accelerate import Accelerator\n"
        "accelerator = Accelerator()\n"
        "for batch in loader:\n"
        "    accelerator.backward(model(batch))\n"
        f"{what}.save_pretrained(folder)\n"
    )
    (finding,) = found("DF601", text)
    assert bool(finding.edits) is edited
    assert ("dealt among ranks" in finding.because) is not edited


WRITTEN = """\
import os, torch
def main(args):
    torch.distributed.init_process_group("gloo")
    options = parse(args)
    path, n = os.path.join(options.folder, "rows.txt"), 0
    {write}
    {then}
main(things)
"""
BARRIER = "torch.distributed.barrier()"


@pytest.mark.parametrize(
    ("write", "then", "waits"),
    [
        ('open(path, "w")', "print(score(path))", True),
        ('open(path, "w")', 'print(score(f"{folder}/" + "rows.txt"))', True),
        ('open(path, "w")', "make(options.folder)", False),
        ('open(os.path.join(options.folder, "rows.txt"), "w")', 'score("rows.txt")', True),
        ('open(os.path.join(options.folder, "rows.txt"), "w")', "make(options.folder)", False),
        ('open(args.rows, "w")', "score(args.rows)", True),
        ('open(args.rows, "w")', "score(args.folder)", False),
        ('open(args.name + "_s" + args.seed + ".txt", "w")', 'make(args.name + "_s")', False),
        ('open(f"stats_{n}.txt", "w")', "n += 1\n    print(score(n))", False),
        ('open(f"stats_{n}.txt", "w")', 'n += 1\n    print(score(f"stats_{n - 1}.txt"))', True),
    ],
)
def test_ranks_wait_for_a_file_that_is_mentioned_later(write: str, then: str, waits: bool) -> None:
    text = WRITTEN.replace("{write}", f"with {write} as file:\n        file.write('')")
    assert (BARRIER in fixed("DF602", text.replace("{then}", then))) is waits


@pytest.mark.parametrize(
    "test",
    [
        "if os.path.isfile(path):\n        if good(path):\n            return path",
        "found = glob.glob(path)\n    if len(found) == 1:\n        return found[0]",
    ],
)
def test_what_ranks_leave_early_where_a_file_is_there_gets_no_barrier(test: str) -> None:
    text = f"""
import glob
import os
import torch
torch.distributed.init_process_group("gloo")
def fetch(name):
    path = os.path.join("cache", name)
    {test}
    with open(path, "wb") as file:
        file.write(download(name))
    return check(path)
fetch("x")
"""
    (finding,) = found("DF602", text)
    assert "ranks may pass it unequally often" in finding.because
    assert finding.edits == ()


@pytest.mark.parametrize(("call", "edits"), [("keep([])", True), ("pass", False)])
def test_a_function_that_nobody_is_seen_to_call_gets_no_barrier(
    tmp_path: Path, call: str, edits: bool
) -> None:
    (tmp_path / "rows.py").write_text(
        "import json\nimport torch\ndef keep(rows):\n    path = 'rows.json'\n"
        "    with open(path, 'w') as file:\n        json.dump(rows, file)\n    return score(path)\n"
    )
    script = tmp_path / "run.py"
    start = "torch.distributed.init_process_group('gloo')\nfor x in xs:\n    model(x).backward()"
    script.write_text(f"import torch\nfrom rows import keep\n{start}\n{call}\n")
    (finding,) = RULES["DF602"].findings(read_program(script))
    assert bool(finding.edits) is edits


def test_files_that_are_named_by_what_a_function_is_passed_may_be_of_a_rank_s_own() -> None:
    text = """
import torch
torch.distributed.init_process_group("gloo")
def keep(results):
    for each in results:
        with open(each["name"], "wb") as file:
            file.write(each.pop("image"))
    return results
keep(predict(model))
"""
    (finding,) = found("DF602", text)
    assert finding.edits == ()


def test_a_function_that_one_rank_may_call_after_an_error_gets_no_barrier() -> None:
    text = """
    import json
    import torch
    import scorer
    torch.distributed.init_process_group("gloo")
    def keep(rows):
        path = "rows.json"
        json.dump(rows, open(path, "w"))
        return scorer.load(path)
    try:
        keep([1])
    except RuntimeError:
        keep([])
    """
    (finding,) = found("DF602", text)
    assert "ranks may pass it unequally often" in finding.because
    assert finding.edits == ()


@pytest.mark.parametrize(
    ("test", "edits"),
    [
        ("not args.distributed or torch.distributed.get_rank() == 0", []),
        ("not args.shared or torch.distributed.get_rank() == 0", [False]),
        ("args.distributed", [True]),
    ],
)
def test_what_rank_0_surely_does_and_no_other_rank_gets_no_barrier(
    test: str, edits: list[bool]
) -> None:
    text = f"""
import json
import torch
import scorer
torch.distributed.init_process_group("gloo")
def keep(rows):
    path = "rows.json"
    json.dump(rows, open(path, "w"))
    return scorer.load(path)
if {test}:
    keep([1])
"""
    assert [bool(finding.edits) for finding in found("DF602", text)] == edits


def test_what_is_unpacked_for_a_process_is_read_onto_its_card() -> None:
    text = """
        import os, tempfile, torch
        torch.distributed.init_process_group("gloo")
        folder = name
        if name.endswith(".tar"):
            folder = tempfile.mkdtemp()
        model.load_state_dict(torch.load(os.path.join(folder, "weights.bin")))
        for batch in loader:
            model(batch).backward()
            optimizer.step()
        """
    assert "map_location='cpu'" in fixed("DF604", textwrap.dedent(text))


@pytest.mark.parametrize(
    "made",
    [
        "path, rank = places()",
        "path = places()[0]",
        "path = whole(torch.distributed.get_rank())",
        "path = Places().path",
    ],
)
def test_what_a_function_returns_beside_the_rank_names_no_rank(made: str) -> None:
    text = f"""
        import torch
        class Places:
            def __init__(self):
                self.rank, self.path = torch.distributed.get_rank(), "out.pt"
        def places():
            rank = torch.distributed.get_rank()
            return "out.pt", rank
        def whole(rank):
            return "out.pt"
        torch.distributed.init_process_group("nccl")
        {made}
        torch.save({{}}, path)
        """
    (finding,) = found("DF601", text)
    assert finding.edits


def test_the_place_of_a_result_is_no_rank() -> None:
    text = """
import torch
torch.distributed.init_process_group("gloo")
for rank, result in enumerate(results):
    with open(f"result{rank}.txt", "w") as file:
        file.write(result)
"""
    assert found("DF602", text)


def test_a_file_that_a_function_writes_whether_there_is_one_or_not_is_left_to_rank_0() -> None:
    text = """
import os, torch
torch.distributed.init_process_group("gloo")
def write(text, name):
    with open(name, "w") as file:
        file.write(text)
if not os.path.exists(folder):
    write("made by", "note.txt")
"""
    assert "is_main_process" in fixed("DF602", text)


def test_the_rank_of_a_matrix_names_no_file_of_a_process() -> None:
    text = """
import torch
from argparse import ArgumentParser
parser = ArgumentParser()
parser.add_argument("--lora_rank", type=int, default=8)
args = parser.parse_args()
torch.distributed.init_process_group("gloo")
torch.save(model.state_dict(), f"lora{args.lora_rank}.pt")
"""
    assert "save_on_main(" in fixed("DF601", text)


@pytest.mark.parametrize(("package", "edited"), [("horovod.torch", False), ("other.ranks", True)])
def test_ranks_without_a_group_are_not_asked_for_it(package: str, edited: bool) -> None:
    text = f"""
import torch
import {package} as hvd
hvd.init()
with open("log.txt", "w") as file:
    file.write("x")
for batch in loader:
    model(batch).backward()
    optimizer.step()
"""
    (finding,) = found("DF602", text)
    assert bool(finding.edits) is edited


def test_a_rank_that_all_calls_pass_as_0_names_no_file_of_its_own() -> None:
    text = """
        import torch
        def write(part, local_rank):
            torch.save(part, "part_" + str(local_rank) + ".pt")
        write(part, {rank})
        """
    assert found("DF601", text.format(rank="0"))
    assert not found("DF601", text.format(rank="args.local_rank"))


@pytest.mark.parametrize(("value", "is_told"), [("0", True), ("number_of(machine)", False)])
def test_a_rank_of_the_settings_that_is_always_0_names_no_file(value: str, is_told: bool) -> None:
    text = f"""
import torch
config = Settings()
config.RANK = {value}
torch.distributed.init_process_group("gloo")
def keep(results):
    rank = config.RANK
    torch.save(results, "results_{{}}.pt".format(rank))
keep(made)
"""
    assert bool(found("DF601", text)) is is_told
