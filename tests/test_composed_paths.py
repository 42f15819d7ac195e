"""DF604: files of functions that put their path together from what they are passed."""

from __future__ import annotations

import pytest
from cases import fixed, found
from ddpfix.patcher.findings import Severity

SCRIPT = """
import os, pickle, torch

def is_main_process():
    return torch.distributed.get_rank() == 0

def restore(name):
    path = os.path.join("data", name)
    with open(path, "rb") as file:
        return pickle.load(file)

def store(name, words):
    with open("data/" + name, "wb") as file:
        pickle.dump(words, file)

def main(args, words):
    torch.distributed.init_process_group("gloo")
    if is_main_process():
        store({written}, words)
    return restore({read})

main(args, words)
"""


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ('"words.pkl"', '"words.pkl"'),
        ('f"{args.name}.pkl"', 'args.name + ".pkl"'),
        ('"%s.pkl" % args.name', '"%s.pkl" % args.name'),
    ],
)
def test_what_rank_0_stores_is_waited_for(written: str, read: str) -> None:
    text = SCRIPT.format(written=written, read=read)
    (finding,) = found("DF604", text)
    assert "rank 0 may still be writing" in finding.because
    after = fixed("DF604", text)
    assert after.index("barrier()") < after.index("return restore(")
    assert found("DF604", after) == []


@pytest.mark.parametrize("read", ['"other.pkl"', "args.name", '"words.pkl".upper()'])
def test_another_file_is_not(read: str) -> None:
    assert found("DF604", SCRIPT.format(written='"words.pkl"', read=read)) == []


WITHIN = """
import json, os, requests, torch

def is_main_process():
    return torch.distributed.get_rank() == 0

def fetch(address, path):
    def attempt(address{own}):
        with open(path, "wb") as file:
            for chunk in requests.get(address).iter_content():
                file.write(chunk)
    if is_main_process():
        attempt(address{own})

def read(folder):
    for name in ["model.index", "hparams.json"]:
        fetch("https://host/" + name, os.path.join(folder, name))
    last = latest_checkpoint({searched})
    return last, json.load(open(os.path.join(folder, "hparams.json")))

torch.distributed.init_process_group("gloo")
read("models")
"""


@pytest.mark.parametrize(
    ("searched", "behind"), [("folder", "last = latest"), ("'all'", "return last")]
)
def test_a_function_within_another_writes_what_that_is_passed(searched: str, behind: str) -> None:
    after = fixed("DF602", WITHIN.format(own="", searched=searched))
    after = fixed("DF604", after)
    wait = "        torch.distributed.barrier()  # rank 0 may still be writing\n"
    assert after.count(wait) == 1
    assert after[after.index(wait) + len(wait) :].lstrip().startswith(behind)


def test_a_parameter_of_its_own_is_another_path() -> None:
    text = WITHIN.format(own=", path=None", searched="folder")
    assert "barrier()" not in fixed("DF604", text)


OPTIONS = """
import argparse, os, torch
parser = argparse.ArgumentParser()
parser.add_argument("--folder")
parser.add_argument("--other")
args = parser.parse_args()

def keep(model, args):
    folder = args.folder
    path = os.path.join(folder, "best.pt")
    if torch.distributed.get_rank() == 0:
        torch.save(model.state_dict(), path)

def fit(model):
    for epoch in range(3):
        keep(model, args)

def restore(model, folder, name):
    path = os.path.join(folder, name)
    model.load_state_dict(torch.load(path, map_location="cpu"))

def main(model):
    torch.distributed.init_process_group("gloo")
    fit(model)
    restore(model, args.{option}, {name})

main(model)
"""


@pytest.mark.parametrize(
    ("option", "name", "told"),
    [("folder", "'best.pt'", 1), ("other", "'best.pt'", 0), ("folder", "'last.pt'", 0)],
)
def test_a_path_of_options_is_the_same_in_every_function(option: str, name: str, told: int) -> None:
    text = OPTIONS.format(option=option, name=name)
    assert len(found("DF604", text)) == told
    after = fixed("DF604", text)
    assert ("        torch.distributed.barrier()" in after) is bool(told)


