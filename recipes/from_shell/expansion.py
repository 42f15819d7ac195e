"""What the words of a shell file become: variables, arguments, defaults and arithmetic.

What only a run would tell (a command's output, a variable from elsewhere, an argument of the file)
stays in a word as it is written, and is listed. Source: POSIX.1-2017, Shell Command Language, 2.6
Word Expansions; bash's manual for arrays and ``+=``.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePosixPath

import attrs

from ...errors import InputError
from .nodes import Arithmetic, Assignment, Expression, Operation, Parameter, Part, RawWord, Text
from .repairs import WAY_OUT

OWN_FOLDER = re.compile(r"(?=.*(?:\$\{?0|BASH_SOURCE))[^|;]*\b(?:dirname|realpath|readlink)\b")
BLANKS = re.compile(r"[ \t\n]+")
WHOLE = re.compile(r"-?[0-9]{1,18}")
HEXADECIMAL = re.compile(r"0[xX][0-9a-fA-F]{1,15}")
LARGEST = 2**63 - 1
"""Of bash's numbers, beyond which they wrap."""
LONGEST = 131_072
"""Characters of a word or a path: Linux starts no program with more in one argument."""
MOST_WORDS = 2_000
"""Words of a command or elements of an array: a training takes dozens."""
EFFORT = 20_000_000
"""Characters that all expansion together may make: a launcher's shell file takes thousands."""
SHOWN = 300
"""Characters of a word that a sentence shows."""


def _quotient(one: int, other: int) -> int:
    """Division as the shell does it: towards zero."""
    quotient = abs(one) // abs(other)
    return quotient if (one < 0) == (other < 0) else -quotient


