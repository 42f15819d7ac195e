"""Whether anything in a program makes several processes train one model."""

from __future__ import annotations

from ..training.frameworks import AVERAGES_GRADIENTS, COLLECTIVES, OWNS_LOOP
from ..training.program import Program

_JOINERS = sorted({n.rpartition(".")[2] for n in AVERAGES_GRADIENTS | OWNS_LOOP | COLLECTIVES})


def joins_processes(program: Program) -> bool:
    """Whether a process of the program may have to do with others: by a group or a framework."""
    return any(program.calls_to(name) for name in _JOINERS)
