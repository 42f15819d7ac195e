"""DF310: a note where a training step's cross entropy divides by class weights of its targets."""

from __future__ import annotations

import pytest
from cases import found
from ddpfix.patcher.findings import Severity

SCRIPT = """\
import torch
import torch.nn as nn
import torch.nn.functional as F

{own}

def make(weights=None):
    return nn.CrossEntropyLoss(weights)

def scored(outputs, labels, weight=None):
    return F.cross_entropy(outputs, labels, weight=weight)

def train(args, model, criterion=None):
    for batch, labels in loader:
        outputs = model(batch)
        {loss}
        loss.backward()
        optimizer.step()

@torch.no_grad()
def evaluate(args, model, rated=None):
    for batch, labels in loader:
        {score}

w = torch.tensor([1.0, 3.0])
loader = torch.utils.data.DataLoader(data)
model = nn.DataParallel(Net())
{made}
for epoch in range(3):
    train(args, model, {passed})
    evaluate(args, model, {passed})
"""
PARTS = {
    "own": "",
    "loss": "loss = criterion(outputs, labels)",
    "score": "pass",
    "made": "criterion = nn.CrossEntropyLoss(weight=w)",
    "passed": "criterion",
}
OWN_LOSS = """\
class Scored(nn.Module):
    def __init__(self, weight=None):
        super().__init__()
        if weight is not None:
            weight = weight.cuda()
        self.criterion = nn.NLLLoss(weight)

    def forward(self, outputs, labels):
        return self.criterion(F.log_softmax(outputs, 1), labels)
"""
STEP = """\
class Trainer:
    def __init__(self, model):
        self.model, self.weight = model, torch.ones(2)
        self.weight = torch.ones(2)

    def step(self, outputs, labels):
        return self.compute(outputs, labels) * 2

    def compute(self, outputs, labels):
        return F.nll_loss(outputs, labels, self.weight)

trainer = Trainer(None)
"""

BUFFER = """\
class Scored(nn.Module):
    def __init__(self, weight):
        super().__init__()
        if weight is None:
            self.weight = None
        else:
            self.register_buffer("weight", weight)

    def forward(self, outputs, labels):
        return F.cross_entropy(outputs, labels, self.weight)
"""


def script(**parts: str) -> str:
    return SCRIPT.format(**{**PARTS, **parts})


def inline(loss: str) -> str:
    return script(loss=f"loss = {loss}", made="pass", passed="None")


HINT = ": weigh ranks by their sum, as `ddpfix explain DF310` says"
SURE = "it divides by the class weights ({}) of a rank's own targets" + HINT
MAYBE = SURE.replace(HINT, ", unless they are None" + HINT)
UNNAMED = SURE.replace(" ({})", "")
NOTES: list[tuple[str, str, str]] = [
    ("a loss that is passed to the step", script(), SURE.format("w")),
    ("by place, on a card",
        script(made="criterion = nn.CrossEntropyLoss(w.cuda()).to(device)"), UNNAMED),
    ("of log probabilities", script(made="criterion = nn.NLLLoss(w)"), SURE.format("w")),
    ("a mean by its old name", script(made="criterion = nn.NLLLoss(w, size_average=True)"),
        SURE.format("w")),
    ("the function, by name", inline("F.cross_entropy(outputs, labels, weight=w)"),
        SURE.format("w")),
    ("the function, by place", inline("F.nll_loss(outputs, labels, w) + aux"), SURE.format("w")),
    ("called where it is made", inline("nn.CrossEntropyLoss(w)(outputs, labels)"),
        SURE.format("w")),
    ("labels that are left out too",
        script(made="criterion = nn.CrossEntropyLoss(weight=w, ignore_index=0)"),
        SURE.format("w")),
    ("made by a function", script(made="criterion = make(w)"), SURE.format("weights")),
    ("passed to a function of the step", inline("scored(outputs, labels, w)"),
        SURE.format("weight")),
    ("a loss of the script's own", script(own=OWN_LOSS, made="criterion = Scored(w)"),
        SURE.format("weight")),
    ("a loss of its own, by an older name", script(made="criterion = Scored(w)",
        own=OWN_LOSS.replace("NLLLoss(", "NLLLoss2d(")), SURE.format("weight")),
    ("a buffer", script(own=BUFFER, made="criterion = Scored(w)"), MAYBE.format("self.weight")),
    ("an attribute that others give",
        script(own=BUFFER, made="criterion = Scored(None)\ncriterion.weight = w"),
        MAYBE.format("self.weight")),
    ("below a method of the step", script(own=STEP, loss="loss = trainer.step(outputs, labels)",
        made="pass", passed="None"), SURE.format("self.weight")),
    ("weights that an option asks for",
        script(made="criterion = nn.CrossEntropyLoss(weight=w if args.weigh else None)"),
        MAYBE.replace(" ({})", "")),
    ("weights of a function that is not read",
        script(made="weights = count(args)\ncriterion = nn.CrossEntropyLoss(weight=weights)"),
        MAYBE.format("weights")),
    ("weights that a function gives with others", script(made="weights = None\nif args.weigh:\n"
        "    weights, counts = counted(args)\ncriterion = nn.CrossEntropyLoss(weights)"),
        MAYBE.format("weights")),
    ("weights that are taken away again", script(made="weights = torch.ones(2)\nif args.plain:\n"
        "    weights = None\ncriterion = nn.CrossEntropyLoss(weights)"), MAYBE.format("weights")),
    ("a choice of losses", script(made="criterion = nn.CrossEntropyLoss(w) if args.weigh"
        " else nn.CrossEntropyLoss()"), SURE.format("w")),
]  # fmt: skip


