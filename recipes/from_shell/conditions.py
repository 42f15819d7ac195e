"""Conditions of a shell file: what a test of known values says, and which branch is read."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence

import attrs

from .expansion import Values
from .syntax import Raw, Sign

TESTS = {"[": "]", "[[": "]]"}
NUMBERS: Mapping[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-gt": operator.gt,
    "-ge": operator.ge,
    "-lt": operator.lt,
    "-le": operator.le,
}


@attrs.define
class Condition:
    """An if or a case: whether the branch that is read now is taken, and was an earlier one."""

    line: int
    taken: bool | None
    earlier: bool | None = False

    def next(self, verdict: bool | None, line: int) -> None:
        """Go on to the next branch, whose own test says `verdict`."""
        self.line = line
        if True in (self.earlier, self.taken):
            self.earlier, self.taken = True, False
            return
        self.earlier = None if None in (self.earlier, self.taken) else False
        self.taken = None if verdict and self.earlier is None else verdict


def verdict(test: Sequence[Raw | Sign], values: Values) -> bool | None:
    """What ``[ … ]`` or ``[[ … ]]`` says, or None where that is not known."""
    raws = [token for token in test if isinstance(token, Raw)]
    signs = {token.text for token in test if isinstance(token, Sign)}
    if signs - {"\n", ";"} or not raws or TESTS.get(raws[0].bare) != raws[-1].bare:
        return None
    inner = raws[1:-1]
    if inner and inner[0].bare == "!":
        said = _compared(inner[1:], values)
        return None if said is None else not said
    return _compared(inner, values)


def _compared(raws: Sequence[Raw], values: Values) -> bool | None:
    if len(raws) == 2 and raws[0].bare in ("-z", "-n"):
        words = [] if values.unset(raws[1]) else values.expanded(raws[1])
        if any(word.missing or word.doubts for word in words):
            return None
        return (raws[0].bare == "-z") == (not "".join(word.text for word in words))
    if len(raws) != 3:
        return None
    left, right = (values.expanded(raw) for raw in (raws[0], raws[2]))
    if any(word.missing or word.doubts for word in (*left, *right)):
        return None
    one, other = ("".join(word.text for word in words) for words in (left, right))
    sign = raws[1].bare
    if sign in ("=", "==", "!="):
        return None if set(other) & set("*?[") else (one == other) == (sign != "!=")
    numbers = all(text.lstrip("-").isdigit() for text in (one, other))
    return NUMBERS[sign](int(one), int(other)) if sign in NUMBERS and numbers else None
