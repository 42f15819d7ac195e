"""The two output streams of a run: what its processes write, and which of them wrote it."""

from __future__ import annotations

import os
import socket
import struct
import sys

_ROOM = 1 << 16
_CREDENTIALS = struct.Struct("3i")  # struct ucred of unix(7): process, user, group


class Pipe:
    """A pipe: `theirs` is the end to write to, which who started the writers has to close."""

    def __init__(self) -> None:
        self._ours, self.theirs = os.pipe()

    def fileno(self) -> int:
        """The end to read from, for a selector."""
        return self._ours

    def read(self) -> tuple[bytes, int | None]:
        """What there is, and the process it is from if known; nothing once all have ended."""
        return os.read(self._ours, _ROOM), None

    def close(self) -> None:
        """Close the end to read from."""
        os.close(self._ours)


class SocketStreams:
    """The same as a pair of sockets, which on Linux tell who wrote what (SO_PASSCRED, unix(7)).

    Writers need not know: the kernel adds it, and never joins what two of them wrote.
    """

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        if sys.platform.startswith("linux"):
            self._ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.theirs = theirs.detach()

    def fileno(self) -> int:
        """The end to read from, for a selector."""
        return self._ours.fileno()

    def read(self) -> tuple[bytes, int | None]:
        """What there is, and the process it is from if known; nothing once all have ended."""
        chunk, told, _, _ = self._ours.recvmsg(_ROOM, socket.CMSG_SPACE(_CREDENTIALS.size))
        return chunk, _CREDENTIALS.unpack(told[0][2])[0] if told else None

    def close(self) -> None:
        """Close the end to read from."""
        self._ours.close()
