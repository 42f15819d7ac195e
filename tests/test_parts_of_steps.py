"""Steps that cut what the loop around them gives: ranks take no turns with one batch's cuts."""

from __future__ import annotations

import pytest
from cases import found

SCRIPT = """\
import torch


def train(model, optimizer, data, folds, nets, parts, size):
    for {target} in {around}:
        for i in {numbers}:
            x = {batch}
            loss = {net}(x).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def main():
    data = torch.arange(64.0).view(16, 4)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train(model, optimizer, data, data.split(4), [model], 2, 4)


if __name__ == "__main__":
    main()
"""
ROWS = "range(0, len(data), size)"


@pytest.mark.parametrize(
    ("target", "around", "numbers", "batch", "why"),
    [
        ("rows", "folds", "range(parts)", "rows[i * size : (i + 1) * size]", "line 5 gives"),
        ("k, rows", "enumerate(folds)", "range(parts)", "rows[:, i:]", "line 5 gives"),
        ("rows", "folds", "range(0, len(rows), size)", "rows[i : i + size]", ""),
        ("epoch", "range(3)", ROWS, "data[i : i + size]", ""),
        ("seed", "folds", ROWS, "data[i : i + size] * seed.mean()", ""),
    ],
    ids=["parts", "numbered parts", "folds", "epochs", "something beside"],
)
def test_ranks_share_the_batches_of_a_fold_and_not_the_parts_of_a_batch(
    target: str, around: str, numbers: str, batch: str, why: str
) -> None:
    text = SCRIPT.format(target=target, around=around, numbers=numbers, batch=batch, net="model")
    (finding,) = found("DF204", text)
    assert why in finding.because
    assert bool(finding.edits) is not bool(why)
