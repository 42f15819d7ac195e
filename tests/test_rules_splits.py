"""DF408: splits of the data that each rank draws for itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import fixed, found, written
from ddpfix.patcher.engine.patch import patch
from forked import Forge

GROUP = """\
import numpy as np
import torch
from sklearn.model_selection import KFold, ShuffleSplit, train_test_split
from torch.utils.data import random_split
torch.distributed.init_process_group('gloo')
"""
SPLIT = "train, test = random_split(data, [6, 2])\n"

NOOP = [
    ("no group", GROUP.replace("torch.distributed.init_process_group('gloo')\n", "") + SPLIT),
    ("a generator", GROUP + SPLIT.replace("2])", "2], generator=g)")),
    ("a seed", f"{GROUP}torch.manual_seed(args.seed)\n{SPLIT}"),
    ("a launcher's number for a seed",
        f"import os\n{GROUP}if ranks:\n"
        f"    torch.manual_seed(int(os.environ['MASTER_PORT']))\n{SPLIT}"),
    ("a seed by a function", f"{GROUP}set_seed(args)\n{SPLIT}"),
    ("a state", GROUP + "train, test = train_test_split(data, random_state=7)\n"),
    ("folds in order", GROUP + "folds = KFold(5)\n"),
    ("folds by a state", GROUP + "folds = KFold(5, shuffle=True, random_state=7)\n"),
    ("rank 0 alone", f"{GROUP}if torch.distributed.get_rank() == 0:\n    {SPLIT}"),
    ("a function of the script's own", GROUP.replace("torch.utils.data", "parts") + SPLIT),
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in NOOP])
def test_a_split_that_is_the_same_on_all_ranks_is_left_alone(text: str) -> None:
    assert [finding.because for finding in found("DF408", text)] == []


@pytest.mark.parametrize(
    "seed",
    [
        "",
        "if args.seed is not None:\n    torch.manual_seed(args.seed)\n",
        "args.seed = np.random.randint(1000)\ntorch.manual_seed(args.seed)\n",
    ],
    ids=["none", "on demand", "drawn"],
)
@pytest.mark.parametrize(
    "split",
    [
        SPLIT,
        "train, test = train_test_split(data)\n",
        "folds = KFold(5, shuffle=True)\n",
        "folds = ShuffleSplit(5)\n",
    ],
)
def test_ranks_draw_alike_where_no_seed_is_sure(seed: str, split: str) -> None:
    text = GROUP + seed + split
    new = fixed("DF408", text)
    assert new.endswith(f"{seed}draw_alike()\n{split}")
    assert "def draw_alike():" in new
    assert found("DF408", new) == []


@pytest.mark.parametrize(
    ("seed", "split", "is_open"),
    [
        ("np.random.seed(1)", SPLIT, True),
        ("torch.cuda.manual_seed_all(1)", SPLIT, True),
        ("g = torch.Generator().manual_seed(1)", SPLIT, True),
        ("def set_seed(n):\n    np.random.seed(n)\nset_seed(1)", SPLIT, True),
        ("def set_seed(n):\n    torch.manual_seed(n)\nset_seed(1)", SPLIT, False),
        ("np.random.seed(1)", "train, test = train_test_split(data)\n", False),
        ("torch.manual_seed(1)", "train, test = train_test_split(data)\n", True),
    ],
)
def test_a_seed_is_that_of_the_library_that_splits(seed: str, split: str, is_open: bool) -> None:
    assert bool(found("DF408", f"{GROUP}{seed}\n{split}")) is is_open


def test_where_ranks_may_not_meet_it_is_reported_only() -> None:
    (finding,) = found("DF408", f"{GROUP}if not exists(path):\n    {SPLIT}")
    assert finding.edits == ()


def test_a_split_ahead_of_the_group_is_told_of() -> None:
    imports, group = GROUP.rsplit("torch.distributed", 1)
    text = f"{imports}{SPLIT}torch.distributed{group}"
    (finding,) = found("DF408", text)
    assert finding.edits == ()
    assert finding.because == "random_split() draws by no seed, ahead of the process group"
    (finding,) = found("DF408", text.replace(SPLIT, f"draw_alike()\n{SPLIT}"))
    assert finding.edits == ()


SCRIPT = """\
import json
import os
import sys

import torch
from torch.utils.data import DataLoader, random_split

data = list(torch.arange(40.0).reshape(20, 2))
train, test = random_split(data, [14, 6])
model = torch.nn.DataParallel(torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.001)
for batch in DataLoader(train, batch_size=2, shuffle=True):
    model(batch).mean().backward()
    optimizer.step()
with open(f"{sys.argv[1]}.{os.environ.get('RANK', 0)}", "w") as file:
    json.dump([int(row[0]) for row in test], file)
"""


def test_ranks_test_on_what_none_of_them_trains_on(forge: Forge, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    result = patch(script)
    assert result.refusal == ""
    (change,) = result.changes
    seeds = change.text.replace("draw_alike()\ntrain", "torch.seed()\ndraw_alike()\ntrain")
    first, second = written(forge, tmp_path, "ranks", seeds, 2)
    assert first == second
    apart = seeds.replace("draw_alike()\ntrain", "train")
    first, second = written(forge, tmp_path, "apart", apart, 2)
    assert first != second


ALIASED = """\
from sklearn.model_selection import train_test_split
from torch.utils.data import DataLoader
import torch as th
device = th.device("cuda")
model = th.nn.Linear(2, 1).to(device)
import numpy as np
train, test = train_test_split(np.ones(9))
optimizer = th.optim.SGD(model.parameters(), 0.1)
for batch in DataLoader(train, batch_size=2):
    model(batch).mean().backward()
    optimizer.step()
"""


def test_the_group_is_made_ahead_of_what_needs_it_under_another_name_of_torch() -> None:
    new = fixed("DF204", ALIASED)
    assert new.index("init_process_group") < new.index("device = th.device")
