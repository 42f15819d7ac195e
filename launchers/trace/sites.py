"""Find the place in the user's own code that a call comes from."""

from __future__ import annotations

import os
import sys
import sysconfig
from types import FrameType, TracebackType

from .events import Site

_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep  # noqa: PTH100, PTH120


class Sites:
    """Distinguishes the user's files from the interpreter's, the libraries' and the tracer's."""

    def __init__(self, script: str) -> None:
        home = os.path.dirname(os.path.realpath(script)) + os.sep  # noqa: PTH120
        paths = sysconfig.get_paths()
        libraries = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}
        # A script inside a library folder is still the user's.
        self._libraries = tuple(
            each
            for folder in libraries
            for each in {folder + os.sep, os.path.realpath(folder) + os.sep}
            if not home.startswith(each)
        )
        self._known: dict[str, bool] = {}

    def is_user(self, filename: str) -> bool:
        """Whether the file of a code object is the user's."""
        known = self._known.get(filename)
        if known is None:
            full = os.path.abspath(filename)  # noqa: PTH100
            known = not (filename.startswith("<") or full.startswith((_OWN, *self._libraries)))
            self._known[filename] = known
        return known

    @staticmethod
    def is_own(filename: str) -> bool:
        """Whether the file of a code object is the tracer's."""
        return filename.startswith(_OWN)

    def here(self) -> Site | None:
        """The innermost user frame of the calling thread, or None."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and not self.is_user(frame.f_code.co_filename):
            frame = frame.f_back
        return None if frame is None else site_of(frame)

    def of_traceback(self, traceback: TracebackType | None) -> Site | None:
        """The innermost user frame of an exception."""
        found = None
        while traceback is not None:
            if self.is_user(traceback.tb_frame.f_code.co_filename):
                found = site_of(traceback.tb_frame, traceback.tb_lineno)
            traceback = traceback.tb_next
        return found


def site_of(frame: FrameType, line: int | None = None) -> Site:
    """The place of a frame."""
    code = frame.f_code
    name = os.path.abspath(code.co_filename)  # noqa: PTH100
    return Site(name, line if line is not None else frame.f_lineno, code.co_name)
