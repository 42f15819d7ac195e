"""Lines at the foot of a terminal that are drawn again in place, with output going past above."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import termios
import threading
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType, Segment
from rich.text import Text

from .live_frame import ViewRow

_NAME = 9  # columns


class _Raw:
    """Text that goes to the terminal as it is."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, _: Console, __: ConsoleOptions) -> Iterator[Segment]:
        yield Segment(self._text)


def _set_echo(on: bool) -> None:
    """Whether keys are shown as they are typed: one that is moves the cursor out of the rows.

    A shell sets its terminal right after a process that was killed or stopped.
    """
    with contextlib.suppress(OSError, ValueError, termios.error):
        terminal = sys.stderr.fileno()
        if os.tcgetpgrp(terminal) == os.getpgrp():  # else this would stop the process
            modes = termios.tcgetattr(terminal)
            modes[3] = modes[3] | termios.ECHO if on else modes[3] & ~termios.ECHO
            termios.tcsetattr(terminal, termios.TCSANOW, modes)


class Panel:
    """Draws rows below the output; `size` is the terminal's, in columns and lines."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._widths: list[int] = []  # of the rows that stand there
        self._columns = self._console.size.width
        self._live = Live(
            console=self._console, auto_refresh=False, transient=True, vertical_overflow="crop"
        )
        self._live.start()
        self._console.show_cursor(True)  # should this process be killed, it stays
        _set_echo(False)
        self.is_to_stop = False
        self._handler: Any = None
        ignored = signal.getsignal(signal.SIGTSTP) is signal.SIG_IGN
        if threading.current_thread() is threading.main_thread() and not ignored:
            self._handler = signal.signal(signal.SIGTSTP, self._note_stop)

    def _note_stop(self, _: int, __: FrameType | None) -> None:
        """Have Ctrl-Z wait until nothing is half drawn."""
        self.is_to_stop = True

    def stop(self) -> None:
        """Take the rows away and stop, as Ctrl-Z asks for; returns when the process goes on."""
        self.close([])
        os.kill(os.getpid(), signal.SIGTSTP)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        return self._console.size.width, self._console.size.height

    def draw(self, finished: Sequence[str], rows: Sequence[ViewRow]) -> None:
        """Let finished lines go past, and draw the rows below them."""
        self._adapt()
        texts = [_text(row, self._columns) for row in rows]
        self._live.update(Group(*texts))
        if finished:
            self._console.print(_Raw(_joined(finished)), soft_wrap=True, end="")
        else:
            self._live.refresh()
        self._widths = [cell_len(text.plain) for text in texts]

    def close(self, finished: Sequence[str]) -> None:
        """Take the rows away, and leave the last lines."""
        self._adapt()
        self._live.update("")
        if finished:
            self._console.print(_Raw(_joined(finished)), soft_wrap=True, end="")
        self._live.stop()
        _set_echo(True)
        if self._handler is not None:
            signal.signal(signal.SIGTSTP, self._handler)

    def _adapt(self) -> None:
        """Reckon with another width of the terminal."""
        columns = self._console.size.width
        if columns < self._columns:  # it has wrapped the rows that stand there
            more = sum(max(0, width - 1) // columns for width in self._widths)
            up = [(ControlType.ERASE_IN_LINE, 2), (ControlType.CURSOR_UP, 1)] * more
            self._console.file.write(Control(*up).segment.text)
        self._columns = columns


def _joined(lines: Sequence[str]) -> str:
    return "".join(f"{line}\x1b[0m\n" if "\x1b" in line else f"{line}\n" for line in lines)


def _text(row: ViewRow, columns: int) -> Text:
    """A row in one line of the terminal."""
    text = Text(no_wrap=True, overflow="ellipsis")
    if row.name:
        text.append(f"{row.name:{_NAME}}", "dim")
    said = Text.from_ansi(row.text.expandtabs()) if "\x1b" in row.text else Text(row.text)
    if row.style:
        said.stylize(row.style)
    text.append_text(said)
    text.truncate(columns - 1, overflow="ellipsis")
    return text