OPERATIONS: Mapping[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _quotient,
    "%": lambda one, other: one - other * _quotient(one, other),
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

    @property
    def shown(self) -> str:
        """The word as a sentence has it."""
        return shown(self.text)

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
        self._effort = 0
        self.variables: dict[str, Value] = {}
        self.exported: set[str] = set()
        self.arguments: list[Word] = []
        self.folder = PurePosixPath()
        self.branch: tuple[int, ...] = ()

    def spend(self, effort: int, line: int) -> None:
        """Count what reading costs, in characters, and refuse a file that grows without end.

        Raises:
            InputError: it is more than any launcher takes.

        """
        self._effort += effort
        if self._effort > EFFORT:
            raise InputError(
                f"{self._source}:{line}: what is expanded here grows without end: {WAY_OUT}"
            )

    def assign(self, assignment: Assignment) -> None:
        """Carry ``name=value``, ``name+=value`` or ``name=(values)`` out."""
        words = tuple(self.evaluate(assignment))
        self.variables[assignment.name] = Value(words, assignment.line, self.branch)

    def evaluate(self, assignment: Assignment) -> list[Word]:
        """Expand what an assignment sets its variable to."""
        variable = self.variables.get(assignment.name)
        before = list(variable.words) if assignment.adds and variable else []
        if assignment.elements is not None:
            self.spend(len(before), assignment.line)
            return [*before, *self.expand_all(assignment.elements, assignment.line)]
        value = self._join(assignment.value, assignment.line)
        return [self._sum(before[0], value, assignment.line)] if before else [value]

    def expand_all(self, raws: Iterable[RawWord], line: int) -> list[Word]:
        """Expand the words of a command or of an array.

        Raises:
            InputError: they become more than any launcher has.

        """
        words: list[Word] = []
        for raw in raws:
            words += self.expand(raw)
            if len(words) > MOST_WORDS:
                raise InputError(
                    f"{self._source}:{line}: more than {MOST_WORDS:,} words: {WAY_OUT}"
                )
        return words

    def expand(self, raw: RawWord) -> list[Word]:
        """Expand a word: into none, or several where a list or blanks are expanded."""
        fields: list[Word] = []
        for place, part in enumerate(raw.parts):
            words = self._words(part, raw.line)
            self.spend(len(words), raw.line)
            if place and fields and words:  # what one part ends with goes on in the next
                fields[-1] = self._sum(fields[-1], words.pop(0), raw.line)
            fields += words
        quoted = any(isinstance(part, Text) and part.quoted for part in raw.parts)
        # Of which "$@" may be no word at all.
        lists = any(isinstance(part, Parameter) and part.lists for part in raw.parts)
        return [word for word in fields if word.text or (quoted and not lists)]

    def unset(self, raw: RawWord) -> bool:
        """Tell whether the word is a variable alone that nothing sets."""
        parts = [part for part in raw.parts if not isinstance(part, Text) or part.text]
        return (
            len(parts) == 1
            and isinstance(parts[0], Parameter)
            and parts[0].name.isidentifier()
            and not parts[0].operator
            and self._value_of(parts[0].name, raw.line) is None
        )

    def _words(self, part: Part, line: int) -> list[Word]:
        if isinstance(part, Text):
            return [Word(part.text, line)]
        if isinstance(part, Parameter) and (several := self._list(part, line)) is not None:
            if part.quoted and not part.joins:
                return several
            whole = self._in_one(several, line)
            return [whole] if part.quoted else _split(whole)
        word = self._word(part, line)
        splits = not (part.quoted or word.missing or self._in_quotes(part, line))
        return _split(word) if splits else [word]

    def _list(self, part: Parameter, line: int) -> list[Word] | None:
        """The elements of an array, or the arguments, where the part is that."""
        if not part.lists:
            return None
        if part.operator.startswith("["):
            variable = self.variables.get(part.name)
            return [_at(word, line) for word in variable.words] if variable else None
        first = integer("".join(one.text for one in part.operand if isinstance(one, Text)) or "1")
        if first is None or first < 0:
            return None
        return [_at(word, line) for word in self.arguments[max(0, first - 1) :]]

    def _join(self, parts: Sequence[Part], line: int) -> Word:
        """One word, as on the right of an assignment, where nothing is split."""
        whole = Word("", line)
        for part in parts:
            several = self._list(part, line) if isinstance(part, Parameter) else None
            word = self._word(part, line) if several is None else self._in_one(several, line)
            whole = self._sum(whole, word, line)
        return whole

    def _word(self, part: Part, line: int) -> Word:
        if isinstance(part, Text):
            return Word(part.text, line)
        if isinstance(part, Arithmetic):
            return self._compute(part, line)
        if isinstance(part, Parameter):
            return self._parameter(part, line)
        here = part.command == "pwd" or OWN_FOLDER.match(part.command)
        return Word(".", line) if here else _missing(part.spelling, line)

    def _parameter(self, part: Parameter, line: int) -> Word:
        """A variable or argument, with its default or what stands in for it."""
        if part.operator[:1] == "[" or part.operator == ":":
            return _missing(part.spelling, line)
        if self._takes_operand(part, line):
            return self._join(part.operand, line)
        if part.operator.endswith("+"):
            return Word("", line)
        return self._value_of(part.name, line) or _missing(part.spelling, line)

    def _takes_operand(self, part: Parameter, line: int) -> bool:
        """Whether what stands behind the operator is taken, and not the variable."""
        word = self._value_of(part.name, line)
        absent = word is None or (part.operator.startswith(":") and not word.text)
        return part.operator.endswith(("-", "=") if absent else "+")

    def _in_quotes(self, part: Part, line: int) -> bool:
        """Whether all that it becomes is quoted within it, as in ``${name:-"a b"}``."""
        if not isinstance(part, Parameter) or not part.operand:
            return False
        return self._takes_operand(part, line) and all(one.quoted for one in part.operand)

    def _value_of(self, name: str, line: int) -> Word | None:
        """What a variable or argument holds, if that is known."""
        if name in self.variables:
            value = self.variables[name]
            whole = self._in_one(value.words, line)
            if self.branch[: len(value.branch)] == value.branch:
                return whole
            doubt = f"{name} is {shown(whole.text)}, which line {value.line} sets under a condition"
            return whole + Word("", doubts=(doubt,))
        if name in ("@", "*"):
            return self._in_one(self.arguments, line) if self.arguments else None
        place = integer(name) or 0
        if 0 < place <= len(self.arguments):
            return _at(self.arguments[place - 1], line)
        if name == "PWD":
            return Word(str(self.folder), line)
        return Word(self._environ[name], line) if name in self._environ else None

    def _compute(self, part: Arithmetic, line: int) -> Word:
        operands: list[Word] = []
        expression = part.expression
        number = self._number(expression, line, operands) if expression is not None else None
        if number is None:
            return _missing(part.spelling, line)
        return Word(str(number), line, doubts=_union(*(word.doubts for word in operands)))

    def _number(self, expression: Expression, line: int, operands: list[Word]) -> int | None:
        """What an expression comes to, if all of it is known; what it is made of is listed."""
        if isinstance(expression, Operation):
            left = self._number(expression.left, line, operands)
            right = self._number(expression.right, line, operands)
            if left is None or right is None or (expression.operator in "/%" and not right):
                return None
            number = OPERATIONS[expression.operator](left, right)
            return number if abs(number) <= LARGEST else None
        word = self._word(expression, line)
        operands.append(word)
        text = word.text.strip()
        if HEXADECIMAL.fullmatch(text):
            return int(text, 16)
        octal = text.lstrip("-").startswith("0") and text.lstrip("-") != "0"
        return None if word.missing or octal else integer(text)

    def _in_one(self, words: Sequence[Word], line: int) -> Word:
        """The words as one, with blanks between them."""
        text = " ".join(word.text for word in words)
        missing = _union(*(word.missing for word in words))
        doubts = _union(*(word.doubts for word in words))
        return self._limit(Word(text, line, missing, doubts))

    def _sum(self, one: Word, other: Word, line: int) -> Word:
        return attrs.evolve(self._limit(attrs.evolve(one + other, line=line)), line=one.line)

    def _limit(self, word: Word) -> Word:
        if len(word.text) > LONGEST:
            raise InputError(
                f"{self._source}:{word.line}: a word grows beyond {LONGEST:,} characters, which "
                f"Linux passes to no program: {WAY_OUT}"
            )
        self.spend(len(word.text) + 10 * (len(word.missing) + len(word.doubts)) + 1, word.line)
        return word


def integer(text: str) -> int | None:
    """Read a whole number of no more digits than bash and TOML can hold."""
    return int(text) if WHOLE.fullmatch(text) else None


def shown(text: str) -> str:
    """Put text into a sentence: on one line, and cut off where it is very long."""
    return on_one_line(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")


def on_one_line(text: str) -> str:
    """Spell out what would end the line or steer a terminal."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def _split(word: Word) -> list[Word]:
    return [attrs.evolve(word, text=part) for part in BLANKS.split(word.text) if part]


def _missing(text: str, line: int) -> Word:
    return Word(text, line, missing=(text,))


def _at(word: Word, line: int) -> Word:
    return attrs.evolve(word, line=line)


def _union(*lists: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one for each in lists for one in each))
