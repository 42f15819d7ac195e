"""Capabilities that legacy scripts lack: every ``with_*.py`` here adds one to a patched script.

Such a module has ``ORDER`` (later ones build on the edits of earlier ones), ``FLAGS``, a docstring
that is its manual, and ``findings(program)``: the places that still lack the capability, with the
edits that add it. A finding without edits, or a CannotError, says why it cannot be added. Modules
are found by their file name. They run again after each round of edits, so they must not propose
what is already there.
Every flag is off by default; the script then computes bit for bit what it did before.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

from ...errors import InputError
from ...record import record, replace
from ..analysis.training.program import Program
from ..findings import Finding, Safety, Severity
from .errors import CannotError
from .flags import Flag

SECTIONS = ("What", "Flags", "Without", "Fix safety", "Source")


@record
class Capability:
    """A capability as declared in its file."""

    name: str
    title: str
    manual: str
    order: int
    flags: tuple[Flag, ...]
    run: Callable[[Program], Iterator[Finding]]

    def findings(self, program: Program) -> Iterator[Finding]:
        """What the script lacks, as notes under the capability's name."""
        try:
            if not program.train_loops:
                first = program.script.tree.body[0]
                raise CannotError(program.script, first, "the script does not train")
            findings = list(self.run(program))
        except CannotError as error:
            findings = [error.finding]
        for finding in findings:
            safety = Safety.SAFE if finding.edits else Safety.REPORT
            yield replace(finding, code=self.name, severity=Severity.NOTE, safety=safety)


@cache
def all_capabilities() -> tuple[Capability, ...]:
    """All capabilities of this folder, in the order in which they are added."""
    capabilities = []
    for path in Path(__file__).parent.glob("with_*.py"):
        module = importlib.import_module(f"{__name__}.{path.stem}")
        manual = (module.__doc__ or "").strip()
        capabilities.append(
            Capability(
                path.stem.removeprefix("with_"),
                manual.partition("\n")[0].rstrip("."),
                manual,
                module.ORDER,
                module.FLAGS,
                module.findings,
            )
        )
    return tuple(sorted(capabilities, key=lambda one: one.order))


def select_capabilities(
    wanted: Sequence[str], unwanted: Sequence[str] = ()
) -> tuple[Capability, ...]:
    """Select capabilities by name; ``all`` stands for all of them.

    Raises InputError for an unknown name.
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
