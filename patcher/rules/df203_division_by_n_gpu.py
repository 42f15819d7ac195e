"""A batch size is divided by the number of cards, which may be none.

What         Something // n_gpu, where n_gpu is torch.cuda.device_count().
At run time  ZeroDivisionError on a machine without a card.
Example      args.per_gpu_train_batch_size = args.train_batch_size // args.n_gpu
Fix          Divide by max(1, n_gpu).
Fix safety   Safe: with one card or more the divisor is the same.
Source       torch.cuda.device_count
"""

import ast
from collections.abc import Iterator

from ..analysis.program import Program
from ..editing.edits import Rewrite
from ..findings import Finding, Safety, Severity

CODE, SEVERITY, SAFETY = "DF203", Severity.ERROR, Safety.SAFE


def findings(program: Program) -> Iterator[Finding]:
    for module in program.modules:
        for divisor in module.occurrences("n_gpu"):
            node = module.parents[divisor]
            if (
                isinstance(node, ast.BinOp)
                and isinstance(node.op, (ast.FloorDiv, ast.Div, ast.Mod))
                and divisor is node.right
            ):
                text = module.text(divisor)
                yield Finding(
                    module,
                    node,
                    f"{module.text(node)}: {text} is 0 without a card",
                    (Rewrite(divisor, f"max(1, {text})"),),
                )
