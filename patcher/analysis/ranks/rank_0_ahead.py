"""Code that rank 0 runs ahead of the others: ``with accelerator.main_process_first():``."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import Function, everywhere, precedes, within
from ..language.names import answered_once
from ..training.program import Program

# Of accelerate, transformers, Lightning, ignite and ColossalAI.
AHEAD = {
    *("main_process_first", "local_main_process_first", "rank_zero_first", "one_rank_first"),
    *("torch_distributed_zero_first", "priority_execution"),
}
EXISTS = {"exists", "isfile", "isdir", "is_file", "is_dir", "listdir", "glob"}
MAX_DEPTH = 3  # calls above the place


def comes_behind_rank_0(
    program: Program, module: Module, node: ast.AST, *, if_missing: bool = False, depth: int = 0
) -> bool:
    """Whether the other ranks come to a place when rank 0 has left it, at each call of its own.

    ``if_missing``: behind a test for a file, too, which they find there.
    """
    contexts = contexts_of_rank_0(program)
    if not contexts:
        return False
    is_tested = not if_missing
    for up in module.ancestors(node):
        if isinstance(up, ast.If | ast.While):
            looks = {module.last_name(call.func) for call in everywhere(up.test, ast.Call)}
            is_tested = is_tested or bool(looks & EXISTS)
        if isinstance(up, ast.With) and any(item.context_expr in contexts for item in up.items):
            return is_tested
        if isinstance(up, Function):
            break
    function = module.function(node)
    callers = [] if function is None or depth == MAX_DEPTH else program.callers(function)
    return bool(callers) and all(
        comes_behind_rank_0(program, *each, if_missing=not is_tested, depth=depth + 1)
        for each in callers
    )


@answered_once
def contexts_of_rank_0(program: Program) -> set[ast.expr]:
    """What ``with`` statements enter that let rank 0 through ahead of the others."""
    return {
        item.context_expr
        for module in program.modules
        for stmt in module.nodes(ast.With)
        for item in stmt.items
        if lets_rank_0_ahead(program, module, item.context_expr)
    }


def lets_rank_0_ahead(program: Program, module: Module, context: ast.expr) -> bool:
    """Whether a context lets rank 0 through first, by its name or by barriers around its yield."""
    if not isinstance(context, ast.Call):
        return False
    if module.last_name(context.func) in AHEAD:
        return True
    for where, function in program.callees(module, context):
        barriers = [
            call
            for call in within(function.body, ast.Call)
            if where.last_name(call.func) in ("barrier", "wait_for_everyone")
        ]
        for gap in within(function.body, ast.Yield):
            if {precedes(each, gap) for each in barriers} == {True, False}:
                return True
    return False
