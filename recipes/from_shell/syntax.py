"""The words of a shell file, as bash divides it: quotes, expansions, operators and comments.

Nothing is expanded and nothing is run. Of what exists for it, shlex loses which words were quoted
and on which line they are, bashlex is under the GPL, and the grammar of tree-sitter is a compiled
package larger than this project; a launcher's shell file needs no more of the grammar than this.
Source: POSIX.1-2017, Shell Command Language, 2.3 Token Recognition; bash's manual for arrays.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator

import attrs

from ...errors import InputError

OPERATORS = re.compile(r"&>>|<<-|<<<|&&|\|\||;;|\|&|<<|>>|>&|<&|&>|>\||[|&;()<>\n]")
BLANK = re.compile(r"(?:[ \t]|\\\n)+")
PLAIN = re.compile(r"[^\s\\'\"$`|&;()<>]+")
NAME = re.compile(r"\w+|[@*#?$!-]")
ARRAY = re.compile(r"\w+\+?=")
ESCAPED = re.compile(r"\\(.)", re.DOTALL)
IN_QUOTES = re.compile(r"\\([$`\"\\])")


@attrs.frozen
class Piece:
    """A part of a word: text as it is, or what `$` or a backquote expands.

    `kind` is "text", "variable" (the text is what stands in the braces), "command" or
    "arithmetic" (what stands in the parentheses).
    """

    text: str
    kind: str = "text"
    quoted: bool = False


@attrs.frozen
class Raw:
    """A word before expansion, or the elements of an array that is assigned to `pieces`."""

    line: int
    pieces: tuple[Piece, ...]
    array: tuple[Raw, ...] | None = None

    @property
    def bare(self) -> str:
        """The word where it is plain text without quotes, as keywords have to be; else nothing."""
        plain = all(piece.kind == "text" and not piece.quoted for piece in self.pieces)
        return "".join(piece.text for piece in self.pieces) if plain else ""


@attrs.frozen
class Sign:
    """An operator, or the end of a line; `number` is the 2 of ``2>``."""

    line: int
    text: str
    number: str = ""


def divide(text: str, source: str) -> list[Raw | Sign]:
    """The words and operators of a shell file; `source` is what a complaint begins with.

    Raises:
        InputError: a quote, parenthesis or brace that is not closed.

    """
    return list(_Division(text.replace("\r\n", "\n"), source).tokens())


def pieces_of(text: str, source: str, line: int) -> tuple[Piece, ...]:
    """What stands within double quotes, or after ``:-`` in an expansion."""
    division = _Division(text, source, line)
    return tuple(division.quoted(closed_by=""))


class _Division:
    def __init__(self, text: str, source: str, first_line: int = 1) -> None:
        self.text, self.source, self.at = text, source, 0
        self.first_line = first_line
        self.ends = [match.start() for match in re.finditer("\n", text)]
        self.awaited: list[tuple[str, bool]] = []  # here-documents: their ends, whether indented

    @property
    def line(self) -> int:
        return bisect.bisect_left(self.ends, self.at) + self.first_line

    def tokens(self) -> Iterator[Raw | Sign]:
        while self.at < len(self.text):
            if self._take(BLANK):
                continue
            if self.text[self.at] == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif OPERATORS.match(self.text, self.at):
                yield from self._operator()
            else:
                yield from self._word_or_number()

    def _take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return match[0] if match else ""

    def _operator(self, number: str = "") -> Iterator[Sign]:
        sign = Sign(self.line, self._take(OPERATORS), number)
        yield sign
        if sign.text in ("<<", "<<-"):
            self._take(BLANK)
            end = "".join(piece.text for piece in self._word().pieces)
            self.awaited.append((end, sign.text == "<<-"))
        elif sign.text == "\n":
            for end, indented in self.awaited:
                self._skip_document(end, indented)
            self.awaited.clear()

    def _skip_document(self, end: str, indented: bool) -> None:
        while self.at < len(self.text):
            stop = self.text.find("\n", self.at)
            line = self.text[self.at : stop if stop >= 0 else None]
            self.at += len(line) + 1
            if (line.lstrip("\t") if indented else line) == end:
                return

    def _word_or_number(self) -> Iterator[Raw | Sign]:
        word = self._word()
        if word.bare.isdigit() and self.text[self.at : self.at + 1] in ("<", ">"):
            yield from self._operator(word.bare)
        else:
            yield word

    def _word(self) -> Raw:
        line, pieces = self.line, list[Piece]()
        while self.at < len(self.text) and not self.text[self.at].isspace():
            if self.text.startswith("\\\n", self.at):
                self.at += 2
            elif OPERATORS.match(self.text, self.at):
                array = len(pieces) == 1 and ARRAY.fullmatch(pieces[0].text)
                if self.text[self.at] == "(" and array:
                    return Raw(line, tuple(pieces), tuple(self._array()))
                break
            else:
                pieces += self._pieces()
        return Raw(line, tuple(pieces))

    def _array(self) -> Iterator[Raw]:
        line = self.line
        inner = _Division(self._within("(", ")"), self.source, line)
        return (token for token in inner.tokens() if isinstance(token, Raw))

    def _pieces(self) -> Iterator[Piece]:
        char = self.text[self.at]
        if char == "'":
            yield Piece(self._single(), quoted=True)
        elif char == '"':
            self.at += 1
            # Also where nothing is between: "" is a word.
            yield Piece("", quoted=True)
            yield from self.quoted(closed_by='"')
        elif char in "$`":
            yield self._expansion(quoted=False)
        elif char == "\\":
            yield Piece(self._take(ESCAPED)[1:], quoted=True)
            self.at += self.at == len(self.text) - 1  # nothing follows the backslash
        else:
            yield Piece(self._take(PLAIN))

    def _single(self) -> str:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            raise self._unclosed("'")
        text, self.at = self.text[self.at + 1 : end], end + 1
        return text

    def quoted(self, closed_by: str) -> Iterator[Piece]:
        """The pieces up to the closing quote, or all there are."""
        began, text = self.line, ""
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == closed_by:
                self.at += 1
                yield Piece(text, quoted=True)
                return
            if char in "$`":
                yield Piece(text, quoted=True)
                text = ""
                yield self._expansion(quoted=True)
            elif self.text.startswith("\\\n", self.at):
                self.at += 2
            elif escaped := self._take(IN_QUOTES):
                text += escaped[1]
            else:
                text += char
                self.at += 1
        if closed_by:
            raise self._unclosed(closed_by, began)
        yield Piece(text, quoted=True)

    def _expansion(self, *, quoted: bool) -> Piece:
        if self.text[self.at] == "`":
            return Piece(self._within("`", "`"), "command", quoted)
        self.at += 1
        if self.text.startswith("((", self.at):
            return Piece(self._within("(", ")")[1:-1].strip(), "arithmetic", quoted)
        if self.text.startswith("(", self.at):
            return Piece(self._within("(", ")").strip(), "command", quoted)
        if self.text.startswith("{", self.at):
            return Piece(self._within("{", "}"), "variable", quoted)
        if self.text.startswith("'", self.at) and not quoted:
            return Piece(self._single(), quoted=True)
        if self.text[self.at : self.at + 1].isdigit():  # $10 is ${1}0
            self.at += 1
            return Piece(self.text[self.at - 1], "variable", quoted)
        name = self._take(NAME)
        return Piece(name, "variable", quoted) if name else Piece("$", quoted=True)

    def _within(self, opening: str, closing: str) -> str:
        """What is between here and what closes it; quotes inside hide what they hold."""
        start, depth, self.at = self.at + 1, 1, self.at + 1
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == "\\":
                self.at += 1
            elif char == "'" and opening == "(":
                self._single()
                continue
            elif char == closing:
                depth -= 1
            elif char == opening:
                depth += 1
            self.at += 1
            if not depth:
                return self.text[start : self.at - 1]
        self.at = start - 1
        raise self._unclosed(opening)

    def _unclosed(self, what: str, line: int | None = None) -> InputError:
        return InputError(f"{self.source}:{line or self.line}: this {what} is never closed")
