"""DF501 and DF504: a forward pass through a wrapper waits for others where it sends buffers."""

from __future__ import annotations

import pytest
from cases import found
from ddpfix.patcher.findings import Severity

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from elsewhere import Part

def norm(channels):
    return {norm}

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = {layer}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))

def main(rank, data):
    torch.distributed.init_process_group("nccl")
    net = Net().to(rank)
    if torch.distributed.get_world_size() > 1:
        net = nn.parallel.DistributedDataParallel(net, device_ids=[rank]{options}).to(rank)
    loader = DataLoader(data, sampler=DistributedSampler(data))
    for batch in loader:
        net(batch).backward()
    if torch.distributed.get_rank() == 0:
        net.eval()
        losses = []
        with torch.no_grad():
            for batch in DataLoader(data):
                losses.append({model}(batch))
        print(losses)
"""
PARTS = {
    "norm": "nn.LayerNorm(channels)",
    "layer": "nn.Conv1d(4, 4, 3)",
    "options": "",
    "model": "net",
}


def severities(code: str, **parts: str) -> list[bool]:
    """Whether each finding of a rule is an error."""
    findings = found(code, SCRIPT.format(**{**PARTS, **parts}))
    return [finding.severity in (None, Severity.ERROR) for finding in findings]


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param({}, id="layers without buffers"),
        pytest.param({"layer": "nn.utils.weight_norm(nn.Conv1d(4, 4, 3))"}, id="weight norm"),
        pytest.param({"layer": "norm(4)"}, id="a function that makes layers without buffers"),
        pytest.param(
            {"layer": "nn.BatchNorm1d(4)", "options": ", broadcast_buffers=False"},
            id="a wrapper that keeps its buffers",
        ),
        pytest.param(
            {"layer": "nn.BatchNorm1d(4)", "options": ", **options"}, id="unknown options"
        ),
        pytest.param({"layer": "nn.BatchNorm1d(4)", "model": "net.module"}, id="the module"),
    ],
)
def test_rank_0_may_evaluate_alone_where_no_buffers_are_sent(parts: dict[str, str]) -> None:
    assert severities("DF501", **parts) == [False]
    assert severities("DF504", **parts) == [False]


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param({"layer": "nn.BatchNorm1d(4)"}, id="batch norm"),
        pytest.param({"layer": "norm(4)", "norm": "nn.BatchNorm1d(channels)"}, id="in a function"),
        pytest.param({"layer": "nn.utils.spectral_norm(nn.Linear(4, 4))"}, id="spectral norm"),
        pytest.param({"layer": "Part()"}, id="a layer that is not read"),
    ],
)
def test_it_is_an_error_where_they_may_be(parts: dict[str, str]) -> None:
    assert severities("DF501", **parts) == [True]
    assert severities("DF504", **parts) == [True]


FEATURES = """\
import torch
from torch.utils.data import DataLoader
from torchvision import models

class Data:
    def process(self, images):
        {line}
        net.eval()
        found = []
        for batch in DataLoader(images):
            with torch.no_grad():
                found.append(net(batch))
        return found

def train(model, data):
    torch.distributed.init_process_group("nccl")
    model = torch.nn.parallel.DistributedDataParallel(model)
    for batch in data:
        model(batch).backward()
"""


def test_a_model_of_a_library_that_nothing_wraps_is_left_alone() -> None:
    assert not found("DF504", FEATURES.format(line="net = models.vgg16().to(self.device)"))
    assert found("DF504", FEATURES.format(line="net = self.net"))
