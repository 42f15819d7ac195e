"""Tests of the rank that keep ranks from code which all of them should come to."""

from __future__ import annotations

import ast

from ..analysis.language.conditions import condition
from ..analysis.ranks.rank_reach import Role, is_rank_test, value_for_role
from ..editing.edits import Edit, Rewrite, Unwrap
from ..source.module import Module
from ..source.tree import bound_names, is_elif, within


def open_gate(module: Module, gate: ast.If) -> tuple[Edit, ...]:
    """Edits that take the rank out of a test whose rank part holds for a lone process."""
    asked = condition(module, gate)
    if asked.orelse:
        return (Unwrap(gate),) if asked.body is gate.body and saves_instead(module, gate) else ()
    if is_rank_test(module, asked.test):
        if not value_for_role(module, asked.test, Role.SINGLE):
            return ()
        if asked.body is gate.body:
            return (Unwrap(gate),)
        return () if is_elif(gate, asked.body[0]) else (Unwrap(gate, "orelse"),)
    if (
        isinstance(asked.test, ast.BoolOp)
        and isinstance(asked.test.op, ast.And)
        and not asked.is_shared
    ):
        ranks = [part for part in asked.test.values if is_rank_test(module, part)]
        others = [part for part in asked.test.values if part not in ranks]
        if ranks and others and all(value_for_role(module, part, Role.SINGLE) for part in ranks):
            return (Rewrite(asked.test, " and ".join(map(module.conjunct, others))),)
    return ()


def saves_instead(module: Module, gate: ast.If) -> bool:
    """Whether ranks only save behind a test for a lone process, which evaluates and saves there.

    They then have no need of an ``else`` once they all evaluate.
    """
    if not is_rank_test(module, gate.test) or any(
        value_for_role(module, gate.test, role) is not (role is Role.SINGLE) for role in Role
    ):
        return False
    bound = [
        {name for stmt in block for name in bound_names(stmt)} for block in (gate.body, gate.orelse)
    ]
    leaves = any(
        within(gate.orelse, kind) for kind in (ast.Return, ast.Break, ast.Continue, ast.Raise)
    )
    names = [module.dotted(call.func) for call in within(gate.orelse, ast.Call)]
    return (
        not leaves
        and bound[1] <= bound[0]
        and any("save" in name for name in names)
        and not any(name.startswith("torch.distributed") for name in names)
    )
