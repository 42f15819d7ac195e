"""An evaluation goes over this rank's part of the training data.

What         An evaluation goes over the training's loader, whose sampler deals the examples to the
             ranks, and nothing brings the parts together.
At run time  The training accuracy that is printed is that of 1/N of the examples, of others in each
             epoch, and another one on each rank. A rank that stops, or keeps the best model, by it
             leaves its peers waiting.
Example      print("train:", accuracy(model, train_loader))
Fix          Let the evaluation go over all examples in order, on each rank. Only where a function
             of its own evaluates, and gets the loader as a parameter.
Fix safety   Safe: a loader that deals nothing is left as it is, as every loader of a lone process.
Source       torch.utils.data.distributed.DistributedSampler
"""

import ast
from collections.abc import Iterator

from ..analysis.language.passed_arguments import argument_for_parameter
from ..analysis.ranks.evaluating_ranks import combines_parts
from ..analysis.training.evaluations import Evaluation
from ..analysis.training.loaders import Loader, trace_loader
from ..analysis.training.program import Program
from ..editing.edits import Define, Edit, Insert
from ..findings import Finding, Safety, Severity
from ..source.module import Module
from ..source.tree import is_inside, mentions, parameters

CODE, SEVERITY, SAFETY = "DF512", Severity.DEGRADED, Safety.SAFE

WHOLE = "over_all_examples"  # of helper_code.py


def findings(program: Program) -> Iterator[Finding]:
    seen: set[ast.AST] = set()  # a function with two loops is told of once
    for evaluation in program.evaluations:
        scope = evaluation.function or evaluation.loop
        if scope in seen or goes_over_all(evaluation, scope):
            continue
        place = training_loader_place(program, evaluation)
        if place is None or combines_parts(program, evaluation):
            continue
        seen.add(scope)
        because = f"{evaluation.name} goes over this rank's part of the training data"
        yield Finding(*place, because, go_over_all(evaluation))


def goes_over_all(evaluation: Evaluation, scope: ast.AST) -> bool:
    """Whether the helper is called where an evaluation is written."""
    return any(is_inside(call, scope) for call in evaluation.module.calls_to(WHOLE))


def training_loader_place(
    program: Program, evaluation: Evaluation
) -> tuple[Module, ast.expr | ast.stmt] | None:
    """Where an evaluation gets a loader that a training deals: a caller's argument, or its loop."""
    module, function, name = evaluation.module, evaluation.function, evaluation.loader.name
    if function is None or name not in parameters(function):
        is_dealt = deals_training(program, evaluation.loader)
        return (module, evaluation.loop) if is_dealt else None
    for where, call in program.callers(function):
        passed = argument_for_parameter(module, function, call, name)
        loader = None if passed is None else trace_loader(program, where, passed)
        if passed is not None and loader is not None and deals_training(program, loader):
            return where, passed
    return None


def deals_training(program: Program, loader: Loader) -> bool:
    """Whether a loader is that of a training, and deals its examples."""
    return bool(loader.distributed_samplers) and any(
        each.is_same(loader) for each in program.training_loaders
    )


def go_over_all(evaluation: Evaluation) -> tuple[Edit, ...]:
    """Edits by which a function goes over all examples of the loader that it gets."""
    function, name = evaluation.function, evaluation.loader.name
    if function is None or name not in parameters(function):
        return ()
    first = next(stmt for stmt in function.body if mentions(stmt, name))
    return (Insert(first, f"{name} = {WHOLE}({name})"), Define(WHOLE))
