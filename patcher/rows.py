"""The rows of a text, and where statements and their blocks stand in them.

Rows are counted from 0. A comment that follows a block at the block's own indentation is its last
row: what is put behind the statement goes below it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from .comments import open_rows
from .syntax import position

BLOCKS = ("body", "orelse", "finalbody")
QUOTES_OR_BREAKS = (b"'''", b'"""', b"\\\n", b"\\\r")


class Rows:
    """A text's rows as bytes, each with the end of its line: the last one too."""

    def __init__(self, text: str) -> None:
        self.texts = text.encode().splitlines(keepends=True)
        if not text.endswith(("\n", "\r")):
            self.texts[-1:] = [b"".join(self.texts[-1:]) + self.newline]

    @property
    def newline(self) -> bytes:
        """The end of the first line."""
        first = self.texts[0] if self.texts else b"\n"
        return first[len(first.rstrip(b"\r\n")) :] or b"\n"

    def margin(self, stmt: ast.stmt) -> bytes:
        """The white space that the row of ``stmt`` starts with."""
        return margin_of(self.texts[stmt.lineno - 1])

    def is_first(self, stmt: ast.stmt) -> bool:
        """Whether nothing stands before ``stmt`` on its line."""
        row = first_row(stmt)
        broken = row > 0 and self.texts[row - 1].rstrip(b"\r\n").endswith(b"\\")
        return not self.texts[row][: stmt.col_offset].strip() and not broken

    def is_empty(self, row: int) -> bool:
        """Whether a row holds a comment or nothing."""
        return self.texts[row].lstrip()[:1] in (b"", b"#")

    def last_row(self, stmt: ast.stmt) -> int:
        """The last row of ``stmt``."""
        last = end = last_line(stmt) - 1
        inner = self._inner_margin(stmt)
        if inner is not None:
            for row in range(end + 1, len(self.texts)):
                if not self.is_empty(row):
                    break
                if self.texts[row].startswith(inner):
                    last = row
        return last

    def _inner_margin(self, stmt: ast.stmt) -> bytes | None:
        """The indentation of the block that ``stmt`` ends with, None where it has none."""
        if isinstance(stmt, ast.Match):
            return margin_of(self.texts[stmt.cases[-1].pattern.lineno - 1])
        block = max(blocks(stmt), key=lambda block: position(block[0]), default=[])
        if not block or not self.is_first(block[0]):
            return None
        return self._inner_margin(block[0]) if is_elif(block[0], stmt) else self.margin(block[0])

    def head_row(self, block: list[ast.stmt]) -> int:
        """The row on which the line ends that opens a block."""
        row = first_row(block[0]) - 1
        while self.is_empty(row):
            row -= 1
        return row


def first_row(stmt: ast.stmt) -> int:
    """The row on which ``stmt`` starts, its decorators included."""
    decorators: list[ast.expr] = getattr(stmt, "decorator_list", [])
    return min([stmt.lineno, *(node.lineno for node in decorators)]) - 1


def last_line(node: ast.stmt | ast.expr) -> int:
    """The 1-based line that ``node`` ends on."""
    assert node.end_lineno is not None
    return node.end_lineno


def blocks(stmt: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The blocks of a compound statement that are not empty."""
    for part in (stmt, *getattr(stmt, "handlers", ()), *getattr(stmt, "cases", ())):
        yield from (block for name in BLOCKS if (block := getattr(part, name, None)))


def is_elif(stmt: ast.stmt, parent: ast.AST) -> bool:
    """Whether ``stmt`` is spelled as the ``elif`` of its parent."""
    return (
        isinstance(stmt, ast.If)
        and isinstance(parent, ast.If)
        and parent.orelse == [stmt]
        and stmt.col_offset == parent.col_offset
    )


def shifted(text: bytes, old: bytes, new: bytes) -> bytes:
    """``text`` with another margin: rows inside strings and behind a backslash stay."""
    rows = text.splitlines(keepends=True)
    kept = continued(text) if any(mark in text for mark in QUOTES_OR_BREAKS) else set()
    white = (number for number, row in enumerate(rows) if not row.strip())
    kept |= {number for number in white if is_loose(rows, number)}
    return b"".join(
        new + row[len(old) :] if row.startswith(old) and number not in kept else row
        for number, row in enumerate(rows)
    )


def is_loose(rows: list[bytes], number: int) -> bool:
    """Whether a row of white space alone is shorter than the margins around it."""
    white = rows[number].rstrip(b"\r\n")
    above = next((row for row in reversed(rows[:number]) if row.strip()), b"")
    below = next((row for row in rows[number:] if row.strip()), above)
    return not white or not any(white.startswith(margin_of(row)) for row in (above, below))


def margin_of(row: bytes) -> bytes:
    """The white space that a row starts with."""
    return row[: len(row) - len(row.lstrip())]


def continued(text: bytes) -> set[int]:
    """Rows that start inside a string or behind a backslash; ``text`` is whole statements."""
    ends = open_rows(text.decode())
    return {row for row in range(1, max(ends, default=0)) if row not in ends}


def groups(body: Sequence[ast.stmt]) -> list[list[ast.stmt]]:
    """Statements by the lines that they stand on: ``a; b`` together."""
    found: list[list[ast.stmt]] = []
    for stmt in body:
        if found and first_row(stmt) == last_line(found[-1][-1]) - 1:
            found[-1].append(stmt)
        else:
            found.append([stmt])
    return found
