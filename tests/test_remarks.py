"""Comments told by the tree are those that tokenize finds, and noqa comments what re finds."""

from __future__ import annotations

import re

import pytest
from cases import module
from checkout import ROOT
from ddpfix.errors import InputError
from ddpfix.patcher import comments
from ddpfix.patcher.noqa import codes_in
from ddpfix.patcher.remarks import Comment, comments_with
from hypothesis import example, given
from hypothesis import strategies as st

TOLD = [
    pytest.param("a = 1  # X\n", [1], id="behind a statement"),
    pytest.param("# x alone\na = 1\n", [1], id="on a line of its own"),
    pytest.param("a = (\n  1)  # x\n", [1, 2], id="behind several lines"),
    pytest.param("a = (  # x\n  1)\n", [1], id="inside of a statement, behind words"),
    pytest.param("a = (\n  # x\n  1)\n", [2], id="inside of a statement, alone"),
    pytest.param("if a:  # x\n  b\nelse:\n  c\n", [1], id="behind a head"),
    pytest.param("if a:\n  b\nelse:  # x\n  c\n", [3], id="behind an else"),
    pytest.param("if a:\n  b\nelif c:  # x\n  d\n", [3], id="behind an elif"),
    pytest.param("try:  # x\n  a\nexcept B:\n  c\n", [1], id="behind a try"),
    pytest.param("try:\n  a\nexcept B:  # x\n  c\n", [3], id="behind an except"),
    pytest.param("if a: b = (1,\n  2)  # x\n", [1, 2], id="behind a statement in a head's line"),
    pytest.param("if a:\n  b\nelse: c  # x\n", [3], id="behind a statement in an else's line"),
    pytest.param("@a  # x\ndef f(): pass\n", [1], id="behind a decorator"),
    pytest.param("class C:\n  @a(  # x\n    1)\n  def f(): pass\n", [2], id="in a decorator"),
    pytest.param("a = '# x'  # y, x\n", [1], id="behind a string that looks like one"),
    pytest.param("a = '# x', b'# x', f'# x{1}'\n", [], id="in strings"),
    pytest.param("a = '''\nx\n'''  # x\n", [1, 2, 3], id="behind a long string"),
    pytest.param("'''ä'''; ä = 'ö # x'\n", [], id="in a string behind wide letters"),
    pytest.param("def f():\n  '''x'''\n  return 1  # ä x\n", [3], id="in a function"),
    pytest.param("x = 1  # y\n", [], id="the word is no part of the comment"),
    pytest.param("a = (1\n  @ b)  # x\n", [1, 2], id="behind a product of matrices"),
    pytest.param("a = 1  # x\n# y \\\n", [1], id="in the first line, the last ends in a backslash"),
    pytest.param("a = 1  # x\r\nb = (\r\n  2)  # x\r\n", [1, 2, 3], id="other ends of lines"),
]
UNTOLD = [
    pytest.param("'''\n# x\n'''\n", [], id="in a long string"),
    pytest.param("a = ('b'  # x\n  'c')\n", [1], id="between parts of a string"),
    pytest.param("def f(a,\n    b):  # x\n  pass\n", [1, 2], id="behind a head of two lines"),
    pytest.param("@a(\n  1)  # x\ndef f(): pass\n", [1, 2], id="behind a long decorator"),
    pytest.param("a = (1,\n  2); b = 3  # x\n", [1, 2], id="behind a semicolon"),
    pytest.param("a = 1 + \\\n  2  # x\n", [1, 2], id="behind a backslash"),
    pytest.param("a = 1 \\\n  # x\n", [1, 2], id="alone behind a backslash"),
    pytest.param("if a: \\\n  b = (1,\n  2)  # x\n", [1, 2, 3], id="behind a joined head"),
    pytest.param("match a:\n  case 1:  # x\n    b\n", [2], id="behind a case"),
]


def lines(found: list[Comment]) -> list[int]:
    return [line for comment in found for line in comment.lines]


@pytest.mark.parametrize(("text", "expected"), TOLD)
def test_the_tree_tells_in_which_lines_comments_stand(
    text: str, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert comments_with(module(text), "x") == having(text, "x")
    monkeypatch.delattr(comments, "comments")
    assert lines(comments_with(module(text), "x")) == expected


@pytest.mark.parametrize(("text", "expected"), UNTOLD)
def test_what_the_tree_does_not_tell_is_tokenized(
    text: str, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lines(comments_with(module(text), "x")) == expected
    assert comments_with(module(text), "x") == having(text, "x")
    monkeypatch.delattr(comments, "comments")
    with pytest.raises(ImportError):
        comments_with(module(text), "x")


def having(text: str, word: str) -> list[Comment]:
    return [comment for comment in comments.comments(text) if word in comment.text.lower()]


def test_all_comments_of_this_project_are_told_alike() -> None:
    seen = 0
    folders = ("patcher", "launchers", "tests", "fixtures", "benchmarks")
    for path in [path for folder in folders for path in (ROOT / folder).rglob("*.py")]:
        text = path.read_text()
        try:
            script = module(text)
        except InputError:
            continue
        for word in ("the", "noqa", "type"):
            found = comments_with(script, word)
            assert found == having(script.source.text, word), path
            seen += len(found)
    assert seen > 300


CODES = r"[A-Z]+[0-9]+(?:[,\s]+[A-Z]+[0-9]+)*"
NOQA = rf"(?i)#\s*noqa(?:\s*:\s*(?P<codes>{CODES})|(?!\s*:|\w))"
PIECES = ["#", "noqa", "NoQA", ":", " ", "\t", ",", "E501", "df2", "w", "7", "_", "-"]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
@example("# noqa: E501,w7 DF2x, DF3")
@example("# why # noqa:,E1 # noqa")
def test_a_noqa_comment_is_read_as_its_pattern_says(text: str) -> None:
    match = re.search(NOQA, text)
    expected = match and tuple(re.split(r"[,\s]+", (match["codes"] or "").upper()))
    assert codes_in(text) == (() if expected == ("",) else expected)
