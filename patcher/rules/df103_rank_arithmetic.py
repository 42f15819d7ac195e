"""A rank is computed instead of read.

What         The local rank is made of node_index and gpu_per_node, or taken modulo the number of
             cards that some option names.
At run time  Under torchrun and accelerate launch, which number ranks themselves: no rank 0, nothing
             saved, two ranks on one card, or a wrong shard.
Example      args.local_rank += args.node_index * args.gpu_per_node
Fix          Read RANK and LOCAL_RANK instead.
Fix safety   Report only: what the options were set to cannot be told.
Source       https://docs.pytorch.org/docs/stable/elastic/run.html (environment variables)
"""

import ast
from collections.abc import Iterator

from ..facts import Unit
from ..findings import Finding, Safety, Severity
from ..module import Module
from ..roles import RANK, Role, value

CODE, SEVERITY, SAFETY = "DF103", Severity.ERROR, Safety.REPORT


def findings(unit: Unit) -> Iterator[Finding]:
    if not any(module.calls_to("init_process_group") for module in unit.modules):
        return
    for module in unit.modules:
        for add in module.nodes(ast.AugAssign):
            if is_rank(module, add.target):
                yield Finding(module, add, f"{module.text(add)} renumbers the ranks")
        for node in module.nodes(ast.BinOp):
            if isinstance(node.op, ast.Mod) and is_rank(module, node.left):
                yield Finding(module, node, f"{module.text(node)} is no rank of a launcher's")


def is_rank(module: Module, node: ast.expr) -> bool:
    """``args.local_rank``, ``rank`` or ``torch.distributed.get_rank()``."""
    named = isinstance(node, ast.Attribute | ast.Name | ast.Call)
    return named and value(module, node, Role.OTHER) == RANK[Role.OTHER]