EARLY_STOPPING = """
import os, torch

class Stopping:
    def __call__(self, loss, model, folder):
        if loss < self.best:
            self.keep(model, folder)
        else:
            self.keep(model, folder{else_})

    def keep(self, model, folder):
        save_on_main(model.state_dict(), folder + "/" + "best.pt")

def save_on_main(obj, path):
    if torch.distributed.get_rank() == 0:
        torch.save(obj, path + ".partial")
        os.replace(path + ".partial", path)

def main(args, model):
    torch.distributed.init_process_group("gloo")
    folder = os.path.join(args.out, args.name)
    stopping = Stopping()
    for epoch in range(3):
        stopping(0.5, model, folder)
    best = folder + "/best.pt"
    model.load_state_dict(torch.load(best, map_location="cpu"))

main(args, model)
"""


def test_what_an_object_keeps_by_a_method_of_its_own_is_waited_for() -> None:
    (finding,) = found("DF604", EARLY_STOPPING.format(else_=""))
    assert "rank 0 may still be writing" in finding.because
    after = fixed("DF604", EARLY_STOPPING.format(else_=""))
    assert after.index("barrier()") < after.index("model.load_state_dict(")
    assert found("DF604", after) == []


def test_which_of_two_files_a_method_keeps_is_told_as_a_doubt() -> None:
    (finding,) = found("DF604", EARLY_STOPPING.format(else_=" + '/worse'"))
    assert finding.severity is Severity.DEGRADED
    assert "if it is the one that line" in finding.because


KEEPS_PATH = """
import os, torch

class Stopping:
    def __init__(self, patience, path="checkpoint.pt", folder="."):
        self.path = path
        self.folder = folder

    def __call__(self, loss, model):
        if loss < self.best:
            self.keep(model)

    def keep(self, model):
        save_on_main(model.state_dict(), {saved})

def save_on_main(obj, path):
    if torch.distributed.get_rank() == 0:
        torch.save(obj, path + ".partial")
        os.replace(path + ".partial", path)

def main(args, model):
    torch.distributed.init_process_group("gloo")
    stopping = Stopping({made})
    for epoch in range(3):
        stopping(0.5, model)
    model.load_state_dict(torch.load({loaded}, map_location="cpu"))

main(args, model)
"""


@pytest.mark.parametrize(
    ("saved", "made", "loaded", "is_early"),
    [
        ("self.path", "3", '"checkpoint.pt"', True),
        ("self.path", "3", '"other.pt"', False),
        ("self.path", "3, path=args.out", "args.out", True),
        ("self.path", '3, os.path.join(args.out, "a.pt")', 'args.out + "/a.pt"', True),
        ("self.path", "3, path=args.out", '"checkpoint.pt"', None),
        ('self.folder + "/best.pt"', "3, folder=args.out", 'args.out + "/best.pt"', True),
        ("self.path + self.kind", "3", '"checkpoint.pt"', None),
    ],
)
def test_the_path_that_an_object_keeps_is_that_of_the_call_that_made_it(
    saved: str, made: str, loaded: str, is_early: bool | None
) -> None:
    text = KEEPS_PATH.format(saved=saved, made=made, loaded=loaded)
    told = [each for each in found("DF604", text) if "still be writing" in each.because]
    doubts = [each.severity is Severity.DEGRADED for each in told]
    assert doubts == ([] if is_early is False else [is_early is None])


