"""DF312: losses that sum over a batch, of scripts that did not choose DistributedDataParallel."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import changes, fixed, found
from ddpfix.patcher.engine.patch import patch
from ddpfix.patcher.findings import Severity

SCRIPT = """\
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
{head}
model = torch.nn.DataParallel(torch.nn.Linear(2, 2))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(data):
    {loss}
    {back}
    optimizer.step()
"""


def script(loss: str, head: str = "", back: str = "loss.backward()") -> str:
    return SCRIPT.format(head=head, loss=loss, back=back)


PARSED = """\
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--size", type=int)
parser.add_argument("--weight", type=float)
args = parser.parse_args()"""


def of_batches(loss: str) -> str:
    """The script where an option says how many examples are in a batch."""
    return script(loss, PARSED).replace("DataLoader(data)", "DataLoader(data, args.size)")


SUM = 'loss = F.mse_loss(model(x), y, reduction="sum")'
AVERAGING = "average_gradients(optimizer)"
AVERAGED = "def same_weights(optimizer): ...\ndef average_gradients(optimizer): ..."
SUMS = {
    "of a function": script(SUM),
    "of a class": script(
        "loss = loss_of(model(x), y)", 'loss_of = torch.nn.L1Loss(reduction="sum")'
    ),
    "of a class that goes to a card": script(
        "loss = loss_of(model(x), y)", 'loss_of = torch.nn.BCELoss(reduction="sum").cuda()'
    ),
    "of a loss of the script's own that is told to sum": script(
        "loss = loss_of(model(x), y)",
        "class Norm:\n    def __init__(self, size_average=True):\n"
        "        self.mean = size_average\n"
        "    def __call__(self, a, b):\n        norms = torch.norm(a - b, dim=1)\n"
        "        return norms.mean() if self.mean else norms.sum()\n"
        "loss_of = Norm(size_average=False)",
    ),
    "of a function that is told to sum": script("loss = loss_of(model(x), y, reduction='sum')"),
    "of means over the classes": script("loss = (-y * model(x)).mean(dim=1).sum()"),
    "that is weighted": script("loss = (args.weight * model(x) / 2).sum()"),
    "as it was asked for of old": script("loss = F.mse_loss(model(x), y, size_average=False)"),
    "by hand": script("loss = (model(x) - y).pow(2).sum()"),
    "of torch's function": script("loss = torch.sum((model(x) - y) ** 2)"),
    "with a factor": script("loss = 0.5 * (model(x) - y).pow(2).sum() / 3"),
    "with an option for a factor": of_batches("loss = torch.sum(model(x)) / args.weight"),
    "with an option that an object holds": of_batches(
        "loss = self.args.weight * torch.sum(model(x))"
    ),
    "over all examples there are": script(f"{SUM} / len(data)"),
    "of two": script('loss = F.mse_loss(model(x), y, reduction="sum") - torch.sum(model(x))'),
    "of a function of the script": script(
        "loss = total(model(x), y)",
        "def total(a, b):\n    one = (a - b).sum()\n    return one + 0.1 * a.abs().sum()",
    ),
    "of a class that a function gets": script(
        "loss = step(model, loss_of, x, y)",
        "loss_of = torch.nn.MSELoss(size_average=False)\nloss_of = loss_of.cuda()\n"
        "def step(model, kind, x, y):\n    return kind(model(x), y)",
    ),
    "of a class, made above a function": script(
        "loss = total(model(x), y)",
        "kind = torch.nn.MSELoss(size_average=False)\n"
        "def total(a, b):\n    return kind(a, b) + 2 * torch.sum(a)",
    ),
    "that another is added to": script(f"{SUM}\n    loss += torch.sum(model(x))"),
    "that a factor is put to in place": script(f"{SUM}.mul_(-0.5)"),
    "that is negated": script("loss = torch.sum(model(x)).div(2).neg()"),
    "that a factor is put to": script(f"{SUM}\n    loss *= 0.5"),
    "of sums": script("loss = sum([(model(x) - y).abs().sum(), model(x).sum()])"),
    "of a stack of sums": script("loss = torch.stack([each.sum() for each in model(x)]).sum()"),
    "of joined sums": script(
        "loss = torch.cat([F.l1_loss(each, y, reduction='sum').view(1) for each in x]).sum()"
    ),
    "of the joined losses of examples": script(
        "loss = torch.cat([F.mse_loss(each, y, reduction='none') for each in model(x)]).sum()"
    ),
    "in the call": script("pass", back="(model(x) - y).abs().sum().backward()"),
    "whose gradients are averaged by hand": script(SUM, AVERAGED, f"loss.backward(); {AVERAGING}")
    .replace("torch.nn.DataParallel(torch.nn.Linear(2, 2))", "torch.nn.Linear(2, 2)")
    .replace("for x", "same_weights(optimizer)\nfor x"),
}


@pytest.mark.parametrize("text", SUMS.values(), ids=SUMS)
def test_a_sum_is_found(text: str) -> None:
    (finding,) = found("DF312", text)
    assert finding.because.endswith(" is a sum")
    assert finding.edits
    repaired = fixed("DF312", text)
    assert found("DF312", repaired) == []
    assert "sum_of_ranks(" in changes(text, repaired)


def test_what_goes_back_is_multiplied_and_nothing_else() -> None:
    text = script(SUM, back="scaler.scale(loss).backward()")
    assert changes(text, fixed("DF312", text)) == """\
