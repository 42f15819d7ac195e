"""Loaders whose batches a generator of the program hands on: ``logger.log_every(loader, 10)``."""

from __future__ import annotations

import pytest
from cases import fixed, found

SCRIPT = """\
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

class Logger:
    def log_every(self, iterable, every):
        {before}
        for {target} in {source}:
            {body}
            self.show(every)

def train(model, batches):
    for batch in logger.log_every(batches, 10):
        model(batch).backward()
        optimizer.step()

torch.distributed.init_process_group("gloo")
logger = Logger()
model = torch.nn.parallel.DistributedDataParallel(net)
loader = DataLoader(data, batch_size=4, shuffle=True)
for epoch in range(3):
    train(model, loader)
"""


def script(
    body: str = "yield obj", target: str = "obj", source: str = "iterable", before: str = "i = 0"
) -> str:
    return SCRIPT.format(body=body, target=target, source=source, before=before)


@pytest.mark.parametrize(
    "text",
    [
        script(),
        script(target="i, obj", source="enumerate(iterable)"),
        script(target="i, obj", source="enumerate(iterable, start=1)"),
    ],
)
def test_the_loader_that_is_handed_on_is_dealt_and_told_the_epoch(text: str) -> None:
    after = fixed("DF402", fixed("DF401", text))
    assert (
        "sampler=None if not torch.distributed.is_initialized() else DistributedSampler(" in after
    )
    told = "loader.sampler.set_epoch(epoch)\n    train(model, loader)\n"
    assert after.endswith(f"    if isinstance(loader.sampler, DistributedSampler):\n        {told}")
    assert found("DF402", after) == []


@pytest.mark.parametrize(
    "text",
    [
        script("yield prepare(obj)"),
        script("if self.wants(obj):\n                yield obj"),
        script("if self.over:\n                break\n            yield obj"),
        script(source="self.others"),
        script("yield obj\n            yield obj"),
        script(target="i, obj", source="zip(iterable, self.others)"),
    ],
)
def test_a_generator_that_hands_on_other_batches_is_not_followed(text: str) -> None:
    assert "DistributedSampler(data" not in fixed("DF401", text)
