"""Methods that a class below overrides are not those that run, where only that one is made."""

from __future__ import annotations

import pytest
from cases import found

TRAINER = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

class Trainer:
    def __init__(self, model, loader):
        self.model, self.loader = model, loader

    def save(self, path):
        torch.save(self.model.module.state_dict(), path)

    def fit(self):
        for x, y in self.loader:
            self.model(x).sum().backward()
            optimizer.step()
        self.save("model.bin")

class MainTrainer({base}):
    def save(self, path):
        {override}

{between}
dist.init_process_group("gloo")
loader = DataLoader(data, sampler=DistributedSampler(data))
trainer = {made}(DistributedDataParallel(Net()), loader)
trainer.fit()
"""
GUARDED = "if dist.get_rank() == 0:\n            super().save(path)"
TABLE = 'KINDS = {"plain": Trainer, "main": MainTrainer}'


def writers(
    base: str = "Trainer", override: str = GUARDED, between: str = "", made: str = "MainTrainer"
) -> list[str]:
    """What DF601 says of writers that every rank is."""
    text = TRAINER.format(base=base, override=override, between=between, made=made)
    return [each.because for each in found("DF601", text) if "every rank" in each.because]


def test_the_override_of_the_only_class_that_is_made_asks_for_the_rank() -> None:
    assert writers() == []


@pytest.mark.parametrize(
    "given",
    [
        {"made": "Trainer"},
        {"override": "super().save(path)"},
        {"override": "torch.save(self.model.module, path)"},
        {"base": "object", "made": "Trainer"},
        {"between": TABLE, "made": "KINDS[args.kind]"},
        {"between": 'KIND = "Trainer"'},
        {"between": "from trainers import Trainer as Plain"},
        {"between": "find = Trainer"},
    ],
    ids=[
        *("the base is made", "an override for all", "another", "no heir", "a table of both"),
        *("its name is a text", "it has another name", "it is passed on"),
    ],
)
def test_what_every_rank_runs_is_told(given: dict[str, str]) -> None:
    assert writers(**given) != []


def test_a_class_with_a_decorator_may_be_made_by_a_registry() -> None:
    text = TRAINER.format(base="Trainer", override=GUARDED, between="", made="MainTrainer")
    text = text.replace("class Trainer:", "@register\nclass Trainer:")
    assert [each.because for each in found("DF601", text) if "every rank" in each.because]
