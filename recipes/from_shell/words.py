"""The words of a shell file and their parts, from the nodes of tree-sitter-bash."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import attrs

from .nodes import Arithmetic, Expression, Operation, Parameter, Part, RawWord, Text, Unknown

if TYPE_CHECKING:
    from tree_sitter import Node

NO_WORDS = ("comment", "variable_assignment", "subshell")
TEXTS = ("word", "string_content", "number", "regex", "extglob_pattern", "brace_expression")
"""Nodes within a word that are text."""
NAMES = ("variable_name", "special_variable_name")
DEFAULTING = (":-", "-", ":=", "=", ":+", "+", ":?", "?")
ARITHMETIC = ("+", "-", "*", "/", "%")
LEADING = re.compile(r"(?:\\?\s)*")
"""Of an expansion or a string within quotes: the grammar has it begin with what is before it."""
CONTINUED = re.compile(rb"(?:\\\n)*")
ESCAPE = re.compile(r"\\(.)", re.DOTALL)
ESCAPE_IN_QUOTES = re.compile(r"\\([$`\"\\\n])")
CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
CONTROLS |= {"e": "\x1b", "\\": "\\", "'": "'", '"': '"', "?": "?"}
"""What stands behind a backslash in ``$'…'``."""


def line_of(node: Node) -> int:
    """Tell the line that a node begins in."""
    return node.start_point.row + 1


def text_of(node: Node) -> str:
    """Read a node's text as it stands in the file."""
    return (node.text or b"").decode()


def words_of(parent: Node, nodes: Iterable[Node]) -> tuple[RawWord, ...]:
    """Read the words among the nodes, which lie in `parent`."""
    words: list[RawWord] = []
    content, first, end = parent.text or b"", parent.start_byte, -1
    for node in nodes:
        if node.type in NO_WORDS or node.type.endswith("_redirect"):
            continue
        parts = tuple(parts_of(node))
        between = content[end - first : node.start_byte - first]
        # The grammar parts a word that a backslash continues in the next line.
        if words and CONTINUED.fullmatch(between):
            words[-1] = attrs.evolve(words[-1], parts=(*words[-1].parts, *parts))
        elif parts:
            words.append(RawWord(line_of(node), parts))
        end = node.end_byte
    return tuple(words)


def parts_of(node: Node, quoted: bool = False) -> Iterator[Part]:
    """Read what a word, or a part of it, is made of."""
    kind, text = node.type, _without_blanks(node)
    if kind == "string":
        yield Text("", quoted=True)  # also where nothing is between: "" is a word
        start = len(text_of(node)) - len(text) + 1
        end = node.end_byte - node.start_byte - 1
        yield from _between(node, node.children[1:-1], start, end, quoted=True)
    elif kind == "raw_string" and not quoted:
        yield Text(text[1:-1], quoted=True)
    elif kind == "ansi_c_string" and not quoted:
        yield Text(ESCAPE.sub(lambda one: CONTROLS.get(one[1], one[0]), text[2:-1]), quoted=True)
    elif kind == "simple_expansion":
        yield from _simple(text[1:], quoted)
    elif kind == "expansion":
        yield _expansion(node, quoted)
    elif kind in ("command_substitution", "process_substitution"):
        yield _substitution(text, quoted)
    elif kind == "arithmetic_expansion":
        yield _arithmetic(node, quoted)
    elif node.children:
        yield from _between(node, node.children, 0, len(node.text or b""), quoted=quoted)
    elif text:
        yield Text(_unescape(text, quoted), quoted)


