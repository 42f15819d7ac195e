"""Findings as text or data. rich is imported only for a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from .findings import Finding, Safety
from .rules import all_rules

FIX = {
    Safety.SAFE: "`ddpfix patch` repairs it",
    Safety.UNSAFE: "`ddpfix patch --unsafe-fixes` repairs it",
    Safety.REPORT: "",
}


def concise(finding: Finding) -> str:
    """``path:line:column: CODE severity title (evidence)``."""
    rule = {rule.code: rule for rule in all_rules()}[finding.code]
    assert finding.severity is not None
    return (
        f"{finding.module.source.path}:{finding.line}:{finding.column}: {finding.code} "
        f"{finding.severity.value} {rule.title}: {finding.because}"
    )


def full(finding: Finding) -> str:
    """The concise line, the source line, what happens at run time, and the way out."""
    rule = {rule.code: rule for rule in all_rules()}[finding.code]
    assert finding.safety is not None
    line = finding.module.line(finding.line).strip()
    fix = FIX[finding.safety] or rule.section("Fix")
    return (
        f"{concise(finding)}\n    | {line}\n    = {rule.section('At run time')}\n    = fix: {fix}\n"
    )


def as_json(findings: Sequence[Finding]) -> str:
    """A list of objects, one per finding."""
    rows = [
        {
            "path": str(f.module.source.path),
            "line": f.line,
            "column": f.column,
            "code": f.code,
            "severity": f.severity.name.lower() if f.severity else "",
            "title": next(rule.title for rule in all_rules() if rule.code == f.code),
            "because": f.because,
            "fix": f.safety.value if f.safety else "",
        }
        for f in findings
    ]
    return json.dumps(rows, indent=2)


def manuals() -> str:
    """Every rule's manual as one Markdown page."""
    parts = ["# Rules\n", "Written by `ddpfix rules --markdown` from the rules' own docstrings.\n"]
    for rule in all_rules():
        safety = {Safety.SAFE: "safe fix", Safety.UNSAFE: "unsafe fix", Safety.REPORT: "report"}
        about = f"{rule.severity.name.lower()}, {safety[rule.safety]}"
        body = rule.manual.partition("\n")[2].strip("\n")
        parts.append(f"## {rule.code}: {rule.title}\n\n{about}\n\n```text\n{body}\n```\n")
    return "\n".join(parts)


def show_diff(text: str) -> None:
    """A diff on stdout, coloured on a terminal."""
    if not sys.stdout.isatty():
        sys.stdout.write(text)
        return
    from rich.console import Console
    from rich.syntax import Syntax

    Console().print(Syntax(text, "diff", background_color="default"))
