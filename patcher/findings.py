"""Findings of rules, with their severity and the safety of their edits."""

from __future__ import annotations

import ast
from enum import Enum
from typing import TYPE_CHECKING

from ..record import record

if TYPE_CHECKING:
    from .editing.edits import Edit
    from .source.module import Module


class Severity(Enum):
    """How bad a hazard is on several ranks."""

    ERROR = "E"  # a crash, a hang or a wrong result
    DEGRADED = "W"  # slower or misleading, the result still stands
    NOTE = "N"  # worth knowing


class Safety(Enum):
    """How much a rule's edits may change."""

    SAFE = "safe"  # one process computes bit for bit what it did before
    UNSAFE = "unsafe"  # needs a judgement: only with --unsafe-fixes
    REPORT = "report"  # no edit


@record
class Finding:
    """One hazard at one node, ``at``; ``because`` is the evidence in this script.

    ``edits`` repair it. ``safety`` overrides the rule's own where only some forms of the hazard
    can be proven safe to repair.
    """

    module: Module
    at: ast.stmt | ast.expr | ast.keyword
    because: str
    edits: tuple[Edit, ...] = ()
    safety: Safety | None = None
    severity: Severity | None = None
    code: str = ""  # filled in by the rule's runner

    @property
    def line(self) -> int:
        """1-based line of the hazard."""
        return self.at.lineno

    @property
    def column(self) -> int:
        """1-based column of the hazard."""
        return self.at.col_offset + 1
