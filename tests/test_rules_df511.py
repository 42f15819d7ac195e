"""DF511: Ranks evaluate with averages of batch norm of their own."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
from cases import RULES, fixed, found
from ddpfix.patcher.editing.helpers import helper_code
from test_program import program_of

SCRIPT = """
import torch, torchvision
from torch.utils.data import DataLoader

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = {layer}

def evaluate(model, data):
    {module}
    {mode}
    hits = 0
    for batch in DataLoader(data):
        hits += model(batch).argmax()
    {end}

def main(data):
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel({net})
    best = 0
    for epoch in range(9):
        for batch in DataLoader(data):
            model(batch).mean().backward()
            optimizer.step()
        {body}

main(things())
"""
PARTS = {
    "layer": "torch.nn.BatchNorm1d(4)",
    "module": "model = model.module if hasattr(model, 'module') else model",
    "mode": "model.eval()",
    "end": "return hits",
    "net": "Net()",
    "body": "hits = evaluate(model, data)\n        if hits < best:\n            break",
}
SHARED = "model.eval()\n    averages_of_rank_0(model)"
INLINE = """model.eval()
        {}eval_model = model.module if hasattr(model, 'module') else model
        for batch in DataLoader(held_out):
            hits = eval_model(batch).argmax()
        if hits < best:
            break"""
WAITS = """if hits > best:
            torch.save(model.module.state_dict(), path)
            torch.distributed.barrier()"""
MEETS = f"hits = evaluate(model, data)\n        {WAITS}"
AFTER = """model.eval()
        averages_of_rank_0(model)
        """


def script(**parts: str) -> str:
    return SCRIPT.format(**{**PARTS, **parts})


def lone(**parts: str) -> str:
    """The script where only the call of a training step goes through the wrapper."""
    text = script(**{"module": "pass", **parts}).replace(
        "torch.nn.parallel.DistributedDataParallel(Net())", "Net()"
    )
    return helper_code("over_ranks") + text.replace(
        "            model(batch).mean()", "            over_ranks(model)(batch).mean()"
    )


# A sentence, and a script that comes close and is right.
NOOP: list[tuple[str, str]] = [
    ("no batch norm", script(layer="torch.nn.LayerNorm(4)")),
    ("the wrapper shares rank 0's", script(module="pass")),
    ("one batch norm of all ranks", script(layer="torch.nn.SyncBatchNorm(4)")),
    ("rank 0's already", script(mode=SHARED)),
    ("a score that rank 0 prints", script(body="print(evaluate(model, data))")),
    ("a score by which rank 0 saves", script(body=MEETS.replace("torch.distributed.barrier()",
        "print('saved')"))),
    ("rank 0 evaluates alone", script(body="if torch.distributed.get_rank() == 0:\n"
        "            evaluate(model, data)")),
    ("statistics of the batch itself", script(mode="pass")),
    ("one process", script(net="Net()").replace("torch.nn.parallel.DistributedDataParallel", "")),
    ("a score of the bare model that is printed", lone(body="print(evaluate(model, data))")),
    ("the bare model has rank 0's already", lone(mode=SHARED)),
]  # fmt: skip

# A sentence, a script that is wrong, and the same one after `patch`.
FIX: list[tuple[str, str, str]] = [
    ("the training stops by the score", script(), script(mode=SHARED)),
    (
        "a test that gets the score",
        script(body="if stopper(evaluate(model, data)):\n            break"),
        script(body="if stopper(evaluate(model, data)):\n            break", mode=SHARED),
    ),
    (
        "the results of all ranks are joined",
        script(body="evaluate(model, data)", end="return gathered(hits)"),
        script(body="evaluate(model, data)", end="return gathered(hits)", mode=SHARED),
    ),
    (
        "a model of torchvision",
        script(layer="None", net="torchvision.models.resnet18()"),
        script(layer="None", net="torchvision.models.resnet18()", mode=SHARED),
    ),
    ("a model that is wrapped for its training steps alone", lone(), lone(mode=SHARED)),
    ("ranks wait for a file by the score", script(body=MEETS), script(body=MEETS, mode=SHARED)),
    (
        "ranks wait for a file by the score of an evaluation between the epochs",
        script(body=INLINE.format("").replace("if hits < best:\n            break", WAITS)),
        script(
            body=INLINE.format("")
            .replace("if hits < best:\n            break", WAITS)
            .replace("model.eval()\n        ", AFTER)
        ),
    ),
    (
        "an evaluation between the epochs",
        script(body=INLINE.format("")),
        script(body=INLINE.format("").replace("model.eval()\n        ", AFTER)),
    ),
]


def by_hand(**parts: str) -> str:
    """The script with a model in no wrapper, its gradients averaged before each step."""
    text = script(module="pass", **parts).replace("torch.nn.parallel.DistributedDataParallel", "")
    step = "            optimizer.step()\n"
    return text.replace(step, f"            average_gradients(optimizer)\n{step}")


FIX.append(("gradients averaged by hand", by_hand(), by_hand(mode=SHARED)))


def plain(text: str) -> str:
    """A script without the definition of the helper, and single blank lines."""
    own = textwrap.dedent(text).replace(helper_code("averages_of_rank_0"), "")
    return re.sub(r"\n\n+", "\n\n", own).strip()


def test_both_tables_are_filled() -> None:
    assert NOOP, "write down a script that DF511 leaves alone"
    assert FIX, "write down a script that DF511 finds something in, and what patch makes of it"


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in NOOP])
def test_left_alone(text: str) -> None:
    assert [finding.because for finding in found("DF511", text)] == []


@pytest.mark.parametrize(
    ("before", "after"), [pytest.param(before, after, id=name) for name, before, after in FIX]
)
def test_found_and_repaired(before: str, after: str) -> None:
    assert found("DF511", before)
    assert plain(fixed("DF511", before)) == plain(after)
    assert found("DF511", after) == []


NETS = """
import torch

class Deep(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4)
"""


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("nets.__dict__[args.net]()", True),
        ("getattr(nets, args.net)()", True),
        ("torch.nn.Linear(4, 2)", False),
    ],
)
def test_a_model_that_is_got_by_its_name_may_have_batch_norm(
    tmp_path: Path, made: str, told: bool
) -> None:
    text = f"import nets\n{lone()}".replace("model = Net()", f"model = {made}")
    text = text.replace("torch.nn.BatchNorm1d(4)", "None")
    program = program_of(tmp_path, run=text, nets=NETS)
    assert bool(list(RULES["DF511"].findings(program))) is told
