"""Name what a loader goes over, so that its sampler goes over the same object."""

from __future__ import annotations

import ast
from itertools import takewhile

from ..editing.edits import Edit, Insert, Rewrite
from ..source.module import Module
from ..source.tree import everywhere, precedes

Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
Waiting = ast.IfExp | ast.BoolOp | ast.Lambda | Comprehension
Simple = ast.Assign | ast.AnnAssign | ast.Return | ast.Expr | ast.For


def dataset_by_name(
    module: Module, call: ast.Call, dataset: ast.expr, names: tuple[str, ...]
) -> tuple[str, list[Edit]]:
    """The text of a loader's dataset, and edits that name it first where a call makes it.

    Its name is the first of ``names`` that is free; the second loader of a statement, such as
    ``train, test = DataLoader(…), DataLoader(…)``, has the next. To make it again for the sampler
    could take as long as to read the data again.
    """
    text, stmt = module.text(dataset), module.statement(call)
    before = [
        each
        for each in everywhere(stmt, ast.Call)
        if module.last_name(each.func) == module.last_name(call.func) and precedes(each, call)
    ]
    free = [name for name in names if not module.spells(name)]
    name = free[len(before)] if len(before) < len(free) else ""
    inside = takewhile(lambda up: not isinstance(up, ast.stmt), module.ancestors(call))
    may_wait = any(isinstance(up, Waiting) for up in inside)
    if not isinstance(dataset, ast.Call) or not isinstance(stmt, Simple) or may_wait or not name:
        return text, []
    code = text.replace(f"\n{module.margin(stmt)}", "\n")
    return name, [Insert(stmt, f"{name} = {code}"), Rewrite(dataset, name)]
