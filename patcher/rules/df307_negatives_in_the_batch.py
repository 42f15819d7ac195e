"""The other examples of the batch are the negatives, and each rank has a part of the batch.

What         A contrastive loss scores every example against every other one of its own batch: a
             product of two sets of vectors with torch.arange as labels, or with a mask of equal
             labels.
At run time  With N ranks each example meets 1/N of the negatives of the global batch: another loss
             and another model than one process has at that batch, and the same goes for gradient
             accumulation. Nothing crashes.
Example      scores = torch.einsum("ab,cb->ac", nl_vec, code_vec)
             loss = loss_fct(scores, torch.arange(code_vec.size(0), device=scores.device))
Fix          Gather the vectors of all ranks, this rank's own first, so that the labels stay. Loss
             and gradients are then those of one process at the global batch, without accumulation.
Fix safety   Unsafe: every rank must pass the line equally often with as many examples, as they do
             under torch's DistributedSampler and not under --exact, and evaluation must not track
             gradients. A lone process computes what it did. torch.distributed.nn.functional's
             all_gather is not used: it is deprecated, and under gloo it returns wrong gradients
             where they are not contiguous (measured on torch 2.13).
Source       torch.autograd.Function (gradients of all ranks' losses are added up)
"""

import ast
from collections.abc import Iterator

from ..edits import Define, Edit, Rewrite
from ..facts import Unit
from ..findings import Finding, Safety, Severity
from ..module import Module
from ..negatives import is_own_number, masked, products
from ..syntax import everywhere, within

CODE, SEVERITY, SAFETY = "DF307", Severity.NOTE, Safety.UNSAFE

HELPER = "WithOtherRanks"  # of inserts.py
GROUPED = ("init_process_group", "DistributedDataParallel", "DataParallel")


def findings(unit: Unit) -> Iterator[Finding]:
    if not unit.train_loops or not any(module.calls_to(*GROUPED) for module in unit.modules):
        return
    training = [loop.module.function(loop.steps) for loop in unit.train_loops]
    for module in unit.modules:
        for call in module.nodes(ast.Call) if module.calls_to("arange") else ():
            scores = call.args[0] if len(call.args) == 2 else None
            if scores is None or not is_own_number(module, call.args[1]):
                continue
            function = module.function(call)
            if function not in training and getattr(function, "name", "") != "forward":
                continue
            product = next(products(module, scores), None)
            if product is not None and not is_of_all_ranks(module, product[1]):
                where, others = product
                yield Finding(
                    module,
                    call,
                    f"line {where.lineno} scores against {module.text(others)} of this rank's "
                    "batch only",
                    gathering(module, call, where, others),
                )
        for call, test in masked(module):
            because = f"line {test.lineno} sorts the pairs of this rank's batch only"
            yield Finding(module, call, because)


def is_of_all_ranks(module: Module, vectors: ast.expr) -> bool:
    """Whether something was gathered into them."""
    value = module.definition(vectors, vectors) or vectors
    names = [module.dotted(call.func).lower() for call in everywhere(value, ast.Call)]
    return any("gather" in name or HELPER.lower() in name for name in names)


def gathering(
    module: Module, call: ast.Call, product: ast.expr, others: ast.expr
) -> tuple[Edit, ...]:
    """Edits that score against all ranks' vectors; none where the scores are used elsewhere."""
    if not isinstance(others, ast.Name):
        return ()
    stmt = module.statement(product)
    if stmt is not module.statement(call):
        if not isinstance(stmt, ast.Assign) or stmt.value is not product:
            return ()
        name = stmt.targets[0]
        for use in within(module.scope_statements(call), ast.Name):
            if not isinstance(name, ast.Name) or use.id != name.id:
                continue
            read = isinstance(use.ctx, ast.Load) and call not in module.ancestors(use)
            if read and getattr(module.parents[use], "attr", "") not in ("device", "shape", "size"):
                return ()
    return (Rewrite(others, f"{HELPER}.apply({others.id})"), Define(HELPER))
