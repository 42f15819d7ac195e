"""Verdicts of the audit: violated or unknown, with the place and a sentence."""

from __future__ import annotations

import ast
from enum import Enum

from ...record import record
from ..source.module import Module


class Answer(Enum):
    """What an obligation answers where it does not hold for certain."""

    VIOLATED = "violated"
    UNKNOWN = "unknown"


@record
class AuditVerdict:
    """One verdict at one node; ``because`` is a sentence about this program."""

    module: Module
    at: ast.AST
    answer: Answer
    because: str
    code: str = ""  # filled in by the obligation

    @property
    def line(self) -> int:
        """1-based line in the audited text."""
        line: int = getattr(self.at, "lineno", 1)
        return line

    @property
    def is_violated(self) -> bool:
        """Whether the obligation is violated for certain."""
        return self.answer is Answer.VIOLATED

    @property
    def where(self) -> str:
        """``path:line``."""
        return f"{self.module.source.name}:{self.line}"


def violated(module: Module, at: ast.AST, because: str) -> AuditVerdict:
    """The verdict that an obligation is violated at a node."""
    return AuditVerdict(module, at, Answer.VIOLATED, because)


def unknown(module: Module, at: ast.AST, because: str) -> AuditVerdict:
    """The verdict that it could not be told whether an obligation holds at a node."""
    return AuditVerdict(module, at, Answer.UNKNOWN, because)
