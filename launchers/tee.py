"""A child's output, copied to the terminal, to the log, and to whoever listens."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

_WAIT = 0.1  # seconds for the rest to arrive


class Log:
    """A file that is appended to; where somebody removes or moves it, a new one takes its place."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path
        self._file = path.open("ab", buffering=0)

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, chunk: bytes) -> None:
        """Append all of it. Raises OSError where that cannot be done."""
        if not self._is_there():
            self._file.close()
            self._file = self._path.open("ab", buffering=0)
        left = memoryview(chunk)
        while left:
            left = left[self._file.write(left) :]

    def flush(self) -> None:
        """Nothing is held back."""

    def _is_there(self) -> bool:
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            return False


class Tee:
    """Copies the child's two streams, byte for byte as they come, to ours and to the log.

    Bytes, not lines: a progress bar ends in a carriage return for hours before its newline.
    `listen` gets each chunk with the number of its stream, 1 or 2.
    """

    def __init__(
        self,
        child: subprocess.Popen[bytes],
        log: Log,
        quiet: bool,
        listen: Callable[[int, bytes], None],
    ) -> None:
        self._selector = selectors.DefaultSelector()
        self._listen = listen
        streams = ((1, child.stdout, sys.stdout), (2, child.stderr, sys.stderr))
        for number, pipe, ours in streams:
            assert pipe is not None
            sinks = [log] if quiet else [log, ours.buffer]
            self._selector.register(pipe, selectors.EVENT_READ, (number, sinks))

    def __enter__(self) -> Tee:
        return self

    def __exit__(self, *_: object) -> None:
        for key in list(self._selector.get_map().values()):
            self._close(key.fileobj)
        self._selector.close()

    def pump(self, timeout: float) -> bool:
        """Copy what there is, waiting up to `timeout` seconds for it; whether there was any."""
        if not self._selector.get_map():
            time.sleep(timeout)
            return False
        ready = self._selector.select(timeout)
        for key, _ in ready:
            number, sinks = key.data
            chunk = os.read(key.fd, 1 << 16)
            if not chunk:
                self._close(key.fileobj)
                continue
            self._listen(number, chunk)
            for sink in list(sinks):
                if not _write(sink, chunk):
                    sinks.remove(sink)
        return bool(ready)

    def drain(self) -> None:
        """Copy the rest. All writers have ended, so what the pipes hold is all there will be."""
        while self._selector.get_map() and self.pump(_WAIT):
            pass

    def _close(self, pipe: Any) -> None:
        self._selector.unregister(pipe)
        pipe.close()


def _write(sink: Log | IO[bytes], chunk: bytes) -> bool:
    """Whether the sink took it: a reader that went away, or a full disk, ends no training."""
    try:
        sink.write(chunk)
        sink.flush()
    except BrokenPipeError:
        # Else the interpreter would complain, and exit with 120, when it flushes at its end.
        if not isinstance(sink, Log):
            with contextlib.suppress(OSError), Path(os.devnull).open("wb") as nowhere:
                os.dup2(nowhere.fileno(), sink.fileno())
        return False
    except (OSError, ValueError) as error:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"ddpfix: output is no longer copied to {sink.name}: {error}\n")
        return False
    return True
