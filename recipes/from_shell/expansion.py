"""What the words of a shell file become: variables, arguments, defaults and arithmetic.

What only a run would tell (a command's output, a variable from elsewhere, an argument of the file)
stays in a word as it is written, and is listed. Source: POSIX.1-2017, Shell Command Language, 2.6
Word Expansions; bash's manual for arrays and ``+=``.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath

import attrs

from .syntax import Piece, Raw, pieces_of

ASSIGNED = re.compile(r"(\w+)(\+?)=")
DEFAULTED = re.compile(r"(\w+|[@*])(:?[-=+?])(.*)", re.DOTALL)
ELEMENTS = re.compile(r"(\w+)\[[@*]\]")
ARGUMENTS = re.compile(r"[@*](?::(\d+))?")
OWN_FOLDER = re.compile(r"(?=.*(?:\$\{?0|BASH_SOURCE))[^|;]*\b(?:dirname|realpath|readlink)\b")
OPERATIONS: Mapping[type[ast.AST], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,  # of the shell, whose numbers are whole
    ast.Mod: operator.mod,
}


@attrs.frozen
class Word:
    """A word after expansion.

    `missing` lists what in it only a run would tell, as it is written; `doubts` are sentences on
    what was taken where a condition or a loop decides.
    """

    text: str
    line: int = 0
    missing: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    def __add__(self, other: Word) -> Word:
        return Word(
            self.text + other.text,
            self.line,
            _union(self.missing, other.missing),
            _union(self.doubts, other.doubts),
        )


@attrs.frozen
class Value:
    """What a variable holds: one word, or an array's; `branch` names the conditions it is under."""

    words: tuple[Word, ...]
    line: int
    branch: tuple[int, ...] = ()


