"""Comments of a file, told from strings that look like one, and where another one may stand."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Iterator

from ...record import changed, record

# What comes before a statement on its line, or stands alone there.
BETWEEN = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


@record
class Comment:
    """A comment: its place, and the lines that it is a comment on.

    At the end of a statement (or of the head of a compound one) that is all of its lines.
    """

    row: int  # 1-based
    column: int  # 0-based, in characters
    text: str
    lines: range


def comments(text: str) -> list[Comment]:
    """All comments, in order; ``text`` parses."""
    found: list[Comment] = []
    start = 0
    for token in tokens(text):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            found.append(Comment(row, column, token.string, range(row, row + 1)))
        elif token.type == tokenize.NEWLINE:
            row = token.start[0]
            if found and found[-1].row == row:
                found[-1] = changed(found[-1], lines=range(start or row, row + 1))
            start = 0
        if not start and token.type not in BETWEEN and token.type != tokenize.NEWLINE:
            start = token.start[0]
    return found


def open_rows(text: str) -> set[int]:
    """Rows at whose end a comment may stand: not inside a string, not before a backslash's break.

    ``text`` parses.
    """
    ends = (tokenize.NEWLINE, tokenize.NL)
    return {token.start[0] for token in tokens(text) if token.type in ends}


def tokens(text: str) -> Iterator[tokenize.TokenInfo]:
    """Tokens up to what only ``ast`` understands, rows counted as it does."""
    try:
        yield from tokenize.generate_tokens(io.StringIO(text, newline=None).readline)
    except (tokenize.TokenError, SyntaxError):
        return
