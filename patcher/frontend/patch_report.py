"""The result of ``ddpfix patch --json``: what was changed, what is left, what the audit says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..engine.patch import Patch
from ..findings import Finding
from .audit_command import as_object, plain
from .diagnostics import diagnose
from .output import as_json, dumps


def patch_report(patches: Sequence[Patch], failures: Sequence[str]) -> str:
    """A JSON object: ``scripts`` that were read, and ``failures``: why others are left alone."""
    return dumps({"scripts": [script_report(one) for one in patches], "failures": [*failures]})


def script_report(one: Patch) -> dict[str, Any]:
    """One script: its diff, its findings before and after as counts and objects, its audit."""
    return {
        "path": str(one.path),
        "files": [change.source.name for change in one.changes],
        "findings_before": len(one.findings_before),
        "findings_after": [diagnosed(finding) for finding in one.findings_after],
        "audit": [as_object(plain(verdict)) for verdict in one.audit],
        "diff": one.diff(),
    }


def diagnosed(finding: Finding) -> dict[str, Any]:
    """A finding as ``check --output-format json`` prints it."""
    (item,) = json.loads(as_json([diagnose(finding)]))
    found: dict[str, Any] = item
    return found
