"""Judge the result of a patch by the audit: refuse it for what it breaks, tell what is unknown."""

from __future__ import annotations

import re
from collections import Counter

from ..analysis.training.program import Program
from ..audit import audit
from ..audit.verdict import AuditVerdict
from .disk_lines import line_on_disk, original_of, text_on_disk

# A patch claims that ranks train as one process does. So it is refused also where the original has
# violated these.
CLAIMED = ("O2", "O6")

# What the script's author can do about an obligation that a patch would break.
WAYS_OUT = {
    "O1": "bind the name on every way to that line",
    "O2": "wrap each model that is trained in DistributedDataParallel, before its loop",
    "O3": "scale every backward that the optimizer steps on, and divide each loss once",
    "O4": "deal each training loader by one DistributedSampler",
    "O5": "count the schedule in optimizer steps of one rank",
    "O6": "take the tests of the rank from around the call, so that all ranks come to it",
    "O7": "let rank 0 alone write the file, or put the rank into its path",
    "O8": "put the line under the test of the last micro-batch",
    "O9": "collect plain lists, tuples, numbers and texts",
    "O10": "make the group once, on every rank",
    "O11": "name the other script in the same call",
    "O12": "save the state of the module inside the wrapper",
}
UNREADABLE = "see that the file is whole, and indented by spaces alone"  # for libcst
# What some violations of an obligation need instead, by words of their reasons.
OTHER_WAYS_OUT = {
    "by the number of the batch": "let the dataset hand it out with each example",
    "cannot read it": UNREADABLE,
}


def judge_result(original: Program, result: Program) -> tuple[str, tuple[AuditVerdict, ...]]:
    """Why a result must not be written ("" if it may), and the verdicts to tell.

    A violation that the original has in the same way is told. The lines in the reason are those of
    the original.
    """
    verdicts = audit(result, original)
    if not verdicts:
        return "", ()
    known = Counter(kind(each) for each in audit(original) if each.is_violated)
    found = Counter(kind(each) for each in verdicts if each.is_violated)
    new = [
        each
        for each in verdicts
        if each.is_violated
        and (each.code in CLAIMED or is_more(each, found[kind(each)], known[kind(each)]))
    ]
    reasons = [refused_for(original, each) for each in new[:4]]
    if reasons:
        ways_out = "; ".join(dict.fromkeys(map(way_out, new[:4])))
        text = f"not patched: the result would not keep {', '.join(reasons)}; {ways_out}"
        return f"{text}, and patch again", tuple(verdicts)
    return "", tuple(verdicts)


def way_out(verdict: AuditVerdict) -> str:
    """What the script's author can do about a violation."""
    others = (way for words, way in OTHER_WAYS_OUT.items() if words in verdict.because)
    return next(others, WAYS_OUT[verdict.code])


def is_more(verdict: AuditVerdict, now: int, before: int) -> bool:
    """Whether a violation is one more than the original has; a name is unbound once."""
    return not before if verdict.code == "O1" else now > before


def kind(verdict: AuditVerdict) -> tuple[str, str, str]:
    """What is the same of a verdict before and after lines have moved and been edited."""
    because = re.sub(r"line \d+", "line", verdict.because)
    return verdict.module.source.name, verdict.code, because


def refused_for(original: Program, verdict: AuditVerdict) -> str:
    """``O2 line 7 (because)``, in the lines of the original; with the file if it is another."""
    edited = verdict.module
    old = original_of(original, edited)
    line = line_on_disk(old, edited, verdict.line)
    place = f"line {line}" if old is original.script else f"{old.source.name}:{line}"
    return f"{verdict.code} {place} ({text_on_disk(original, edited, verdict.because)})"
