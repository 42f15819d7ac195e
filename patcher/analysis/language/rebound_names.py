"""Names of a batch that a loop inside of the step takes for other data.

An evaluation in the step loop often calls its batches as the training does: ``for i, batch in
enumerate(valid_loader):``. What is computed of them there hangs on no batch of the training.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ...source.tree import bound_names, is_inside, within
from .name_flow import Tainted, flows, names_in, reached, spread, taking


def loops_over_other_data(body: list[ast.stmt], names: set[str]) -> list[ast.For]:
    """The loops in a block that bind some of the names anew, to what hangs on none of them."""
    loops = [loop for loop in within(body, ast.For) if bound_names(loop.target) & names]
    known = spread(body, names).names if loops else frozenset()
    return [loop for loop in loops if not names_in(loop.iter) & known]


def bound_anew(node: ast.AST, loops: list[ast.For]) -> set[str]:
    """The names that have another value in code because a loop around it binds them."""
    around = (loop for loop in loops if any(is_inside(node, stmt) for stmt in loop.body))
    return set().union(*(bound_names(loop.target) for loop in around))


def spread_beside(body: list[ast.stmt], names: Iterable[str], loops: list[ast.For]) -> Tainted:
    """What gets something of the names in a block, but for what such loops bind anew."""
    if not loops:
        return spread(body, names)
    pairs = [
        (names_in(value) - bound_anew(value, loops), taking(targets))
        for targets, value in flows(body)
    ]
    for test in within(body, ast.If):
        bound = [each for targets, _ in flows([*test.body, *test.orelse]) for each in targets]
        pairs.append((names_in(test.test) - bound_anew(test.test, loops), taking(bound)))
    return Tainted(frozenset(reached(pairs, names)))
