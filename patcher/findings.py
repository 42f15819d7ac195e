"""What a rule says: severities, safeties and findings."""

from __future__ import annotations

import ast
from enum import Enum
from typing import TYPE_CHECKING

from ..record import record

if TYPE_CHECKING:
    from .editing.edits import Edit
    from .source.module import Module


class Severity(Enum):
    """How bad it is on several ranks."""

    ERROR = "E"  # a crash, a hang or a wrong result
    DEGRADED = "W"  # slower or misleading, the result still stands
    NOTE = "N"  # worth knowing


class Safety(Enum):
    """What a rule's edits may change."""

    SAFE = "safe"  # one process computes bit for bit what it did
    UNSAFE = "unsafe"  # needs a judgement; only with --unsafe-fixes
    REPORT = "report"  # no edit


@record
class Finding:
    """One hazard at one place: ``at`` is where, ``because`` the evidence in this script.

    A finding with ``edits`` is repaired by them; ``safety`` overrides the rule's own where the
    same hazard has provable and unprovable shapes.
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
