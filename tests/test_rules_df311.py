"""DF311: Batch norm has the statistics of one rank's part of the batch."""

from __future__ import annotations

import pytest
from cases import found

MODEL = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(4, 4), {layer}, {layer})

    def forward(self, batch):
        return self.body(batch)

model = {wrapped}
for batch in torch.utils.data.DataLoader(data):
    model(batch).mean().backward()
    optimizer.step()
"""
NORM, PARALLEL = "torch.nn.BatchNorm1d(4)", "torch.nn.DataParallel(Net())"
SYNCED = "torch.nn.SyncBatchNorm.convert_sync_batchnorm(Net())"


@pytest.mark.parametrize(
    ("layer", "wrapped"),
    [
        ("torch.nn.LayerNorm(4)", PARALLEL),
        (NORM, "Net()"),
        (NORM, f"torch.nn.parallel.DistributedDataParallel({SYNCED})"),
    ],
)
def test_left_alone(layer: str, wrapped: str) -> None:
    assert found("DF311", MODEL.format(layer=layer, wrapped=wrapped)) == []


@pytest.mark.parametrize("layer", [NORM, "torch.nn.BatchNorm3d(4)"])
def test_the_first_layer_is_told(layer: str) -> None:
    (finding,) = found("DF311", MODEL.format(layer=layer, wrapped=PARALLEL))
    assert finding.because.endswith(" sees the examples of one rank at a time")
    assert not finding.edits


@pytest.mark.parametrize("layer", ["SynchronizedBatchNorm2d(4)", "partial(InPlaceABNSync)(4)"])
def test_statistics_that_cards_shared_are_told_to_be_of_one_rank(layer: str) -> None:
    text = (
        MODEL.format(layer=layer, wrapped=PARALLEL) + "isinstance(model, SynchronizedBatchNorm2d)"
    )
    (finding,) = found("DF311", text)
    assert "among the cards of DataParallel" in finding.because
