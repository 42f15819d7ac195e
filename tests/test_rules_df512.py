"""DF512: An evaluation goes over this rank's part of the training data."""

from __future__ import annotations

from pathlib import Path

import pytest
from capable import made
from cases import fixed, found, module
from ddpfix.patcher.analysis.training.program import Program
from ddpfix.patcher.engine.patch import patch
from ddpfix.patcher.findings import Severity
from forked import Forge, Job

SCRIPT = """
import torch
from torch.utils.data import DataLoader, DistributedSampler

def accuracy(model, batches):
    model.eval()
    hits = 0
    with torch.no_grad():
        for x, y in {evaluated}:
            hits += (model(x).argmax(1) == y).sum().item()
    {gather}
    return hits

torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(net)
loader = DataLoader(data, batch_size=8, {sampler})
dev_loader = DataLoader(dev_data, batch_size=8)
for epoch in range(3):
    for x, y in loader:
        loss(model(x), y).backward()
        optimizer.step()
    print(accuracy(model.module, {passed}))
"""
PARTS = {
    "sampler": "sampler=DistributedSampler(data)",
    "evaluated": "batches",
    "gather": "",
    "passed": "loader",
}


def script(**parts: str) -> str:
    return SCRIPT.format(**{**PARTS, **parts})


REFRESH = """
import torch
from torch.utils.data import DataLoader, DistributedSampler

def refresh(batches, net):
    net.train()
    for x, y in batches:
        {runs}

torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(net)
average = torch.optim.swa_utils.AveragedModel(net)
loader = DataLoader(data, batch_size=8, {sampler})
for epoch in range(3):
    for x, y in loader:
        loss(model(x), y).backward()
        optimizer.step()
{call}
"""
DEALT = "sampler=DistributedSampler(data)"
AVERAGES = [
    "torch.optim.swa_utils.update_bn(loader, average)",
    "averaging.bn_update(loader, average)",
    "refresh(loader, average)",
    "for x, y in loader:\n    average(x)",
]


@pytest.mark.parametrize("call", AVERAGES)
@pytest.mark.parametrize("decorator", ["", "@torch.no_grad()\n"])
def test_averages_of_batch_norm_that_are_made_of_a_part_are_noted(
    call: str, decorator: str
) -> None:
    text = REFRESH.format(call=call, runs="net(x)", sampler=DEALT)
    (finding,) = found("DF512", text.replace("def refresh", f"{decorator}def refresh"))
    assert "averages of batch norm" in finding.because
    assert (finding.edits, finding.severity) == ((), Severity.NOTE)


@pytest.mark.parametrize(
    ("call", "runs", "sampler"),
    [
        ("refresh(loader, average)", "net(x)", "shuffle=True"),
        ("refresh(loader, average)", "print(x)", DEALT),
        ("refresh(loader, average)", "loss(net(x), y).backward()", DEALT),
        ("refresh(other, average)", "net(x)", DEALT),
        ("update_bn(other, average)", "net(x)", DEALT),
    ],
)
def test_what_makes_no_averages_of_a_part_is_left_alone(call: str, runs: str, sampler: str) -> None:
    assert found("DF512", REFRESH.format(call=call, runs=runs, sampler=sampler)) == []


# One function trains and evaluates, by what it is called with.
ONE_FUNCTION = """
import torch
from torch.utils.data import DataLoader, DistributedSampler

def step(model, x, y, opt=None):
    value = torch.nn.functional.cross_entropy(model(x), y)
    if opt is not None:
        value.backward()
        opt.step()
    return value.item()

def fit(model, opt, batches, dev_batches):
    for epoch in range(3):
        model.train()
        for x, y in batches:
            step(model, x, y, opt)
        model.eval()
        with torch.no_grad():
            print(sum(step(model, x, y) for x, y in dev_batches))

torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(net)
opt = torch.optim.SGD(model.parameters(), 0.1)
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
fit(model, opt, loader, DataLoader(dev_data, batch_size=8))
"""

# A sentence, and a script that comes close and is right.
NOOP = [
    ("the training itself, whose step also evaluates", ONE_FUNCTION),
    ("a loader of other data", script(passed="dev_loader")),
    ("every rank trains on all", script(sampler="shuffle=True")),
    ("the parts are added up", script(gather="torch.distributed.all_reduce(hits)")),
]


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in NOOP])
def test_left_alone(text: str) -> None:
    assert [finding.because for finding in found("DF512", text)] == []


