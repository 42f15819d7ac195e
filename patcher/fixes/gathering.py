"""Edits that let a contrastive loss see the batch of all ranks.

Where a loss needs only the columns of scores from other ranks, the vectors behind them are
gathered: each rank scores its own examples, and the mean over the ranks is the loss of one process.
A function that does more with the vectors (scores in the other direction, a mask of equal labels, a
mean over some of the examples) is right once it gets the whole batch: every rank then computes the
loss of one process. Either way the backward of the gathering adds up the gradients of all ranks'
losses, and DistributedDataParallel divides by their number: the gradient is that of one process.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ..analysis.settings.in_batch_negatives import TRANSPOSES, Product
from ..editing.edits import Define, Edit, Insert, Rewrite
from ..source.module import Module
from ..source.tree import Function, argument, bound_names, everywhere, parameters, within

GATHER_VECTORS, GATHER_ROWS = "WithOtherRanks", "with_other_ranks"  # of helper_code.py
ROW_KEEPING_CALLS = ("normalize", "float", "contiguous", "to", "view", "reshape")
LOSS_WORDS = ("loss", "entropy", "criterion")
SIZE_ATTRIBUTES = ("device", "dtype", "shape", "size")


def gather_columns(module: Module, loss: ast.Call, product: Product) -> tuple[Edit, ...]:
    """Edits that score against the vectors of all ranks; none where the scores have other uses."""
    scores, stmt = [product.node], module.statement(product.node)
    if stmt is not module.statement(loss):
        if not isinstance(stmt, ast.Assign) or not is_scaled(module, product.node):
            return ()
        names = bound_names(stmt)
        for use in within(module.scope_statements(loss), ast.Name):
            if use.id not in names or not isinstance(use.ctx, ast.Load):
                continue
            if loss in module.ancestors(use):
                scores.append(use)
            elif getattr(module.parents[use], "attr", "") not in SIZE_ATTRIBUTES:
                return ()
    columns = product.columns
    if not isinstance(columns, ast.Name):
        return ()
    if any(is_transposed(module, each, loss) for each in scores):
        return ()
    return (Rewrite(columns, f"{GATHER_VECTORS}.apply({columns.id})"), Define(GATHER_VECTORS))


def is_scaled(module: Module, scores: ast.expr) -> bool:
    """Whether a statement's value is ``scores``, or ``scores / temperature``."""
    up = module.parents[scores]
    while isinstance(up, ast.BinOp) and up.left is scores and isinstance(up.op, ast.Div | ast.Mult):
        scores, up = up, module.parents[up]
    return isinstance(up, ast.Assign) and len(up.targets) == 1 and up.value is scores


def is_transposed(module: Module, scores: ast.expr, loss: ast.Call) -> bool:
    """Whether a loss gets ``scores.t()``, whose rows are the columns of the scores."""
    for up in module.ancestors(scores):
        if up is loss:
            return False
        if isinstance(up, ast.Attribute) and up.attr in TRANSPOSES:
            return True
    return False


def gather_batch(
    module: Module, function: Function | None, product: Product, labels: Sequence[ast.expr] = ()
) -> tuple[Edit, ...]:
    """Edits that gather the batch at the head of a loss function.

    None where the function may read other arguments that belong to the batch.
    """
    if function is None or not returns_loss(module, function):
        return ()
    vectors = [source_parameter(module, function, each) for each in (product.rows, product.columns)]
    rows = [source_parameter(module, function, each) for each in labels]
    batch = {*vectors, *rows}
    if "" in batch or set(vectors) & set(rows):
        return ()
    reads: list[ast.Name | ast.Attribute] = [*within(function.body, ast.Name)]
    reads += within(function.body, ast.Attribute)
    if not all(is_independent(module, function, read, batch) for read in reads):
        return ()
    lines = [f"{name} = {GATHER_ROWS}({vectors[0]}, {name})" for name in dict.fromkeys(rows)]
    lines += [f"{name} = {GATHER_VECTORS}.apply({name})" for name in dict.fromkeys(vectors)]
    first = next(s for s in function.body if any(n.id in batch for n in within(s, ast.Name)))
    return (
        Insert(first, "\n".join(lines)),
        Define(GATHER_VECTORS),
        *([Define(GATHER_ROWS)] if rows else []),
    )


def returns_loss(module: Module, function: Function) -> bool:
    """Whether a function returns a single number: a mean, a sum or a loss."""
    returns = within(function.body, ast.Return)
    value = returns[0].value if len(returns) == 1 else None
    if value is None:
        return False
    value = module.definition(value, value) or value
    names = [module.last_name(call.func).lower() for call in everywhere(value, ast.Call)]
    number = any(
        name in ("mean", "sum") or any(word in name for word in LOSS_WORDS) for name in names
    )
    return number and not isinstance(value, ast.Tuple)


def is_independent(
    module: Module, function: Function, read: ast.Name | ast.Attribute, batch: set[str]
) -> bool:
    """Whether a read is of the batch, of a temperature or of a local variable."""
    is_input = isinstance(read, ast.Attribute) and getattr(read.value, "id", "") == "self"
    if isinstance(read, ast.Name) and read.id in parameters(function) - batch - {"self"}:
        is_input = True
    up = module.parents[read]
    if not is_input or (isinstance(up, ast.Call) and up.func is read):
        return True
    return isinstance(up, ast.BinOp) and isinstance(up.op, ast.Div) and up.right is read


def source_parameter(
    module: Module, function: Function, value: ast.expr, seen: frozenset[str] = frozenset()
) -> str:
    """The parameter that ``value`` is, possibly with normalised rows; empty if it is none."""
    name = row_source(module, value)
    if not isinstance(name, ast.Name):
        return ""
    own = name.id if name.id in parameters(function) else ""
    if name.id in seen:
        return own
    sources = {own} if own else set()
    for store in module.stores.get((function, name.id), ()):
        stmt = module.parents[store]
        if isinstance(stmt, ast.Assign) and stmt.targets == [store]:
            sources.add(source_parameter(module, function, stmt.value, seen | {name.id}))
        else:
            sources.add("")
    return sources.pop() if len(sources) == 1 else ""


def row_source(module: Module, value: ast.expr) -> ast.expr:
    """``x`` of ``F.normalize(x, dim=1)``, ``x / x.norm(…)`` and ``x.view(-1, 1)``."""
    while True:
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div):
            value = value.left
        elif isinstance(value, ast.Call) and module.last_name(value.func) in ROW_KEEPING_CALLS:
            method = not module.dotted(value.func).startswith("torch.")
            if method and isinstance(value.func, ast.Attribute):
                value = value.func.value
            else:
                first = argument(value, 0, "input", "tensor")
                if first is None:
                    return value
                value = first
        else:
            return value
