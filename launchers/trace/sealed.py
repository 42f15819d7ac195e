"""The tracer for a script that must stand on its own: importing ddpfix fails in it.

The tracer is itself part of ddpfix and lies in sys.modules, where no finder on sys.meta_path would
be asked for it again. So the import statement and `importlib.import_module` are wrapped, and refuse
whoever is not ddpfix. Unlike a look at the script's imports this also meets those of a module that
it loads, and it lets a script pass that does without when the import fails.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any

from .__main__ import main

OWN = str(__package__).partition(".")[0]


def seal() -> None:
    """Have every import of ddpfix from outside ddpfix fail, as where it is not installed."""
    builtins.__import__ = _guarded(builtins.__import__)
    importlib.import_module = _guarded(importlib.import_module)


def _guarded(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def importing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == OWN:
            asking = str(sys._getframe(1).f_globals.get("__name__"))
            if asking.partition(".")[0] not in (OWN, "importlib") and not _starts(asking):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return original(name, *args, **kwargs)

    return importing


def _starts(asking: str) -> bool:
    """Whether this file is still ``__main__``: the script's own module takes that name later."""
    return asking == "__main__" and sys.modules["__main__"].__dict__ is globals()


if __name__ == "__main__":
    seal()
    main(sys.argv[1:])
