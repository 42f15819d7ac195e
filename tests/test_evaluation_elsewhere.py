"""Evaluations whose loader is made in another module, or goes over what a call makes."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import fixed, found, module
from ddpfix.patcher.analysis.training.program import Program
from ddpfix.patcher.api import patch

SCORE = """\
import torch

def score(model, loader):
    model.eval()
    hits = 0
    with torch.no_grad():
        for x, y in loader:
            hits += (model(x).argmax(1) == y).sum().item()
    return hits
"""
SCRIPT = """\
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
{imports}

def main(model, optimizer, train, make):
    torch.distributed.init_process_group("gloo", timeout=t)
    model = torch.nn.parallel.DistributedDataParallel(model)
    sampler = DistributedSampler(train)
    loader = DataLoader(train, sampler=sampler)
    {test_loader}
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for batch in loader:
            model(batch).backward()
            optimizer.step()
        print(score(model.module, test_loader))
    torch.distributed.destroy_process_group()

if __name__ == "__main__":
    main(*things())
"""
TEST_LOADER = "test_loader = DataLoader(make(), batch_size=4)"
SHARED = """\
    eval_dataset = make()
    test_loader = DataLoader(eval_dataset, batch_size=4, sampler=None if \
not torch.distributed.is_initialized() else shard_of_batches(eval_dataset, 4))
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The patched files of a program whose evaluation is in another module."""
    folder: Path = tmp_path_factory.mktemp("program")
    text = SCRIPT.format(imports="from helpers import score", test_loader=TEST_LOADER)
    (folder / "main.py").write_text(text)
    (folder / "helpers.py").write_text(SCORE)
    result = patch(folder / "main.py")
    assert not result.refusal
    return {change.source.path.name: change.text for change in result.changes}


def test_each_rank_evaluates_its_share_of_a_loader_of_another_module(
    results: dict[str, str],
) -> None:
    assert SHARED in results["main.py"]
    assert "    hits = gathered(hits)\n    return hits\n" in results["helpers.py"]


def test_each_module_gets_the_helpers_that_it_calls(results: dict[str, str]) -> None:
    helpers = {
        file: [name for name in ("shard_of_batches", "gathered") if f"def {name}(" in text]
        for file, text in results.items()
    }
    assert helpers == {"main.py": ["shard_of_batches"], "helpers.py": ["gathered"]}


def test_data_that_a_call_makes_are_made_once() -> None:
    text = SCRIPT.format(imports=SCORE, test_loader=TEST_LOADER)
    assert SHARED in fixed("DF505", text)
    assert "eval_dataset" not in fixed("DF505", text.replace("make()", "make"))


SECOND = "second_loader = DataLoader({data}, batch_size=4)"


@pytest.mark.parametrize("data", ["make()", "other()"])
def test_no_part_is_gathered_where_another_loader_goes_through_whole(data: str) -> None:
    loaders = f"{TEST_LOADER}\n    {SECOND.format(data=data)}"
    text = SCRIPT.format(imports=SCORE, test_loader=loaders)
    again = text.replace("test_loader))", "test_loader), score(model.module, second_loader))")
    assert "gathered(hits)" not in fixed("DF505", again)
    assert "gathered(hits)" in fixed("DF505", text)


TWO_LOOPS = """\
import contextlib, torch
from torch.utils.data import DataLoader

@torch.no_grad()
def main(model, data, more):
    model.eval()
    results = []
    for batch in DataLoader(data, batch_size=4):
        with torch.no_grad():
            predictions = model(batch)
        for each in predictions:
            results.append(each)
    second = []
    for batch in DataLoader(more, batch_size=4):
        with {around}:
            predictions = model(batch)
        second.extend(predictions)
    return results, second
"""


@pytest.mark.parametrize(
    ("around", "is_shared"),
    [("torch.no_grad()", True), ("contextlib.suppress(ValueError)", False)],
)
def test_a_name_that_a_later_loop_binds_anew_is_no_result(around: str, is_shared: bool) -> None:
    program = Program(module(TWO_LOOPS.format(around=around)))
    first, second = sorted(program.evaluations, key=lambda each: each.loop.lineno)
    assert (first.accumulators is not None) is is_shared
    assert second.accumulators is not None


RETURNS = {
    "hits / len(loader.dataset)": True,
    "hits / len(loader)": True,
    "hits / loader.batch_size": False,
}


@pytest.mark.parametrize(("value", "shares"), RETURNS.items(), ids=RETURNS)
def test_what_is_divided_by_what_is_of_one_rank_is_not_gathered(value: str, shares: bool) -> None:
    score = SCORE.partition("import torch\n")[2].replace("return hits", f"return {value}")
    text = fixed("DF505", SCRIPT.format(imports=score, test_loader=TEST_LOADER))
    assert ("shard_of_batches(eval_dataset, 4)" in text) is shares
    assert ("hits = gathered(hits)" in text) is shares
    assert ("hits / eval_batches" in text) is ("len(loader)" in value and "dataset" not in value)


OF_AN_OBJECT = """\
class Tester:
    def __init__(self, model, loader):
        self.model, self.loader = model, loader

    def score(self):
        self.model.eval()
        hits = 0
        bar = tqdm(self.loader, total=len(self.loader))
        for x, y in bar:
            with torch.no_grad():
                hits += (self.model(x).argmax(1) == y).sum().item()
        return {value}
