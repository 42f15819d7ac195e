"""Edits leave an expression whole that stood in parentheses."""

from __future__ import annotations

import ast

import pytest
from cases import fixed, found, module

GATE = """\
import torch
torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(net)
loader = torch.utils.data.DataLoader(data)
def evaluate(args, model):
    model.eval()
    for batch in torch.utils.data.DataLoader(held_out):
        model(batch)
for epoch in range(9):
    for batch in loader:
        model(batch).mean().backward()
        optimizer.step()
        if args.local_rank in [-1, 0] and {test}:
            evaluate(args, model)
"""
TESTS = [
    "(epoch > 4 or epoch == 0) and step % 5 == 0",
    "(epoch > 4\n                or epoch == 0)",
    "(epoch if args.late else step)",
    "not (epoch or step)",
]


@pytest.mark.parametrize("test", TESTS)
def test_a_gate_without_the_rank_asks_for_the_rest(test: str) -> None:
    text = fixed("DF501", GATE.format(test=test))
    new = next(node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.If))
    assert ast.dump(new.test) == ast.dump(ast.parse(test, mode="eval").body)


def test_an_exit_of_all_ranks_asks_for_the_rest() -> None:
    text = GATE.format(test="(epoch > 4 or bad)").replace("    evaluate(args, model)", "    break")
    assert "if (epoch > 4 or bad):\n            break" in fixed("DF506", text)


def test_workers_of_a_pool_are_divided_as_a_whole() -> None:
    text = "import multiprocessing\npool = multiprocessing.Pool(multiprocessing.cpu_count() - 1)\n"
    assert "max(1, (multiprocessing.cpu_count() - 1) // int(" in fixed("DF405", text)


def test_a_path_by_a_test_is_nowhere_on_other_ranks() -> None:
    text = (
        "import torch\ntorch.distributed.init_process_group('gloo')\n"
        "file = open(first if train else second, 'w')\nfile.write(words)\n"
    )
    new = "open((first if train else second) if is_main_process() else os.devnull, 'w')"
    assert new in fixed("DF602", text)


@pytest.mark.parametrize(
    ("code", "new"),
    [
        ('(folder / "a").open("w")', '(folder / "a" if {}).open("w")'),
        ('Path("a").open(mode="a")', '(Path("a") if {}).open(mode="a")'),
        ('named.open("w")', '(named if {}).open("w")'),
        ('(folder / "a").open()', ""),
        ('archive.open("w")', ""),
    ],
)
def test_a_path_that_opens_itself_is_nowhere_on_other_ranks(code: str, new: str) -> None:
    text = (
        "import torch\nfrom pathlib import Path\ntorch.distributed.init_process_group('gloo')\n"
        f"named = folder / 'b'\nfile = {code}\nfile.write(words)\n"
    )
    changed = new.format("is_main_process() else Path(os.devnull)")
    assert f"file = {changed or code}\n" in (after := fixed("DF602", text))
    assert found("DF602", after) == []


@pytest.mark.parametrize(
    ("code", "operand", "conjunct"),
    [
        ("a.b[c](d)", "a.b[c](d)", "a.b[c](d)"),
        ("a + b", "(a + b)", "a + b"),
        ("a or b", "(a or b)", "(a or b)"),
        ("a and b", "(a and b)", "a and b"),
        ("a if b else c", "(a if b else c)", "(a if b else c)"),
        ("lambda: a", "(lambda: a)", "(lambda: a)"),
    ],
)
def test_parentheses_where_they_are_needed(code: str, operand: str, conjunct: str) -> None:
    text = module(f"x = {code}\n")
    (stmt,) = text.tree.body
    assert isinstance(stmt, ast.Assign)
    assert (text.operand(stmt.value), text.conjunct(stmt.value)) == (operand, conjunct)
