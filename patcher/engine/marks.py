"""Mark lines whose findings are left with ``# ddpfix: CODE``, so that one grep finds them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from ..source.comments import comments, open_rows

MARK = re.compile(r"(?:  )?# ddpfix: (DF[0-9]+(?:, DF[0-9]+)*)")


def mark_lines(text: str, codes_at: Mapping[int, Collection[str]], *, others_go: bool) -> str:
    """``text`` with marks for the codes of each 1-based line; ``others_go``: remove other marks.

    A line that cannot end in a comment is marked at the next one that can. Marking again changes
    nothing, and removing a mark restores the line.
    """
    wanted: dict[int, set[str]] = {}
    if codes_at:
        rows = sorted(open_rows(text))
        for line, codes in codes_at.items():
            row = next((row for row in rows if row >= line), None)
            if row is not None:
                wanted.setdefault(row, set()).update(codes)
    old = {}
    if "# ddpfix: " in text:
        for comment in comments(text):
            if match := MARK.search(comment.text):
                old[comment.row] = comment.column, set(match[1].split(", "))
                if not others_go:
                    wanted.setdefault(comment.row, set()).update(old[comment.row][1])
    lines = re.findall(r".*?(?:\r\n|\r|\n|\Z)", text, re.DOTALL)
    for row in wanted.keys() | old.keys():
        column, before = old.get(row, (0, set()))
        codes = wanted.get(row, set())
        if codes == before:
            continue
        body = lines[row - 1].rstrip("\r\n")
        end = lines[row - 1][len(body) :]
        if before:
            start = max(column - 2, 0)  # the mark's own two blanks stand before the comment
            body = body[:start] + MARK.sub("", body[start:], count=1)
        if codes:
            body += f"  # ddpfix: {', '.join(sorted(codes))}"
        lines[row - 1] = body + end
    return "".join(lines)