def _between(
    parent: Node, nodes: Iterable[Node], start: int, end: int, *, quoted: bool
) -> Iterator[Part]:
    """The expansions and strings among the nodes, and the text of `parent` between them.

    The text is that of the file: the grammar has no nodes for all blanks.
    """
    content, first = parent.text or b"", parent.start_byte
    for node in nodes:
        if node.type in TEXTS:
            continue
        blanks = len(text_of(node)) - len(_without_blanks(node))
        if before := content[start : node.start_byte - first + blanks]:
            yield Text(_unescape(before.decode(), quoted), quoted)
        yield from parts_of(node, quoted)
        start = node.end_byte - first
    if rest := content[start:end]:
        yield Text(_unescape(rest.decode(), quoted), quoted)


def _simple(name: str, quoted: bool) -> Iterator[Part]:
    if name[0].isdigit() and len(name) > 1:  # $10 is ${1}0
        yield Parameter(name[0], f"${name[0]}", quoted)
        yield Text(name[1:], quoted)
    else:
        yield Parameter(name, f"${name}", quoted)


def _expansion(node: Node, quoted: bool) -> Part:
    """``${…}``, which is unknown where it does more than give a default or list."""
    inside = _without_blanks(node)[2:-1]
    spelling = f"${inside}" if inside.isidentifier() or len(inside) == 1 else f"${{{inside}}}"
    if len(inside) == 1:  # of ${#} the grammar makes an operator
        return Parameter(inside, spelling, quoted)
    if not inside:  # which bash takes for a mistake, where it is run
        return Unknown(spelling, quoted)
    name, *rest = node.children[1:-1]
    text = text_of(name)
    if name.type == "subscript" and not rest:
        array, index = map(text_of, name.named_children[:2])
        if index in ("@", "*"):
            return Parameter(array, spelling, quoted, f"[{index}]")
    elif name.type in NAMES and not rest:
        return Parameter(text, spelling, quoted)
    elif name.type in NAMES:
        operator = text_of(rest[0])
        behind = rest[0].end_byte - node.start_byte, node.end_byte - node.start_byte - 1
        slices = text in ("@", "*") and operator == ":" and len(rest) == 2
        if slices or operator in DEFAULTING:
            operand = tuple(_between(node, rest[1:], *behind, quoted=quoted))
            return Parameter(text, spelling, quoted, operator, operand)
    return Unknown(spelling, quoted)


def _substitution(text: str, quoted: bool) -> Unknown:
    """The output of a command, spelt in one way of the two."""
    if text.startswith("`"):
        return Unknown(f"$({text[1:-1]})", quoted, text[1:-1])
    command = text[2:-1].strip()
    return Unknown(f"$({command})" if text[0] == "$" else text, quoted, command)


def _arithmetic(node: Node, quoted: bool) -> Part:
    opening, *inner, closing = node.children
    inside = _without_blanks(node)[len(opening.type) : -len(closing.type)].strip()
    # More than one, where commas are between.
    expression = _expression(inner[0]) if len(inner) == 1 else None
    return Arithmetic(f"$(({inside}))", quoted, expression)


def _expression(node: Node) -> Expression | None:
    text = text_of(node)
    if node.type == "parenthesized_expression" and len(node.named_children) == 1:
        return _expression(node.named_children[0])
    if node.type == "binary_expression" and node.children[1].type in ARITHMETIC:
        left, right = _expression(node.children[0]), _expression(node.children[2])
        return left and right and Operation(node.children[1].type, left, right)
    if node.type == "number":
        return Text(text)
    if node.type in ("variable_name", "word") and text.isidentifier():
        return Parameter(text, f"${text}")
    if node.type in ("simple_expansion", "expansion", "string"):
        parts = [part for part in parts_of(node) if part != Text("", quoted=True)]
        if len(parts) == 1 and isinstance(parts[0], Text | Parameter):
            return parts[0]
    return None


def _without_blanks(node: Node) -> str:
    text = text_of(node)
    return text if node.type in TEXTS else LEADING.sub("", text, count=1)


def _unescape(text: str, quoted: bool) -> str:
    pattern = ESCAPE_IN_QUOTES if quoted else ESCAPE
    return pattern.sub(lambda match: match[1].replace("\n", ""), text)
