"""Find the lines of a file that libcst has to parse for the edits, instead of the whole file.

A region is a run of neighbouring statements that share no line with other statements.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence, Set

from ...record import record
from ..source.module import Module


@record
class Region:
    """Statements ``low`` to ``high`` of a block, on the (1-based) lines ``first`` to ``last``."""

    block: list[ast.stmt]
    low: int
    high: int
    first: int
    last: int

    @property
    def body(self) -> list[ast.stmt]:
        """The region's statements."""
        return self.block[self.low : self.high + 1]


def find_regions(
    module: Module, edited: Iterable[ast.stmt], removed: Set[ast.stmt]
) -> list[Region]:
    """The smallest regions that hold all ``edited`` statements, in the order of their lines.

    The comments above a ``removed`` statement go with it. Where they start is known only with the
    statement before it, or without one, the compound statement around it: so those are included.
    """
    merged: list[Region] = []
    regions = [_around(module, stmt, removed) for stmt in edited]
    for region in sorted(regions, key=lambda region: (region.first, -region.last)):
        if not merged or merged[-1].last < region.first:
            merged.append(region)
        elif merged[-1].last < region.last:  # overlapping regions are of the same block
            low, first = merged[-1].low, merged[-1].first
            merged[-1] = Region(region.block, low, region.high, first, region.last)
    return merged


def _around(module: Module, stmt: ast.stmt, removed: Set[ast.stmt]) -> Region:
    """The smallest region for the edit of one statement."""
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
        last = end_of_comments(lines, last)  # they may belong to the block
    return Region(block, low, high, first_line(block[low]), last)


def has_block(stmt: ast.stmt) -> bool:
    """Whether a statement is compound."""
    return hasattr(stmt, "body") or isinstance(stmt, ast.Match)


def first_line(stmt: ast.stmt) -> int:
    """The (1-based) line of a statement or its first decorator."""
    decorators: list[ast.expr] = getattr(stmt, "decorator_list", [])
    return min([stmt.lineno, *(decorator.lineno for decorator in decorators)])


def has_own_line(lines: Sequence[bytes], stmt: ast.stmt) -> bool:
    """Whether only white space comes before a statement on its line, and no backslash joins it.

    An ``elif`` has none: it belongs to the ``if`` above.
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
    """Whether a backslash joins a (1-based) line to the one above."""
    return number > 1 and lines[number - 2].rstrip(b"\r\n").endswith(b"\\")


def end_of_comments(lines: Sequence[bytes], last: int) -> int:
    """The last of the blank lines and comments directly after line ``last``, or ``last``."""
    while last < len(lines) and (not (text := lines[last].strip()) or text.startswith(b"#")):
        last += 1
    return last


def indentation(lines: Sequence[bytes], tree: ast.Module) -> str:
    """The indentation of the file's first block, as libcst detects it; by default four spaces."""
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
    """The line ending of the first line."""
    first = lines[0] if lines else b""
    return first[len(first.rstrip(b"\r\n")) :].decode() or "\n"
