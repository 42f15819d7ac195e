"""DF604: a checkpoint that one place saves and another reads, or looks for first."""

from __future__ import annotations

from pathlib import Path

import pytest
from audited import audited
from cases import fixed, found
from ddpfix.patcher.engine.patch import patch

SCRIPT = """\
import torch
from torch.utils.data import DataLoader


class Config:
    def __init__(self):
        self.save_path = "best.pt"


def train(config, model, data):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(2):
        for batch in DataLoader(data):
            model(batch).mean().backward()
            optimizer.step()
        torch.save(model.state_dict(), config.save_path)
    {call}


def test({parameter}, model):
    model.load_state_dict(torch.load({parameter}.save_path))


train(Config(), torch.nn.Linear(2, 1), [torch.ones(2)])
"""
WAIT = """\
    if torch.distributed.is_initialized():
        torch.distributed.barrier()  # rank 0 may still be writing
    {call}
"""


@pytest.mark.parametrize(
    ("parameter", "call", "waits"),
    [
        ("config", "test(config, model)", True),
        ("settings", "test(settings=config, model=model)", True),
        ("config", "test(Config(), model)", True),
    ],
    ids=["one name", "another name", "another object of the same path"],
)
def test_ranks_wait_for_rank_0(tmp_path: Path, parameter: str, call: str, waits: bool) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(parameter=parameter, call=call))
    result = patch(script)
    assert result.refusal == ""
    assert (WAIT.format(call=call) in result.changes[0].text) is waits


LOOKED_FOR = """\
import glob
import os

import torch
from torch.utils.data import DataLoader


def train(folder, model, data):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for batch in DataLoader(data):
        model(batch).mean().backward()
        optimizer.step()
    torch.save(model.state_dict(), folder + "/best.pt")
{test}

train("runs", torch.nn.Linear(2, 1), [torch.ones(2)])
"""
IF_THERE = """
    if os.path.exists(folder + "/best.pt"):
        model.load_state_dict(torch.load(folder + "/best.pt"))
"""
ALL_THERE = """
    paths = [folder + "/best.pt"]
    if model.training:
        paths = sorted(glob.glob(folder + "/*.pt"))
    print(paths)
    for path in paths:
        model.load_state_dict(torch.load(path))
"""
IF_ANY = """
    paths = glob.glob(folder + "/*.pt")
    if paths:
        last = max(paths)
        print(last)
        model.load_state_dict(torch.load(last))
"""
IF_NONE = """
    paths = glob.glob(folder + "/*.pt")
    if not paths:
        return
    model.load_state_dict(torch.load(paths[-1]))
"""
IF_NOT_ELSE = """
    if folder == "":
        pass
    elif os.path.exists(folder + "/best.pt"):
        model.load_state_dict(torch.load(folder + "/best.pt"))
"""


