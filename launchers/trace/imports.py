"""Run callbacks when the script imports a library.

The tracer must not import torch itself: a script may set OMP_NUM_THREADS or CUDA_VISIBLE_DEVICES
first, and must get torch as it would without the tracer.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from .events import ImportEvent
from .recorder import Recorder

_TIMED = frozenset(
    [
        "accelerate",
        "datasets",
        "matplotlib",
        "numpy",
        "pandas",
        "peft",
        "scipy",
        "sklearn",
        "tensorboard",
        "tokenizers",
        "torch",
        "torchvision",
        "transformers",
    ]
)
"""Libraries whose import time is recorded."""


class AfterImport(MetaPathFinder):
    """A finder that leaves finding to the others, and runs callbacks once a module is executed."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._callbacks: dict[str, list[Callable[[Any], None]]] = {}
        self._local = threading.local()

    def call(self, name: str, callback: Callable[[Any], None]) -> None:
        """Call ``callback(module)`` right after ``name`` is imported, or now if it already is."""
        if name in sys.modules:
            callback(sys.modules[name])
        else:
            self._callbacks.setdefault(name, []).append(callback)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        is_timed = not self._depth and fullname.partition(".")[0] in _TIMED
        if not is_timed and fullname not in self._callbacks:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec: ModuleSpec | None = find(fullname, path, target)
            if spec is not None:
                self._wrap_loader(spec)
                return spec
        return None

    @property
    def _depth(self) -> int:
        return getattr(self._local, "depth", 0)

    def _wrap_loader(self, spec: ModuleSpec) -> None:
        loader: Any = spec.loader
        original = getattr(loader, "exec_module", None)
        if original is None:
            return

        def exec_module(module: ModuleType) -> None:
            # Removed from the instance before the module can look at its loader.
            del loader.exec_module
            begin = time.perf_counter()
            self._local.depth = self._depth + 1
            try:
                original(module)
            finally:
                self._local.depth -= 1
            seconds = time.perf_counter() - begin
            # A package may replace its own entry, as transformers does.
            module = sys.modules.get(spec.name, module)
            for callback in self._callbacks.pop(spec.name, ()):
                callback(module)
            if not self._depth and spec.name.partition(".")[0] in _TIMED:
                version = module.__dict__.get("__version__")
                self._recorder.emit(
                    ImportEvent(
                        module=spec.name,
                        version=None if version is None else str(version),
                        seconds=seconds,
                    )
                )

        try:
            loader.exec_module = exec_module
        except AttributeError:
            return  # a loader without instance attributes; no library of ours has one
