"""Examples are dealt to the ranks by hand while they are read.

What         A data set keeps only its rank's share: every world_size-th line, or a slice of the
             files.
At run time  Shares differ in length, so that ranks take unequal numbers of steps and the job ends
             in a time-out; shares never mix between epochs; evaluation scores one share; a
             DistributedSampler on top of it deals each share out once more.
Example      data = [line for i, line in enumerate(file) if i % world_size == local_rank]
Fix          Every rank reads what a lone process reads: of "if args.local_rank == -1: rank 0 of 1,
             else: …" the first branch stays. DF401 then deals by a DistributedSampler.
Fix safety   Safe: the branch of a lone process stays as it is. Each rank then holds all examples in
             memory. Only reported without such a branch, as what deals equal shares is right, and
             where a loop's batches come from no DataLoader that is found: nothing else would deal.
             A sampler that deals for ever, or fills its list up to a size of its own, is left.
             There, a local rank that picks the share becomes get_rank(): the same, on one node.
Source       torch.utils.data.distributed.DistributedSampler; hazards counted in 6 of 134 scripts
"""

import ast
from collections.abc import Iterator

from ..analysis.ranks.manual_sharding import (
    assignments,
    looks_like_rank,
    manual_shards,
    single_process_tests,
)
from ..analysis.training.program import Program
from ..editing.edits import Import, Rewrite, Unwrap
from ..findings import Finding, Safety, Severity
from ..source.module import Module
from ..source.tree import FUNCTIONS, is_true, mentions

CODE, SEVERITY, SAFETY = "DF403", Severity.ERROR, Safety.SAFE


def findings(program: Program) -> Iterator[Finding]:
    if not program.train_loops and not program.evaluations:
        return
    shares = [
        (module, node) for module in program.modules for node in manual_shards(program, module)
    ]
    if not shares:
        return
    branches = [
        (module, *found) for module in program.modules for found in single_process_tests(module)
    ]
    first = shares[0][0]
    lines = ", ".join(sorted({str(node.lineno) for module, node in shares if module is first}))
    unfound = next((loop for loop in program.train_loops if loop.loader is None), None)
    for module, stmt, is_first in branches:
        because = f"line {lines} of {first.source.file} keeps this rank's share only"
        if unfound is None:
            yield Finding(module, stmt, because, (Unwrap(stmt, "body" if is_first else "orelse"),))
        else:
            yield from of_one_node(program, module, stmt.orelse if is_first else stmt.body)
    if not branches or unfound is not None:
        for module, node in shares:
            if deals_alike(module, node):
                continue
            text = " ".join(module.text(node).split())
            because = f"{text} keeps this rank's share only"
            if unfound is not None:
                where = f"line {unfound.steps.lineno} of {unfound.module.source.file}"
                because += f"; {where} goes over no DataLoader that is found, to be dealt instead"
            yield Finding(module, node, because, severity=Severity.DEGRADED)


def deals_alike(module: Module, node: ast.expr) -> bool:
    """Whether shares are equally long: without end, or of a sampler that fills up to a size.

    ``while True: … if i % world_size == rank``; ``indices[rank : self.total_size : world_size]``.
    """
    for up in module.ancestors(node):
        if isinstance(up, FUNCTIONS):
            break
        if isinstance(up, ast.While) and is_true(up.test):
            return True
    owner = module.enclosing_class(node)
    if owner is None or not any(module.last_name(b).endswith("Sampler") for b in owner.bases):
        return False
    cut = node.slice if isinstance(node, ast.Subscript) else None
    end = cut.upper if isinstance(cut, ast.Slice) else None
    return isinstance(end, ast.Name | ast.Attribute)


def of_one_node(program: Program, module: Module, body: list[ast.stmt]) -> Iterator[Finding]:
    """The findings of a local rank that picks a share of what all ranks of all nodes share."""
    for value in (assignments(body) or {}).values():
        if mentions(value, "local_rank") and looks_like_rank(program, module, value):
            edits = (Rewrite(value, "torch.distributed.get_rank()"), Import("torch"))
            because = f"{module.text(value)} is the same on every node"
            yield Finding(module, value, because, edits, severity=Severity.DEGRADED)
