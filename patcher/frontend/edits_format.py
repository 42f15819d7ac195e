"""Print findings with their fixes: an object in the form of ruff's JSON, or SARIF."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..editing.text_edits import TextEdit
from .check_edits import Fix, Fixes
from .diagnostics import Diagnostic, FileError, printable
from .output import as_object, dumps
from .sarif import log, uri


def as_json(items: Sequence[Diagnostic], errors: Sequence[FileError], fixes: Fixes) -> str:
    """An object: the findings, each with a fix that stands alone or null, and whole repairs."""
    return dumps(
        {
            "findings": [
                {**as_object(item), "fix": part_as_json(fixes.part(item))} for item in items
            ],
            "fixes": list(map(whole_as_json, fixes.whole)),
        }
    )


def as_sarif(items: Sequence[Diagnostic], errors: Sequence[FileError], fixes: Fixes) -> str:
    """A SARIF log: each result has the fix that stands alone, the first of a program the whole.

    SARIF has fixes at results only.
    """
    document = log(items, errors)
    whole = {path: fix for fix in fixes.whole for path, _ in fix.files}
    for item, entry in zip(items, document["runs"][0]["results"], strict=True):
        part, repair = fixes.part(item), None
        if item.is_fixable and item.path in whole:
            repair = whole[item.path]
            whole = {path: fix for path, fix in whole.items() if fix is not repair}
        if part or repair:
            entry["fixes"] = [fix_as_sarif(fix) for fix in (part, repair) if fix]
    return dumps(document)


WITH_EDITS = {"json": as_json, "sarif": as_sarif}


def edits_as_json(edits: Iterable[TextEdit]) -> list[dict[str, Any]]:
    """Edits as ruff's JSON has them."""
    return [
        {
            "content": edit.content,
            "location": {"row": edit.line, "column": edit.column},
            "end_location": {"row": edit.end_line, "column": edit.end_column},
        }
        for edit in edits
    ]


def part_as_json(fix: Fix | None) -> dict[str, Any] | None:
    """A finding's own fix as ruff's JSON has it; None where it has none."""
    if fix is None:
        return None
    ((_, edits),) = fix.files
    return {
        "applicability": fix.applicability,
        "message": fix.message,
        "edits": edits_as_json(edits),
    }


def whole_as_json(fix: Fix) -> dict[str, Any]:
    """A repair of several findings, with the edits of each file."""
    return {
        "applicability": fix.applicability,
        "message": fix.message,
        "files": [
            {"path": printable(path), "edits": edits_as_json(edits)} for path, edits in fix.files
        ],
    }


def fix_as_sarif(fix: Fix) -> dict[str, Any]:
    """A ``fix`` object of SARIF."""
    return {
        "description": {"text": fix.message},
        "properties": {"applicability": fix.applicability},
        "artifactChanges": [
            {
                "artifactLocation": {"uri": uri(path)},
                "replacements": [
                    {
                        "deletedRegion": {
                            "startLine": edit.line,
                            "startColumn": edit.column,
                            "endLine": edit.end_line,
                            "endColumn": edit.end_column,
                        },
                        "insertedContent": {"text": edit.content},
                    }
                    for edit in edits
                ],
            }
            for path, edits in fix.files
        ],
    }
