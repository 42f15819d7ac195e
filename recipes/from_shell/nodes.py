"""What a shell file is made of, in few kinds: words with their parts, and commands.

The parts are what expansion needs, the commands what the interpreter follows; `line` is where one
begins.
"""

from __future__ import annotations

import attrs


@attrs.frozen
class Text:
    """A part of a word that is text as it is."""

    text: str
    quoted: bool = False


@attrs.frozen
class Parameter:
    """``$name``, or ``${name…}`` with an operator and what stands behind it.

    The operator is one of those for defaults, ``:`` of ``${@:2}``, or ``[@]`` and ``[*]`` of an
    array. `spelling` is how it is called where its value is not known.
    """

    name: str
    spelling: str
    quoted: bool = False
    operator: str = ""
    operand: tuple[Part, ...] = ()

    @property
    def lists(self) -> bool:
        """Whether it is all arguments or all elements of an array."""
        every = self.name in ("@", "*") and self.operator in ("", ":")
        return every or self.operator.startswith("[")

    @property
    def joins(self) -> bool:
        """Whether a list becomes one word within quotes."""
        return self.name == "*" or self.operator == "[*]"


@attrs.frozen
class Operation:
    """A sum, difference, product, quotient or remainder."""

    operator: str
    left: Expression
    right: Expression


@attrs.frozen
class Arithmetic:
    """``$((…))``; the expression is None where it is more than such operations."""

    spelling: str
    quoted: bool
    expression: Expression | None


@attrs.frozen
class Unknown:
    """What only a run tells: the output of a command, or an expansion that is not followed."""

    spelling: str
    quoted: bool
    command: str = ""


Part = Text | Parameter | Arithmetic | Unknown
Expression = Text | Parameter | Operation


@attrs.frozen
class RawWord:
    """A word before expansion."""

    line: int
    parts: tuple[Part, ...]

    @property
    def bare(self) -> str:
        """The word where it is plain text without quotes, as keywords have to be; else nothing."""
        texts = [one.text for one in self.parts if isinstance(one, Text) and not one.quoted]
        return "".join(texts) if len(texts) == len(self.parts) else ""


@attrs.frozen
class Assignment:
    """``name=value``, ``name+=value`` or ``name=(elements)``."""

    line: int
    name: str
    adds: bool
    value: tuple[Part, ...]
    elements: tuple[RawWord, ...] | None = None


@attrs.frozen
class SimpleCommand:
    """Words, the assignments before them, and the file that the output goes to."""

    line: int
    assignments: tuple[Assignment, ...]
    words: tuple[RawWord, ...]
    output: RawWord | None = None


@attrs.frozen
class Declaration:
    """``export``, ``declare`` and their like; `names` are what is named without a value."""

    line: int
    exports: bool
    assignments: tuple[Assignment, ...]
    names: tuple[str, ...]


@attrs.frozen
class Bracket:
    """``[ … ]`` or ``[[ … ]]``; without an operator where it is more than one comparison."""

    line: int
    operator: str = ""
    operands: tuple[RawWord, ...] = ()
    negated: bool = False


@attrs.frozen
class Pipeline:
    """Commands, each of which reads what the one before it writes."""

    line: int
    stages: tuple[Statement, ...]


@attrs.frozen
class Negation:
    """A command behind an exclamation mark."""

    line: int
    statement: Statement


@attrs.frozen
class Chain:
    """Commands with && or || between them."""

    line: int
    first: Statement
    links: tuple[tuple[str, Statement], ...]


@attrs.frozen
class Body:
    """Commands one after the other; in a subshell, a change of the folder ends with them."""

    line: int
    statements: tuple[Statement, ...]
    subshell: bool = False


@attrs.frozen
class Branch:
    """``if``, ``elif`` or ``else`` (which has no condition) with what is run then."""

    line: int
    condition: Body | None
    body: Body


@attrs.frozen
class IfStatement:
    """An if with all its branches."""

    line: int
    branches: tuple[Branch, ...]


@attrs.frozen
class CaseStatement:
    """A case; which of its items is run is not looked at."""

    line: int
    items: tuple[Body, ...]


@attrs.frozen
class ForLoop:
    """``for name in values``."""

    line: int
    name: str
    values: tuple[RawWord, ...]
    body: Body


@attrs.frozen
class OtherLoop:
    """A loop over a condition: while, until, select, or for with arithmetic."""

    line: int
    condition: Body
    body: Body


@attrs.frozen
class FunctionDefinition:
    """A function, which is read where it is called."""

    line: int
    name: str
    body: Statement


Statement = (
    SimpleCommand
    | Declaration
    | Bracket
    | Pipeline
    | Negation
    | Chain
    | Body
    | IfStatement
    | CaseStatement
    | ForLoop
    | OtherLoop
    | FunctionDefinition
)
