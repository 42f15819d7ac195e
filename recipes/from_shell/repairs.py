r"""Parses a shell file, with what the grammar is known to misread spelt so that it does not.

tree-sitter-bash takes some of bash's plainest lines for something else, and gives no sign of it.
Each is known by its nodes, gets another spelling of the same meaning, and is parsed again:

===================== ============================ ===============================================
a command goes on in  a=1 b=2<newline>python x.py  a semicolon at the end of the line; issues 228,
the next line                                      342 and 347
a variable is cut off $data/$lang/train.txt        braces: $data/${lang}/train.txt; issues 306, 315
its dollar sign
a word ends at a      'x'`hostname`, ` pwd`        $(…) for backquotes; issues 215 and 278
backquote
an escaped blank is   $data\ files                 quotes: $data' 'files
one as any other
a value ends at an    price="5"\$                  quotes: price="5"'$'
escaped character
===================== ============================ ===============================================

Source: https://github.com/tree-sitter/tree-sitter-bash/issues
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import attrs

from ...errors import InputError

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, Point

ON_ONE_LINE = (
    "command",
    "variable_assignment",
    "variable_assignments",
    "declaration_command",
    "unset_command",
    "negated_command",
    "redirected_statement",
    "file_redirect",
    "herestring_redirect",
)
"""Nodes between whose children bash has no newline."""
NAME = re.compile(rb"[A-Za-z_]\w*|[0-9@*#?!$-]")
BACKQUOTES = re.compile(rb"`((?:[^`\\]|\\.)*)`", re.DOTALL)
BLANK = re.compile(rb"\\([ \t])")
ESCAPED = re.compile(rb"\\([^'\n])")
NO_WORDS = ("comment", "_redirect")
QUOTING = ("string", "heredoc_body", "heredoc_redirect")
"""Nodes between whose children a backslash stands for itself."""
ESCAPE = re.compile(rb"\\([$`\\])")
ROUNDS = 20
"""Each repairs what the one before hid; people's files take one or two."""
SECONDS = 10
"""For all rounds: people's files take some thousandths of one."""
CHUNK = 4096
DEEPEST = 100
"""As many nodes may lie in each other: people write a dozen."""
WAY_OUT = "pass the lines that train as a file of their own"


@attrs.frozen(order=True)
class Repair:
    """Bytes of the file, and what stands for them."""

    start: int
    end: int
    text: bytes


def parse(content: bytes, parser: Parser, source: str) -> tuple[bytes, Node]:
    """Parse a shell file; with the text that was parsed, whose lines are those of the file.

    Raises:
        InputError: it takes too long, or so many repairs that what it means is not sure.

    """
    deadline = time.monotonic() + SECONDS
    for _ in range(ROUNDS):
        root = _root(content, parser, source, deadline)
        repairs = sorted(set(_repairs(root, content)))
        if not repairs:
            return content, root
        content = _apply(content, repairs)
    line = content.count(b"\n", 0, repairs[0].start) + 1
    raise InputError(f"{source}:{line}: too intricate to be read: write it more plainly")


def _root(content: bytes, parser: Parser, source: str, deadline: float) -> Node:
    """The first node of the file; the grammar tries out what a line may be, some for ever."""
    place = 0

    def read(offset: int, _: Point) -> bytes:
        return content[offset : offset + CHUNK]

    def is_late(offset: int, _: bool) -> bool:
        nonlocal place
        place = offset
        return time.monotonic() > deadline

    try:
        parser.parse(read, progress_callback=is_late)
        return parser.parse(content).root_node  # which cannot be given up, but has quick texts
    except ValueError:  # of a parse that is given up
        parser.reset()
        line = content.count(b"\n", 0, place) + 1
        raise InputError(
            f"{source}:{line}: not parsed within {SECONDS} seconds: {WAY_OUT}"
        ) from None


