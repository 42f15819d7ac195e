"""Run rules over a program: its findings, in the order of file and line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..analysis.program import Program
from ..codes import selected
from ..findings import Finding
from ..rules import Rule
from .noqa import UNUSED, audible, noqas, unused


def select(rules: Iterable[Rule], chosen: Sequence[str], ignored: Sequence[str]) -> list[Rule]:
    """Rules by prefix of their code. Raises InputError for a prefix that fits none."""
    rules = list(rules)
    codes = selected([rule.code for rule in rules], chosen, ignored)
    return [rule for rule in rules if rule.code in codes]


def check(program: Program, rules: Iterable[Rule]) -> list[Finding]:
    """All findings, in order of file and line, but those that a noqa comment silences.

    Few rules have any outside training programs.
    """
    rules = [rule for rule in rules if rule.anywhere or program.is_training_program]
    order = {module: index for index, module in enumerate(program.modules)}
    comments = {module: noqas(module) for module in program.modules}
    every = (finding for rule in rules for finding in rule.findings(program))
    trains = program.is_training_program
    live = (
        finding for finding in every if not trains or program.is_live(finding.module, finding.at)
    )
    found = audible(live, comments)
    codes = {rule.code for rule in rules}
    if UNUSED in codes and program.script.is_program:
        # Another script may need the comments of a module that both import.
        found += audible(unused(program.script, comments[program.script], codes), comments)
    return sorted(found, key=lambda f: (order[f.module], f.line, f.column, f.code))
