"""Ranks evaluate with averages of batch norm of their own.

What         All ranks evaluate a module with BatchNorm layers, inside of DistributedDataParallel
             or with gradients that are averaged by hand, and what comes out decides whether the
             training goes on, how fast it learns, or whether ranks wait for each other, or is
             gathered from all ranks.
At run time  Each rank's averages come from its own batches: only a forward pass of the wrapper
             makes them rank 0's. Scores differ, a rank that stops early leaves its peers waiting
             until the time-out, and the weights that are saved score otherwise.
Example      accuracy = test(model.module, loader); if not stopper.goes_on(accuracy): break
Fix          All ranks take rank 0's averages before they evaluate (averages_of_rank_0).
Fix safety   Safe: rank 0's are those that are saved and that the training goes on with; a lone
             process has no others.
Source       torch.nn.parallel.DistributedDataParallel (broadcast_buffers)
"""

import ast
from collections.abc import Iterator

from ..analysis.effects.deciding_scores import what_hangs_on_it
from ..analysis.models.batch_norm import norms_by_batch
from ..analysis.models.wrapping import AVERAGE, SHARED
from ..analysis.ranks.rank_reach import RANKS, roles_reaching
from ..analysis.training.evaluations import Evaluation
from ..analysis.training.program import Program
from ..editing.edits import Define, Edit, Insert
from ..findings import Finding, Safety, Severity
from ..fixes.evaluated_modules import is_plain_object, runs_the_module
from ..source.tree import is_false, keyword, within

CODE, SEVERITY, SAFETY = "DF511", Severity.DEGRADED, Safety.SAFE

HELPER = "averages_of_rank_0"


def findings(program: Program) -> Iterator[Finding]:
    is_bare = bool(program.calls_to(SHARED, AVERAGE))  # no wrapper stays around the model
    is_bare |= any(sends_nothing(call) for _, call in program.calls_to("DistributedDataParallel"))
    if not (is_bare or program.calls_to("DistributedDataParallel")) or not norms_by_batch(program):
        return
    seen: set[ast.stmt] = set()  # a function with two loops calls eval() once
    for evaluation in program.evaluations:
        module, mode = evaluation.module, evaluation.mode
        if mode is evaluation.loop or mode in seen or is_shared(evaluation):
            continue
        if not is_bare and not runs_the_module(evaluation):
            continue  # the wrapper sends rank 0's averages with the first batch
        by_all = all(
            roles_reaching(program, module, each) >= RANKS for each in (mode, evaluation.loop)
        )
        if by_all and (reason := what_hangs_on_it(program, evaluation)):
            seen.add(mode)
            code = f"{HELPER}({evaluation.model})"
            edits: tuple[Edit, ...] = (Insert(mode, code, "after"), Define(HELPER))
            if is_plain_object(program, evaluation):
                edits = ()
            yield Finding(module, mode, f"each rank has averages of its own, and {reason}", edits)


def sends_nothing(wrap: ast.Call) -> bool:
    """Whether a wrapper leaves the averages of each rank alone."""
    word = keyword(wrap, "broadcast_buffers")
    return word is not None and is_false(word.value)


def is_shared(evaluation: Evaluation) -> bool:
    """Whether the evaluation takes rank 0's averages already."""
    block = evaluation.module.body(evaluation.mode)
    return any(evaluation.module.last_name(call.func) == HELPER for call in within(block, ast.Call))
