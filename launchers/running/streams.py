"""The output streams of a run, with the process that wrote each chunk."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import sys

_CHUNK = 1 << 18  # bytes
_BUFFER = 1 << 20  # bytes that writers can be ahead; the system may allow less
_CREDENTIALS = struct.Struct("3i")  # struct ucred of unix(7): process, user, group


class Pipe:
    """A pipe. `theirs` is the end to write to; close it once the writers have been started."""

    def __init__(self) -> None:
        self._ours, self.theirs = os.pipe()
        with contextlib.suppress(AttributeError, OSError):  # Linux, within the user's limits
            fcntl.fcntl(self._ours, fcntl.F_SETPIPE_SZ, _BUFFER)

    def fileno(self) -> int:
        """The end to read from, for a selector."""
        return self._ours

    def read(self) -> tuple[bytes, int | None]:
        """The next bytes, empty at the end, and the id of the process that wrote them if known."""
        return os.read(self._ours, _CHUNK), None

    def close(self) -> None:
        """Close the end to read from."""
        os.close(self._ours)


class SocketStreams:
    """A pair of sockets with the interface of `Pipe`.

    On Linux they tell which process wrote what (SO_PASSCRED, unix(7)). The writers need do nothing:
    the kernel adds their process ids, and never merges the output of two of them.
    """

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
        if sys.platform.startswith("linux"):
            self._ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.theirs = theirs.detach()

    def fileno(self) -> int:
        """The end to read from, for a selector."""
        return self._ours.fileno()

    def read(self) -> tuple[bytes, int | None]:
        """The next bytes, empty at the end, and the id of the process that wrote them if known."""
        chunk, ancillary, _, _ = self._ours.recvmsg(_CHUNK, socket.CMSG_SPACE(_CREDENTIALS.size))
        return chunk, _CREDENTIALS.unpack(ancillary[0][2])[0] if ancillary else None

    def close(self) -> None:
        """Close the end to read from."""
        self._ours.close()
