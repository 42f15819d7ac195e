"""What a finding's reader can do about it, judged by the whole program that it is found in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..findings import Finding, Safety, Severity

if TYPE_CHECKING:
    from ..analysis.training.program import Program

Remedies = dict[str, tuple[str, bool]]  # by safety: what to do, and whether patch does it
REPAIRS: Remedies = {
    "safe": ("`ddpfix patch` has an edit for it", True),
    "unsafe": ("`ddpfix patch --unsafe-fixes` has an edit for it", True),
}

# What other repairs often settle: evaluations that rank 0 runs alone, and what it decides by them.
CONSEQUENCES = ("DF502", "DF506")


def remedies(program: Program, findings: Sequence[Finding]) -> Remedies:
    """The remedies of findings with edits: patch repairs all of a program, or nothing of it.

    What certainly keeps it from that is said. None of them promises a repair: whether the audit
    takes the result is known only when it is made, which costs several times a check.
    """
    from ..engine.unpatchable import reason_not_to_begin

    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    edited = {finding.code for finding in findings if finding.edits}  # one carries them for all
    left = [f for f in errors if f.safety is Safety.REPORT and f.code not in edited]
    obstacle = next((f for f in left if f.code not in CONSEQUENCES), None)
    if reason_not_to_begin(program, findings):
        return blocked("and patches nothing of a script that starts its own ranks")
    if obstacle is not None:
        file = obstacle.module.source.file
        return blocked(f"and patches nothing before {file}:{obstacle.line} is right")
    if any(finding.safety is Safety.UNSAFE for finding in errors):
        return dict.fromkeys(REPAIRS, REPAIRS["unsafe"])
    if left:
        unless = f", unless {left[0].code} in line {left[0].line} is left then"
        return {safety: (text + unless, True) for safety, (text, _) in REPAIRS.items()}
    return REPAIRS


def blocked(why: str) -> Remedies:
    """The remedies where patch would refuse the program."""
    return dict.fromkeys(REPAIRS, (f"`ddpfix patch` has an edit, {why}", False))
