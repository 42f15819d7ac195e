"""Copy a run's output to the terminal, to the logs, and to a listener."""

from __future__ import annotations

import os
import selectors
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from ...standard_streams import abandon, say
from ..private_files import FOLDER_MODE, open_private
from .ranks import Ranks
from .streams import Pipe, SocketStreams

_DRAIN_WAIT = 0.1  # seconds to wait for the rest


class Log:
    """A log file to append to; if it is removed or moved, a new one is created."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path
        self._file = open_private(path, "ab")

    def close(self) -> None:
        """Close the file; there is no buffer to flush."""
        self._file.close()

    def write(self, chunk: bytes) -> None:
        """Append all of the chunk. Raises OSError if it cannot be written."""
        if not self._is_in_place():
            self._file.close()
            self._file = open_private(self._path, "ab")
        rest = memoryview(chunk)
        while rest:
            rest = rest[self._file.write(rest) :]

    def flush(self) -> None:
        """Do nothing: writes are not buffered."""

    def _is_in_place(self) -> bool:
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            return False


class Logs:
    """The log of all output, and one per rank in the folder `ranks`, unless that is None."""

    def __init__(self, path: Path, ranks: Path | None) -> None:
        self.all = Log(path)
        self.ranks = ranks
        self._own: dict[int, Log | None] = {}  # None once it could not be written

    def __enter__(self) -> Logs:
        return self

    def __exit__(self, *_: object) -> None:
        for log in (self.all, *filter(None, self._own.values())):
            log.close()

    def write_own(self, rank: int, chunk: bytes) -> None:
        """Append to the log of one rank."""
        assert self.ranks is not None
        if rank not in self._own:
            self._own[rank] = _open(self.ranks / f"{rank}.log")
        log = self._own[rank]
        if log is not None and not _write(log, chunk):
            self._own[rank] = None


class Tee:
    """Copies a run's two streams, byte for byte as they come, to ours and to the logs.

    Bytes, not lines: a progress bar ends in a carriage return for hours before its newline.
    `listen` gets each chunk with the number of its stream, 1 or 2, and the rank that wrote it, if
    known. With a log per rank, ours show only the output of this machine's first rank, and of
    processes that are no rank, such as the launcher.

    `show` gets what would go to our streams, in their place.

    The processes write to the two `ends`, which `begin` closes here.
    """

    def __init__(
        self,
        logs: Logs,
        quiet: bool,
        listen: Callable[[int, bytes, int | None], None],
        show: Callable[[int, bytes], None] | None = None,
    ) -> None:
        self._selector = selectors.DefaultSelector()
        self._logs, self._listen = logs, listen
        self._show = None if quiet else show
        self._ranks = Ranks()
        kind = Pipe if logs.ranks is None else SocketStreams
        streams: tuple[Pipe | SocketStreams, ...] = (kind(), kind())
        self.ends = tuple(stream.theirs for stream in streams)
        for number, stream in enumerate(streams, start=1):
            ours = (sys.stdout, sys.stderr)[number - 1]
            sinks = [logs.all] if quiet or show else [logs.all, ours.buffer]
            self._selector.register(stream, selectors.EVENT_READ, (number, sinks))

    def __enter__(self) -> Tee:
        return self

    def __exit__(self, *_: object) -> None:
        self.begin()
        for key in list(self._selector.get_map().values()):
            self._close(key.fileobj)
        self._selector.close()

    def begin(self) -> None:
        """Close our copies of the ends, so that the streams end when the processes have ended."""
        for end in self.ends:
            os.close(end)
        self.ends = ()

    def pump(self, timeout: float) -> bool:
        """Copy available output, waiting up to `timeout` seconds for it; whether there was any."""
        if not self._selector.get_map():
            time.sleep(timeout)
            return False
        ready = self._selector.select(timeout)
        for key, _ in ready:
            number, sinks = key.data
            assert isinstance(key.fileobj, Pipe | SocketStreams)
            chunk, writer = key.fileobj.read()
            if not chunk:
                self._close(key.fileobj)
                continue
            rank = None if writer is None else self._ranks.of(writer)
            self._listen(number, chunk, rank.rank if rank else None)
            if rank:
                self._logs.write_own(rank.rank, chunk)
            hidden = rank is not None and rank.local > 0
            if self._show and not hidden:
                self._show(number, chunk)
            for sink in [sink for sink in sinks if sink is self._logs.all or not hidden]:
                if not _write(sink, chunk):
                    sinks.remove(sink)
        return bool(ready)

    def look(self, starter: int) -> None:
        """Note the ranks that process `starter` has started."""
        if self._logs.ranks is not None:
            self._ranks.look(starter)

    def drain(self) -> None:
        """Copy the rest of the output, after all writers have ended."""
        while self._selector.get_map() and self.pump(_DRAIN_WAIT):
            pass

    def _close(self, pipe: Any) -> None:
        self._selector.unregister(pipe)
        pipe.close()


def _open(path: Path) -> Log | None:
    try:
        path.parent.mkdir(FOLDER_MODE, exist_ok=True)
        return Log(path)
    except OSError as error:
        say(f"ddpfix: {path}: {error.strerror}; this output is in the log alone")
        return None


def _write(sink: Log | IO[bytes], chunk: bytes) -> bool:
    """Write to a sink; False if that failed: a closed pipe or a full disk must not end the run."""
    try:
        sink.write(chunk)
        sink.flush()
    except (OSError, ValueError) as error:
        if not isinstance(sink, Log):
            abandon(sink)
        if not isinstance(error, BrokenPipeError):
            say(f"ddpfix: output is no longer copied to {sink.name}: {error}")
        return False
    return True