OTHERS = ": weigh ranks by their number, as `ddpfix explain DF310` says"
DICE = """\
def dice_loss(p, t):
    p, t = p.view(-1), t.view(-1)
    both = (p * t).sum()
    return 1 - (2 * both + 1) / (p.sum() + t.sum() + 1)

"""
PADDED = "criterion = nn.CrossEntropyLoss(ignore_index=args.pad)"
NOTES += [
    ("by the method itself", script(made=PADDED, loss="loss = criterion.forward(outputs, labels)"),
        "the mean leaves out targets that are args.pad" + OTHERS),
    ("a mask that is passed", inline("masked(outputs, labels, labels)").replace("def make(",
        "def masked(x, y, mask):\n    x = (x - y) * mask\n    return x.sum() / torch.sum(mask)\n\n"
        "def make("), "the mean is over what mask leaves in" + OTHERS),
    ("a table of losses by their names", script(own="def by_pixel(x, y):\n"
        "    return F.cross_entropy(x, y, ignore_index=250)\nLOSSES = {'ce': by_pixel}",
        made="criterion = LOSSES[args.loss]"), "the mean leaves out targets that are 250" + OTHERS),
    ("a Dice loss", inline("dice_loss(outputs, labels)").replace("def make(", DICE + "def make("),
        "a ratio of sums over a rank's own batch, of p * t: that of all ranks' sums is another one"
        " (torch.distributed.nn.functional.all_reduce)"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "because"), [pytest.param(text, why, id=name) for name, text, why in NOTES]
)
def test_class_weights_of_a_training_loss_are_noted(text: str, because: str) -> None:
    (finding,) = found("DF310", text)
    assert (finding.because, finding.severity) == (because, Severity.NOTE)
    assert not finding.edits


SILENT = [
    ("a Dice loss of each example", inline("dice_loss(outputs, labels)").replace(
        "def make(", DICE.replace("sum()", "sum(1)").replace("view(-1)", "flatten(1)")
        .replace("return 1 - ", "return (1 - ").replace("+ 1)\n", "+ 1)).mean()\n") + "def make(")),
    ("no weights", script(made="criterion = nn.CrossEntropyLoss()")),
    ("None", script(made="criterion = nn.CrossEntropyLoss(weight=None)")),
    ("None, by place", inline("F.cross_entropy(outputs, labels, None)")),
    ("None under a name", script(made="weights = None\ncriterion = nn.NLLLoss(weights)")),
    ("None of each caller", script(made="criterion = make()")),
    ("None of a parameter", inline("scored(outputs, labels)")),
    ("None of a loss of the script's own", script(own=OWN_LOSS, made="criterion = Scored()")),
    ("a buffer that is None", script(own=BUFFER, made="criterion = Scored(None)")),
    ("a sum", script(made="criterion = nn.CrossEntropyLoss(w, reduction='sum')")),
    ("a loss of each example", inline("F.cross_entropy(outputs, labels, w, reduction='none')"
        ".mean()")),
    ("a sum, by its old name", script(made="criterion = nn.NLLLoss(w, size_average=False)")),
    ("a sum, by the place of its old name", script(made="criterion = nn.NLLLoss(w, False)")),
    ("a loss that divides by the examples", script(made="criterion = nn.BCELoss(weight=w)")),
    ("a function of the script's own", script(own="def cross_entropy(x, y, weight): ...",
        loss="loss = cross_entropy(outputs, labels, weight=w)", made="pass", passed="None")),
    ("an evaluation", script(loss="loss = outputs.mean()", score="print(rated(model(batch), "
        "labels))")),
    ("a score in a step", script(loss="loss = outputs.mean()\n        with torch.no_grad():\n"
        "            print(F.cross_entropy(outputs, labels, weight=w))", made="pass",
        passed="None")),
    ("no ranks", script().replace("nn.DataParallel", "")),
]  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in SILENT])
def test_other_losses_are_not_noted(text: str) -> None:
    assert [finding.because for finding in found("DF310", text)] == []