@pytest.mark.parametrize(
    "calls",
    [
        pytest.param("loader", id="the training's loader"),
        pytest.param("dev_loader), accuracy(model.module, loader", id="behind another one"),
        pytest.param("loader), accuracy(model.module, loader", id="twice"),
    ],
)
def test_the_function_goes_over_all_examples(calls: str) -> None:
    before = script(passed=calls)
    assert [finding.because for finding in found("DF512", before)] == [
        "accuracy() goes over this rank's part of the training data"
    ]
    after = fixed("DF512", before)
    line = "    batches = over_all_examples(batches)\n    with torch.no_grad():\n"
    assert after.count(line) == 1
    assert found("DF512", after) == []


def test_one_of_the_loaders_that_a_loop_passes_is_the_training_s() -> None:
    call = "    print(accuracy(model.module, loader))"
    turns = "    for each in {}:\n        print(accuracy(model.module, each))"
    for loaders, is_told in (
        ("[dev_loader, loader]", True),
        ("[dev_loader, other_loader]", False),
    ):
        text = script().replace(call, turns.format(loaders))
        after = fixed("DF512", text)
        assert ("    batches = over_all_examples(batches)\n" in after) is is_told
        assert found("DF512", after) == []


@pytest.mark.parametrize(("loaders", "count"), [("[a]", 1), ("[b, a]", 2)])
def test_all_loaders_that_a_loop_trains_by_in_turn_are_known(loaders: str, count: int) -> None:
    text = (
        "import torch\nfrom torch.utils.data import DataLoader\n"
        "a = DataLoader(data)\nb = DataLoader(more)\n"
        f"for each in {loaders}:\n    for x in each:\n        net(x).backward()\n        opt.step()"
    )
    known = {loader.call for loader in Program(module(text)).training_loaders}
    assert len(known) == count


def test_a_model_is_also_put_into_eval_mode_by_train() -> None:
    text = script().replace("model.eval()", "model.train(False)")
    text = text.replace("with torch.no_grad():", "if model:")  # which tells of an evaluation, too
    assert len(found("DF512", text)) == 1
    assert "over_all_examples(batches)" in fixed("DF512", text)
    assert found("DF512", text.replace("train(False)", "train()")) == []


def test_a_loop_among_the_training_s_own_is_only_reported() -> None:
    text = script() + "    model.eval()\n    for x, y in loader:\n        hits += model(x).sum()\n"
    inline = [finding for finding in found("DF512", text) if "line" in finding.because]
    assert [finding.edits for finding in inline] == [()]


@pytest.mark.parametrize(
    "each", ["hits += model(x).sum()", "most = max(most, model(x).max())", "seen.append(model(x))"]
)
def test_what_computes_no_gradients_beside_the_training_goes_over_all(each: str) -> None:
    lines = f"    with torch.no_grad():\n        for x, y in {{}}:\n            {each}\n"
    after = fixed("DF512", script(passed="dev_loader") + lines.format("loader"))
    assert lines.format("over_all_examples(loader)") in after
    assert found("DF512", after) == []


@pytest.mark.parametrize(
    ("value", "is_told"),
    [
        ("sum((y == 0).sum() for _, y in loader)", True),
        ("torch.cat([x for x, _ in tqdm(loader)])", True),
        ("[len(y) for _, y in dev_loader]", False),
        ("[trainer.train_step(x) for x, _ in loader]", False),
    ],
)
def test_a_list_of_all_batches_is_of_all_examples(value: str, is_told: bool) -> None:
    text = script(passed="dev_loader").replace("for epoch", f"first = {value}\nfor epoch")
    after = fixed("DF512", text)
    assert (f"first = {value.replace('loader', 'over_all_examples(loader)')}" in after) is is_told
    assert found("DF512", after) == []


@pytest.mark.parametrize(("kept", "is_told"), [("p.grad ** 2", True), ("p.norm()", False)])
def test_gradients_that_are_kept_for_later_are_noted(kept: str, is_told: bool) -> None:
    lines = f"for x, y in loader:\n    loss(model(x), y).backward()\n    fisher += {kept}\n"
    severities = [each.severity for each in found("DF512", script(passed="dev_loader") + lines)]
    assert severities == [Severity.NOTE] * is_told


DRAWN = """
def sensitivity(model, batches):
    x, y = next(iter(batches))
    loss(model(x), y).{use}
    return [p.grad for p in model.parameters()]
masks = sensitivity(model, {source})
"""


@pytest.mark.parametrize(
    ("use", "source", "count"),
    [
        ("backward()", "loader", 1),
        ("backward()", "dev_loader", 0),
        ("item()", "loader", 0),
        ("backward(); optimizer.step()", "loader", 0),
    ],
)
def test_gradients_of_a_batch_that_is_drawn_are_noted(use: str, source: str, count: int) -> None:
    text = script(passed="dev_loader") + DRAWN.format(use=use, source=source)
    notes = [each for each in found("DF512", text) if "is drawn here" in each.because]
    assert [each.severity for each in notes] == [Severity.NOTE] * count


