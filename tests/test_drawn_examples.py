"""DF401: data sets that draw an example, whichever one they are asked for."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy
import pytest
import torch
from cases import found
from ddpfix.patcher.editing.helpers import helper_code
from ddpfix.patcher.engine.patch import patch
from ddpfix.patcher.findings import Severity

DATA = """\
import random
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

class Speakers(Dataset):
    def __init__(self, files, draws):
        self.files, self.draws = files, draws
    def __len__(self):
        return len(self.files)
    def __getitem__(self, index):
        {pick}
        return torch.load(chosen)
"""
TRAIN = """
{seed}
model = torch.nn.DataParallel(torch.nn.Linear(2, 2))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
data = Speakers(["a.pt", "b.pt"], True)
loader = DataLoader(data, batch_size=2, shuffle=True)
for epoch in range(3):
    for batch in loader:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
"""
SEED = "torch.manual_seed(0)"
APART = "DataLoader(data if not torch.distributed.is_initialized() else DrawnApart(data)"
DRAWN = "chosen = random.choice(self.files)"
EITHER = "if self.draws:\n            chosen = random.sample(self.files, 1)[0]\n        else:\n"
EITHER += "            chosen = self.files[index]"
BY_TORCH = "chosen = self.files[torch.randint(0, len(self.files), (1,))]"
BY_NUMBER = "number = np.random.randint(len(self.files))\n        chosen = self.files[number]"


def script(pick: str, seed: str = SEED) -> str:
    return DATA.replace("{pick}", pick) + TRAIN.format(seed=seed)


@pytest.mark.parametrize("pick", [DRAWN, EITHER, BY_NUMBER])
@pytest.mark.parametrize("seed", [SEED, "np.random.seed(7)", "seed = 3\nrandom.seed(seed)"])
def test_ranks_that_draw_alike_would_train_on_the_same_examples(
    pick: str, seed: str, tmp_path: Path
) -> None:
    path = tmp_path / "train.py"
    path.write_text(script(pick, seed))
    assert APART in patch(path).diff()


@pytest.mark.parametrize(
    ("pick", "options"),
    [(BY_TORCH, ""), (DRAWN, ", num_workers=2"), (BY_NUMBER, ", num_workers=args.workers")],
)
def test_torch_and_workers_draw_alike_without_a_seed(
    pick: str, options: str, tmp_path: Path
) -> None:
    path = tmp_path / "train.py"
    path.write_text(script(pick, "").replace(", shuffle=True", f"{options}, shuffle=True"))
    assert APART in patch(path).diff()


def test_a_data_set_in_place_is_named_first(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    text = script(DRAWN).replace('data = Speakers(["a.pt", "b.pt"], True)\n', "")
    path.write_text(text.replace("DataLoader(data", 'DataLoader(Speakers(["a.pt"], True)'))
    assert "DrawnApart(train_dataset)" in patch(path).diff()


class Numbers(torch.utils.data.Dataset[float]):
    """Draws by all that ranks may draw by."""

    files: ClassVar = ["a"]

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> float:
        return index + (torch.rand(()).item() + random.random() + float(numpy.random.rand())) / 4


def drawn(rank: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[float], list[float]]:
    """What the data set gives on a rank in two rounds, and what is drawn behind it."""
    names: dict[str, Any] = {"torch": torch, "random": random, "sys": sys, "__name__": __name__}
    exec(helper_code("DrawnApart"), names)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: rank)
    torch.manual_seed(3)
    random.seed(4)
    numpy.random.seed(5)
    data = names["DrawnApart"](Numbers())
    assert (len(data), data.files) == (3, ["a"])
    found = [data[index] for _ in range(2) for index in range(3)]
    return found, [torch.rand(()).item(), random.random(), float(numpy.random.rand())]


def test_each_rank_draws_examples_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        random.seed(4)
        numpy.random.seed(5)
        alone = [Numbers()[index] for _ in range(2) for index in range(3)]
        behind = {rank: drawn(rank, monkeypatch) for rank in range(3)}
        assert behind[0][0] == alone
        every = [value % 1 for found, _ in behind.values() for value in found]
        assert len(set(every)) == 18
        assert behind[1] == drawn(1, monkeypatch)
        torch.manual_seed(3)
        assert behind[1][1] == behind[2][1]
        assert behind[1][1][0] == torch.rand(()).item(), "other code draws as if nothing was drawn"


RIGHT = {
    "the index chooses": script("chosen = self.files[index]"),
    "a crop of it is drawn": (
        script("start = random.randint(0, 9)\n        chosen = self.files[index][start:]")
    ),
    "another one beside it": (
        script("other = random.choice(self.files)\n        chosen = self.files[index] + other")
    ),
    "words within it are drawn": script(
        "chosen = [0] * 9\n        for place, word in enumerate(self.files[index].split()):\n"
        "            other = random.choice(self.files)\n            chosen[place] = len(other)"
    ),
    "a file of its own is opened": (
        script(
            "with open(self.files[index]) as file:\n"
            "            lines = file.readlines()\n"
            "        start = random.choice(range(9))\n"
            "        chosen = lines[start]"
        )
    ),
    "the index is the seed": script(f"random.seed(index)\n        {DRAWN}"),
    "nothing is seeded": script(DRAWN, ""),
    "seeds of each rank": script(DRAWN, "torch.manual_seed(7 + int(os.environ['RANK']))"),
    "seeds on demand": script(DRAWN, f"if args.seed is not None:\n    {SEED}"),
}  # fmt: skip


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_other_draws_are_left_alone(text: str, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(text)
    result = patch(path)
    assert "DrawnApart" not in result.diff()
    assert result.diff().count("else DistributedSampler(") == 1


OF_RANKS = """
torch.distributed.init_process_group("gloo")
{seed}
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
data = Speakers(["a.pt", "b.pt"], True)
loader = DataLoader(data, sampler=torch.utils.data.distributed.DistributedSampler(data))
for batch in loader:
    model(batch).mean().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("seed", "count"), [(SEED, 1), ("torch.manual_seed(7 + torch.distributed.get_rank())", 0)]
)
def test_a_script_of_ranks_is_warned(seed: str, count: int) -> None:
    findings = found("DF401", DATA.replace("{pick}", EITHER) + OF_RANKS.format(seed=seed))
    assert [each.severity for each in findings] == [Severity.DEGRADED] * count
