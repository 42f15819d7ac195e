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
import re
from collections.abc import Iterator

from ..edits import Define, Edit, Rewrite
from ..facts import Unit
from ..findings import Finding, Safety, Severity
from ..module import Module
from ..syntax import everywhere, within

CODE, SEVERITY, SAFETY = "DF307", Severity.NOTE, Safety.UNSAFE

HELPER = "WithOtherRanks"  # of inserts.py
GROUPED = ("init_process_group", "DistributedDataParallel", "DataParallel")
ROWS_BY_COLUMNS = r"(\w)(\w),(?!\1)(\w)\2->\1\3"


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
        yield from masked(module)


def is_of_all_ranks(module: Module, vectors: ast.expr) -> bool:
    """Whether something was gathered into them."""
    value = module.definition(vectors, vectors) or vectors
    names = [module.dotted(call.func).lower() for call in everywhere(value, ast.Call)]
    return any("gather" in name or HELPER.lower() in name for name in names)


def is_own_number(module: Module, labels: ast.expr) -> bool:
    """``torch.arange(…)``, also under a name: each example belongs to its own number."""
    value = module.definition(labels, labels) or labels
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if module.dotted(value.func) == "torch.arange":
            return True
        value = value.func.value  # torch.arange(n).to(device)
    return False


def products(module: Module, scores: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Products of all pairs in what ``scores`` is made of, and the vectors of their columns."""
    values = [scores]
    for name in everywhere(scores, ast.Name):
        value = module.definition(name, name)
        if value is not None:
            values.append(value)
    for value in values:
        for call in everywhere(value, ast.Call):
            last = module.last_name(call.func)
            if last == "einsum" and len(call.args) == 3:
                rule = call.args[0]
                text = str(rule.value) if isinstance(rule, ast.Constant) else ""
                if re.fullmatch(ROWS_BY_COLUMNS, text.replace(" ", "")):
                    yield call, call.args[2]
            elif last in ("mm", "matmul") and call.args:
                columns = turned(call.args[-1])
                if columns is not None:
                    yield call, columns
            elif last == "sum" and isinstance(call.func, ast.Attribute):
                columns = spread(call.func.value)
                if columns is not None:
                    yield call, columns
        for node in everywhere(value, ast.BinOp):
            columns = turned(node.right) if isinstance(node.op, ast.MatMult) else None
            if columns is not None:
                yield node, columns


def turned(node: ast.expr) -> ast.expr | None:
    """``x`` of ``x.t()``, ``x.T`` and ``x.transpose(0, 1)``."""
    inner = node.func if isinstance(node, ast.Call) else node
    if isinstance(inner, ast.Attribute) and inner.attr in ("t", "T", "transpose", "mT"):
        return inner.value
    return None


def spread(node: ast.expr) -> ast.expr | None:
    """``y`` of ``x[:, None, :] * y[None, :, :]``."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return None
    sides = {}
    for side in (node.left, node.right):
        if isinstance(side, ast.Subscript) and isinstance(side.slice, ast.Tuple):
            first = side.slice.elts[0]
            sides["rows" if isinstance(first, ast.Slice) else "columns"] = side.value
    return sides.get("columns") if len(sides) == 2 else None


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


def masked(module: Module) -> Iterator[Finding]:
    """Products in a forward whose pairs a mask of equal labels sorts."""
    for call in module.calls_to("mm", "matmul"):
        function = module.function(call)
        if function is None or function.name != "forward" or turned(call.args[-1]) is None:
            continue
        for test in within(function.body, ast.Compare):
            sides = (test.left, test.comparators[0])
            if isinstance(test.ops[0], ast.Eq) and all(
                isinstance(side, ast.Subscript)
                and isinstance(side.slice, ast.Tuple)
                and any(isinstance(e, ast.Constant) and e.value is None for e in side.slice.elts)
                for side in sides
            ):
                yield Finding(
                    module, call, f"line {test.lineno} sorts the pairs of this rank's batch only"
                )
