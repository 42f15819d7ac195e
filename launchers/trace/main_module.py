"""Run a script as ``__main__`` from a module that is itself ``__main__``."""

from __future__ import annotations

import builtins
import io
import os
import sys
from importlib.machinery import SourceFileLoader
from types import ModuleType


def run_as_main(script: str) -> None:
    """Execute a script in a new, lasting ``__main__``, as the interpreter itself would.

    runpy.run_path differs: it changes sys.argv[0] or __file__, leaves no __loader__, and takes
    ``__main__`` away before the exit handlers run.
    """
    path = os.path.abspath(script)  # noqa: PTH100  (normalised, as the interpreter does)
    loader = SourceFileLoader("__main__", path)
    module = ModuleType("__main__")
    vars(module).update(__file__=path, __loader__=loader, __builtins__=builtins, __cached__=None)
    sys.modules["__main__"] = module
    with io.open_code(path) as file:
        code = loader.source_to_code(file.read(), path)
    exec(code, vars(module))
