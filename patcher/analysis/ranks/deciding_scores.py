"""What a program decides by the score of an evaluation."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import within
from ..training.evaluations import Evaluation
from ..training.program import Program
from .rank_divergence import changes_training, conditional_exits, decisions_by

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
    decided = (
        what_is_decided_by(program, where, entry)
        for where, entry in program.entries(evaluation)
        if isinstance(entry, ast.Call)
    )
    return next(filter(None, decided), "")


def what_is_decided_by(program: Program, module: Module, entry: ast.Call) -> str:
    """What the function that calls an evaluation decides by its score; "" where nothing."""
    for loop in program.train_loops[:1]:
        for each, _ in decisions_by(program, module, loop, entry, changes_training):
            if isinstance(each, ast.Call) or is_in_loop(module, each):
                return f"line {each.lineno} decides by its score"
    return ""


def is_in_loop(module: Module, node: ast.AST) -> bool:
    return any(isinstance(up, ast.For | ast.While) for up in module.ancestors(node))
