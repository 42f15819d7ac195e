"""Something is made of the first batch, and each rank has a batch of its own.

What         Ahead of the training a script takes one batch of the training's loader, and makes of
             it what the training uses: the mean and the deviation by which it scales its inputs, or
             the first values of weights, as those of normalising flows.
At run time  The sampler deals each rank other examples. Ranks scale by other numbers, so that the
             gradients which they average are those of different models; weights that are set so
             behind the wrapper differ from rank to rank for good. Nothing crashes.
Example      x, _ = next(iter(train_loader)); mean = x.mean(0)
Fix          All ranks take the batch of rank 0 (what_rank_0_has). Only noted where not all ranks
             may come to it alike.
Fix safety   Safe: in a lone process what_rank_0_has gives back what it gets.
Source       torch.nn.parallel.DistributedDataParallel (compares no weights after it was made)
"""

import ast
from collections.abc import Iterator

from ..analysis.batches.first_batches import FirstBatch, first_batches
from ..analysis.ranks.rank_reach import RANKS, roles_reaching
from ..analysis.training.program import Program
from ..editing.edits import Define, Edit, Insert, Rewrite
from ..findings import Finding, Safety, Severity
from ..source.module import Module
from ..source.tree import FUNCTIONS, everywhere

CODE, SEVERITY, SAFETY = "DF516", Severity.DEGRADED, Safety.SAFE

HELPER = "what_rank_0_has"


def findings(program: Program) -> Iterator[Finding]:
    if not program.calls_to("init_process_group", "DistributedDataParallel"):
        return
    for first in first_batches(program):
        module, taken = first.module, first.taken
        if has_helper(module, taken):
            continue
        because = f"{module.text(first.made)} is of this rank's first batch"
        if comes_alike(program, module, taken):
            yield Finding(module, taken, because, edits_of(first))
        else:
            yield Finding(module, taken, because, severity=Severity.NOTE)


def has_helper(module: Module, taken: ast.Call | ast.For) -> bool:
    """Whether ranks take rank 0's batch already, or one that they have agreed on by themselves."""
    stmt = taken if isinstance(taken, ast.For) else module.statement(taken)
    names = ("broadcast", "broadcast_object_list", "all_reduce", "all_gather", HELPER)
    called = {module.last_name(call.func) for call in everywhere(stmt, ast.Call)}
    function = module.function(taken)
    return HELPER in called or any(
        module.function(call) is function for call in module.calls_to(*names[:-1])
    )


def comes_alike(program: Program, module: Module, taken: ast.Call | ast.For) -> bool:
    """Whether all ranks surely take the batch, once each."""
    for up in module.ancestors(taken):
        if isinstance(up, FUNCTIONS):
            break
        if isinstance(up, ast.For | ast.While | ast.Try | ast.IfExp | ast.BoolOp | ast.Lambda):
            return False
        if isinstance(up, ast.If) and everywhere(up.test, ast.Call):
            return "__name__" in module.text(up.test)
    return roles_reaching(program, module, taken) >= RANKS


def edits_of(first: FirstBatch) -> tuple[Edit, ...]:
    """Edits by which all ranks go on with the batch of rank 0."""
    module, taken = first.module, first.taken
    helpers = (Define(HELPER), Define("onto_own_card"))
    if isinstance(taken, ast.Call):
        return (Rewrite(taken, f"{HELPER}({module.text(taken)})"), *helpers)
    target = module.text(taken.target)
    value = f"({target})" if isinstance(taken.target, ast.Tuple) else target
    return (Insert(taken.body[0], f"{target} = {HELPER}({value})"), *helpers)
