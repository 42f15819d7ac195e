"""DF308: what is frozen when DDP wraps is synchronised once it is thawed."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from cases import changes, fixed, found, written
from forked import Forge

TRAIN = """\
import torch
def train(model):
    {first}
    model = torch.nn.parallel.DistributedDataParallel(model{options})
    {second}
    for epoch in range(4):
        {inside}
        for batch in loader:
            model(batch).backward()
            optimizer.step()
"""
LOOP = "for p in model.encoder.parameters(): p.requires_grad = "
LOOKS = ", find_unused_parameters=True"


def script(
    first: str = "pass", second: str = "pass", inside: str = "pass", options: str = ""
) -> str:
    return TRAIN.format(first=first, second=second, inside=inside, options=options)


FIX = [
    ("frozen behind the wrapper for good", script(second=f"if frozen:\n        {LOOP}False"),
        """
        @@ -3,3 +3,3 @@
             pass
        -    model = torch.nn.parallel.DistributedDataParallel(model)
        +    model = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
             if frozen:
        """),
    ("a loop over parameters", script(f"{LOOP}False", inside=f"{LOOP}True", options=LOOKS),
        """
        @@ -3,3 +3,8 @@
             for p in model.encoder.parameters(): p.requires_grad = False
        +    frozen = [parameter for parameter in model.parameters() if not parameter.requires_grad]
        +    for parameter in frozen:
        +        parameter.requires_grad_(True)  # else ranks would never synchronise them
             model = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
        +    for parameter in frozen:
        +        parameter.requires_grad_(False)
             pass
        """),
    ("a loop over a name for parameters", script(
        "parts = list(model.encoder.parameters())\n    for p in parts: p.requires_grad = False",
        inside="switch(model.module.encoder.parameters())", options=LOOKS)
        + "def switch(some):\n    for p in some: p.requires_grad = True\n",
        """
        @@ -4,3 +4,8 @@
             for p in parts: p.requires_grad = False
        +    frozen = [parameter for parameter in model.parameters() if not parameter.requires_grad]
        +    for parameter in frozen:
        +        parameter.requires_grad_(True)  # else ranks would never synchronise them
             model = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
        +    for parameter in frozen:
        +        parameter.requires_grad_(False)
             pass
        """),
    ("a part of the model at once", script("model.encoder.requires_grad_(False)",
        inside="model.module.encoder.requires_grad_()", options=LOOKS), """
        @@ -3,3 +3,8 @@
             model.encoder.requires_grad_(False)
        +    frozen = [parameter for parameter in model.parameters() if not parameter.requires_grad]
        +    for parameter in frozen:
        +        parameter.requires_grad_(True)  # else ranks would never synchronise them
             model = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
        +    for parameter in frozen:
        +        parameter.requires_grad_(False)
             pass
        """),
    ("a function that is told which", script("switch(model, False)",
        inside="switch(model, epoch > 2)", options=LOOKS)
        + f"def switch(model, on):\n    {LOOP}on\n", """
        @@ -3,3 +3,8 @@
             switch(model, False)
        +    frozen = [parameter for parameter in model.parameters() if not parameter.requires_grad]
        +    for parameter in frozen:
        +        parameter.requires_grad_(True)  # else ranks would never synchronise them
             model = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
        +    for parameter in frozen:
        +        parameter.requires_grad_(False)
             pass
        """),
    ("unused parameters are not looked for", script(second=f"{LOOP}epoch > 1",
        inside=f"{LOOP}epoch > 1"), """
        @@ -3,3 +3,3 @@
             pass
        -    model = torch.nn.parallel.DistributedDataParallel(model)
        +    model = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
             for p in model.encoder.parameters(): p.requires_grad = epoch > 1
        """),
    ("a graph that is called static", script(inside=f"{LOOP}epoch > 1",
        options=", static_graph=True"), """
        @@ -3,3 +3,3 @@
             pass
        -    model = torch.nn.parallel.DistributedDataParallel(model, static_graph=True)
        +    model = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
             pass
        """),
    ("unused parameters are ruled out", script(inside=f"{LOOP}epoch > 1",
        options=", find_unused_parameters=False"), """
        @@ -3,3 +3,3 @@
             pass
        -    model = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=False)
        +    model = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
             pass
        """),
    ("the name is taken", script(f"frozen = 3\n    {LOOP}False", inside=f"{LOOP}True",
        options=LOOKS), """
        @@ -4,3 +4,8 @@
             for p in model.encoder.parameters(): p.requires_grad = False
        +    frozen_parameters = [parameter for parameter in model.parameters() if not parameter.requires_grad]
        +    for parameter in frozen_parameters:
        +        parameter.requires_grad_(True)  # else ranks would never synchronise them
             model = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
        +    for parameter in frozen_parameters:
        +        parameter.requires_grad_(False)
             pass
        """),  # noqa: E501
]  # fmt: skip


@pytest.mark.parametrize(("text", "diff"), [pytest.param(t, d, id=name) for name, t, d in FIX])
def test_what_is_frozen_is_thawed_around_the_wrapper_exactly_like_this(
    text: str, diff: str
) -> None:
    after = fixed("DF308", text)
    assert changes(text, after) == textwrap.dedent(diff).lstrip("\n")
    assert found("DF308", after) == []


def test_what_is_frozen_in_training_alone_is_no_reason_to_thaw_before_it() -> None:
    text = script(inside=f"{LOOP}epoch > 1")
    assert "frozen = " not in fixed("DF308", text)


STAGES = """
import torch
def fit(model, optimizer):
    for batch in loader:
        model(batch).backward()
        optimizer.step()