def _apply(content: bytes, repairs: list[Repair]) -> bytes:
    parts, end = list[bytes](), 0
    for repair in repairs:
        if repair.start >= end:  # one within another has its turn in the next round
            parts += content[end : repair.start], repair.text
            end = repair.end
    return b"".join([*parts, content[end:]])


def walk(root: Node) -> Iterator[tuple[Node, list[Node]]]:
    """Go through all nodes in the order of the file, each with those that it lies in.

    The list is the same all the time, and has no lists of the grammar, of which there is one in
    another for each &&. A node that is asked for its parent looks for it from the root.
    """
    cursor = root.walk()
    ancestors: list[Node] = []
    path: list[Node] = []
    while True:
        node = cursor.node
        assert node is not None
        yield node, ancestors
        if cursor.goto_first_child():
            path.append(node)
            if node.type != "list":
                ancestors.append(node)
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return
            if path.pop().type != "list":
                ancestors.pop()


def in_quotes(ancestors: Sequence[Node], end: int) -> bool:
    """Tell whether a place lies in quotes, by the nodes around and where the leaf before ends."""
    return any(node.type in QUOTING and node.start_byte < end for node in ancestors)


def _repairs(root: Node, content: bytes) -> Iterator[Repair]:
    end = 0
    for node, ancestors in walk(root):
        if len(ancestors) > DEEPEST:
            return  # it is refused
        if node.child_count == 0:
            blank = BLANK.search(content, end, node.start_byte)
            if blank and not in_quotes(ancestors, end):
                yield from _blanks(content, end, node.start_byte)
            end = max(end, node.end_byte)
        if node.type in ON_ONE_LINE:
            yield from _ends(node, content)
        elif node.type == "`":
            yield from _parentheses(node, content)
        elif node.type == "$" and ancestors[-1].type != "simple_expansion":
            yield from _braces(node, content)
    yield from _blanks(content, end, len(content))


def _blanks(content: bytes, start: int, end: int) -> Iterator[Repair]:
    for blank in BLANK.finditer(content, start, end):
        yield Repair(blank.start(), blank.end(), b"'" + blank[1] + b"'")


def _ends(node: Node, content: bytes) -> Iterator[Repair]:
    """A semicolon behind the words that some of the next line follow.

    And quotes for an escaped character, with which a value goes on.
    """
    before, comment, named = node, False, False
    end = node.start_byte
    for child in node.children:
        if child.type == "comment":
            comment = True  # which the newline behind it ends, even after a backslash
            continue
        if child.type == "heredoc_redirect" or child.is_missing:
            return
        escape = ESCAPED.match(content, end)
        if comment or b"\n" in content[end : child.start_byte].replace(b"\\\n", b""):
            yield Repair(end, end, b";")
            if named:  # what follows may begin with a keyword, as else
                return
        elif escape and splits_value(before, child):
            yield Repair(end, escape.end(), b"'" + escape[1] + b"'")
        before, comment, end = child, False, child.end_byte
        named = named or child.type not in ("variable_assignment", "file_redirect")


def splits_value(before: Node, node: Node) -> bool:
    """Tell a part of a value that the grammar takes for a word behind it."""
    if before.type != "variable_assignment" or before.end_byte < node.start_byte:
        return False
    return node.type == "$" or (node.is_named and not node.type.endswith(NO_WORDS))


def _braces(dollar: Node, content: bytes) -> Iterator[Repair]:
    if name := NAME.match(content, dollar.end_byte):
        yield Repair(dollar.start_byte, name.end(), b"${" + name[0] + b"}")


def _parentheses(quote: Node, content: bytes) -> Iterator[Repair]:
    """``$(…)`` for what bash has between two backquotes, if it holds no comment."""
    command = BACKQUOTES.match(content, quote.start_byte)
    if command and b"#" not in command[1]:
        inside = ESCAPE.sub(rb"\1", command[1]) or b":"
        yield Repair(command.start(), command.end(), b"$(" + inside + b")")
