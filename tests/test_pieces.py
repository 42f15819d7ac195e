"""Edits of a few statements: only their lines are parsed, and the rest is as in the whole file."""

from __future__ import annotations

import ast
from collections.abc import Callable

import pytest
from cases import module
from ddpfix.patcher.editing.apply import apply_edits
from ddpfix.patcher.editing.edits import Define, Edit, Guard, Insert, Replace, Rewrite, Unwrap
from ddpfix.patcher.editing.helpers import helper_code, helper_names
from ddpfix.patcher.editing.regions import find_regions
from ddpfix.patcher.source.files import Source
from ddpfix.patcher.source.module import Module

LOOP = """
def f():
    for a in b:
        c()
        # of the loop

    # of d
    d()
"""
CHOICE = """
if a:
    b()
elif c:
    # of d
    d()
    e()
"""


def at(script: Module, line: int) -> ast.stmt:
    """The statement that begins in a line."""
    every = (node for node in ast.walk(script.tree) if isinstance(node, ast.stmt))
    return next(stmt for stmt in every if stmt.lineno == line)


def unwrapped(stmt: ast.stmt) -> Edit:
    assert isinstance(stmt, ast.If)
    return Unwrap(stmt)


@pytest.mark.parametrize(
    ("text", "line", "edit", "expected"),
    [
        pytest.param(
            LOOP,
            2,
            lambda stmt: Insert(stmt, "new()", "after"),
            LOOP.replace("of the loop\n", "of the loop\n    new()\n"),
            id="a comment at the end of a block stays in the block",
        ),
        pytest.param(
            LOOP,
            2,
            lambda stmt: Insert(stmt, "new()", "last"),
            LOOP.replace("c()\n", "c()\n        new()\n"),
            id="what comes last in a block stands above such a comment",
        ),
        pytest.param(
            LOOP,
            7,
            lambda stmt: Replace(stmt, ""),
            LOOP.replace("\n    # of d\n    d()\n", ""),
            id="a statement goes with the comment above, not with that of the block before",
        ),
        pytest.param(
            CHOICE,
            5,
            lambda stmt: Replace(stmt, ""),
            CHOICE.replace("    # of d\n    d()\n", ""),
            id="a block's first statement goes with its comment",
        ),
        pytest.param(
            CHOICE,
            3,
            unwrapped,
            CHOICE.replace("elif c:", "else:"),
            id="an elif is a part of the if above",
        ),
        pytest.param(
            "class A:\n    # of f\n    @b\n    def f(self):\n        pass\n",
            4,
            lambda stmt: Insert(stmt, "new = 1"),
            "class A:\n    # of f\n    new = 1\n    @b\n    def f(self):\n        pass\n",
            id="a decorator is a part of its function",
        ),
        pytest.param(
            "def f():\n  a()\ndef g():\n        b()\n",
            4,
            lambda stmt: Insert(stmt, "if new:\n    c()"),
            "def f():\n  a()\ndef g():\n        if new:\n          c()\n        b()\n",
            id="new blocks are indented as the file's first one is",
        ),
        pytest.param(
            "if a:\r\n\tb()",
            2,
            lambda stmt: Guard(stmt, "new"),
            "if a:\r\n\tif new:\r\n\t\tb()",
            id="tabs, Windows newlines, and none at the end",
        ),
        pytest.param(
            "if a:\n    if b:\n        c()\n\n    ",
            2,
            lambda stmt: Insert(stmt, "new()", "first"),
            "if a:\n    if b:\n        new()\n        c()\n\n    ",
            id="white space at the end of the file",
        ),
        pytest.param(
            "import os\n\n\n# of f\ndef f():\n  pass\n",
            5,
            lambda stmt: Define("is_main_process"),
            "import os\nimport torch\n\n\n"
            "def is_main_process():\n"
            '  """Tell whether this process is rank 0, or the only one."""\n'
            "  return not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0\n"
            "\n\n# of f\ndef f():\n  pass\n",
            id="a helper comes above the comment of the first function",
        ),
    ],
)
def test_the_rest_of_the_file_is_as_it_was(
    text: str, line: int, edit: Callable[[ast.stmt], Edit], expected: str
) -> None:
    script = Module(Source("script.py", text.removeprefix("\n"), "utf-8", False))
    assert apply_edits(script, [edit(at(script, line))]) == expected.removeprefix("\n")


def test_words_and_what_holds_them_are_edited_together() -> None:
    script = module("""
        def f():
            if (a and
                    b):  # c
                d(e)
        """)
    gate, call = at(script, 2), at(script, 4)
    assert isinstance(gate, ast.If)
    assert isinstance(gate.test, ast.BoolOp)
    assert isinstance(call, ast.Expr)
    assert isinstance(call.value, ast.Call)
    words = [Rewrite(gate.test.values[1], "(b or\n c)"), Rewrite(call.value.args[0], "'ü'")]
    assert apply_edits(script, [*words, Guard(gate, "new"), Insert(call, "g()", "after")]) == (
        "def f():\n    if new:\n        if (a and\n                (b or\n c)):  # c\n"
        "            d('ü')\n            g()\n"
    )


def test_only_the_lines_of_an_edit_are_parsed() -> None:
    script = module("""
        import os
        def f():
            a()
            if b: c(); d()
            e()
        """)
    gate = at(script, 4)
    assert isinstance(gate, ast.If)
    found = find_regions(script, [at(script, 3), gate.body[1]], set())
    assert [(piece.first, piece.last) for piece in found] == [(3, 3), (4, 4)]
    (whole,) = find_regions(script, [at(script, 1)], {at(script, 1)})
    assert (whole.first, whole.last) == (1, 5)


HELPER = helper_code("is_main_process")


@pytest.mark.parametrize("own", [HELPER, "def is_main_process():\n    return None\n"])
def test_a_helper_moves_above_what_calls_it_now(own: str) -> None:
    text = f"import torch\nlog(1)\nx = 1  # one\n\n\n{own}\n\ndef f():\n    is_main_process()\n"
    script = Module(Source("script.py", text, "utf-8", False))
    stmt = at(script, 2)
    edits = [Replace(stmt, "log(is_main_process())"), Define("is_main_process")]
    called = "log(is_main_process())\nx = 1  # one\n"
    rest = "\n\ndef f():\n    is_main_process()\n"
    moved = f"import torch\n\n\n{own}{called}{rest}"
    stays = f"import torch\n{called}\n\n{own}{rest}"
    assert apply_edits(script, edits) == (moved if own == HELPER else stays)


@pytest.mark.parametrize("name", sorted(helper_names()))
def test_windows_newlines_are_those_of_a_whole_helper(name: str) -> None:
    text = apply_edits(module("import os\r\nx = 1\r\n"), [Define(name)])
    assert name in text
    assert text.count("\n") == text.count("\r\n"), "also in a docstring of several lines"