COUNTED = """
import numpy as np
import torch
from torch.utils.data import DataLoader, DistributedSampler

def weights(batches):
    count = np.zeros(3)
    for _, y in {source}:
        {body}
    return 1 / count

torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(net)
loader = DataLoader(data, batch_size=8, {sampler})
dev_loader = DataLoader(data, batch_size=8)
loss = torch.nn.CrossEntropyLoss(weight=weights({passed}))
for x, y in loader:
    loss(model(x), y).backward()
    optimizer.step()
"""
COUNTS = {
    "source": "batches",
    "body": "count += np.bincount(y.numpy(), minlength=3)",
    "sampler": PARTS["sampler"],
    "passed": "loader",
}


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param({"passed": "dev_loader"}, id="another loader"),
        pytest.param({"sampler": "shuffle=True"}, id="every rank has all"),
        pytest.param({"body": "model.learn(y); count += 1"}, id="it may train"),
        pytest.param({"body": "show(y); count += 1"}, id="a function that is not read"),
        pytest.param({"body": "print(y)"}, id="nothing is counted"),
        pytest.param({"body": "y = y + 1; print(y)"}, id="nor by what it does to the batch"),
    ],
)
def test_a_loop_that_counts_nothing_of_a_part_is_left_alone(parts: dict[str, str]) -> None:
    assert found("DF512", COUNTED.format(**{**COUNTS, **parts})) == []


@pytest.mark.parametrize(
    ("parts", "source"),
    [
        ({}, "over_all_examples(batches)"),
        ({"source": "enumerate(batches)"}, "enumerate(over_all_examples(batches))"),
        ({"source": "loader"}, "over_all_examples(loader)"),
        ({"body": "count.extend(y.tolist())"}, "over_all_examples(batches)"),
        ({"body": "count = count + (y ** 2).sum()"}, "over_all_examples(batches)"),
    ],
)
def test_what_is_counted_is_of_all_examples(parts: dict[str, str], source: str) -> None:
    text = COUNTED.format(**{**COUNTS, **parts})
    after = fixed("DF512", text)
    assert f"    for _, y in {source}:" in after
    assert found("DF512", after) == []


@pytest.mark.parametrize(
    ("result", "divided"),
    [
        ("count / len(batches)", "count / len(over_all_examples(batches))"),
        ("count // (8 * len(batches))", "count // (8 * len(over_all_examples(batches)))"),
        ("number / len(batches)", "number / len(batches)"),
        ("count / len(dev_loader)", "count / len(dev_loader)"),
    ],
)
def test_what_is_counted_is_divided_by_the_batches_of_all(result: str, divided: str) -> None:
    text = COUNTED.format(**COUNTS).replace("1 / count", result)
    assert f"    return {divided}\n" in fixed("DF512", text)


SEVERAL = """
import torch
from torch.utils.data import DataLoader, DistributedSampler

def center(model, loaders):
    total = 0
    with torch.no_grad():
        for {target} in {passed}:
            size = len(each)
            for x, y in {inner}:
                total += model(x).sum() / size
                {body}
    return total

torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(net)
loader = DataLoader(data, batch_size=8, {sampler})
dev_loader = DataLoader(data, batch_size=8)
for epoch in range(3):
    middle = center(model.module, {loaders})
    for x, y in loader:
        loss(model(x), middle).backward()
        optimizer.step()
"""
IN_TURN = {
    "target": "each",
    "passed": "loaders",
    "inner": "each",
    "body": "pass",
    "sampler": PARTS["sampler"],
    "loaders": "[dev_loader, loader]",
}


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param({}, id="a list that a caller passes"),
        pytest.param({"passed": "[loader, dev_loader]"}, id="a list that is written there"),
        pytest.param({"passed": "tqdm(loaders)", "inner": "tqdm(each)"}, id="with bars"),
        pytest.param({"target": "name, each", "passed": "zip(NAMES, loaders)"}, id="with names"),
        pytest.param(
            {
                "target": "name, each",
                "passed": "loaders.items()",
                "loaders": "{'a': dev_loader, 'b': loader}",
            },
            id="a dictionary",
        ),
    ],
)
def test_a_loop_over_several_loaders_goes_over_all_examples_of_each(parts: dict[str, str]) -> None:
    after = fixed("DF512", SEVERAL.format(**{**IN_TURN, **parts}))
    assert "            each = over_all_examples(each)\n            size = len(each)\n" in after
    assert found("DF512", after) == []


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param({"loaders": "[dev_loader]"}, id="loaders of other data"),
        pytest.param({"sampler": "shuffle=True"}, id="every rank has all"),
        pytest.param({"body": "total.backward()"}, id="it may train"),
        pytest.param({"body": "torch.distributed.all_reduce(total)"}, id="the parts are added up"),
        pytest.param({"inner": "other"}, id="a loop over something else"),
    ],
)
def test_a_loop_over_several_loaders_is_left_alone(parts: dict[str, str]) -> None:
    assert found("DF512", SEVERAL.format(**{**IN_TURN, **parts})) == []


