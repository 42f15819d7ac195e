"""Record every change to the file system, with the line of the script that caused it.

The interpreter's audit hook sees what goes through Python's own ``open`` and ``os``. Native writers
are wrapped by name (`_WRITERS`). Not recorded: what other programs write (a `CommandStart` records
their start), processes started with multiprocessing's ``spawn`` method, and the native writers of
other libraries (HDF5).
"""

from __future__ import annotations

import functools
import os
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from typing import Any

from .events import CommandStart, File
from .imports import AfterImport
from .recorder import Recorder
from .sites import Sites
from .written_files import WrittenFiles

_SYSTEM = ("/dev/", "/proc/", "/sys/")
_SCRATCH = os.path.join(tempfile.gettempdir(), "pymp-")  # noqa: PTH118  of multiprocessing


class FileAudit:
    """Records file events by an audit hook and by wrapped native writers.

    ``written`` hears of each, where what the script wrote is to be kept.
    """

    def __init__(
        self, recorder: Recorder, sites: Sites, written: WrittenFiles | None = None
    ) -> None:
        self._recorder = recorder
        self._sites = sites
        self._written = written
        self._inside = threading.local()
        self._handlers: dict[str, Callable[[tuple[Any, ...]], None]] = {
            "open": self._open,
            "os.rename": self._rename,
            "os.remove": lambda a: self._change("remove", a[0], a[1]),
            "os.mkdir": lambda a: self._change("mkdir", a[0], a[2]),
            "os.rmdir": lambda a: self._change("rmdir", a[0], a[1]),
            "os.truncate": lambda a: self._change("truncate", a[0]),
            "os.link": lambda a: self._change("link", a[1], a[3], to=self._full(a[0], a[2])),
            "os.symlink": lambda a: self._change("symlink", a[1], a[2], to=os.fspath(a[0])),
            "sqlite3.connect": lambda a: self._change("update", a[0]),
            "subprocess.Popen": lambda a: self._command(a[1]),
            "os.system": lambda a: self._command([a[0]]),
            "os.exec": lambda a: self._command(a[1]),
        }

    def install(self, after_import: AfterImport) -> None:
        """Start recording. An audit hook stays until the process ends."""
        sys.addaudithook(self._hook)
        for module, wrap in _WRITERS.items():
            after_import.call(module, functools.partial(wrap, self))

    def writes(self, path: Any, via: str) -> None:
        """Record that ``via`` writes ``path``; anything but a path is ignored."""
        if isinstance(path, (str, bytes, os.PathLike)):
            self._change("write", path, via=via)

    def wrap(self, function: Callable[..., Any], argument: int, name: str, via: str) -> Any:
        """Wrap ``function``: record its argument number ``argument`` (or ``name``) as written."""

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            path = args[argument] if len(args) > argument else kwargs.get(name)
            self.writes(path, via)
            outer = getattr(self._inside, "path", None)
            is_path = isinstance(path, (str, os.PathLike))
            self._inside.path = self._full(path) if is_path else None
            try:
                return function(*args, **kwargs)
            finally:
                self._inside.path = outer

        return wrapper

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        handler = self._handlers.get(event)
        if handler is None or self._recorder.is_quiet:
            return
        try:
            with self._recorder.quiet():
                handler(args)
        except (AttributeError, LookupError, TypeError, ValueError, UnicodeError):
            # An exception here would surface in the script's own call.
            return

    def _open(self, args: tuple[Any, ...]) -> None:
        path, _, flags = args
        if isinstance(path, int) or not isinstance(flags, int):
            return
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC) == 0:
            return
        if flags & os.O_APPEND:
            op = "append"
        elif flags & os.O_CREAT and flags & os.O_EXCL:
            op = "create"
        else:
            op = "write" if flags & os.O_TRUNC else "update"
        self._change(op, path)

    def _rename(self, args: tuple[Any, ...]) -> None:
        source, target, source_dir, target_dir = args
        self._change("rename", source, source_dir, to=self._full(target, target_dir))

    def _change(
        self, op: str, path: Any, folder: int = -1, *, to: str | None = None, via: str = "audit"
    ) -> None:
        full = self._full(path, folder)
        if self._is_ignored(full) or (
            via == "audit" and full == getattr(self._inside, "path", None)
        ):
            return
        event = File(
            op=op,
            path=full,
            to=to,
            existed=os.path.lexists(full),
            via=via,
            pid=self._recorder.pid,
            site=self._sites.here(),
        )
        self._recorder.emit(event)
        if self._written is not None:
            self._written.note(event)

    def _command(self, argv: Any) -> None:
        words = [argv] if isinstance(argv, (str, bytes)) or not isinstance(argv, Iterable) else argv
        self._recorder.emit(
            CommandStart(
                argv=[os.fsdecode(word) for word in words],
                pid=self._recorder.pid,
                site=self._sites.here(),
            )
        )

    def _is_ignored(self, path: str) -> bool:
        if path.startswith((*_SYSTEM, _SCRATCH)) or "__pycache__" in path:
            return True
        if self._recorder.owns(path):
            return True
        try:
            mode = os.stat(path).st_mode  # noqa: PTH116
        except OSError:
            return False
        return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))

    @staticmethod
    def _full(path: Any, folder: int = -1) -> str:
        name = os.fsdecode(path)
        if folder is not None and folder >= 0 and not os.path.isabs(name):  # noqa: PTH117
            parent = os.readlink(f"/proc/self/fd/{folder}")
            name = os.path.join(parent, name)  # noqa: PTH118
        return os.path.abspath(name)  # noqa: PTH100


def _torch(audit: FileAudit, torch: Any) -> None:
    torch.save = audit.wrap(torch.save, 1, "f", "torch.save")
    torch.serialization.save = torch.save
    torch.jit.save = audit.wrap(torch.jit.save, 1, "f", "torch.jit.save")


def _safetensors(audit: FileAudit, module: Any) -> None:
    module.save_file = audit.wrap(module.save_file, 1, "filename", "safetensors")


def _tokenizers(audit: FileAudit, module: Any) -> None:
    tokenizer, model = module.Tokenizer, module.models.Model
    tokenizer.save = audit.wrap(tokenizer.save, 1, "path", "tokenizers")
    save_model = model.save

    @functools.wraps(save_model)
    def save(self: Any, *args: Any, **kwargs: Any) -> Any:
        paths = save_model(self, *args, **kwargs)
        for path in paths:
            audit.writes(path, "tokenizers")
        return paths

    model.save = save


_WRITERS: dict[str, Callable[[FileAudit, Any], None]] = {
    "torch": _torch,
    "safetensors.torch": _safetensors,
    "safetensors.numpy": _safetensors,
    "tokenizers": _tokenizers,
}
"""How to wrap the native writers of a module."""