@@ -3,2 +3,9 @@
 from torch.utils.data import DataLoader
+
+
+def sum_of_ranks(loss): ...

@@ -8,3 +15,3 @@
     loss = F.mse_loss(model(x), y, reduction="sum")
-    scaler.scale(loss).backward()
+    scaler.scale(sum_of_ranks(loss)).backward()
     optimizer.step()
"""  # fmt: skip


def test_a_sum_and_a_mean_are_told_and_left() -> None:
    (finding,) = found("DF312", script("loss = F.mse_loss(model(x), y) + model(x).sum()"))
    assert finding.because == "loss is a sum and a mean, added"
    assert not finding.edits


@pytest.mark.parametrize(
    "loss",
    [
        f"{SUM}\n    loss += penalty(model)",
        f"{SUM}\n    loss = penalty(model) + loss + extra",
        "loss = losses[0](model(x), y, reduction='sum') + penalty(model)",
    ],
)
def test_a_sum_that_nobody_knows_what_is_added_to_is_told_in_a_note(loss: str) -> None:
    (finding,) = found("DF312", script(loss))
    assert finding.severity is Severity.NOTE
    assert "a sum and more, added" in finding.because
    assert not finding.edits


@pytest.mark.parametrize(
    "loss",
    [
        "loss = F.mse_loss(model(x), y) * len(x)",
        "loss = x.size(0) * F.mse_loss(model(x), y) + model(x).mean() * y.shape[0]",
        "loss = 0.5 * (F.mse_loss(model(x), y) * float(len(y)))",
        "loss = F.mse_loss(model(x), y) * args.size",
    ],
)
def test_a_mean_times_the_examples_of_a_batch_is_told_in_a_note(loss: str) -> None:
    (finding,) = found("DF312", of_batches(loss))
    assert (finding.severity, finding.edits) == (Severity.NOTE, ())
    assert "a mean times the number of a batch's examples" in finding.because


SILENT = {
    "a mean and a penalty on weights that have moved": script(
        "loss = F.mse_loss(model(x), y)\n    for name, p in model.named_parameters():\n"
        "        loss = loss + (importance[name] * (p - before[name]) ** 2).sum()"
    ),
    "a mean": script("loss = F.mse_loss(model(x), y)"),
    "a mean of a class that goes to a card": script(
        "loss = loss_of(model(x), y)", "loss_of = torch.nn.BCELoss().to(device)"
    ),
    "a mean by hand": script("loss = (model(x) - y).mean()"),
    "a sum over the classes": script("loss = (model(x) - y).sum(1).mean()"),
    "smooth labels": script("loss = (-y * model(x)).mean(0).sum()"),
    "smooth labels of a module": script(
        "loss = smooth(model(x), y)",
        "class Smooth(torch.nn.Module):\n    def forward(self, scores, y):\n"
        "        loss = torch.mean(-y * scores, dim=0)\n        return loss.sum()\n"
        "smooth = Smooth().cuda()",
    ),
    "a mean over dimensions of a name": script("loss = (model(x) - y).mean(dims).sum()"),
    "a weighted mean": script("loss = 0.5 * (w * (model(x) - y).mean((0, 2, 3))).sum()"),
    "a sum of examples that are divided": script("loss = ((model(x) - y) ** 2 / len(x)).sum()"),
    "a sum over the number of examples": script("loss = (model(x) - y).sum() / len(x)"),
    "a sum over what nobody knows": script("loss = (model(x) - y).sum() / n"),
    "a sum that is divided in place": script(f"{SUM}\n    loss /= len(x)"),
    "a sum that a function divides in place": script(
        "loss = of(model(x), y)",
        "def of(a, b):\n    one = (a - b).sum()\n    one /= len(a)\n    return one",
    ),
    "losses that are added": script("loss = sum(model(x, y).values())"),
    "losses of a table": script("parts = model(x)\n    loss = sum(parts[k] for k in parts)"),
    "means that are added": script("loss = sum([each.mean() for each in model(x)])"),
    "means that numpy adds": script(
        "loss = numpy.sum([F.mse_loss(each, y) for each in model(x)])", "import numpy"
    ),
    "losses that torch adds": script("loss = torch.sum([of(each, y) for each in model(x)])"),
    "means and what is no loss": script("loss = sum([model(x).mean(), penalty(model)])"),
    "a stack of losses": script("loss = torch.stack([parts[k] for k in parts]).sum()"),
    "joined losses of heads": script(
        "loss = torch.sum(torch.cat([F.cross_entropy(each, y).view(1) for each in model(x)]))"
    ),
    "joined losses of a list": script(
        "losses = []\n    for each in model(x):\n"
        "        losses.append(F.cross_entropy(each, y).unsqueeze(0))\n"
        "    loss = torch.cat(losses).sum()"
    ),
    "a stack of what nobody knows": script("loss = torch.stack(parts(model(x))).sum()"),
    "a sum over the examples of a batch": of_batches("loss = (model(x) - y).sum() / args.size"),
    "a sum that is divided by them in place": of_batches(f"{SUM}\n    loss /= args.size"),
    "a sum that a method divides by them": of_batches(f"{SUM}.div(args.size)"),
    "a mean times its share of a step": of_batches(
        "loss = F.mse_loss(model(x), y) * loss_share(step, loader, args.size)"
    ),
    "a mean times its own length": script("loss = F.mse_loss(model(x), y) * x.size(1)"),
    "a mean of what was a mean times": of_batches(
        "loss = F.mse_loss(model(x), y) * len(x)\n    loss = loss / args.size"
    ),
    "a method's weight that nobody knows": script(f"{SUM}.mul(w)"),
    "a class that a function gets": script(
        "loss = total(torch.nn.L1Loss(), model(x), y)",
        "kind = torch.nn.MSELoss(reduction='sum')\ndef total(kind, a, b):\n    return kind(a, b)",
    ),
    "a class that a function gets of some callers": script(
        "loss = total(model(x), y, torch.nn.L1Loss(reduction='sum')) + total(model(x), y)",
        "def total(a, b, kind=None):\n    return kind(a, b)",
    ),
    "a weight of an object": of_batches("loss = self.args.other * (model(x) - y).sum()"),
    "a weight that nobody knows": script("loss = w * (model(x) - y).sum()"),
    "a distance of products over the batch": script(
        "z = model(x)\n    c = (z.T @ z) / (len(z) - 1)\n    loss = (c - eye).pow(2).sum()"
    ),
    "a distance of undivided ones": script(
        "z = model(x)\n    loss = ((z.t() @ z - eye) ** 2).sum()"
    ),
    "squares of means": script("loss = (model(x).mean(0) - y.mean(0)).abs().sum()"),
    "a function that nobody knows": script("loss = criterion(model(x), y)"),
    "means and what nobody knows": script("loss = F.mse_loss(model(x), y) + penalty(model)"),
    "a function that is told to average": script(
        "loss = loss_of(model(x), y, reduction='mean') + penalty(model)"
    ),
    "a reduction of an option": script("loss = F.mse_loss(model(x), y, reduction=args.reduction)"),
    "a mean over ranks of the author's own": script(
        SUM, "def average_gradients(model): ...", "loss.backward(); average_gradients(model)"
    ).replace("torch.nn.DataParallel(", "("),
    "ranks from the start": script(SUM).replace(
        "DataParallel(", "parallel.DistributedDataParallel("
    ),
}


@pytest.mark.parametrize("text", SILENT.values(), ids=SILENT)
def test_what_is_no_sum_or_not_known_is_left_alone(text: str) -> None:
    assert found("DF312", text) == []


def test_a_sum_that_accumulates_is_one() -> None:
    text = (
        script(SUM, back="(loss / n).backward()")
        .replace("    optimizer.step()", "    if (step + 1) % n == 0:\n        optimizer.step()")
        .replace("for x, y in DataLoader(data)", "for step, (x, y) in enumerate(DataLoader(data))")
    )
    assert [each.because for each in found("DF312", text)] == ["loss / n is a sum"]


PARTS = """\
class Chain(torch.nn.Module):
    def forward(self, scores, y):
        return torch.logsumexp(scores, 1).{how}(), scores.gather(1, y).{how}()
