"""Which lines of a file libcst has to parse for an edit: whole statements, and no more of them.

To parse and write a whole file takes most of the time of a patch, and edits are about a tenth of
it. A piece is a run of neighbouring statements that have their lines to themselves.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence, Set

from ...record import record
from ..source.module import Module


@record
class Region:
    """Statements ``low`` to ``high`` of a block, in the lines ``first`` to ``last``, from 1."""

    block: list[ast.stmt]
    low: int
    high: int
    first: int
    last: int

    @property
    def body(self) -> list[ast.stmt]:
        """Its statements."""
        return self.block[self.low : self.high + 1]


def pieces(module: Module, edited: Iterable[ast.stmt], removed: Set[ast.stmt]) -> list[Region]:
    """The smallest pieces that hold all ``edited`` statements, in the order of their lines.

    What a statement that is ``removed`` takes with it, the comments above, is only known when the
    statement before it is there, too; where there is none, the block's own statement is.
    """
    found: list[Region] = []
    every = [_around(module, stmt, removed) for stmt in edited]
    for piece in sorted(every, key=lambda piece: (piece.first, -piece.last)):
        if not found or found[-1].last < piece.first:
            found.append(piece)
        elif found[-1].last < piece.last:  # both are runs of one block
            low, first = found[-1].low, found[-1].first
            found[-1] = Region(piece.block, low, piece.high, first, piece.last)
    return found


def _around(module: Module, stmt: ast.stmt, removed: Set[ast.stmt]) -> Region:
    lines, block = module.lines, module.body(stmt)
    low = high = block.index(stmt)
    while low >= 0 and (block[low] in removed or not has_own_line(lines, block[low])):
        low -= 1
    if low < 0:
        above = next((up for up in module.ancestors(stmt) if isinstance(up, ast.stmt)), None)
        if above is None:
            return Region(module.tree.body, 0, len(module.tree.body) - 1, 1, len(lines))
        return _around(module, above, removed)
    while block[high + 1 :] and not has_own_line(lines, block[high + 1]):
        high += 1
    last = block[high].end_lineno
    assert last is not None
    if has_block(block[high]):
        last = end_of_comments(lines, last)  # which may stand in its block
    return Region(block, low, high, first_line(block[low]), last)


def has_block(stmt: ast.stmt) -> bool:
    """Whether statements stand in the statement."""
    return hasattr(stmt, "body") or isinstance(stmt, ast.Match)


def first_line(stmt: ast.stmt) -> int:
    """The line, from 1, of the statement or its first decorator."""
    decorators: list[ast.expr] = getattr(stmt, "decorator_list", [])
    return min([stmt.lineno, *(decorator.lineno for decorator in decorators)])


def has_own_line(lines: Sequence[bytes], stmt: ast.stmt) -> bool:
    """Whether nothing but white space stands before the statement in its line, nor goes on in it.

    An ``elif`` belongs to the ``if`` above.
    """
    number = first_line(stmt)
    line = lines[number - 1]
    margin = line[: stmt.col_offset]
    if margin.strip(b" \t") or (isinstance(stmt, ast.If) and line.startswith(b"elif", len(margin))):
        return False
    if number < stmt.lineno and line[len(margin) : len(margin) + 1] != b"@":
        return False
    return not is_joined(lines, number)


def is_joined(lines: Sequence[bytes], number: int) -> bool:
    """Whether a backslash joins the line, from 1, to the one above."""
    return number > 1 and lines[number - 2].rstrip(b"\r\n").endswith(b"\\")


def end_of_comments(lines: Sequence[bytes], last: int) -> int:
    """The last of the lines right behind ``last`` that are blank or a comment; else ``last``."""
    while last < len(lines) and (not (text := lines[last].strip()) or text.startswith(b"#")):
        last += 1
    return last


def indentation(lines: Sequence[bytes], tree: ast.Module) -> str:
    """What the file's first block is indented by, as libcst sees it; four spaces where none is."""
    inner = (stmt for stmt in _statements(tree) if stmt.col_offset and has_own_line(lines, stmt))
    first = next(inner, None)
    return lines[first.lineno - 1][: first.col_offset].decode() if first else "    "


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """All statements below ``node`` in source order."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from _statements(child)


def newline(lines: Sequence[bytes]) -> str:
    """What the first line ends in."""
    first = lines[0] if lines else b""
    return first[len(first.rstrip(b"\r\n")) :].decode() or "\n"
