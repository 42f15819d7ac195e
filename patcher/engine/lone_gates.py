"""Gates that ask the process group for the rank, in a program that ends up without a group.

They hold in every process, so they repair nothing: the findings stay, and say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...record import replace
from ..analysis.frameworks import (
    AVERAGES_GRADIENTS,
    DEALS_DATA,
    DIVIDES_WORK,
    OWNS_LOOP,
    calls_one_of,
)
from ..analysis.program import Program
from ..editing.edits import Define, Insert
from ..findings import Finding, Severity
from ..fixes.process_group import WAIT

MAKES_GROUP = "init_process_group"
OTHERS_MAKE_IT = {"init_distributed", "init_dist", "TrainingArguments", "PartialState", "hvd.init"}
BY_RANK = ("is_main_process", "first_on_main")  # helpers that do as one process without a group
BECAUSE = "the script makes no process group, so that each process takes itself for rank 0"


def asks_group(finding: Finding) -> bool:
    """Whether a finding's edits put something under a test of the rank, or let ranks wait."""
    return any(
        (isinstance(edit, Define) and edit.name in BY_RANK)
        or (isinstance(edit, Insert) and edit.code == WAIT)
        for edit in finding.edits
    )


def stays_alone(original: Program, texts: Mapping[str, str]) -> bool:
    """Whether nothing makes a process group, in the program or in its new ``texts``."""
    if original.unread or original.calls_to(MAKES_GROUP, "destroy_process_group"):
        return False
    if any(MAKES_GROUP in text for text in texts.values()):
        return False
    libraries = AVERAGES_GRADIENTS | DEALS_DATA | DIVIDES_WORK | OWNS_LOOP | OTHERS_MAKE_IT
    return not calls_one_of(original, libraries)


def without_gates(findings: Iterable[Finding]) -> Iterable[Finding]:
    """The findings, those that ask the group without their edits."""
    for one in findings:
        if asks_group(one):
            because, severity = f"{one.because}; {BECAUSE}", Severity.DEGRADED
            yield replace(one, edits=(), because=because, severity=severity)
        else:
            yield one
