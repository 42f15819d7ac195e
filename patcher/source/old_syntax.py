"""Arguments named by a word that became a keyword of Python: ``tensor.cuda(async=True)``.

Python 3.7 made ``async`` a keyword; torch calls the argument ``non_blocking`` since 0.4. Scripts of
that time cannot be parsed, and so nothing else in them could be found.
"""

from __future__ import annotations

import io
import re
import tokenize
from itertools import pairwise

WORD, NEW = "async", "non_blocking"
MAY_HOLD = re.compile(r"\basync\s*=")


def modernized(text: str) -> str:
    """The text with ``non_blocking=`` for ``async=`` in calls; itself where there is none."""
    if not MAY_HOLD.search(text):
        return text
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return text
    lines = text.splitlines(keepends=True)
    for token, following in reversed([*pairwise(tokens)]):
        if token.string == WORD and following.string == "=" and token.type == tokenize.NAME:
            row, column = token.start
            line = lines[row - 1]
            lines[row - 1] = line[:column] + NEW + line[column + len(WORD) :]
    return "".join(lines)
