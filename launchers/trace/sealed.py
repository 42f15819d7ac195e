"""The tracer for a script that must not need ddpfix: importing ddpfix fails in it.

The tracer is itself part of ddpfix and in sys.modules, so finders on sys.meta_path are not asked.
Instead the import statement and `importlib.import_module` are wrapped, and fail for any importer
outside ddpfix. Unlike a check of the script's source this covers the modules that it imports, and
accepts a script that catches the failing import.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from . import __main__ as tracer

_OWN = str(__package__).partition(".")[0]


def main(argv: Sequence[str]) -> NoReturn:
    """Trace one script, which cannot import ddpfix."""
    seal()
    tracer.main(argv)


def seal() -> None:
    """Make every import of ddpfix from outside ddpfix fail, as if it were not installed."""
    builtins.__import__ = _guarded(builtins.__import__)
    importlib.import_module = _guarded(importlib.import_module)


def _guarded(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def guarded_import(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == _OWN:
            importer = str(sys._getframe(1).f_globals.get("__name__"))
            if importer.partition(".")[0] not in (_OWN, "importlib") and not _is_this_file(
                importer
            ):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return original(name, *args, **kwargs)

    return guarded_import


def _is_this_file(importer: str) -> bool:
    """Whether the importer is this file as ``__main__``, not yet the script's module."""
    return importer == "__main__" and sys.modules["__main__"].__dict__ is globals()


if __name__ == "__main__":
    main(sys.argv[1:])
