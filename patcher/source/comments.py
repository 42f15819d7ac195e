"""The comments of a file, and the lines at whose end a new one can be added."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Iterator

from ...record import record, replace

# Tokens that belong to no statement.
OUTSIDE_STATEMENTS = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


@record
class Comment:
    """A comment: its place, and the lines that it comments on.

    A comment at the end of a statement (or of a compound statement's head) is about all its lines.
    """

    row: int  # 1-based
    column: int  # 0-based, in characters
    text: str
    lines: range


def comments(text: str) -> list[Comment]:
    """All comments, in order; ``text`` must be valid Python."""
    found: list[Comment] = []
    start = 0  # first row of the current statement, 0 between statements
    for token in tokens(text):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            found.append(Comment(row, column, token.string, range(row, row + 1)))
        elif token.type == tokenize.NEWLINE:
            row = token.start[0]
            if found and found[-1].row == row:
                found[-1] = replace(found[-1], lines=range(start or row, row + 1))
            start = 0
        if not start and token.type not in OUTSIDE_STATEMENTS and token.type != tokenize.NEWLINE:
            start = token.start[0]
    return found


def open_rows(text: str) -> set[int]:
    """Rows at whose end a comment may be added: not in a string, not after a backslash.

    ``text`` must be valid Python.
    """
    ends = (tokenize.NEWLINE, tokenize.NL)
    return {token.start[0] for token in tokens(text) if token.type in ends}


def tokens(text: str) -> Iterator[tokenize.TokenInfo]:
    """The tokens up to the first that tokenize rejects though ast accepts it; rows as in ast."""
    try:
        yield from tokenize.generate_tokens(io.StringIO(text, newline=None).readline)
    except (tokenize.TokenError, SyntaxError):
        return