def train(model):
    {first}
    model = torch.nn.parallel.DistributedDataParallel(model)
    {second}
    fit(model, one)
    {third}
    fit(model, two)
"""


def test_what_is_frozen_for_the_first_of_two_trainings_is_synchronised_in_the_second() -> None:
    thaws = f"{LOOP}True"
    after = fixed("DF308", STAGES.format(first=f"{LOOP}False", second="pass", third=thaws))
    assert "frozen = [" in after
    assert LOOKS in after
    assert found("DF308", after) == []


@pytest.mark.parametrize(
    ("first", "second", "third"),
    [(f"{LOOP}False", f"{LOOP}True", "pass"), (f"{LOOP}False", "pass", f"{LOOP}False")],
    ids=["thawed before both", "frozen in both"],
)
def test_what_is_the_same_in_both_trainings_is_left_alone(
    first: str, second: str, third: str
) -> None:
    text = STAGES.format(first=first, second=second, third=third)
    assert found("DF308", text) == []


FOR_A_WHILE = """
def score(net):
    for p in net.parameters():
        p.requires_grad = False
    {between}
    for p in net.{parts}parameters():
        p.requires_grad = True
"""
WHOLE = "for p in model.parameters(): p.requires_grad = True"
MADE = """
class Net(torch.nn.Module):
    def __init__(self):
        self.gate = torch.nn.Parameter(torch.tensor(0.1), requires_grad=False)
"""


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(script(f"{LOOP}False", inside=WHOLE), id="a part, and then all"),
        pytest.param(script(inside=WHOLE) + MADE, id="parameters that are made frozen"),
    ],
)
def test_all_that_is_thawed_in_training_was_partly_frozen_at_the_wrapper(text: str) -> None:
    new = fixed("DF308", text)
    assert "frozen = [parameter for parameter in model.parameters() if" in new
    assert found("DF308", new) == []


NOOP = [
    ("frozen behind the wrapper for good, which looks for it",
        script(second=f"{LOOP}False", options=LOOKS)),
    ("a teacher, frozen behind the wrapper",
        script(second="for p in teacher.parameters(): p.requires_grad = False")),
    ("two players that take turns",
        script(inside=WHOLE.replace("True", "False") + f"\n        {WHOLE}")
        .replace("train(model)", "train()")),
    ("all that was trained before", script(inside=WHOLE)),
    ("frozen while an evaluation runs", script(inside="score(model.module.encoder)", options=LOOKS)
        + FOR_A_WHILE.format(between="print(net(1))", parts="")),
    ("frozen behind the wrapper, which looks for it",
        script(second=f"{LOOP}False", inside=f"{LOOP}True", options=LOOKS)),
    ("frozen for good", script(f"{LOOP}False")),
    ("frozen on the way", script(inside=f"{LOOP}False", options=LOOKS)),
    ("trained from the start", script(inside=f"{LOOP}True")),
    ("an input that gets a gradient", script(f"{LOOP}False", inside="delta.requires_grad_(True)")),
    ("no ranks", script(f"{LOOP}False", inside=f"{LOOP}True")
        .replace("DistributedDataParallel", "DataParallel")),
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(t, id=name) for name, t in NOOP])
def test_what_is_not_both_frozen_and_thawed_is_left_alone(text: str) -> None:
    assert [finding.because for finding in found("DF308", text)] == []


@pytest.mark.parametrize(
    ("between", "parts"), [("print(net(1))", "head."), ("net(1).backward()", "")]
)
def test_what_is_thawed_otherwise_than_it_was_frozen_is_told(between: str, parts: str) -> None:
    text = script(inside="score(model.module.encoder)", options=LOOKS)
    text += "score(net)\n" + FOR_A_WHILE.format(between=between, parts=parts)
    assert found("DF308", text)


def test_a_wrapper_without_a_name_is_reported() -> None:
    text = script(f"{LOOP}False", inside=f"{LOOP}True", options=LOOKS)
    text = text.replace("    model = torch", "    return torch")
    (finding,) = found("DF308", text)
    assert finding.edits == ()
    assert "line 7 thaws parameters in training" in finding.because


SCRIPT = """\
import json, os, sys
import torch

rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
torch.manual_seed(0)
data = torch.randn(3, 8, 3)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = torch.nn.Linear(3, 5), torch.nn.Linear(5, 1)

    def forward(self, x):
        return self.head(torch.tanh(self.encoder(x)))

model = inner = Model()
inner.encoder.requires_grad_(False)
if world > 1:
    torch.distributed.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(inner.parameters(), lr=0.1, weight_decay=0.1)
for epoch in range(3):
    if epoch == 1:
        inner.encoder.requires_grad_(True)
    for batch in [data[epoch, rank * 8 // world : (rank + 1) * 8 // world]]:
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
weights = torch.cat([p.detach().flatten() for p in inner.parameters()]).tolist()
open(f"{sys.argv[1]}.{rank}", "w").write(json.dumps(weights))
if world > 1:
    torch.distributed.destroy_process_group()
"""


def test_two_ranks_thaw_to_the_weights_of_one(tmp_path: Path, forge: Forge) -> None:
    new = fixed("DF308", SCRIPT)
    (alone,) = written(forge, tmp_path, "alone", SCRIPT, None)
    assert written(forge, tmp_path, "new", new, 2) == [pytest.approx(alone, rel=1e-5)] * 2
    first, second = written(forge, tmp_path, "old", SCRIPT, 2)
    assert first != pytest.approx(second, rel=1e-3), "they would have drifted apart"
