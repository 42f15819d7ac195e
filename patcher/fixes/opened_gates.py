"""Tests of the rank that keep ranks from code which all of them should come to."""

from __future__ import annotations

import ast

from ..analysis.language.conditions import condition
from ..analysis.ranks.rank_reach import Role, is_rank_test, value_for_role
from ..editing.edits import Edit, Rewrite, Unwrap
from ..source.module import Module
from ..source.tree import is_elif


def open_gate(module: Module, gate: ast.If) -> tuple[Edit, ...]:
    """Edits that take the rank out of a test whose rank part holds for a lone process."""
    asked = condition(module, gate)
    if asked.orelse:
        return ()
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