class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.chain = Chain()
    def forward(self, x, y):
        all_paths, one = self.chain(x, y)
        return all_paths - one, x
"""


def of_forward(how: str, loss: str) -> str:
    text = script(loss, PARTS.format(how=how))
    return text.replace("torch.nn.Linear(2, 2)", "Tagger()")


@pytest.mark.parametrize("loss", ["loss, _ = model(x, y)", "loss = model(x, y)[0].mean()"])
def test_a_sum_of_a_forward_pass_is_found(loss: str) -> None:
    (finding,) = found("DF312", of_forward("sum", loss))
    assert finding.because == "loss is a sum"
    assert finding.edits


def test_the_sum_of_a_mean_is_that_mean() -> None:
    assert found("DF312", of_forward("mean", "loss = model(x, y)[0].sum()")) == []
    unknown = "loss = model(x)\n    loss = loss.sum()"
    assert found("DF312", of_forward("mean", unknown).replace("Tagger()", "get_model()")) == []


FIELD = """\
from torchcrf import CRF
class Own(torch.nn.Module):
    def forward(self, x, y, reduction="sum"):
        path = x.gather(1, y) - torch.logsumexp(x, 1)
        if reduction == "sum":
            return path.sum()
        return path.mean()
class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.crf = {made}
    def forward(self, x, y=None):
        {end}
