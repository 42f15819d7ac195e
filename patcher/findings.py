"""What a rule says: severities, safeties and findings."""

from __future__ import annotations

from ..record import record
from .choice import Choice
from .trees import ast

TYPE_CHECKING = False  # typing takes long to import
if TYPE_CHECKING:
    from typing import ClassVar

    from .edits import Edit
    from .module import Module


class Severity(Choice):
    """How bad it is on several ranks."""

    ERROR: ClassVar[Severity]  # a crash, a hang or a wrong result
    DEGRADED: ClassVar[Severity]  # slower or misleading, the result still stands
    NOTE: ClassVar[Severity]  # worth knowing


Severity.ERROR, Severity.DEGRADED, Severity.NOTE = map(Severity, "EWN")


class Safety(Choice):
    """What a rule's edits may change."""

    SAFE: ClassVar[Safety]  # one process computes bit for bit what it did
    UNSAFE: ClassVar[Safety]  # needs a judgement; only with --unsafe-fixes
    REPORT: ClassVar[Safety]  # no edit


Safety.SAFE, Safety.UNSAFE, Safety.REPORT = map(Safety, ("safe", "unsafe", "report"))


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
