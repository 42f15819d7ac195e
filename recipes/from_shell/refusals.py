"""What keeps a shell file from being read: said in one line that names where, and the way out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise, starmap
from typing import TYPE_CHECKING

from ...errors import InputError
from .repairs import DEEPEST, WAY_OUT, in_quotes, splits_value, walk
from .words import line_of, text_of

if TYPE_CHECKING:
    from tree_sitter import Node

LITERAL = (
    "comment",
    "string_content",
    "raw_string",
    "ansi_c_string",
    "heredoc_body",
    "heredoc_content",
    "heredoc_end",
)
"""Leaves in which any character is itself."""
UNSEEN = re.compile(r"[^\S \t\n]|[\x00-\x08\x0e-\x1f\x7f-\x9f\xad\u200b-\u200f\u2060\ufeff]")
"""Characters that look like a blank or like nothing, and are part of a word for bash."""
CLOSING = {"(": ")", "{": "}", "[": "]", "[[": "]]", "((": "))", '"': '"', "`": "`"}
CLOSING |= {"$(": ")", "${": "}", "$((": "))", "$[": "]", "<(": ")", ">(": ")"}
CLOSING |= {"if": "fi", "case": "esac", "do": "done", "<<": "heredoc_end", "<<-": "heredoc_end"}
QUOTED = 40
"""As many characters of a line are quoted in a complaint."""


def refuse_nul(text: str, source: str) -> None:
    """Refuse a file with a NUL byte, behind which bash and others read on differently."""
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InputError(f"{source}:{line}: a NUL byte, so this is no text: pass a shell file")


def refuse_no_bash(root: Node, content: bytes, text: str, source: str) -> None:
    """Refuse the first node, in the order of the file, that cannot be read as bash reads it.

    `content` is what was parsed, `text` what the file says.
    """
    end = 0
    for node, ancestors in walk(root):
        if _is_wrong(node, ancestors):
            raise InputError(f"{source}:{_complaint(node, text)}")
        if len(ancestors) > DEEPEST:
            what = f"nested more than {DEEPEST} deep"
            raise InputError(f"{source}:{line_of(node)}: {what}: {WAY_OUT}")
        if node.child_count == 0:
            if unseen := _unseen(content, end, node, ancestors):
                raise InputError(f"{source}:{unseen}")
            end = max(end, node.end_byte)


def _is_wrong(node: Node, ancestors: Sequence[Node]) -> bool:
    if node.is_missing:
        # A command that only assigns or redirects has no name, which the grammar misses.
        unnamed = len(ancestors) > 1 and ancestors[-1].type == "command_name"
        return not (unnamed and ancestors[-2].child_count > 1)
    if node.type == "subshell" and ancestors[-1].type == "command":
        return not text_of(ancestors[-1]).startswith("time")
    return node.is_error or any(starmap(splits_value, pairwise(node.children)))


def _complaint(node: Node, text: str) -> str:
    opening = _unclosed(node)
    if opening is not None:
        line, sign = opening
        return f"{line}: this {sign} is never closed"
    shown = text.split("\n")[line_of(node) - 1].strip()[:QUOTED]
    return f"{line_of(node)}: cannot be read: {shown!r}: mend it, or {WAY_OUT}"


def _unclosed(node: Node) -> tuple[int, str] | None:
    """The line and text of what is opened and not closed, if that is what is wrong."""
    if node.is_missing:
        first = node.parent.children[0] if node.parent else node
        return _opening(first) if CLOSING.get(first.type) == node.type else None
    openings: list[Node] = []
    for child in node.children:
        if child.is_error and not child.children:
            quote = text_of(child).lstrip("$").startswith("'")
            return (line_of(child), "'") if quote else None
        if openings and child.type == CLOSING[openings[-1].type]:
            openings.pop()
        elif child.type in CLOSING:
            openings.append(child)
    return _opening(openings[-1]) if openings else None


def _opening(node: Node) -> tuple[int, str]:
    text = node.type
    if text.startswith("<<"):
        text += text_of(node.next_sibling) if node.next_sibling else ""
    elif text[0] in "$<>(":
        text = text.lstrip("$<>")[0]
    return line_of(node), text


def _unseen(content: bytes, end: int, leaf: Node, ancestors: Sequence[Node]) -> str:
    """What is wrong with a character of a leaf, or of what is between it and the one before."""
    stop = leaf.start_byte if leaf.type in LITERAL else leaf.end_byte
    text = content[end:stop].decode()
    character = UNSEEN.search(text)
    if not character or in_quotes(ancestors, end):
        return ""
    line = content.count(b"\n", 0, end) + text.count("\n", 0, character.start()) + 1
    what = f"the character U+{ord(character[0]):04X}, which bash takes for part of a word"
    return f"{line}: {what}: put a blank in its place, or quote it"
