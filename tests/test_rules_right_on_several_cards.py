"""Programs that are right on several cards in ways of their own, each beside a wrong one."""

from __future__ import annotations

import pytest
from cases import found
from ddpfix.patcher.findings import Severity

LAUNCHED = """
import accelerate, torch
from torch.utils.data import DataLoader
def start():
    torch.distributed.init_process_group("gloo")
class Launcher({base}):
    def unwrap(self, model):
        return model
launcher = Launcher()
model, loader = launcher.prepare(torch.nn.Linear(4, 2), DataLoader(data))
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    launcher.backward(loss)
    optimizer.step()
"""


@pytest.mark.parametrize(("base", "count"), [("accelerate.Accelerator", 0), ("object", 1)])
def test_a_class_derived_from_a_launcher_averages_gradients(base: str, count: int) -> None:
    assert len(found("DF301", LAUNCHED.format(base=base))) == count


SYNCED = """
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
class Launcher:
    def backward(self, loss):
        loss.backward()
torch.distributed.init_process_group("gloo")
launcher = Launcher()
launcher.number = 4
model = DistributedDataParallel(torch.nn.Linear(4, 2))
loader = DataLoader(data, sampler=DistributedSampler(data))
for step, (x, y) in enumerate(loader):
    loss = torch.nn.functional.cross_entropy(model(x), y)
    launcher.{told}(loss)
    loss.backward()
    if step % launcher.number == 0:
        optimizer.step()
"""


@pytest.mark.parametrize(("told", "count"), [("backward", 0), ("observe", 1)])
def test_who_goes_back_from_a_loss_is_told_nothing(told: str, count: int) -> None:
    assert len(found("DF506", SYNCED.format(told=told))) == count


HANDED = """
import torch
from typing import IO
torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
def save(model, file: {kind}):
    torch.save(model.state_dict(), file)
save(model, made())
"""


@pytest.mark.parametrize(("kind", "count"), [("IO[bytes]", 0), ("str", 1)])
def test_an_open_file_has_been_opened_elsewhere(kind: str, count: int) -> None:
    assert len(found("DF601", HANDED.format(kind=kind))) == count


PARTED = """
import pickle, torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
model = DistributedDataParallel(torch.nn.Linear(4, 2))
def evaluate(model):
    model.eval()
    scores = []
    for x in DataLoader(held_out, sampler=DistributedSampler(held_out, shuffle=False)):
        scores.append(model(x))
    pickle.dump(scores, open(f"scores.{part}.pkl", "wb"))
    torch.distributed.barrier()
evaluate(model)
"""


def test_ranks_may_write_their_parts_to_files_of_their_own() -> None:
    (finding,) = found("DF503", PARTED.replace("{part}", "{rank}"))
    assert finding.severity is Severity.NOTE
    (finding,) = found("DF503", PARTED.replace("{part}", "{name}"))
    assert finding.severity is not Severity.NOTE


TWICE = """
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
torch.distributed.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 2))
sampler = DistributedSampler(data)
def train(loader, epoch, often=False):
    for x, y in loader:
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
loader = DataLoader(data, sampler=sampler)
for epoch in range(3):
    {told}
    if often:
        train(loader, epoch, often=True)
    else:
        train(loader, epoch)
"""


@pytest.mark.parametrize(("told", "count"), [("sampler.set_epoch(epoch)", 0), ("pass", 1)])
def test_the_epoch_is_told_above_either_call(told: str, count: int) -> None:
    assert len(found("DF402", TWICE.format(told=told))) == count


UNPACKED = """
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
torch.distributed.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 2))
class Data:
    def parts(self, data):
        if torch.distributed.is_initialized():
            sampler = {sampler}
        else:
            sampler = None
        return data, sampler
    def loader(self):
        data, sampler = self.parts(self.data)
        return DataLoader(data, sampler=sampler, shuffle=(sampler is None))
for x, y in Data().loader():
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("sampler", "count"), [("DistributedSampler(data)", 0), ("None", 1)])
def test_a_sampler_that_a_method_returns_beside_its_data_deals(sampler: str, count: int) -> None:
    assert len(found("DF401", UNPACKED.format(sampler=sampler))) == count


OTHER_KIND = """
import torch
from torch.nn.parallel import DistributedDataParallel
torch.distributed.init_process_group("gloo")
def by_tables(model, x):
    return model.generate(x)
