"""A command on a terminal of its own, and what stands on its screen."""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

PATIENCE = 120.0  # seconds until a screen is as it should be, on a slow machine
_TOKEN = re.compile(r"\x1b\[(\??)([0-9;]*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)")


class Screen:
    """What a terminal shows, with all that has gone out at its top; it wraps as terminals do.

    It knows the few signs that a view needs, and fails at any other.
    """

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.lines = [""]
        self.row = self.column = 0
        self.shows_cursor = True
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._rest = ""

    def feed(self, chunk: bytes) -> None:
        text = self._rest + self._decoder.decode(chunk)
        cut = re.search(r"\x1b(\[[0-9;?]*)?\Z", text)
        text, self._rest = (text[: cut.start()], cut[0]) if cut else (text, "")
        place = 0
        while place < len(text):
            token = _TOKEN.match(text, place)
            assert token, f"unknown to this screen: {text[place : place + 20]!r}"
            place = token.end()
            self._take(token)

    def _take(self, token: re.Match[str]) -> None:
        private, number, move, end, text = token.groups()
        if text:
            for letter in text:
                self._write(letter)
        elif end == "\r":
            self.column = 0
        elif end:
            self._down()
        elif private:
            assert (number, move) in (("25", "h"), ("25", "l"))
            self.shows_cursor = move == "h"
        elif move == "A":
            self.row -= int(number or 1)
            assert self.row >= 0, "above the first line"
        elif move == "K":
            kept = "" if number == "2" else self.lines[self.row][: self.column]
            self.lines[self.row] = kept
        else:
            assert move == "m", f"unknown to this screen: {token[0]!r}"

    def _write(self, letter: str) -> None:
        if self.column == self.columns:
            self.column = 0
            self._down()
        line = self.lines[self.row].ljust(self.column)
        self.lines[self.row] = line[: self.column] + letter + line[self.column + 1 :]
        self.column += 1

    def _down(self) -> None:
        self.row += 1
        if self.row == len(self.lines):
            self.lines.append("")

    def resize(self, columns: int) -> None:
        """Wrap what stands there anew, as most terminals do."""
        self.columns = columns
        before, self.lines = self.lines, []
        for number, line in enumerate(before):
            parts = range(0, max(1, len(line.rstrip())), columns)
            self.lines += [line[part : part + columns] for part in parts]
            if number == self.row:
                row = len(self.lines) - 1
                self.column = min(columns, max(0, self.column - parts[-1]))
        self.row = row

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.lines).rstrip()


class OnTerminal:
    """A command whose terminal has so many columns."""

    def __init__(
        self, argv: Sequence[str], folder: Path, columns: int, variables: Mapping[str, str]
    ) -> None:
        self.screen = Screen(columns)
        self.raw = b""
        self.echoes = True  # after the end
        environment = {**os.environ, "TERM": "xterm-256color", "CI": "", **variables}
        for name in ("COLUMNS", "LINES", "NO_COLOR", "PYTHONIOENCODING"):
            environment.pop(name, None)
        environment |= {"PYTHONUTF8": "1", **variables}
        self.pid, self._terminal = pty.fork()
        if not self.pid:
            with contextlib.suppress(BaseException):
                while os.get_terminal_size(1).columns != columns:  # the parent says it
                    time.sleep(0.001)
                os.chdir(folder)
                os.execvpe(argv[0], list(argv), environment)
            os._exit(127)
        self._set_size(columns)

    def _set_size(self, columns: int) -> None:
        size = struct.pack("HHHH", 24, columns, 0, 0)
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, size)

    def resize(self, columns: int) -> None:
        os.kill(self.pid, signal.SIGSTOP)  # so that nothing is drawn for the width before
        os.waitpid(self.pid, os.WUNTRACED)
        while select.select([self._terminal], [], [], 0.1)[0]:
            assert self.read(0.0)
        self.screen.resize(columns)
        self._set_size(columns)
        os.kill(self.pid, signal.SIGCONT)

    def read(self, seconds: float) -> bool:
        """Take what has been written; False at its end."""
        if not select.select([self._terminal], [], [], seconds)[0]:
            return True
        try:
            chunk = os.read(self._terminal, 1 << 16)
        except OSError:
            return False
        self.raw += chunk
        self.screen.feed(chunk)
        return bool(chunk)

    def wait_for(self, is_there: Callable[[str], object]) -> str:
        """Read until the screen's text is as it should be; that text."""
        deadline = time.monotonic() + PATIENCE
        while not is_there(self.screen.text):
            assert time.monotonic() < deadline, self.screen.text
            assert self.read(0.1), self.screen.text
        return self.screen.text

    def type(self, keys: bytes) -> None:
        os.write(self._terminal, keys)

    def end(self) -> int:
        """Read to the end; the exit status."""
        while self.read(1.0):
            pass
        self.echoes = bool(termios.tcgetattr(self._terminal)[3] & termios.ECHO)
        return self.hang_up()

    def hang_up(self) -> int:
        """Take the terminal away; the exit status."""
        os.close(self._terminal)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
