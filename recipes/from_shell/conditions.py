"""Conditions of a shell file: what a test of known values says, and which command is run then."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

import attrs

from .expansion import Values, integer
from .nodes import Body, Bracket

NUMBERS: Mapping[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-gt": operator.gt,
    "-ge": operator.ge,
    "-lt": operator.lt,
    "-le": operator.le,
}


@attrs.frozen
class Success:
    """Whether what stands behind a command and && is run, and what stands behind it and ||."""

    then: bool | None
    otherwise: bool | None

    @property
    def reverse(self) -> Success:
        """That of the command behind an exclamation mark."""
        return Success(self.otherwise, self.then)


COMMAND = Success(True, None)
"""Of a command: it is taken to work, and what is there in case it does not is read, too."""
ASSIGNMENT = Success(True, False)
UNTOLD = Success(None, None)


def success_of(verdict: bool | None) -> Success:
    """Turn what a test says into what it lets && and || do."""
    return Success(verdict, None if verdict is None else not verdict)


def verdict_of(condition: Body, values: Values) -> bool | None:
    """Follow a condition that is one test of known values; None for any other."""
    if len(condition.statements) == 1 and isinstance(condition.statements[0], Bracket):
        return verdict(condition.statements[0], values)
    return None


def verdict(test: Bracket, values: Values) -> bool | None:
    """Say what ``[ … ]`` or ``[[ … ]]`` says, or None where that is not known."""
    answer = _compare(test, values)
    return None if answer is None else answer != test.negated


def _compare(test: Bracket, values: Values) -> bool | None:
    texts: list[str] = []
    for raw in test.operands:
        empty = len(test.operands) == 1 and values.unset(raw)
        words = [] if empty else values.expand(raw)
        if any(word.missing or word.doubts for word in words):
            return None
        texts.append("".join(word.text for word in words))
    if len(texts) == 1:
        return {"-z": not texts[0], "-n": bool(texts[0])}.get(test.operator)
    if len(texts) != 2:
        return None
    one, other = texts
    if test.operator in ("=", "==", "!="):
        return None if set(other) & set("*?[") else (one == other) == (test.operator != "!=")
    numbers = integer(one), integer(other)
    if test.operator not in NUMBERS or numbers[0] is None or numbers[1] is None:
        return None
    return NUMBERS[test.operator](numbers[0], numbers[1])
