"""The reason why a capability cannot be added."""

from __future__ import annotations

import ast

from ..findings import Finding
from ..source.module import Module


class CannotError(Exception):
    """A capability cannot be added, because; `finding` has the place that shows it."""

    def __init__(self, module: Module, at: ast.stmt | ast.expr, because: str) -> None:
        super().__init__(because)
        self.finding = Finding(module, at, because)