def speak(model, x, kind="torch"):
    if kind == "torch":
        return model(x)
    elif kind == "tables":
        return by_tables(model, x)
def main():
    model = torch.nn.Linear(4, 2)
    model = DistributedDataParallel(model)
    for x in batches:
        model(x).sum().backward()
        optimizer.step()
    speak(model, x{passed})
main()
"""


@pytest.mark.parametrize(("passed", "count"), [("", 0), (', kind="tables"', 1)])
def test_a_branch_that_no_call_takes_asks_no_wrapper(passed: str, count: int) -> None:
    assert len(found("DF305", OTHER_KIND.format(passed=passed))) == count


DRAWN = """
import accelerate, torch
from pathlib import Path
from torch.utils.data import DataLoader
from tqdm import tqdm
accelerator = accelerate.Accelerator()
model, optimizer = accelerator.prepare(torch.nn.Linear(4, 2), optimizer)
prompts = DataLoader(texts)
{deals}
for example in tqdm(prompts, desc="pictures"):
    for number, picture in enumerate(draw(example["prompt"])):
        path = Path("pictures") / f"{{example['index'][number]}}.jpg"
        picture.save(path)
for x in accelerator.prepare(DataLoader(data)):
    accelerator.backward(model(x).sum())
    optimizer.step()
"""
FOLLOWED = """
import os, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 2))
class Follower:
    def __init__(self, model, film):
        self.model = model
        self.name = os.path.basename(film)
    def follow(self):
        with open(os.path.join("out", f"{{self.name}}.txt"), "w") as file:
            file.write(str(self.model.module(self.name)))
for x in batches:
    model(x).sum().backward()
    optimizer.step()
films = os.listdir("films")
films = {films}
for film in films:
    Follower(model, film).follow()
"""


@pytest.mark.parametrize(
    ("deals", "count"), [("prompts = accelerator.prepare(prompts)", 0), ("pass", 1)]
)
def test_pictures_of_a_ranks_own_examples_are_written_by_each(deals: str, count: int) -> None:
    assert len(found("DF607", DRAWN.format(deals=deals))) == count


@pytest.mark.parametrize(
    ("films", "count"), [("films[dist.get_rank() :: dist.get_world_size()]", 0), ("films[::2]", 1)]
)
def test_files_that_objects_name_by_a_ranks_own_share_have_its_writer(
    films: str, count: int
) -> None:
    assert len(found("DF602", FOLLOWED.format(films=films))) == count


LISTED = """
import torch
from torch.nn.parallel import DistributedDataParallel
torch.distributed.init_process_group("gloo")
class Runner:
    def wrapped(self, model):
        if torch.distributed.is_initialized():
            model = DistributedDataParallel(model)
        return Entry(model, "head")
    def train(self, loader):
        nets = [entry.model for entry in self.entries]
        self.optimizer = make({made})
        for x, y in loader:
            for m in self.listeners:
                m(x)
            torch.nn.functional.cross_entropy(self.entries[0].model(x), y).backward()
            self.optimizer.step()
def make(nets):
    weights = []
    {each}
        weights += list(m.parameters())
    optimizer = torch.optim.SGD(weights, 0.1)
    return optimizer
Runner().train(batches)
"""


def test_each_of_the_models_that_a_function_gets_is_no_model_of_that_name() -> None:
    assert found("DF301", LISTED.format(made="nets", each="for m in nets:")) == []
    (finding,) = found("DF301", LISTED.format(made="nets", each="m = head(nets)\n    if m:"))
    assert finding.because.startswith("m is trained")


OLD_STATES = """
import torch
from torch.nn.parallel import DistributedDataParallel
torch.distributed.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 2))
class Cache:
    def __init__(self, path):
        torch.save(model.state_dict(), path)
