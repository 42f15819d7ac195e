"""Diagnostics as a SARIF 2.1.0 log (OASIS standard), which code hosts and editors read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from ... import __version__
from ..rules import Rule, all_rules
from .diagnostics import Diagnostic, FileError, printable
from .severity import NAMES

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)


def log(items: Sequence[Diagnostic], errors: Sequence[FileError]) -> dict[str, Any]:
    """The log of one run: all rules with their manuals, and a result per diagnostic.

    ``errors`` are files that could not be checked; with any, the run was not successful.
    """
    rules = all_rules()
    index = {rule.code: number for number, rule in enumerate(rules)}
    driver = {
        "name": "ddpfix",
        "version": __version__,
        "rules": [descriptor(rule) for rule in rules],
    }
    notifications = [
        {"level": "error", "message": {"text": printable(str(error))}} for error in errors
    ]
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": not errors,
                "toolExecutionNotifications": notifications,
            }
        ],
        "results": [result(item, index[item.code]) for item in items],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def descriptor(rule: Rule) -> dict[str, Any]:
    """A rule's entry in the log."""
    return {
        "id": rule.code,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.section("At run time")},
        "help": {"text": rule.manual},
        "defaultConfiguration": {"level": NAMES[rule.severity.value]},
        "properties": {"fix": rule.safety.value},
    }


def result(item: Diagnostic, index: int) -> dict[str, Any]:
    """A diagnostic's entry in the log."""
    region = {
        "startLine": item.line,
        "startColumn": item.column,
        "endLine": item.end_line,
        "endColumn": item.end_column,
    }
    location = {"artifactLocation": {"uri": uri(item.path)}, "region": region}
    return {
        "ruleId": item.code,
        "ruleIndex": index,
        "level": NAMES[item.severity],
        "message": {"text": f"{item.title}: {item.because}. {item.consequence}"},
        "locations": [{"physicalLocation": location}],
    }


def uri(path: str) -> str:
    """A path as a URI reference: absolute paths as file: URIs."""
    quoted = quote(os.fsencode(path))
    return f"file://{quoted}" if os.path.isabs(path) else quoted
