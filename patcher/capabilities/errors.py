"""The error of a capability that cannot be added to a script."""

from __future__ import annotations

import ast

from ..findings import Finding
from ..source.module import Module


class CannotError(Exception):
    """A capability cannot be added; ``finding`` says why and where."""

    def __init__(self, module: Module, at: ast.stmt | ast.expr, because: str) -> None:
        super().__init__(because)
        self.finding = Finding(module, at, because)