"""
PREPENDED = """outputs = (x,)
        if y is not None:
            loss = self.crf(x, y) * (-1)
            outputs = (loss,) + outputs
        return outputs"""
BRANCHES = """if y is not None:
            return -self.crf({passed})
        return self.crf.decode(x)"""


@pytest.mark.parametrize("made", ["CRF(3)", "Own()"])
@pytest.mark.parametrize(
    ("end", "loss", "sums"),
    [
        ("return -self.crf(x, y)", "loss = model(x, y)", True),
        ("return -self.crf(x, y, reduction='mean')", "loss = model(x, y)", False),
        (PREPENDED, "loss = model(x, y)[0]", True),
        (BRANCHES.format(passed="x, y"), "loss = model(x, y=y).mean()", True),
        (BRANCHES.format(passed="x, y, reduction='mean'"), "loss = model(x, y)", False),
        (BRANCHES.format(passed="x, y"), "loss = F.l1_loss(model(x), y)", False),
    ],
)
def test_a_random_field_sums_where_nothing_else_is_asked(
    made: str, end: str, loss: str, sums: bool
) -> None:
    text = script(loss, FIELD.format(made=made, end=end))
    for model in ("Tagger()", "Tagger.from_pretrained(path)"):
        one = text.replace("torch.nn.Linear(2, 2)", model)
        assert [each.because for each in found("DF312", one)] == ["loss is a sum"] * sums


def test_a_module_of_another_folder_that_mentions_nothing_else_is_read(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "chain.py").write_text(
        "import torch.nn as nn\n\n\nclass Chain(nn.Module):\n    def forward(self, x, y):\n"
        "        return (x - y).abs().sum()\n"
    )
    text = script("loss = model(x, y)", "from parts.chain import Chain\ndata = []")
    path = tmp_path / "train.py"
    path.write_text(text.replace("torch.nn.Linear(2, 2)", "Chain()"))
    (change,) = patch(path).changes
    assert "sum_of_ranks(loss).backward()" in change.text


UNPACKED = """\
class Net(torch.nn.Module):
    def forward(self, x, y):
        out = self.layer(x)
        loss = F.cross_entropy(out, y)
        return loss{more}, out"""


@pytest.mark.parametrize("back", ["loss.backward()", "if cards > 1:\n        loss = loss.mean()"])
@pytest.mark.parametrize("more", ["", " + 0.1 * out.pow(2).sum()"])
def test_a_loss_that_is_unpacked_and_bound_again_is_the_models(back: str, more: str) -> None:
    back = back if "backward" in back else f"{back}\n    loss.backward()"
    text = script("loss, out = model(x, y)", UNPACKED.format(more=more), back)
    told = [each.because for each in found("DF312", text.replace("torch.nn.Linear(2, 2)", "Net()"))]
    assert told == (["loss is a sum and a mean, added"] if more else [])


BALANCED = "F.binary_cross_entropy_with_logits(model(x), y, weight, reduction='sum')"


@pytest.mark.parametrize(
    ("change", "loss", "is_sum"),
    [
        ("weight /= weight.sum()", BALANCED, False),
        ("weight /= weight.sum()", "(weight * (model(x) - y)).sum()", False),
        ("weight /= 2", BALANCED, True),
        ("weight *= 3", "(weight * (model(x) - y)).sum()", True),
    ],
)
def test_weights_that_are_shared_out_among_the_batch_make_a_mean(
    change: str, loss: str, is_sum: bool
) -> None:
    text = script(f"weight = (y > 0).float()\n    {change}\n    loss = {loss}")
    assert bool(found("DF312", text)) is is_sum
