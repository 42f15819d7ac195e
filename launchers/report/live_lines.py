"""The lines that a terminal would show of a stream, told from those that still change.

A progress bar is drawn over itself with carriage returns, several of them with steps up and down
between. On a terminal that also has a view, neither may move its cursor.
"""

from __future__ import annotations

import codecs
import re

_TOKEN = re.compile(
    r"(?P<end>\n)|(?P<back>\r)|\x1b\[(?P<number>[0-9;?]*)(?P<move>[@-ln-~])"
    r"|(?P<text>(?:\x1b\[[0-9;]*m|[^\x00-\x08\x0a-\x1f\x7f])+)"
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b.|."  # a window's title, other signs of control
)
_SPECIAL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_UNFINISHED = re.compile(r"\x1b(?:\[[0-9;?]*|\][^\x07\x1b]{0,200})?\Z")
LONGEST = 1 << 16
"""Characters after which a line counts as finished: some scripts never end one."""


class StreamLines:
    """Takes a stream's bytes; each line has the number of the chunk that wrote to it last."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""  # the begin of an escape sequence
        self._rows: list[tuple[int, str]] = [(0, "")]
        self._row = 0
        self._is_fresh = False  # after a carriage return: what follows stands in the line's place

    def add(self, chunk: bytes, number: int) -> None:
        """Take the next bytes."""
        text = self._rest + self._decoder.decode(chunk)
        self._rest = ""
        if not _SPECIAL.search(text) and self._row == len(self._rows) - 1 and not self._is_fresh:
            self._add_plain(text, number)
            return
        if cut := _UNFINISHED.search(text):
            text, self._rest = text[: cut.start()], cut[0]
        for token in _TOKEN.finditer(text):
            if token["text"]:
                self._write(token["text"], number)
            elif token["end"]:
                self._down(number)
            elif token["back"]:
                self._is_fresh = True
            elif token["move"]:
                self._move(token["move"], token["number"], number)

    def take_finished(self) -> list[tuple[int, str]]:
        """The lines that no longer change, once each."""
        finished = self._rows[: self._row]
        del self._rows[: self._row]
        self._row = 0
        if len(self._rows) == 1 and len(self._rows[0][1]) > LONGEST:
            finished += self._rows
            self._rows = [(0, "")]
        return finished

    def take_all(self) -> list[tuple[int, str]]:
        """All lines, as the stream has ended."""
        rows = self.take_finished() + [row for row in self._rows if row[1].strip()]
        self._rows, self._row, self._is_fresh = [(0, "")], 0, False
        return rows

    @property
    def unfinished(self) -> list[str]:
        """The lines that may still change, without empty ones."""
        return [text for _, text in self._rows if text.strip()]

    def _add_plain(self, text: str, number: int) -> None:
        first, *others = text.split("\n")
        if first:
            self._write(first, number)
        if others:
            self._rows += [(number, line) for line in others]
            self._row = len(self._rows) - 1

    def _write(self, text: str, number: int) -> None:
        before = "" if self._is_fresh else self._rows[self._row][1]
        self._is_fresh = False
        self._rows[self._row] = number, before + text

    def _down(self, number: int) -> None:
        self._is_fresh = False
        self._row += 1
        if self._row == len(self._rows):
            self._rows.append((number, ""))

    def _move(self, move: str, count: str, number: int) -> None:
        if move == "A":
            self._row = max(0, self._row - int(count if count.isdigit() else 1))
        elif move == "K" and (self._is_fresh or count == "2"):  # a bar that goes away
            self._rows[self._row] = number, ""
