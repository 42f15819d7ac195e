"""The rules, one per module of this folder. There is no registry: the files are listed.

A rule module has ``CODE``, ``SEVERITY``, ``SAFETY``, a docstring that is its manual, and
``findings(program)``. ``ANYWHERE = True`` runs it on modules of libraries too.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from ...record import record, replace
from ..analysis.training.program import Program
from ..codes import rule_files
from ..findings import Finding, Safety, Severity

SECTIONS = ("What", "At run time", "Fix", "Fix safety", "Source")


@record
class Rule:
    """A rule, as its module defines it."""

    code: str
    title: str
    manual: str
    severity: Severity
    safety: Safety
    anywhere: bool
    run: Callable[[Program], Iterator[Finding]]
    file: str  # whose first lines are the manual

    def section(self, name: str) -> str:
        """A section of the manual as one line."""
        lines: list[str] = []
        inside = False
        for line in self.manual.splitlines():
            if line.startswith(name) and line[len(name) : len(name) + 2] == "  ":
                inside, line = True, line[len(name) :]
            elif inside and not line.startswith(" "):
                break
            if inside:
                lines.append(line.strip())
        return " ".join(lines)

    def findings(self, program: Program) -> Iterator[Finding]:
        """The rule's findings, carrying its code, severity and safety."""
        for finding in self.run(program):
            yield replace(
                finding,
                safety=(finding.safety or self.safety) if finding.edits else Safety.REPORT,
                severity=finding.severity or self.severity,
                code=self.code,
            )


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule of this folder, by code."""
    rules = []
    for name in rule_files():
        path = f"{__name__}.{name.removesuffix('.py')}"
        module: Any = importlib.import_module(path)
        manual = (module.__doc__ or "").strip()
        title = manual.partition("\n")[0].rstrip(".")
        rules.append(
            Rule(
                code=module.CODE,
                title=title,
                manual=manual,
                severity=module.SEVERITY,
                safety=module.SAFETY,
                anywhere=getattr(module, "ANYWHERE", False),
                run=module.findings,
                file=module.__file__,
            )
        )
    return tuple(sorted(rules, key=lambda rule: rule.code))