NAMED = """
import os, time, torch
from datetime import datetime

class Names:
    def all(self):
        now = datetime.now()
        self.stamp = now.strftime("%H%M%S")
        stamp = self.stamp
        paths = ["runs", f"runs/{{stamp}}"]
        return paths

def main(args, model):
    torch.distributed.init_process_group("gloo")
    folder = {folder}
    train(model)
    if torch.distributed.get_rank() == 0:
        torch.save(model.state_dict(), os.path.join(folder, "best.pt"))
    torch.distributed.barrier()
    {load}

def again(model, place):
    model.load_state_dict(torch.load(place + "/best.pt", map_location="cpu"))

main(args, model)
"""
LOAD = 'model.load_state_dict(torch.load(os.path.join(folder, "best.pt"), map_location="cpu"))'


@pytest.mark.parametrize(
    ("folder", "load", "is_told"),
    [
        ("time.strftime('%H%M%S')", LOAD, True),
        ("f'runs/{datetime.now():%H%M%S}'", LOAD, True),
        ("os.path.join('runs', str(int(time.time())))", "again(model, folder)", True),
        ("Names().all()[1]", LOAD, True),
        ("Names().all()[0]", LOAD, False),
        ("args.folder", LOAD, False),
        ("agreed(args)", LOAD, False),
        ("time.strftime('%H%M%S')", f"if torch.distributed.get_rank() == 0: {LOAD}", False),
    ],
)
def test_a_file_of_this_second_is_another_one_on_each_rank(
    folder: str, load: str, is_told: bool
) -> None:
    told = [each.because for each in found("DF604", NAMED.format(folder=folder, load=load))]
    assert any("is in its name" in each for each in told) is is_told


PREPARED = """
import json, os, torch

class Lines:
    def __init__(self, path):
        self.lines = open(path).readlines()

def prepare(folder):
    os.makedirs(folder, exist_ok=True)
    {loop}
        path = os.path.join(folder, split + ".json")
        if not os.path.exists(path) and torch.distributed.get_rank() == 0:
            with open(path, "w") as file:
                json.dump(n, file)

def main(args):
    torch.distributed.init_process_group("gloo")
    prepare(args.data)
    return Lines(os.path.join(args.data, "train.json"))

main(args)
"""


@pytest.mark.parametrize(
    ("loop", "is_told"),
    [
        ('for n, split in ((90, "train"), (10, "dev")):', True),
        ('for split in ["dev", "train"]:', True),
        ('sizes = {"train": 90}\n    for split in sizes:', True),
        ('for split in ("dev", "test"):', False),
        ("for split in splits:", False),
    ],
)
def test_what_a_loop_over_names_writes_is_waited_for(loop: str, is_told: bool) -> None:
    text = PREPARED.format(loop=loop)
    assert bool(found("DF604", text)) is is_told
    if is_told:
        assert "barrier()  # rank 0 may still be writing\n    return Lines(" in fixed("DF604", text)


PARTS = """
import pickle, torch
def store(parts, cached):
    {loop}
        if torch.distributed.get_rank() == 0:
            with open({written}, "wb") as file:
                pickle.dump(parts[i], file)
def train(parts, cached):
    for part in range(len(parts)):
        with open(cached + "_" + str(part), "rb") as file:
            print(pickle.load(file))
def main(args, parts):
    torch.distributed.init_process_group("gloo")
    cached = "cache_{{}}".format(args.name)
    store(parts, cached)
    train(parts, cached)
main(args, parts)
"""


@pytest.mark.parametrize(
    ("loop", "written", "is_told"),
    [
        ("for i in range(len(parts)):", 'cached + "_" + str(i)', True),
        ("for i, part in enumerate(parts):", 'f"{cached}_{i}"', True),
        ("for i in range(len(parts)):", 'f"{cached}-{i}"', False),
        ("for i in parts:", 'f"{cached}_{i}"', False),
    ],
)
def test_parts_that_loops_count_are_the_same_files(loop: str, written: str, is_told: bool) -> None:
    text = PARTS.format(loop=loop, written=written)
    told = [each for each in found("DF604", text) if "still be writing" in each.because]
    assert len(told) == is_told
    if is_told:
        after = fixed("DF604", text)
        assert after.index("barrier()") < after.index("    train(parts, cached)")
        assert found("DF604", after) == []