WHOLE_PROGRAM = """
import torch
from torch import nn
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset

def accuracy(model, loader):
    model.eval()
    hits = seen = 0
    with torch.no_grad():
        for x, y in loader:
            hits += (model(x).argmax(1) == y).sum().item()
            seen += len(y)
    return f"{hits} of {seen}"

def main():
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(50, 4), torch.randint(0, 2, (50,)))
    loader = DataLoader(data, batch_size=8, sampler=SubsetRandomSampler(range(10, 45)))
    model = nn.DataParallel(nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    for epoch in range(2):
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        print("train " + accuracy(model, loader) + "\\n", end="", flush=True)

if __name__ == "__main__":
    main()
"""


def test_each_rank_of_a_patched_script_scores_what_one_process_does(
    tmp_path: Path, forge: Forge
) -> None:
    path = tmp_path / "run.py"
    path.write_text(WHOLE_PROGRAM)
    (tmp_path / "original.py").write_text(WHOLE_PROGRAM)
    result = patch(path)
    assert (result.refusal, result.remaining) == ("", [])
    result.write()
    one = Job(tmp_path / "one", tmp_path / "original.py", [])
    runs = made(forge, [one, Job(tmp_path / "two", path, [], world=2)])
    alone = [line for line in runs["one"].log.splitlines() if line.startswith("train ")]
    assert [line.partition(" of ")[2] for line in alone] == ["35", "35"]
    assert len(set(alone)) == 1
    assert runs["two"].log.count(alone[0]) == 4


COLLECTED = """
import torch
from torch.utils.data import DataLoader, DistributedSampler

def features(net, batches):
    {mode}
    return torch.cat([{what} for x, y in {source}])

torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(net)
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
dev_loader = DataLoader(dev_data, batch_size=8)
for epoch in range(3):
    for x, y in loader:
        loss(model(x), y).backward()
        optimizer.step()
found = features(net, dev_loader)
print(found, features(net, {passed}))
"""


@pytest.mark.parametrize(
    ("mode", "what", "source"),
    [("net.eval()", "net(x)", "batches"), ("pass", "y", "tqdm(batches)")],
    ids=["outputs", "labels"],
)
def test_a_comprehension_collects_of_all_examples(mode: str, what: str, source: str) -> None:
    script = COLLECTED.format(mode=mode, what=what, source=source, passed="loader")
    text = fixed("DF512", script)
    assert source.replace("batches", "over_all_examples(batches)") + "])" in text
    assert not found("DF512", text)
    assert not found("DF512", script.replace("features(net, loader)", "features(net, dev_loader)"))


def test_batches_that_a_training_goes_over_again_stay_its_own() -> None:
    kept = "kept = [(x, y) for x, y in loader]\nfor epoch"
    text = COLLECTED.format(mode="pass", what="y", source="batches", passed="dev_loader")
    text = text.replace("for epoch", kept, 1).replace(
        "    for x, y in loader", "    for x, y in kept"
    )
    assert not found("DF512", text)


@pytest.mark.parametrize("read", ["kept[step]", "kept[0]"])
@pytest.mark.parametrize("way", ["comprehension", "loop"])
def test_what_a_step_takes_by_its_number_stays_that_of_its_own_batch(read: str, way: str) -> None:
    ahead = "kept = [len(y) for _, y in loader]\n"
    if way == "loop":
        ahead = "kept = []\nwith torch.no_grad():\n    for x, y in loader:\n"
        ahead += "        kept.append(net(x))\n"
    text = script(passed="dev_loader").replace("for epoch", f"{ahead}for epoch")
    steps = "    for step, (x, y) in enumerate(loader):\n        loss("
    text = text.replace("    for x, y in loader:\n        loss(", steps)
    text = text.replace("(model(x), y).backward()", f"(model(x), {read}).backward()")
    assert len(found("DF512", text)) == (read == "kept[0]")
