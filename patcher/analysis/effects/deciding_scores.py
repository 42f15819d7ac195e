"""What a program decides by the score of an evaluation."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import bound_names, within
from ..language.name_flow import names_in, spread
from ..ranks.rank_divergence import changes_training, conditional_exits, decisions_by
from ..training.evaluations import Evaluation
from ..training.program import Program
from .own_meetings import meets_others

GATHERING = ("gathered", "mean_of_ranks", "all_gather", "all_gather_object", "all_reduce", "reduce")
JOINED = "their results are joined"


def what_hangs_on_it(program: Program, evaluation: Evaluation) -> str:
    """What depends on the ranks' agreeing on a score; "" where nothing is seen to."""
    module = evaluation.module
    scope = module.scope_statements(evaluation.loop)
    if any(module.last_name(call.func) in GATHERING for call in within(scope, ast.Call)):
        return JOINED
    trainings = [loop for loop in program.train_loops if loop.module is module]
    for loop in trainings:
        same = module.function(loop.steps) is module.function(evaluation.loop)
        if same and loop.epochs in module.ancestors(evaluation.loop) and conditional_exits(loop):
            return f"line {conditional_exits(loop)[0].lineno} may leave the training by its score"
    if waiting := waits_by_score(program, evaluation):
        return waiting
    decided = (
        what_is_decided_by(program, where, entry)
        for where, entry in program.entries(evaluation)
        if isinstance(entry, ast.Call)
    )
    return next(filter(None, decided), "")


def waits_by_score(program: Program, evaluation: Evaluation) -> str:
    """The test of a score, behind an evaluation in the training's function, by which ranks meet."""
    module, loop = evaluation.module, evaluation.loop
    if evaluation.function is not None or not is_in_loop(module, loop):
        return ""
    stmt: ast.stmt = loop
    while isinstance(up := module.parents[stmt], ast.With):
        stmt = up
    block = module.body(stmt)
    behind = block[block.index(stmt) + 1 :]
    names = spread(behind, spread([loop], bound_names(loop.target)).names).names
    for test in within(behind, ast.If):
        branches = [*test.body, *test.orelse] if names_in(test.test) & names else []
        called = [*within(branches, ast.Expr), *within(branches, ast.Assign)]
        if any(meets_others(program, module, each) for each in called):
            return f"line {test.lineno} decides by its score whether ranks wait for each other"
    return ""


def what_is_decided_by(program: Program, module: Module, entry: ast.Call) -> str:
    """What the function that calls an evaluation decides by its score; "" where nothing."""

    def matters(where: Module, stmt: ast.stmt) -> bool:
        return changes_training(where, stmt) or meets_others(program, where, stmt)

    for loop in program.train_loops[:1]:
        for each, _ in decisions_by(program, module, loop, entry, matters):
            if isinstance(each, ast.Call) or is_in_loop(module, each):
                return f"line {each.lineno} decides by its score"
    return ""


def is_in_loop(module: Module, node: ast.AST) -> bool:
    return any(isinstance(up, ast.For | ast.While) for up in module.ancestors(node))
