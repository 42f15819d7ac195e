"""DF513: A rank's sum is divided by the number of all examples."""

from __future__ import annotations

import pytest
from cases import found

SCRIPT = """
import torch
from torch.utils.data import DataLoader, DistributedSampler
torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
loader = DataLoader(dataset, batch_size=8, sampler={sampler})
sizes = {{"train": len(dataset)}}

def train(epoch):
    total = hits = seen = 0
    loader.sampler.set_epoch(epoch)
    number = len(loader.dataset)
    for x in loader:
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(x)
        hits += (x > 0).sum()
        seen += len(x)
    {mean}

train(0)
"""


def script(mean: str, sampler: str = "DistributedSampler(dataset)") -> str:
    text = SCRIPT.format(mean=mean, sampler=sampler)
    return text.replace("dataset,", "examples,") if "examples" in mean else text


@pytest.mark.parametrize(
    "mean",
    [
        "print(total / len(loader.dataset))",
        "print(total / number)",
        "print(total / sizes['train'])",
        "total /= len(dataset)",
        "accuracy = 100. * hits.double() / number",
        "print((total / len(examples)) ** 0.5)",
    ],
)
def test_a_part_over_all_is_noted(mean: str) -> None:
    (finding,) = found("DF513", script(mean))
    assert "is the sum of a rank's part of the batches" in finding.because
    assert not finding.edits


@pytest.mark.parametrize(
    "text",
    [
        script("print(total / seen)"),
        script("print(total / len(loader))"),
        script("print(total / len(loader))").replace(
            "\nloader =", "\ndataset = Subset(rows, range(len(dataset_of(rows))))\nloader ="
        ),
        script("print(number / total)"),
        script("torch.distributed.all_reduce(hits); print(hits / number)"),
        script("print(total / len(loader.dataset))", "None"),
        script("pass").replace("seen += len(x)", "print(hits / len(dataset))"),
    ],
)
def test_what_is_divided_by_a_ranks_own_number_is_not(text: str) -> None:
    assert found("DF513", text) == []
