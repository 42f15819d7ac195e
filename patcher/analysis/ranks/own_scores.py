"""Values that a rank has of its own batches, where they are trained on and in callers."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import Function, everywhere, is_inside, precedes
from ..language.names import answered_once
from ..training.program import Program
from .rank_divergence import walk_of

Scope = tuple[Module, Function | None]
Own = dict[str, set[ast.stmt]]  # names, and the statements that gave them a rank's own values


def own_score_in(program: Program, module: Module, node: ast.expr) -> ast.expr | None:
    """The name in a part of a text whose value, as it is spelled there, is of a rank's own batches.

    Not in a path that a function has made of one, and returns.
    """
    if not is_spelled(module, node):
        return None
    function = module.function(node)
    own = own_values(program).get((module, function), {})
    for name in everywhere(node, ast.Name) if own else ():
        stores = module.stores.get((function, name.id), ())
        above = [each for each in stores if precedes(each, node)]
        if above and any(is_inside(above[-1], stmt) for stmt in own.get(name.id, ())):
            return name
    return None


def is_spelled(module: Module, node: ast.expr) -> bool:
    """Whether a text has the digits of a value: in an f-string, by ``%``, ``format`` or ``str``."""
    up = module.parents[node]
    while isinstance(up, ast.Tuple):
        up = module.parents[up]
    match up:
        case ast.FormattedValue() | ast.BinOp(op=ast.Mod()):
            return True
        case ast.Call():
            return module.last_name(up.func) in ("format", "str", "repr", "round")
    return False


@answered_once
def own_values(program: Program) -> dict[Scope, Own]:
    """What ranks have of their own, in each function that trains or gets its result."""
    found: dict[Scope, Own] = {}
    for loop in program.train_loops:
        scope = loop.module, loop.module.function(loop.steps)
        if loop.loader is None or scope in found:
            continue
        walk = walk_of(program, loop.module, loop, set(), set())
        walk.block(loop.scope, set(), None)
        found[scope] = walk.tainted_by
        for module, call in program.callers(scope[1]) if walk.results and scope[1] else ():
            made = {f"{module.last_name(call.func)}()"}
            above = walk_of(program, module, loop, set(), made)
            above.block(module.scope_statements(call), made, None)
            found.setdefault((module, module.function(call)), above.tainted_by)
    return found
