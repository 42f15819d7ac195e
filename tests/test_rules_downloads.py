"""DF608: data sets that all ranks would download at once."""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path

import pytest
from cases import changes, fixed, found, written
from ddpfix.patcher.editing import helper_code
from forked import Forge

GROUP = """\
import torch
from torchvision import datasets
torch.distributed.init_process_group('gloo')
"""
MADE = "train_set = datasets.MNIST('data', download=True)\n"

NOOP = [
    ("no group", GROUP.replace("torch.distributed.init_process_group('gloo')\n", "") + MADE),
    ("no download", GROUP + MADE.replace("True", "False")),
    ("another library", GROUP.replace("torchvision", "own") + MADE),
    ("rank 0 alone", GROUP + "if torch.distributed.get_rank() == 0:\n    " + MADE),
    ("in turn already", GROUP + "if torch.distributed.get_rank() != 0:\n"
        "    torch.distributed.barrier()\n" + MADE
        + "if torch.distributed.get_rank() == 0:\n    torch.distributed.barrier()\n"),
    ("in turn around a call from a table", GROUP + "def get(root):\n    "
        + MADE + "    return train_set\nGETTERS = {'mnist': get}\n"
        "if torch.distributed.get_rank() != 0:\n    torch.distributed.barrier()\n"
        "train_set = GETTERS[name]('data')\n"
        "if torch.distributed.get_rank() == 0:\n    torch.distributed.barrier()\n"),
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in NOOP])
def test_what_one_rank_writes_at_a_time_is_left_alone(text: str) -> None:
    assert [finding.because for finding in found("DF608", text)] == []


def test_rank_0_makes_it_before_the_others() -> None:
    text = GROUP + MADE
    new = fixed("DF608", text)
    diff = """
        @@ -2,3 +2,12 @@
         from torchvision import datasets
        +
        +
        +def first_on_main(make): ...
         torch.distributed.init_process_group('gloo')
        -train_set = datasets.MNIST('data', download=True)
        +train_set = first_on_main(lambda: datasets.MNIST('data', download=True))
        """
    assert changes(text, new) == textwrap.dedent(diff).lstrip("\n")
    assert found("DF608", new) == []


def test_a_barrier_below_is_for_something_else() -> None:
    text = GROUP + MADE + "torch.distributed.barrier()\n"
    assert "first_on_main(lambda: datasets.MNIST('data', download=True))" in fixed("DF608", text)


@pytest.mark.parametrize("name", ["datasets.__dict__[name]", "getattr(datasets, name)"])
def test_a_data_set_that_is_looked_up_by_name_is_one_too(name: str) -> None:
    named = GROUP + f"kind = {name}\n" + MADE.replace("datasets.MNIST", "kind")
    assert "first_on_main(lambda: kind('data', download=True))" in fixed("DF608", named)
    new = fixed("DF608", GROUP + MADE.replace("datasets.MNIST", name))
    assert f"first_on_main(lambda: {name}('data', download=True))" in new


OWN = """\
class Pairs(datasets.{base}):
    def __getitem__(self, index):
        return super().__getitem__(index), index

class Seen(Pairs):
    pass

train_set = Seen("data", download=True)
"""


@pytest.mark.parametrize(("base", "is_one"), [("CIFAR10", True), ("own.CIFAR10", False)])
def test_a_class_of_the_program_downloads_as_its_base_does(base: str, is_one: bool) -> None:
    imported = "from own import data as datasets" if "own" in base else ""
    new = fixed("DF608", GROUP + imported + "\n" + OWN.format(base=base))
    assert ("first_on_main(lambda: Seen(" in new) is is_one


GRAPHS = """\
from ogb.graphproppred import Evaluator, PygGraphPropPredDataset
from torch_geometric.data import InMemoryDataset
from torch_geometric.datasets import Planetoid
from torch_geometric.loader import DataLoader

class Molecules(InMemoryDataset):
    def __init__(self, root):
        super().__init__(root)
        self.data, self.slices = torch.load(self.processed_paths[0])

    def process(self):
        torch.save(self.collate(read(self.root)), self.processed_paths[0])

class Few(Molecules):
    def process(self):
        torch.save(Molecules(self.root + "/all")[:9], self.processed_paths[0])

class Own:
    pass

"""


@pytest.mark.parametrize(
    ("made", "is_one"),
    [
        ("Planetoid('data', 'Cora')", True),
        ("Molecules('data')", True),
        ("Few('data')", True),
        ("Own('data')", False),
        ("eval('Few' if few else 'Molecules')('data')", True),
        ("globals()['Molecules']('data')", True),
        ("eval('Own')('data')", False),
        ("eval(kind)('data')", False),
        ("DataLoader(data)", False),
        ("PygGraphPropPredDataset('molhiv')", True),
        ("Evaluator('molhiv')", False),
    ],
)
def test_a_data_set_of_graphs_is_prepared_by_rank_0_first(made: str, is_one: bool) -> None:
    text = f"{GRAPHS}{GROUP}graphs = {made}\n"
    new = fixed("DF608", text)
    assert (f"graphs = first_on_main(lambda: {made})" in new) is is_one
    assert new.count("first_on_main(lambda") == is_one
    assert found("DF608", new) == []


PICKED = "if small:\n    kind = datasets.MNIST\nelse:\n    kind = {other}\n"


@pytest.mark.parametrize(("other", "is_one"), [("datasets.CIFAR10", True), ("Own", False)])
def test_a_data_set_that_a_test_picks_is_one_too(other: str, is_one: bool) -> None:
    text = GROUP + PICKED.format(other=other) + MADE.replace("datasets.MNIST", "kind")
    assert ("first_on_main(lambda: kind('data'" in fixed("DF608", text)) is is_one


def test_a_test_of_what_all_ranks_are_told_lets_them_meet() -> None:
    text = f"{GROUP}if args.data.startswith('mnist'):\n    {MADE}"
    assert "    train_set = first_on_main(lambda: datasets.MNIST(" in fixed("DF608", text)


@pytest.mark.parametrize("gate", ["if not os.path.exists('data'):", "if missing('data'):"])
def test_where_ranks_may_not_meet_it_is_reported_only(gate: str) -> None:
    (finding,) = found("DF608", f"import os\n{GROUP}{gate}\n    {MADE}")
    assert finding.edits == ()
    assert finding.because == "datasets.MNIST() writes its files on every rank"


SCRIPT = """\
import json
import os
import sys
import time

import torch

{helper}

def make():
    there = os.path.exists(path)
    if not there:
        time.sleep(0.5)  # a download
        open(path, "x").close()
    return there


path = sys.argv[1] + ".data"
if "LOCAL_RANK" in os.environ:
    torch.distributed.init_process_group("gloo")
with open(f"{{sys.argv[1]}}.{{os.environ.get('RANK', 0)}}", "w") as file:
    json.dump([first_on_main(make)], file)
"""


def test_other_ranks_find_what_rank_0_has_written(forge: Forge, tmp_path: Path) -> None:
    text = SCRIPT.format(helper=inspect.getsource(helper_code.first_on_main))
    assert written(forge, tmp_path, "ranks", text, 2) == [[False], [True]]
    assert written(forge, tmp_path, "alone", text, None) == [[False]]
