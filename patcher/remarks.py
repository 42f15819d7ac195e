"""Comments with a word in them, told by the tree: tokenize takes half as long as a whole check."""

from __future__ import annotations

from ..record import record
from .light import Sequence
from .module import Module
from .pieces import has_block, is_joined
from .syntax import below
from .trees import ast

TYPE_CHECKING = False  # typing takes long to import
if TYPE_CHECKING:
    from typing import Any

Place = tuple[int, int]  # line, from 1, and column in bytes, as ast has them
ALONE = (b"else:", b"try:", b"finally:")  # a head's whole code, where it has no statement's place


@record
class Comment:
    """A comment: its place, and the lines that it is a comment on.

    At the end of a statement (or of the head of a compound one) that is all of its lines.
    """

    row: int  # 1-based
    column: int  # 0-based, in characters
    text: str
    lines: range


class UntoldError(Exception):
    """The tree does not tell: it may be text of a string, or end a head of several lines."""


def comments_with(module: Module, word: str) -> list[Comment]:
    """Comments that have the lower-case ``word`` in any case in them, in order."""
    letters = word.encode()
    rows = [row for row, line in enumerate(module.lines, 1) if letters in line.lower()]
    if not rows:
        return []
    nodes: list[Any] = below(module.tree)
    strings = [_span(node) for node in nodes if _is_string(node)]
    parts = [node for node in nodes if isinstance(node, (ast.stmt, ast.ExceptHandler))]
    try:
        found = [_comment(module, row, strings, parts) for row in rows]
    except UntoldError:
        from .comments import comments

        found = [*comments(module.source.text)]
    return [comment for comment in found if comment and word in comment.text.lower()]


def _is_string(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (str, bytes))
    return type(node).__name__ in ("JoinedStr", "TemplateStr")


def _span(node: Any) -> tuple[Place, Place]:
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


def _comment(
    module: Module, row: int, strings: Sequence[tuple[Place, Place]], parts: Sequence[Any]
) -> Comment | None:
    """The comment in a line, if there is one. Raises UntoldError."""
    line = module.lines[row - 1].rstrip(b"\r\n")
    here = [span for span in strings if span[0][0] <= row <= span[1][0]]
    column = line.find(b"#")
    while column >= 0:
        around = [span for span in here if span[0] <= (row, column) < span[1]]
        if not around:
            start = _start(module.lines, row, line[:column], parts)
            before, text = line[:column].decode(), line[column:].decode()
            return Comment(row, len(before), text, range(start, row + 1))
        if any(first[0] < last[0] for first, last in around):
            raise UntoldError  # or between the parts of a string
        column = line.find(b"#", column + 1)
    return None


def _start(lines: Sequence[bytes], row: int, before: bytes, parts: Sequence[Any]) -> int:
    """The first of the lines that a comment in line ``row`` is on. Raises UntoldError."""
    code = before.strip()
    if is_joined(lines, row):
        raise UntoldError
    if not code:
        return row
    around = [part for part in parts if part.lineno <= row <= part.end_lineno]
    part = around[-1] if around else None
    if part is None or has_block(part):
        if code in ALONE or code.startswith(b"@") or (part is not None and part.lineno == row):
            return row
        raise UntoldError
    if row < part.end_lineno:
        return row  # inside of it
    start: int = part.lineno
    first = min(part.col_offset for part in parts if part.lineno == start)
    head = lines[start - 1][:first].strip()
    if (head and head not in ALONE) or is_joined(lines, start):
        raise UntoldError  # behind a semicolon, or a head of several lines
    return start
