"""The tracer's ``--seed-examples``: crops and noise do not depend on who fetches an example."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import json, random, sys
import numpy
import torch
from torch.utils.data import DataLoader, Dataset, Subset

class Noisy(Dataset):
    def __len__(self):
        return 6
    def __getitem__(self, index):
        return 2 * index + torch.rand(()).item() + random.random() / 7 + numpy.random.rand() / 9

def passes(data, batches, workers):
    loader = DataLoader(data, batch_sampler=batches, num_workers=workers)
    return [sorted(value for batch in loader for value in batch.tolist()) for _ in range(2)]

torch.manual_seed(0)
kept = torch.get_rng_state()
one, part = Noisy(), [[0, 1, 2], [3, 4, 5]]
found = {
    "alone": passes(Noisy(), part, 0),
    "split": passes(Noisy(), [[5], [2, 3], [4, 0], [1]], 0),
    "workers": passes(Noisy(), part, 2),
    "subset": passes(Subset(one, range(6)), part, 0),
    "draws": torch.rand(2).tolist(),
}
json.dump(found, open(sys.argv[1], "w"))
"""


def draws(folder: Path, *options: str) -> dict[str, list[list[float]]]:
    script, out = folder / "noisy.py", folder / "found.json"
    script.write_text(SCRIPT)
    trace = [sys.executable, "-m", "ddpfix.launchers.trace", "--out", str(folder), *options]
    subprocess.run([*trace, str(script), str(out)], check=True)
    found: dict[str, list[list[float]]] = json.loads(out.read_text())
    return found


def test_an_example_draws_alike_whoever_fetches_it(tmp_path: Path) -> None:
    found = draws(tmp_path, "--seed-examples")
    assert found["alone"] == found["split"] == found["workers"] == found["subset"]
    first, second = found["alone"]
    assert [int(value / 2) for value in first] == list(range(6))
    assert not set(first) & set(second), "each pass has draws of its own"
    assert len({value % 1 for value in first}) == 6


def test_without_it_draws_depend_on_how_a_batch_is_split(tmp_path: Path) -> None:
    found = draws(tmp_path)
    assert found["alone"] != found["split"]
