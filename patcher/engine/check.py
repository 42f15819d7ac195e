"""Run rules over a program and sort their findings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..analysis.training.program import Program, is_left_out_by_calls
from ..codes import select_codes
from ..findings import Finding
from ..rules import Rule
from .beside_trainer import findings_beside_trainer
from .beside_training import weaker_beside_training
from .lone_gates import MAKE_GROUP, without_gates_of_one
from .noqa import UNUSED_NOQA, drop_silenced, noqas, unused_noqas


def select_rules(rules: Iterable[Rule], select: Sequence[str], ignore: Sequence[str]) -> list[Rule]:
    """Rules by prefix of their code. Raises InputError for a prefix that fits none."""
    rules = list(rules)
    codes = select_codes([rule.code for rule in rules], select, ignore)
    return [rule for rule in rules if rule.code in codes]


def check(program: Program, rules: Iterable[Rule]) -> list[Finding]:
    """Findings in order of file and line, without those that a noqa comment silences.

    Outside training programs, only rules that are valid ``anywhere`` run; where a Trainer trains,
    those on files too.
    """
    trains = program.is_training_program
    every_rule = list(rules)
    rules = [rule for rule in every_rule if rule.anywhere or trains]
    order = {module: index for index, module in enumerate(program.modules)}
    comments = {module: noqas(module) for module in program.modules}
    every = (finding for rule in rules for finding in rule.findings(program))
    live = (
        weaker_beside_training(program, finding) if trains else finding
        for finding in every
        if not trains
        or (
            program.is_live(finding.module, finding.at)
            and not is_left_out_by_calls(program, finding.module, finding.at)
        )
    )
    beside = () if trains else findings_beside_trainer(program, every_rule)
    findings = drop_silenced((*live, *beside), comments)
    codes = {rule.code for rule in rules}
    if UNUSED_NOQA in codes and program.script.is_program:
        # Another script may need the comments of a module that both import.
        findings += drop_silenced(
            unused_noqas(program.script, comments[program.script], codes), comments
        )
    if codes >= MAKE_GROUP:
        findings = without_gates_of_one(program, findings)
    return sorted(findings, key=lambda f: (order[f.module], f.line, f.column, f.code))
