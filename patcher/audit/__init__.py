"""Hold a program to twelve obligations, each in a file of its own.

The audit reads the result of a patch as a program that it has never seen: it knows nothing of
rules and edits and shares only the analysis. There is no registry: a module of this folder whose
name begins with ``o`` and a number is an obligation. It has ``CODE``, a docstring that is its
manual, and ``verdicts(program, original)``. May import the analysis and what is below it.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from ...record import record, replace
from ..analysis.training.program import Program
from .verdict import AuditVerdict

SECTIONS = ("What", "At run time", "How it is judged", "When unknown", "Source")
FILE = re.compile(r"(o[0-9]+)_\w+\.py")


@record
class Obligation:
    """One obligation, as its module defines it."""

    code: str
    title: str
    manual: str
    judge: Callable[[Program, Program | None], Iterator[AuditVerdict]]

    def verdicts(self, program: Program, original: Program | None = None) -> list[AuditVerdict]:
        """What violates the obligation, or may; none where it holds."""
        return [replace(each, code=self.code) for each in self.judge(program, original)]


@cache
def all_obligations() -> tuple[Obligation, ...]:
    """Every obligation of this folder, by number."""
    obligations = []
    for path in Path(__file__).parent.iterdir():
        if not FILE.fullmatch(path.name):
            continue
        module: Any = importlib.import_module(f"{__name__}.{path.stem}")
        manual = (module.__doc__ or "").strip()
        title = manual.partition("\n")[0].rstrip(".")
        obligations.append(Obligation(module.CODE, title, manual, module.verdicts))
    return tuple(sorted(obligations, key=lambda each: int(each.code[1:])))


def audit(program: Program, original: Program | None = None) -> list[AuditVerdict]:
    """The verdicts of all obligations on a program, in order of file, line and obligation.

    ``original`` is the program before it was patched, with the same modules; without it only what
    can be told from the program itself is judged. A library module alone is no program.
    """
    if original is None and not (program.script.is_program or program.is_training_program):
        return []
    order = {module: index for index, module in enumerate(program.modules)}
    found = {
        (each.module, each.line, each.code, each.because): each
        for obligation in all_obligations()
        for each in obligation.verdicts(program, original)
    }
    return sorted(
        found.values(), key=lambda each: (order[each.module], each.line, int(each.code[1:]))
    )
