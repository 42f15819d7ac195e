"""The audit audited: each violation that is planted into a good program is named, and no other."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import ddpfix.fixtures
import pytest
from audited import program_of
from ddpfix.patcher.audit import all_obligations, audit
from ddpfix.patcher.audit.verdict import AuditVerdict
from ddpfix.patcher.engine.patch import patch
from planted import FIXTURES, GOOD, PLANTED

FOLDER = Path(ddpfix.fixtures.__file__).parent


@cache
def good(name: str) -> str:
    """A program that keeps all obligations: a text of the table, or a fixture after its patch."""
    if name in GOOD:
        return GOOD[name]
    result = patch(FOLDER / name)
    assert result.refusal == ""
    return next(c.text for c in result.changes if c.source.path == FOLDER / name)


def violations(text: str) -> list[AuditVerdict]:
    return [each for each in audit(program_of(text)) if each.is_violated]


@pytest.mark.parametrize("name", [*GOOD, *FIXTURES])
def test_a_good_program_keeps_every_obligation(name: str) -> None:
    assert [(v.code, v.line, v.because) for v in audit(program_of(good(name)))] == []


@pytest.mark.parametrize(
    ("code", "name", "edits"),
    [pytest.param(*row, id=f"{row[0]} {n}") for n, row in enumerate(PLANTED)],
)
def test_a_planted_violation_is_named(
    code: str, name: str, edits: tuple[tuple[str, str], ...]
) -> None:
    text = good(name)
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    found = violations(text)
    assert {each.code for each in found} == {code}, [(v.code, v.line, v.because) for v in found]


def test_every_obligation_has_violations_planted() -> None:
    codes = {each.code for each in all_obligations()} - {"O11"}  # tests/test_audit_shared.py
    counts = {code: sum(row[0] == code for row in PLANTED) for code in codes}
    assert min(counts.values()) >= 5
    assert len(PLANTED) > 100
