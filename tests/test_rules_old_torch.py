"""DF910 and the keyword argument that Python took: scripts of torch 0.3."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import fixed, found
from command_line import run
from ddpfix.patcher.engine.patch import patch
from ddpfix.patcher.source.old_syntax import modernized

SCRIPT = """\
import torch


def accuracy(output, target, topk=(1,)):
    _, pred = output.topk(max(topk), 1, True, True)
    pred = pred.t()
    correct = pred.eq(target.view(1, -1).expand_as(pred))
    res = []
    for k in topk:
        correct_k = correct[:k].view(-1).float().sum(0)
        res.append(correct_k.mul_(100.0 / target.size(0)))
    return res


def train(loader, model, criterion, optimizer, losses, top1):
    for x, y in loader:
        output = model(x)
        loss = criterion(output, y)
        prec1, prec5 = accuracy(output.data, y, topk=(1, 5))
        losses.update(loss.data[0], x.size(0))
        top1.update(prec1[0], x.size(0))
        loss.backward()
        optimizer.step()
"""


def test_numbers_are_read_as_torch_gives_them_today() -> None:
    expected = (
        SCRIPT.replace("loss.data[0]", "loss.item()")
        .replace("view(-1).float", "reshape(-1).float")
        .replace("sum(0)", "sum(0, keepdim=True)")
    )
    assert fixed("DF910", SCRIPT) == expected
    assert found("DF910", expected) == []


def test_the_repaired_accuracy_runs_and_the_old_one_does_not() -> None:
    import torch

    torch.manual_seed(0)
    output, target = torch.randn(8, 10), torch.randint(10, (8,))
    old: dict[str, object] = {}
    exec(SCRIPT, old)
    new: dict[str, object] = {}
    exec(fixed("DF910", SCRIPT), new)
    with pytest.raises((RuntimeError, IndexError)):
        old["accuracy"](output, target, (1, 5))[0][0]  # type: ignore[operator]
    first, fifth = new["accuracy"](output, target, (1, 5))  # type: ignore[operator]
    hits = output.topk(5, 1).indices.eq(target[:, None])
    assert float(first[0]) == pytest.approx(hits[:, :1].float().sum().item() * 100 / 8)
    assert float(fifth[0]) == pytest.approx(hits.float().sum().item() * 100 / 8)


@pytest.mark.parametrize(
    "text",
    [
        SCRIPT.replace("loss.data[0]", "loss.item()").replace("[:k].view", "[:k].reshape"),
        SCRIPT.replace("loss.data[0]", "loss.item()").replace("(1, 5)", "(1,)"),
        "first = batch.data[0]\n",
        "loss.data[1]\n",
        "def f(x):\n    return x[:3].view(-1).sum(0)\n",
        "def f(correct, k):\n    correct = correct.t()\n    return correct[:k].view(-1)\n",
    ],
)
def test_what_is_no_loss_and_no_accuracy_is_left_alone(text: str) -> None:
    assert found("DF910", text) == []


def test_the_accuracy_of_a_folder_beside_the_script_is_read(tmp_path: Path) -> None:
    own, rest = SCRIPT.partition("def train")[0], SCRIPT.partition("def train")[2]
    (tmp_path / "utils").mkdir()
    (tmp_path / "utils" / "__init__.py").write_text("from .eval import *\n")
    (tmp_path / "utils" / "eval.py").write_text(own.removeprefix("import torch\n"))
    script = tmp_path / "train.py"
    script.write_text(f"import torch\nfrom utils import accuracy\n\n\ndef train{rest}\ntrain()\n")
    changes = {change.source.file: change.text for change in patch(script).changes}
    assert "reshape(-1)" in changes["eval.py"]


def test_a_sum_that_nobody_indexes_stays() -> None:
    text = SCRIPT.replace("prec1[0]", "prec1")
    assert "sum(0)\n" in fixed("DF910", text)


OLD = """\
import torch
x = x.cuda(async=True)
y = y.cuda(device, async = flag); z = "async=True"  # async=True
"""
NEW = OLD.replace("(async=", "(non_blocking=").replace(", async =", ", non_blocking =")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (OLD, NEW),
        ("async def f(): pass\n", "async def f(): pass\n"),
        ("f(async=1)\nprint 'x'\n", "f(non_blocking=1)\nprint 'x'\n"),
        ("f('''async=\n", "f('''async=\n"),
        ("f(a,\n  async=(b, 'é'))\n", "f(a,\n  non_blocking=(b, 'é'))\n"),
    ],
)
def test_only_the_argument_is_renamed(text: str, expected: str) -> None:
    assert modernized(text) == expected


def test_a_script_with_it_is_patched_and_its_line_is_in_the_diff(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    (tmp_path / "data.py").write_text("def move(x):\n    return x.cuda(async=True)\n")
    text = "import data\n" + SCRIPT.replace("model(x)", "model(data.move(x.cuda(async=True)))")
    script.write_text(text + "\nif __name__ == '__main__':\n    train()\n")
    told = run("check", script)
    assert "`async` is a keyword now: `ddpfix patch` writes non_blocking=" in told.output
    result = patch(script)
    assert result.refusal == ""
    assert {change.source.file for change in result.changes} == {"train.py", "data.py"}
    assert (
        "-    return x.cuda(async=True)\n+    return x.cuda(non_blocking=True)\n" in result.diff()
    )
    done = run("patch", script)
    assert done.exit_code == 1, done.output
    assert "async=" not in script.read_text() + (tmp_path / "data.py").read_text()
    assert run("patch", script).exit_code == 0


@pytest.mark.parametrize(
    ("loss", "is_one"),
    [
        ("F.cross_entropy(out, y, size_average=False)", True),
        ("criterion(out, y)", True),
        ("F.cross_entropy(out, y, reduction='none')", False),
        ("F.cross_entropy(out, y, reduce=False)", False),
        ("table(out, y)", False),
    ],
)
def test_a_loss_is_read_where_it_is_made(loss: str, is_one: bool) -> None:
    text = f"import torch.nn.functional as F\ntotal = 0\ntotal += {loss}.data[0]\n"
    assert (len(found("DF910", text)) == 1) is is_one
    assert fixed("DF910", text) == text.replace(".data[0]", ".item()" if is_one else ".data[0]")
