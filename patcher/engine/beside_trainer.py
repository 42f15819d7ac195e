"""What every rank does beside a Trainer of transformers, which a script is left to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...record import replace
from ..analysis.models.library_trainers import is_left_to_trainer
from ..analysis.ranks.rank_reach import RANKS, roles_reaching
from ..analysis.training.program import Program
from ..findings import Finding, Safety, Severity
from ..rules import Rule

OF_FILES = ("DF406", "DF6")  # codes, or how they begin
WAY_OUT = (
    "; ask `trainer.is_world_process_zero()`, or let rank 0 go first by `args.main_process_first()`"
)


def findings_beside_trainer(program: Program, rules: Iterable[Rule]) -> Iterator[Finding]:
    """What rules on files find that every rank of a Trainer reaches, beside the script or in it.

    Told and not mended: the Trainer's own methods wait for all ranks, wherever they are called.
    """
    if not is_left_to_trainer(program):
        return
    folder = program.script.source.path.parent
    for rule in rules:
        if rule.anywhere or not rule.code.startswith(OF_FILES):
            continue
        for finding in rule.findings(program):
            module = finding.module
            if (
                module.source.path.is_relative_to(folder)
                and program.is_live(module, finding.at)
                and roles_reaching(program, module, finding.at) >= RANKS
            ):
                is_note = finding.severity is Severity.NOTE
                severity = Severity.NOTE if is_note else Severity.DEGRADED
                yield replace(
                    finding,
                    because=finding.because + WAY_OUT,
                    edits=(),
                    safety=Safety.REPORT,
                    severity=severity,
                )