class Values:
    """The variables and arguments at one point of a shell file."""

    def __init__(self, source: str, environ: Mapping[str, str]) -> None:
        self._source, self._environ = source, environ
        self.variables: dict[str, Value] = {}
        self.exported: set[str] = set()
        self.arguments: list[Word] = []
        self.folder = PurePosixPath()
        self.branch: tuple[int, ...] = ()

    def assign(self, raw: Raw) -> None:
        """Carry ``name=value``, ``name+=value`` or ``name=(values)`` out."""
        name, words = self.assigned(raw)
        self.variables[name] = Value(tuple(words), raw.line, self.branch)

    def assigned(self, raw: Raw) -> tuple[str, list[Word]]:
        """The name and the words of an assignment."""
        match = ASSIGNED.match(raw.pieces[0].text)
        assert match
        name, adds = match[1], bool(match[2])
        before = list(self.variables[name].words) if adds and name in self.variables else []
        if raw.array is not None:
            return name, [*before, *(word for one in raw.array for word in self.expanded(one))]
        first = attrs.evolve(raw.pieces[0], text=raw.pieces[0].text[match.end() :])
        value = self._joined((first, *raw.pieces[1:]), raw.line)
        return name, [before[0] + value] if before else [value]

    def expanded(self, raw: Raw) -> list[Word]:
        """The words that one becomes: none, or several where a list or blanks are expanded."""
        fields: list[Word] = []
        for place, piece in enumerate(raw.pieces):
            parts = self._parts(piece, raw.line)
            if place and fields and parts:  # what one piece ends with goes on in the next
                fields[-1] += parts.pop(0)
            fields += parts
        quoted = any(piece.quoted and piece.kind == "text" for piece in raw.pieces)
        lists = any(_list(piece) for piece in raw.pieces)  # of which "$@" may be no word at all
        return [word for word in fields if word.text or (quoted and not lists)]

    def unset(self, raw: Raw) -> bool:
        """Whether the word is a variable alone that nothing sets."""
        pieces = [piece for piece in raw.pieces if piece.text]
        return (
            len(pieces) == 1
            and pieces[0].kind == "variable"
            and pieces[0].text.isidentifier()
            and self._looked_up(pieces[0].text, raw.line) is None
        )

    def _parts(self, piece: Piece, line: int) -> list[Word]:
        if piece.kind == "text":
            return [Word(piece.text, line)]
        several = self._list(piece, line)
        if several is not None:
            if piece.quoted and not piece.text.startswith("*"):
                return several
            whole = _spaced(several, line)
            return [whole] if piece.quoted else _split(whole)
        word = self._value(piece, line)
        return [word] if piece.quoted or word.missing else _split(word)

    def _list(self, piece: Piece, line: int) -> list[Word] | None:
        """The elements of an array, or the arguments, where the piece is that."""
        if piece.kind != "variable":
            return None
        elements, mine = ELEMENTS.fullmatch(piece.text), ARGUMENTS.fullmatch(piece.text)
        if elements and elements[1] in self.variables:
            return [_at(word, line) for word in self.variables[elements[1]].words]
        return (
            [_at(word, line) for word in self.arguments[max(0, int(mine[1] or 1) - 1) :]]
            if mine
            else None
        )

    def _joined(self, pieces: Sequence[Piece], line: int) -> Word:
        """One word, as on the right of an assignment, where nothing is split."""
        whole = Word("", line)
        for piece in pieces:
            several = self._list(piece, line)
            if several is not None:
                whole += _spaced(several, line)
            else:
                whole += Word(piece.text) if piece.kind == "text" else self._value(piece, line)
        return whole

    def _value(self, piece: Piece, line: int) -> Word:
        if piece.kind == "command":
            here = piece.text == "pwd" or OWN_FOLDER.match(piece.text)
            return Word(".", line) if here else _missing(f"$({piece.text})", line)
        if piece.kind == "arithmetic":
            return self._computed(piece.text, line)
        match = DEFAULTED.fullmatch(piece.text)
        name, choice, other = match.groups() if match else (piece.text, "", "")
        word = self._looked_up(name, line)
        absent = word is None or (choice.startswith(":") and not word.text)
        if (choice.endswith(("-", "=")) and absent) or (choice.endswith("+") and not absent):
            return self._joined(pieces_of(other, self._source, line), line)
        if choice.endswith("+"):
            return Word("", line)
        bare = piece.text.isidentifier() or len(piece.text) == 1
        return word or _missing(f"${piece.text}" if bare else f"${{{piece.text}}}", line)

    def _looked_up(self, name: str, line: int) -> Word | None:
        if name in self.variables:
            value = self.variables[name]
            whole = _spaced(value.words, line)
            if self.branch[: len(value.branch)] == value.branch:
                return whole
            doubt = f"{name} is {whole.text}, which line {value.line} sets under a condition"
            return whole + Word("", doubts=(doubt,))
        if name.isdigit() and 0 < int(name) <= len(self.arguments):
            return _at(self.arguments[int(name) - 1], line)
        if name == "PWD":
            return Word(str(self.folder), line)
        return Word(self._environ[name], line) if name in self._environ else None

    def _computed(self, text: str, line: int) -> Word:
        names = re.sub(r"\$?([A-Za-z_]\w*)", r"$\1", text)
        word = self._joined(pieces_of(names, self._source, line), line)
        number = None if word.missing else _number(word.text)
        if number is None:
            return _missing(f"$(({text}))", line)
        return attrs.evolve(word, text=str(number))


def is_assignment(raw: Raw) -> bool:
    """Whether the word sets a variable, where it stands before a command."""
    first = raw.pieces[0] if raw.pieces else None
    return bool(first and not first.quoted and first.kind == "text" and ASSIGNED.match(first.text))


def _list(piece: Piece) -> bool:
    names = (ELEMENTS, ARGUMENTS)
    return piece.kind == "variable" and any(name.fullmatch(piece.text) for name in names)


def _number(text: str) -> int | None:
    """An expression of whole numbers and + - * / %, or None for anything else."""
    try:
        return _result(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, KeyError, ZeroDivisionError):
        return None


def _result(node: ast.expr) -> int:
    if isinstance(node, ast.BinOp):
        return OPERATIONS[type(node.op)](_result(node.left), _result(node.right))
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    raise ValueError(node)


def _spaced(words: Sequence[Word], line: int) -> Word:
    whole = Word("", line)
    for place, word in enumerate(words):
        whole += Word(" ") + word if place else word
    return whole


def _split(word: Word) -> list[Word]:
    return [attrs.evolve(word, text=part) for part in word.text.split()]


def _missing(text: str, line: int) -> Word:
    return Word(text, line, missing=(text,))


def _at(word: Word, line: int) -> Word:
    return attrs.evolve(word, line=line)


def _union(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*one, *other)))
