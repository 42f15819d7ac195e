"""What a step makes of its own batch, where a loop in it goes over other data by the same names.

As an evaluation in the training loop does: ``for i, batch in enumerate(valid_loader)``.
"""

from __future__ import annotations

import ast
from collections.abc import Set

from ...source.tree import bound_names, is_inside, within
from ..language.name_flow import flows, names_in, reached, spread, taking


def made_of_batch(body: list[ast.stmt], of_batch: Set[str]) -> frozenset[str]:
    """The names of a step's batch, and all that get something of them, as ``spread``."""
    others = [each for each in within(body, ast.For) if bound_names(each.target) & of_batch]
    if not others:
        return spread(body, of_batch).names
    pairs: list[tuple[ast.AST, set[str], set[str]]] = [
        (value, names_in(value), taking(targets)) for targets, value in flows(body)
    ]
    for test in within(body, ast.If):
        bound = [each for targets, _ in flows([*test.body, *test.orelse]) for each in targets]
        pairs.append((test, names_in(test.test), taking(bound)))
    left_out = others
    while True:
        kept = [pair[1:] for pair in pairs if not any(is_inside(pair[0], o) for o in left_out)]
        known = reached(kept, of_batch)
        alone = [each for each in left_out if not reads_of(each, known)]
        if len(alone) == len(left_out):
            return frozenset(known)
        left_out = alone


def reads_of(loop: ast.For, names: Set[str]) -> bool:
    """Whether a loop reads one of some names before it binds that itself."""
    pending = names - bound_names(loop.target)
    if names_in(loop.iter) & names:
        return True
    for stmt in loop.body:
        match stmt:
            case ast.Assign(targets=targets, value=value):
                if names_in(value) & pending:
                    return True
                plain = {name for each in targets for name in bound_names(each)}
                if (set().union(*map(names_in, targets)) - plain) & pending:
                    return True
                pending -= plain
            case _:
                if names_in(stmt) & pending:
                    return True
    return False
