"""A rank's sum is divided by the number of all examples.

What         A training loop whose batches are dealt adds up losses or hits, and divides the sum by
             the length of the whole data set.
At run time  On N ranks the loss and the accuracy that are printed of an epoch are N times too
             small. What is trained is right.
Example      epoch_loss = running_loss / len(loader.dataset)
Fix          None: divide by the number of examples that were added up, or add up the sums of all
             ranks before (torch.distributed.all_reduce).
Fix safety   Report only: which of both is meant is for you to say, and no step depends on it.
Source       torch.utils.data.distributed.DistributedSampler
"""

import ast
import re
from collections.abc import Iterator

from ..analysis.batches.batch_counts import added
from ..analysis.batches.example_counts import is_dataset_length
from ..analysis.training.loaders import trace_loader
from ..analysis.training.program import Program
from ..analysis.training.train_loops import TrainLoop
from ..findings import Finding, Safety, Severity
from ..source.module import Module
from ..source.tree import everywhere, names_within, position, within

CODE, SEVERITY, SAFETY = "DF513", Severity.NOTE, Safety.REPORT

DATA = re.compile(r"data|set\b|images", re.IGNORECASE)
GATHERS = ("all_reduce", "all_gather_object", "all_gather", "gathered", "reduce", "gather")
MAX_DEPTH = 3


def findings(program: Program) -> Iterator[Finding]:
    for loop in program.train_loops:
        module = loop.module
        if loop.loader is None or not loop.loader.distributed_samplers:
            continue
        if any(module.last_name(call.func) in GATHERS for call in within(loop.scope, ast.Call)):
            continue
        for quotient, name in parts_of_all(program, loop):
            because = f"{name} is the sum of a rank's part of the batches"
            yield Finding(module, quotient, because)


def parts_of_all(program: Program, loop: TrainLoop) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Where a sum over the loop is divided by the number of all examples behind it."""
    module, sums = loop.module, {name for name, _ in added(loop.steps.body)}
    seen: set[str] = set()
    for use in names_within(loop.scope, sums):
        if position(use) < end_position(loop.steps) or use.id in seen:
            continue
        up = module.parents[use]
        while isinstance(up, ast.Call | ast.Attribute) or is_product(up):  # 100 * hits.double()
            up = module.parents[up]
        if not isinstance(up, ast.BinOp | ast.AugAssign) or not isinstance(up.op, ast.Div):
            continue
        divisor = up.right if isinstance(up, ast.BinOp) else up.value
        counts_all = counts_examples(program, module, divisor) or is_length_of_data(loop, divisor)
        if counts_all and use not in everywhere(divisor, ast.Name):
            seen.add(use.id)
            yield up, use.id


def end_position(node: ast.stmt) -> tuple[int, int]:
    return node.end_lineno or 0, node.end_col_offset or 0


def is_length_of_data(loop: TrainLoop, node: ast.expr) -> bool:
    """Whether a number is the length of what the loop's loader was given, whatever its name."""
    loader = loop.loader
    if loader is None or loader.dataset is None or loader.module is not loop.module:
        return False
    return is_dataset_length(loop, node)


def is_product(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)


def counts_examples(program: Program, module: Module, node: ast.expr, depth: int = 0) -> bool:
    """Whether a value is the length of a data set, and not that of a loader."""
    for call in everywhere(node, ast.Call):
        if module.dotted(call.func) == "len" and call.args:
            of = call.args[0]
            if DATA.search(module.text(of)) and trace_loader(program, module, of) is None:
                return True
    if depth > MAX_DEPTH:
        return False
    return any(
        counts_examples(program, module, value, depth + 1)
        for name in everywhere(node, ast.Name)
        if trace_loader(program, module, name) is None  # of which some part of the data was asked
        for value in values_of(module, name)
    )


def values_of(module: Module, name: ast.Name) -> list[ast.expr]:
    """What a name of the function, or of the module, holds."""
    value = module.single_assignment(None, name.id)
    return module.alternatives(name, name) or ([] if value is None else [value])