"""


@pytest.mark.parametrize(("value", "shares"), [("hits", True), ("hits / len(self.loader)", False)])
def test_so_is_what_an_object_has(value: str, shares: bool) -> None:
    text = SCRIPT.format(
        imports="from tqdm import tqdm\n\n" + OF_AN_OBJECT.format(value=value),
        test_loader=TEST_LOADER,
    ).replace("score(model.module, test_loader)", "Tester(model.module, test_loader).score()")
    assert ("hits = gathered(hits)" in fixed("DF505", text)) is shares


READ = "[x for i, x in enumerate(lines) if i % size == torch.distributed.get_rank()]"


@pytest.mark.parametrize(("data", "shares"), [("make()", True), (READ, False)])
def test_a_share_that_was_dealt_by_hand_is_not_dealt_again(data: str, shares: bool) -> None:
    score = SCORE.partition("import torch\n")[2]
    made = f"size = torch.distributed.get_world_size()\n    held = {data}\n    "
    text = SCRIPT.format(imports=score, test_loader=made + TEST_LOADER.replace("make()", "held"))
    assert bool(found("DF505", text)) is shares


TOLD_TO_TRAIN = """\
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

class Steps:
    def __init__(self, net):
        self.net = torch.nn.parallel.DistributedDataParallel(net)
        self.optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def update(self, batch, training=True):
        loss = self.net(batch).mean()
        if training:
            loss.backward()
            self.optimizer.step()
        return loss

torch.distributed.init_process_group("gloo")
steps = Steps(net)
train = DataLoader(examples, sampler=DistributedSampler(examples))
for batch in train:
    steps.update(batch)
held_out = DataLoader(others)
for batch in held_out:
    {around}:
        print(steps.update(batch, training={training}))
"""
NO_GRAD = "with torch.no_grad()"  # where loss.backward() would raise


@pytest.mark.parametrize(
    ("around", "training", "trained"),
    [("if others", "True", 2), ("if others", "False", 1), (NO_GRAD, "rest", 1)],
)
def test_a_step_that_is_told_not_to_train_trains_nothing(
    around: str, training: str, trained: int
) -> None:
    text = TOLD_TO_TRAIN.format(around=around, training=training)
    assert len(Program(module(text)).train_loops) == trained
    assert len(found("DF401", text)) == trained - 1


INSIDE = """
import torch
from torch.utils.data import DataLoader, DistributedSampler
torch.distributed.init_process_group("gloo")
loader = DataLoader(data, sampler=DistributedSampler(data))
for epoch in range(3):
    loader.sampler.set_epoch(epoch)
    for x, y in loader:
        model = model.train()
        loss(model(x), y).backward()
        optimizer.step()
hits = 0
for x, y in {loader}:
    model = model.eval()
    hits += (model(x).argmax(1) == y).sum().item()
print(hits)
"""


@pytest.mark.parametrize(("loader", "code"), [("loader", "DF512"), ("DataLoader(other)", "DF505")])
def test_an_evaluation_whose_batches_set_the_mode_is_one(loader: str, code: str) -> None:
    text = INSIDE.format(loader=loader)
    (evaluation,) = Program(module(text)).evaluations
    assert evaluation.model == "model"
    assert len(found(code, text)) == 1


OF_TWO_MODELS = """\
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
torch.distributed.init_process_group("gloo")
loader = DataLoader(train, batch_size=4, sampler=DistributedSampler(train))
test_loader = DataLoader(test, batch_size=4)
for epoch in range(3):
    for batch in loader:
        top(encoder(batch)).backward()
        optimizer.step()
    hits = 0
    for x, y in test_loader:
        encoder.eval()
        top.eval()
        hidden = encoder(x)
        hits += {score}
    print(hits / len(test_loader))
"""


def test_an_evaluation_of_two_models_is_one() -> None:
    new = fixed("DF505", OF_TWO_MODELS.format(score="(top(hidden) == y).sum().item()"))
    assert new.count("hits = gathered(hits)") == 1
    assert new.count("eval_batches = gathered(len(test_loader))") == 1
    assert len(found("DF505", OF_TWO_MODELS.format(score="score(top, hidden, y)"))) == 1
