"""What legacy scripts lack: every module in this folder adds one capability to a patched script.

A capability's module has ``ORDER`` (a later one builds on what an earlier one left), ``FLAGS``, a
docstring that is its manual, and ``findings(program)``: places that still lack it, with the edits
that add it; or, returned without edits or raised as a CannotError, the reason why it cannot be
added. It is found by looking and not by registering, and asked again after each round of edits, so
it proposes nothing that is there.
Every flag is off by default, and then the script computes bit for bit what it did.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

from ...errors import InputError
from ...record import changed, record
from ..analysis.program import Program
from ..findings import Finding, Safety, Severity
from .errors import CannotError
from .flags import Flag

SECTIONS = ("What", "Flags", "Without", "Fix safety", "Source")


@record
class Capability:
    """A capability as its file states it."""

    name: str
    title: str
    manual: str
    order: int
    flags: tuple[Flag, ...]
    run: Callable[[Program], Iterator[Finding]]

    def findings(self, program: Program) -> Iterator[Finding]:
        """What the script lacks of it, under the capability's name."""
        try:
            if not program.train_loops:
                first = program.script.tree.body[0]
                raise CannotError(program.script, first, "the script does not train")
            found = list(self.run(program))
        except CannotError as error:
            found = [error.finding]
        for finding in found:
            safety = Safety.SAFE if finding.edits else Safety.REPORT
            yield changed(finding, code=self.name, severity=Severity.NOTE, safety=safety)


@cache
def all_capabilities() -> tuple[Capability, ...]:
    """Every capability of this folder, in the order in which they are added."""
    found = []
    for path in Path(__file__).parent.glob("with_*.py"):
        module = importlib.import_module(f"{__name__}.{path.stem}")
        manual = (module.__doc__ or "").strip()
        found.append(
            Capability(
                path.stem.removeprefix("with_"),
                manual.partition("\n")[0].rstrip("."),
                manual,
                module.ORDER,
                module.FLAGS,
                module.findings,
            )
        )
    return tuple(sorted(found, key=lambda one: one.order))


def chosen(wanted: Sequence[str], unwanted: Sequence[str] = ()) -> tuple[Capability, ...]:
    """Capabilities by name; ``all`` stands for all of them.

    Raises InputError for a name that none has.
    """
    every = all_capabilities()
    names = [one.name for one in every]
    for name in (*wanted, *unwanted):
        if name not in (*names, "all"):
            raise InputError(f"no capability {name}; there are {', '.join(names)}, or all")
    return tuple(
        one
        for one in every
        if {one.name, "all"} & set(wanted) and not {one.name, "all"} & set(unwanted)
    )
