"""A batch size is divided by the number of cards, which may be none.

What         Something // n_gpu, where n_gpu is torch.cuda.device_count(). It is a warning in a
             script of ranks that has no option to go without cards.
At run time  ZeroDivisionError on a machine without a card.
Example      args.per_gpu_train_batch_size = args.train_batch_size // args.n_gpu
Fix          Divide by max(1, n_gpu).
Fix safety   Safe: with one card or more the divisor is the same.
Source       torch.cuda.device_count
"""

import ast
from collections.abc import Iterator

from ..analysis.training.program import Program
from ..editing.edits import Rewrite
from ..findings import Finding, Safety, Severity
from ..source.module import Module
from ..source.tree import below, precedes

CODE, SEVERITY, SAFETY = "DF203", Severity.ERROR, Safety.SAFE


def findings(program: Program) -> Iterator[Finding]:
    # Ranks have cards, unless an option is there to go without.
    has_cards = program.calls_to("init_process_group") and not program.has_argument("no_cuda")
    severity = Severity.DEGRADED if has_cards else None
    for module in program.modules:
        for divisor in module.occurrences("n_gpu"):
            node = module.parents[divisor]
            if (
                isinstance(node, ast.BinOp)
                and isinstance(node.op, (ast.FloorDiv, ast.Div, ast.Mod))
                and divisor is node.right
                and not is_asked_first(module, node, divisor)
            ):
                text = module.text(divisor)
                yield Finding(
                    module,
                    node,
                    f"{module.text(node)}: {text} is 0 without a card",
                    (Rewrite(divisor, f"max(1, {text})"),),
                    severity=severity,
                )


def is_asked_first(module: Module, quotient: ast.expr, divisor: ast.expr) -> bool:
    """``n_gpu == 0 or number % n_gpu == rank``: what stands before it asks for cards."""
    text = module.text(divisor)
    return any(
        module.text(part) == text
        for up in module.ancestors(quotient)
        if isinstance(up, ast.BoolOp)
        for value in up.values
        if precedes(value, quotient)
        for part in below(value)
        if isinstance(part, ast.expr) and not is_divisor(module, part)
    )


def is_divisor(module: Module, part: ast.expr) -> bool:
    """Whether something is divided by a part of an expression, which asks nothing."""
    around = module.parents[part]
    return isinstance(around, ast.BinOp) and around.right is part