@pytest.mark.parametrize(
    ("test", "line"),
    [
        (IF_THERE, '    if os.path.exists(folder + "/best.pt"):'),
        (ALL_THERE, "    if model.training:"),
        (IF_ANY, "    paths = glob.glob("),
        (IF_NONE, "    paths = glob.glob("),
        (IF_NOT_ELSE, '        model.load_state_dict(torch.load(folder + "/best.pt", '),
    ],
    ids=["if it exists", "a list of them", "if there are any", "none of them", "elif"],
)
def test_ranks_wait_before_they_look(tmp_path: Path, test: str, line: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(LOOKED_FOR.format(test=test))
    (change,) = patch(script).changes
    before, after = change.text.split(
        "torch.distributed.barrier()  # rank 0 may still be writing\n"
    )
    assert "os.path.exists" not in before.split("def train")[1] or "elif" in before
    assert after.startswith(line)


SCORES = """\
import json


class Options:
    def __init__(self, **words):
        vars(self).update(words)


def write(path, found):
    with open(path, "w") as file:
        json.dump(found, file)


def score(options):
    with open(options.found) as file:
        return len(json.load(file))
"""
SCORED = """\
import torch
from scores import Options, score, write
from torch.utils.data import DataLoader


def train(folder, model, data):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for batch in DataLoader(data):
        model(batch).mean().backward()
        optimizer.step()
    path = folder + "/found.json"
    if data:
        write(path, [1, 2])
    else:
        write(path, [])
    options = Options(found=path)
    print(score(options))


train("runs", torch.nn.Linear(2, 1), [torch.ones(2)])
"""


def test_a_path_is_read_from_the_object_that_holds_it(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCORED)
    (tmp_path / "scores.py").write_text(SCORES)
    texts = {change.source.path.name: change.text for change in patch(script).changes}
    barrier = "barrier()  # rank 0 may still be writing\n"
    assert "if is_main_process():\n        with open(path" in texts["scores.py"]
    assert barrier + "    print(score(options))" in texts["train.py"]


SPELLED = """\
import argparse
import os
from pathlib import Path
import torch
from torch.utils.data import DataLoader


def gold(path):
    with open(path) as lines:
        return list(lines)


def evaluate(args, model, data):
    said, rows = [], []
    for batch in DataLoader(data):
        said += model(batch).tolist()
    with open(args.folder + "/dev.gold", "w") as first, open(args.folder + "/said", "w") as second:
        for each in said:
            rows.append(str(each))
            first.write(str(each))
            second.write(str(each))
    return rows == gold({path})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder")
    args = parser.parse_args()
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    data = [torch.ones(2)] * 4
    for batch in DataLoader(data, sampler=torch.utils.data.DistributedSampler(data)):
        model(batch).mean().backward()
    print(evaluate(args, model, data))


if __name__ == "__main__":
    main()
"""
BARRIER = "torch.distributed.barrier()  # rank 0 may still be writing"


@pytest.mark.parametrize(
    ("path", "waits"),
    [
        ('os.path.join(args.folder, "dev.gold")', True),
        ('f"{args.folder}/dev.gold"', True),
        ('Path(args.folder) / "dev.gold"', True),
        ('str(Path(args.folder + "/") / "dev.gold")', True),
        ('os.path.join(args.folder, "test.gold")', False),
        ('"args.folder/dev.gold"', False),
    ],
)
def test_one_file_has_many_spellings(tmp_path: Path, path: str, waits: bool) -> None:
    script = tmp_path / "train.py"
    script.write_text(SPELLED.replace("{path}", path))
    result = patch(script)
    assert result.refusal == ""
    text = result.changes[0].text
    assert "os.devnull" in text
    assert (BARRIER in text) is waits
    lines = text.splitlines(keepends=True)
    unguarded = "".join(
        line
        for line, behind in zip(lines, [*lines[1:], ""], strict=True)
        if BARRIER not in line and BARRIER not in behind
    )
    early = {said for code, said, _ in audited(unguarded) if code == "O7"}
    assert early == ({"violated"} if waits else set())


THROUGH_FUNCTIONS = """\
import os, shutil, torch

def keep(state, path):
    torch.save(state, path)
    shutil.copy(path, os.path.join(os.path.dirname(path), "best.pt"))

def restore(path):
    if os.path.isfile(path):
        return torch.load(path, map_location="cpu")

def main(model, args):
    torch.distributed.init_process_group("gloo")
    {before}
    for epoch in range(2):
        keep(model.state_dict(), args.out + "/last.pt")
    {behind}

main(torch.nn.Linear(2, 1), args)
"""


def test_a_function_that_reads_a_path_waits_behind_one_that_saves() -> None:
    read = "model.load_state_dict(restore(args.out + '/best.pt'))"
    (finding,) = found("DF604", THROUGH_FUNCTIONS.format(before="", behind=read))
    assert "rank 0 may still be writing" in finding.because
    assert found("DF604", THROUGH_FUNCTIONS.format(before=read, behind="pass")) == []


RESUMED = """\
import argparse, torch
{imports}

def keep(args):
    {kept}

parser = argparse.ArgumentParser()
parser.add_argument("--out", default="out")
parser.add_argument("--resume", default="{default}")
args = parser.parse_args()
torch.distributed.init_process_group("gloo")
keep(args)
if torch.distributed.get_rank() == 0:
    {save}
{before}
model.load_state_dict(torch.load(args.resume, map_location="cpu"))
"""
PARTS = {"imports": "", "kept": "pass", "default": "", "save": "pass", "before": ""}


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"save": "torch.save(vars(args), args.out + '/args.pt')"}, 0),
        ({"save": "save_on_main(vars(args), args.out + '/args.pt')"}, 0),
        ({"imports": "from omegaconf import OmegaConf", "kept": "OmegaConf.save(vars(args))"}, 0),
        ({"save": "torch.save(vars(args), args.out)", "before": "args.resume = args.out"}, 1),
        ({"save": "torch.save(vars(args), args.out + '/a')", "default": "out/a"}, 1),
        ({"save": "torch.save(vars(args), args.resume)"}, 1),
        ({"kept": "torch.save(vars(args), 'a.pt')"}, 1),
        ({"kept": "model.save('a.pt')"}, 1),
    ],
    ids=[
        "another file above",
        "the same once patched",
        "another library's settings",
        "an option that the script sets",
        "an option that may be of this run",
        "one file",
        "by a function of the program",
        "by an object that is not known",
    ],
)
def test_a_file_that_the_user_names_is_of_an_earlier_run(parts: dict[str, str], told: int) -> None:
    assert len(found("DF604", RESUMED.format(**{**PARTS, **parts}))) == told


LISTED = """\
import os
import torch
def checkpoints(folder):
    return [os.path.join(at, each) for at, _, files in os.walk(folder) for each in files]
def main(model, folder):
    torch.distributed.init_process_group("gloo")
    for epoch in range(3):
        save_on_main(model.state_dict(), os.path.join(folder, f"{epoch}.pt"))
    paths = checkpoints(folder)
    best = 0
    for path in paths:
        model.load_state_dict(torch.load(path, map_location="cpu"))
        best = max(best, score(model))
    return best
main(net, "out")
"""


def test_ranks_wait_before_a_function_lists_the_checkpoints() -> None:
    after = fixed("DF604", LISTED)
    assert f"{BARRIER}\n    paths = checkpoints(folder)\n" in after
    assert found("DF604", after) == []
