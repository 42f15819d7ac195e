"""DF906: labels take the shape of the scores that a binary loss compares them with."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from cases import changes, fixed, found, written
from forked import Forge, Job

HEAD = "torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 1), torch.nn.Sigmoid())"
COMPUTED = ("logits = self.mlp(x)", "loss = self.loss(logits, labels.float())")


def forward(*lines: str, head: str = HEAD, loss: str = "torch.nn.BCELoss()") -> str:
    """A model that returns its loss."""
    body = "\n        ".join(lines)
    return f"""import json
import sys
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = {head}
        self.loss = {loss}
    def forward(self, x, labels):
        {body}
        return loss
"""


FIX = [
    ("a loss made beforehand", forward(*COMPUTED), """
        @@ -10,3 +10,3 @@
                 logits = self.mlp(x)
        -        loss = self.loss(logits, labels.float())
        +        loss = self.loss(logits, labels.float().view_as(logits))
                 return loss
        """),
    ("a loss made where it is used",
        forward(COMPUTED[0], "loss = torch.nn.BCELoss()(logits, labels.float())"), """
        @@ -10,3 +10,3 @@
                 logits = self.mlp(x)
        -        loss = torch.nn.BCELoss()(logits, labels.float())
        +        loss = torch.nn.BCELoss()(logits, labels.float().view_as(logits))
                 return loss
        """),
    ("a function, and labels by name",
        forward(COMPUTED[0],
            "loss = torch.nn.functional.binary_cross_entropy(logits, target=labels.float())"),
        """
        @@ -10,3 +10,3 @@
                 logits = self.mlp(x)
        -        loss = torch.nn.functional.binary_cross_entropy(logits, target=labels.float())
        +        loss = torch.nn.functional.binary_cross_entropy(logits, target=labels.float().view_as(logits))
                 return loss
        """),  # noqa: E501
    ("scores where they are used",
        forward("loss = self.loss(self.mlp(x), labels.to(x.dtype))"),
        """
        @@ -9,3 +9,3 @@
             def forward(self, x, labels):
        -        loss = self.loss(self.mlp(x), labels.to(x.dtype))
        +        loss = self.loss(self.mlp(x), labels.to(x.dtype).view_as(self.mlp(x)))
                 return loss
        """),
    ("one layer alone", forward(*COMPUTED, head="torch.nn.Linear(4, out_features=1)"), """
        @@ -10,3 +10,3 @@
                 logits = self.mlp(x)
        -        loss = self.loss(logits, labels.float())
        +        loss = self.loss(logits, labels.float().view_as(logits))
                 return loss
        """),
]  # fmt: skip

NOOP = [
    ("labels that are given a shape",
        forward(COMPUTED[0], "loss = self.loss(logits, labels.float().unsqueeze(1))")),
    ("scores that are made a row",
        forward("logits = self.mlp(x).squeeze(-1)", COMPUTED[1])),
    ("labels made in the function",
        forward("labels = labels.view(-1, 1)", *COMPUTED)),
    ("two outputs", forward(*COMPUTED, head="torch.nn.Linear(4, 2)")),
    ("an output made flat",
        forward(*COMPUTED, head="torch.nn.Sequential(torch.nn.Linear(4, 1), torch.nn.Flatten(0))")),
    ("another loss", forward(*COMPUTED, loss="torch.nn.MSELoss()")),
]  # fmt: skip


@pytest.mark.parametrize(("text", "diff"), [p[1:] for p in FIX], ids=[p[0] for p in FIX])
def test_labels_take_the_shape_of_a_column(text: str, diff: str) -> None:
    after = fixed("DF906", text)
    assert changes(text, after) == textwrap.dedent(diff).lstrip("\n")
    assert found("DF906", after) == []


@pytest.mark.parametrize("text", [p[1] for p in NOOP], ids=[p[0] for p in NOOP])
def test_shapes_that_fit_or_are_not_known_are_left_alone(text: str) -> None:
    assert found("DF906", text) == []


RUN = """
torch.manual_seed(0)
model, x, labels = Model(), torch.randn(5, 4), torch.tensor([0, 1, 1, 0, 1])
by_hand = -torch.where(labels == 1, model.mlp(x)[:, 0], 1 - model.mlp(x)[:, 0]).log().mean()
with open(sys.argv[1] + ".0", "w") as file:
    json.dump([model(x, labels).item(), by_hand.item()], file)
"""


def test_what_raised_computes_the_mean_over_the_examples(tmp_path: Path, forge: Forge) -> None:
    before = tmp_path / "before.py"
    before.write_text(forward(*COMPUTED) + RUN)
    (run,) = forge.run([Job(tmp_path / "before", before, [str(tmp_path / "none")], world=None)])
    assert set(run.statuses) != {0}
    assert "Using a target size" in run.log
    after = fixed("DF906", forward(*COMPUTED) + RUN)
    (((loss, by_hand)),) = written(forge, tmp_path, "after", after, None)
    assert loss == pytest.approx(by_hand, rel=1e-6)
