"""DF604: a checkpoint with a score of the training in its name, which each rank has of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import fixed, found, written
from ddpfix.patcher.engine.patch import patch
from forked import Forge

SCRIPT = """\
import json
import os
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset


def score(model, loader, path=None):
    if path is not None:
        model.load_state_dict(torch.load(path, map_location="cpu"))
    model.eval()
    total = 0.0
    with torch.no_grad():
        for x, y in loader:
            total += torch.nn.functional.mse_loss(model(x), y, reduction="sum").item()
    return total


def train(model, loader, valid_loader, epochs):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    best, best_path = float("inf"), None
    for epoch in range(epochs):
        model.train()
        losses = []
        for step, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        train_loss = sum(losses) / len(losses)
        valid_loss = score(model, valid_loader)
        if valid_loss < best:
            best = valid_loss
            best_path = {path}
            torch.save(model.state_dict(), best_path)
    return best_path


def main(name):
    torch.manual_seed(0)
    x = torch.randn(16, 3)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    loader = DataLoader(data, batch_size=4, shuffle=True)
    model = torch.nn.Linear(3, 1)
    path = train(model, loader, DataLoader(data, batch_size=8), 2)
    total = {loaded}
    with open(f"{{name}}.{{os.environ.get('RANK', 0)}}", "w") as file:
        json.dump(total, file)


if __name__ == "__main__":
    {before}
    main(sys.argv[1])
"""
GROUP = 'torch.distributed.init_process_group("gloo")'
LOADED = "score(model, DataLoader(data, batch_size=8), path)"
IN_NAME = 'f"model_{epoch}_{round(train_loss, 4)}.pt"'


def script(path: str = IN_NAME, loaded: str = LOADED, before: str = GROUP) -> str:
    return SCRIPT.format(path=path, loaded=loaded, before=before)


NOOP = [
    ("the epoch", script('f"model_{epoch}.pt"')),
    ("the step that was the last", script('f"model_{epoch}_{step}.pt"')),
    ("the score of an evaluation", script('f"model_{valid_loss}.pt"')),
    ("the number of batches", script('f"model_{len(losses)}.pt"')),
    ("a score that is all ranks'", script().replace(
        "        valid_", "        train_loss = mean_of_ranks(train_loss)\n        valid_", 1)),
    ("nobody loads it", script(loaded="score(model, loader)")),
    ("taken from rank 0", script().replace(
        "torch.load(path,", "torch.load(what_rank_0_has(path),")),
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in NOOP])
def test_a_name_that_all_ranks_have_is_left_alone(text: str) -> None:
    assert [each for each in found("DF604", text) if "own batches" in each.because] == []


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (IN_NAME, "train_loss"),
        ('os.path.join("out", "{:.3f}.pt".format(train_loss))', "train_loss"),
        ('"loss-" + str(loss.item()) + ".pt"', "loss"),
        ('"model_%d_%.4f.pt" % (epoch, train_loss)', "train_loss"),
    ],
)
def test_all_ranks_look_for_the_file_of_rank_0(path: str, name: str) -> None:
    told = [each for each in found("DF604", script(path)) if "own batches" in each.because]
    assert [each.because.partition(",")[0] for each in told] == [name]
    after = fixed("DF604", script(path))
    assert 'torch.load(what_rank_0_has(path), map_location="cpu")' in after
    assert [each for each in found("DF604", after) if "own batches" in each.because] == []


def test_what_a_training_returns_may_be_a_rank_s_own_too() -> None:
    text = script('f"model_{epoch}.pt"').replace("return best_path", "return train_loss")
    text = text.replace("path = train(", "done = train(")
    text = text.replace("    total = score", '    path = "model_%.3f.pt" % done\n    total = score')
    (told,) = [each for each in found("DF604", text) if "own batches" in each.because]
    assert told.because.startswith("done, of this rank's own batches")


def test_ranks_score_what_rank_0_has_saved(forge: Forge, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(script(f'f"{tmp_path}/{{epoch}}_{{round(train_loss, 4)}}.pt"', before="pass"))
    (change,) = patch(path).changes
    ranks = written(forge, tmp_path, "ranks", change.text, 2)
    assert ranks[0] == ranks[1]
