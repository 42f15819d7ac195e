"""What a script finds in library code beside it, which it may never run."""

from __future__ import annotations

import ast

from ...record import replace
from ..analysis.ranks.rank_reach import is_doubtful
from ..analysis.training.program import Program
from ..findings import Finding, Severity
from ..source.module import Module
from ..source.tree import Function

OF_FILES = "DF6"  # how the codes begin of what is written and read


def weaker_beside_training(program: Program, finding: Finding) -> Finding:
    """A warning of a file in code that nothing is known to lead to, as a note.

    Neither from the script, nor from the class or the function that trains: a package's tools.
    """
    module, node = finding.module, finding.at
    if (
        finding.severity is not Severity.DEGRADED
        or not finding.code.startswith(OF_FILES)
        or not is_doubtful(program, module, node)
        or may_be_of_training(program, module, node)
    ):
        return finding
    return replace(finding, severity=Severity.NOTE)


def may_be_of_training(program: Program, module: Module, node: ast.AST) -> bool:
    """Whether a call from a training, or from another method of its class, may lead to a place."""
    training: set[ast.AST] = set()
    for loop in program.train_loops:
        if (function := loop.module.function(loop.steps)) is not None:
            training |= {function, loop.module.enclosing_class(loop.steps) or function}
    seen: set[Function] = set()
    places: list[tuple[Module, ast.AST]] = [(module, node)]
    while places:
        where, place = places.pop()
        function = where.function(place)
        if function is None:
            if program.is_live(where, place):
                return True  # a module's own code, which is run as it is imported
            continue
        if function in training or where.enclosing_class(place) in training:
            return True
        if function not in seen:
            seen.add(function)
            places += [*program.callers(function), *program.possible_callers(function)]
    return False
