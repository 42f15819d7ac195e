"""Repair what one rule finds in a program, where that can be done without the other repairs.

``patch`` judges a program with all repairs in it. Fewer of them may break it: one rule binds the
name that another one's edit reads, or gathers where only rank 0 comes before a third opens the way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property

from ...errors import InputError
from ..analysis.training.program import Program
from ..audit import audit
from ..audit.verdict import AuditVerdict
from ..editing.edits import RefusedError
from ..findings import Finding, Safety, Severity
from ..rules import Rule, all_rules
from .audited import kind
from .check import check
from .patch import MAX_ROUNDS, FileChange, file_changes
from .rounds import apply_round


class RuleFixes:
    """The repairs of a program that was read, a rule at a time."""

    def __init__(self, program: Program, allowed: frozenset[Safety]) -> None:
        self.program = program
        self.allowed = allowed
        self._found: dict[str, tuple[FileChange, ...]] = {}

    def changes(self, code: str) -> tuple[FileChange, ...]:
        """What repairs all that the rule ``code`` finds; empty where that does not stand alone.

        It does where each of its findings is gone, no other rule finds more, and the audit has
        nothing to say that it does not say of the program as it is.
        """
        if code not in self._found:
            try:
                self._found[code] = self._repair(code)
            except (RefusedError, InputError, RecursionError):
                self._found[code] = ()
        return self._found[code]

    def _repair(self, code: str) -> tuple[FileChange, ...]:
        rules = [rule for rule in all_rules() if rule.code == code]
        program, texts = self.program, dict[str, str]()
        for _ in range(MAX_ROUNDS):
            fixable = self._fixable(program, rules)
            if not fixable:
                break
            program = apply_round(program, fixable, texts)
        else:
            return ()
        stands = texts and code not in counts(program, rules) and not self._has_more(program)
        return file_changes(self.program, texts) if stands else ()

    def _fixable(self, program: Program, rules: Sequence[Rule]) -> list[Finding]:
        return [f for f in check(program, rules) if f.edits and f.safety in self.allowed]

    def _has_more(self, program: Program) -> bool:
        if counts(program, all_rules()) - self._counts:
            return True
        return bool(Counter(map(kind, audit(program, self.program))) - self._verdicts)

    @cached_property
    def _counts(self) -> Counter[str]:
        return counts(self.program, all_rules())

    @cached_property
    def _verdicts(self) -> Counter[tuple[str, str, str]]:
        verdicts: list[AuditVerdict] = audit(self.program)
        return Counter(map(kind, verdicts))


def counts(program: Program, rules: Sequence[Rule]) -> Counter[str]:
    """Findings of each rule that are more than notes."""
    return Counter(f.code for f in check(program, rules) if f.severity is not Severity.NOTE)