def keep(path):
    torch.save(model.state_dict(), path)
class Pretrained(torch.nn.Module):
    def __init__(self, options):
        super().__init__()
        {before}
        self.states = torch.load(options["file"], map_location="cpu")
Pretrained(options)
"""


@pytest.mark.parametrize(("before", "count"), [("pass", 0), ('keep("p")', 1)])
def test_the_constructor_of_another_class_saves_nothing_here(before: str, count: int) -> None:
    assert len(found("DF604", OLD_STATES.format(before=before))) == count


DEFAULTS = """
import argparse, torch
def config():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", "--local-rank", type=int, default=0)
    return parser.parse_args({line})
own = argparse.ArgumentParser()
own.add_argument("--card", type=int)
args = own.parse_args()
chosen = config()
torch.distributed.init_process_group("gloo")
print(chosen.local_rank)
card = args.card
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2), [card])
"""


@pytest.mark.parametrize(("line", "is_told"), [("[]", False), ("", True)])
def test_defaults_alone_are_no_command_line(line: str, is_told: bool) -> None:
    told = [each.because for each in found("DF101", DEFAULTS.format(line=line))]
    assert any(because.startswith("chosen.local_rank") for because in told) is is_told


GUARDED = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
class Scores:
    def __init__(self, distributed=False, detailed=False):
        self.distributed, self.detailed = distributed, detailed
    def save(self, path):
        if not self.{flag} or dist.get_rank() == 0:
            with open(path, "w") as file:
                file.write("1")
Scores(*options).save("scores.txt")
"""


@pytest.mark.parametrize(("flag", "count"), [("distributed", 0), ("detailed", 1)])
def test_a_flag_beside_the_rank_says_whether_there_is_a_group(flag: str, count: int) -> None:
    assert len(found("DF602", GUARDED.format(flag=flag))) == count


SENT_ON = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
class Scores:
    def __init__(self, library):
        self.library = library
    def evaluate(self):
        if dist.get_rank() == 0:
            self.library.evaluate()
            dist.broadcast(torch.ones(1), 0)
        else:
            dist.{other}(torch.zeros(1), 0)
def run(scores):
    for x in loader:
        model(x).sum().backward()
        optimizer.step()
    scores.evaluate()
run(Scores(library))
"""


@pytest.mark.parametrize(("other", "count"), [("broadcast", 0), ("send", 1)])
def test_rank_0_sends_what_the_others_receive(other: str, count: int) -> None:
    assert len(found("DF506", SENT_ON.format(other=other))) == count


LOADED = """
import torch
from torch.nn.parallel import DistributedDataParallel
torch.distributed.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 2))
class Pictures{base}:
    def __init__(self, path):
        self.rows = torch.load(path)
Pictures(args.path)
"""


@pytest.mark.parametrize(("base", "is_note"), [("(torch.utils.data.Dataset)", True), ("", False)])
def test_examples_of_a_file_have_been_on_no_card_most_likely(base: str, is_note: bool) -> None:
    (finding,) = found("DF604", LOADED.format(base=base))
    assert (finding.severity is Severity.NOTE) is is_note


ADDED_UP = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 2))
loader = DataLoader(data, sampler=DistributedSampler(data))
count = torch.zeros(1)
for x, y in loader:
    count += y.sum()
dist.all_reduce({what})
weight = 1 / count
for epoch in range(3):
    loader.sampler.set_epoch(epoch)
    for x, y in loader:
        (weight * model(x).sum()).backward()
        optimizer.step()
"""


@pytest.mark.parametrize(("what", "is_told"), [("count", False), ("other", True)])
def test_what_ranks_count_apart_may_be_added_up_behind_it(what: str, is_told: bool) -> None:
    assert bool(found("DF512", ADDED_UP.format(what=what))) is is_told
