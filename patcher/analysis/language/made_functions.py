"""Functions that have another name where they are called, as they were made for it.

``step = partial(train_step, model)``, and ``step = make_step(model)``, which returns its own
``def train_step(batch)``.
"""

from __future__ import annotations

import ast

from ...source.module import Module, Resolver
from ...source.tree import Function, within
from .passed_arguments import is_partial

Callee = tuple[Module, Function]
Call = tuple[Module, ast.Call]


def made_function(graph: Resolver, module: Module, value: ast.expr | None) -> Callee | None:
    """The function inside another one, which returns it to a call and nothing else."""
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Name | ast.Attribute):
        return None
    found = graph.resolve(module, value.func)
    where, maker = found or (module, None)
    if not isinstance(maker, Function):
        return None
    inner = {each.name: each for each in maker.body if isinstance(each, Function)}
    results = within(maker.body, ast.Return) if inner else []
    names = {each.value.id if isinstance(each.value, ast.Name) else "" for each in results}
    made = inner.get(names.pop()) if len(names) == 1 else None
    return None if made is None else (where, made)


def calls_by_other_name(
    graph: Resolver, module: Module, use: ast.expr, calls: list[Call]
) -> list[Call]:
    """The calls of a function that a name is made of, if that is all that becomes of it.

    ``calls`` are those that are known to run the function, under whatever name.
    """
    up = module.parents[use]
    if isinstance(up, ast.Return) and (maker := module.function(use)) is not None:
        if graph.possible_callers(maker):
            return []
        made = [(where, call) for where, call in graph.callers(maker)]
    elif isinstance(up, ast.Call) and is_partial(up, module) and up.args[0] is use:
        made = [(module, up)]
    else:
        return []
    found: list[Call] = []
    for where, call in made:
        stmt = where.parents[call]
        target = stmt.targets[0] if isinstance(stmt, ast.Assign) else None
        if not isinstance(target, ast.Name):
            return []
        scope = where.function(stmt)
        for each in where.occurrences(target.id):
            above = where.parents[each]
            if each is target or where.function(each) is not scope:
                continue
            if not isinstance(above, ast.Call) or (where, above) not in calls:
                return []
            found.append((where, above))
    return found
