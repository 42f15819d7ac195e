"""Gates that ask the process group for the rank, in a program that ends up without a group.

They hold in every process, so they repair nothing: the findings stay, and say so.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...record import replace
from ..analysis.training.frameworks import may_have_group, starts_under_horovod
from ..analysis.training.program import Program
from ..editing.edits import Define, Insert
from ..findings import Finding, Safety, Severity
from ..fixes.process_group import WAIT

MAKE_GROUP = {"DF201", "DF204"}  # rules whose edits make one
MAKES_GROUP = "init_process_group"
# Helpers that do as one process without a group; those that write would race for one file.
BY_RANK = ("is_main_process", "first_on_main", "save_on_main", "write_on_main")
ASKS_TORCH = ("torch.distributed", "is_main_process", "SequentialSampler")
BECAUSE = "the script makes no process group, so that each process takes itself for rank 0"


def asks_group(finding: Finding) -> bool:
    """Whether a finding's edits put something under a test of the rank, or let ranks wait."""
    return any(
        (isinstance(edit, Define) and edit.name in BY_RANK)
        or (isinstance(edit, Insert) and edit.code == WAIT)
        for edit in finding.edits
    )


def without_gates_of_one(program: Program, findings: list[Finding]) -> list[Finding]:
    """The findings; where no edit makes a process group, those that ask it without their edits."""
    if starts_under_horovod(program):
        return [replace(one, edits=()) if asks_torch(one) else one for one in findings]
    if not any(map(asks_group, findings)) or may_get_group(program, findings):
        return findings
    return [left_alone(one) if asks_group(one) else one for one in findings]


def asks_torch(finding: Finding) -> bool:
    """Whether a finding's edits ask torch for the rank, which does not know those of Horovod."""
    return any(
        isinstance(edit, Define)
        or any(word in getattr(edit, name, "") for word in ASKS_TORCH for name in ("code", "test"))
        for edit in finding.edits
    )


def left_alone(finding: Finding) -> Finding:
    because = f"{finding.because}; {BECAUSE}"
    severity, safety = Severity.NOTE, Safety.REPORT
    return replace(finding, edits=(), because=because, severity=severity, safety=safety)


def may_get_group(program: Program, findings: Iterable[Finding]) -> bool:
    """Whether something makes a process group: the program, what it does not show, or an edit."""
    return may_have_group(program) or any(
        MAKES_GROUP in getattr(edit, "code", "") for finding in findings for edit in finding.edits
    )
