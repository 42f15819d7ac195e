"""DF514: Ranks train on what each has evaluated."""

from __future__ import annotations

import re
import textwrap

import pytest
from cases import fixed, found
from ddpfix.patcher.editing.helpers import helper_code

SCRIPT = """
import torch
from torch.utils.data import DataLoader

def measure(net, data):
    net.eval()
    losses = []
    with torch.no_grad():
        for batch in DataLoader(data):
            losses.append(net(batch).sum())
    {end}

def train(epoch, net, loader):
    net.train()
    for batch in loader:
        optimizer.zero_grad()
        net(batch).mean().backward()
        optimizer.step()

def main(data):
    torch.distributed.init_process_group("gloo")
    net = torch.nn.parallel.DistributedDataParallel(Net())
    clusters = KMeans(10)
    for epoch in range(9):
        {result} = {call}
        {body}
        {training}

main(things())
"""
PARTS = {
    "end": "return losses",
    "result": "losses",
    "call": "measure(net, data)",
    "body": "clean = split(losses)",
    "training": "train(epoch, net, loader_of(data, clean))",
}
ASKED = {"call": "what_rank_0_has(measure(net, data))"}


def script(**parts: str) -> str:
    return SCRIPT.format(**{**PARTS, **parts})


# A sentence, and a script that comes close and is right.
NOOP: list[tuple[str, str]] = [
    ("a score that is printed", script(body="print(losses)", training="train(epoch, net, loader)")),
    ("a model that is given back as it came", script(
        end="return net", result="net", body="pass", training="train(epoch, net, loader)")),
    ("a log that hears of it", script(body="logger.log(losses)",
        training="train(epoch, net, loader, logger)")),
    ("a setting that holds the best one", script(body="args.best = max(losses)",
        training="train(args, net, loader)")),
    ("a score that the training shows", script(result="dev_acc", end="return sum(losses)",
        body="best = max(best, dev_acc)", training="train((epoch, best), net, loader)")),
    ("what nobody reads has the name of the epochs' counter", script(result="scores, _",
        body="print(scores)", training="for _ in range(2):\n            train(_, net, loader)")),
    ("the results of all ranks", script(end="return gathered(losses)")),
    ("rank 0's already", script(**ASKED)),
    ("rank 0 alone looks at it", script(call="None", body="if torch.distributed.get_rank() == 0:\n"
        "            clean = split(measure(net, data))", training="train(epoch, net, loader)")),
    ("one process", script().replace("torch.nn.parallel.DistributedDataParallel(Net())", "Net()")),
]  # fmt: skip

# A sentence, a script that is wrong, and the same one after `patch`.
INLINE = """for batch in DataLoader(clean):
            net(batch).mean().backward()
            optimizer.step()"""
TARGETS = """for x, number in loader:
            loss = (net(x) - losses[number]).mean()
            loss.backward()
            optimizer.step()"""
FIX: list[tuple[str, str, str]] = [
    (sentence, script(**parts), script(**parts, **ASKED))
    for sentence, parts in (
        ("the losses choose the examples", {}),
        ("one of two results does", {"result": "total, losses"}),
        (
            "the features are clustered by an object, which has the labels then",
            {"body": "clusters.fit(losses); clean = clusters.lists"},
        ),
        ("the steps stand in the same function", {"training": INLINE}),
        ("the steps take their targets of it", {"training": TARGETS}),
    )
]


BY_NUMBER = """    losses = []
    with torch.no_grad():
        batches = iter(loader)
        for _ in range(len(loader)):
            losses.append(net(next(batches)).sum())
    {end}

def train("""


def test_a_pass_over_a_loader_by_number_is_one_as_well() -> None:
    text = (
        script(**PARTS)
        .replace("net, data)", "net, DataLoader(data))")
        .replace("measure(net, DataLoader(data)):", "measure(net, loader):")
    )
    head, _, rest = text.partition("    losses = []\n")
    text = head + BY_NUMBER.format(end="return losses") + rest.partition("def train(")[2]
    assert "what_rank_0_has(measure(net, DataLoader(data)))" in fixed("DF514", text)


def plain(text: str) -> str:
    """A script without what the rule adds to it, and single blank lines."""
    for name in ("what_rank_0_has", "onto_own_card"):
        text = text.replace(helper_code(name), "")
    return re.sub(r"\n\n+", "\n\n", textwrap.dedent(text).replace("import io\n", "")).strip()


def test_both_tables_are_filled() -> None:
    assert NOOP, "write down a script that DF514 leaves alone"
    assert FIX, "write down a script that DF514 finds something in, and what patch makes of it"


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in NOOP])
def test_left_alone(text: str) -> None:
    assert [finding.because for finding in found("DF514", text)] == []


@pytest.mark.parametrize(
    ("before", "after"), [pytest.param(before, after, id=name) for name, before, after in FIX]
)
def test_found_and_repaired(before: str, after: str) -> None:
    assert found("DF514", before)
    assert plain(fixed("DF514", before)) == plain(after)
    assert found("DF514", after) == []
