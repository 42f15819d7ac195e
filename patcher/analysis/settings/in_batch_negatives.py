"""Contrastive losses: each example of a batch is scored against all others in it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ....record import record
from ...source.module import Module
from ...source.tree import (
    Function,
    argument,
    argument_values,
    everywhere,
    position,
    same_code,
    within,
)

TRANSPOSES = ("t", "T", "transpose", "mT")
TENSORS = ("tensor", "as_tensor", "LongTensor", "IntTensor")
RANGES = ("range", "torch.arange")
TURNING = ("cat", "concat", "roll", "flip")
# These make a loss of the scores of one example against all.
NORMALISING = ("exp", "softmax", "log_softmax", "logsumexp", "cross_entropy", "CrossEntropyLoss")
SIMILARITY = re.compile("cos|sim", re.IGNORECASE)  # cosine_similarity(), self.sim()


def is_arange(module: Module, labels: ast.expr) -> bool:
    """Whether labels are ``torch.arange(…)``: example ``i`` belongs to column ``i``.

    Also ``torch.tensor(range(n))``, ``torch.LongTensor(list(range(n)))`` and that of an arange.
    """
    if is_made_by(module, labels, "torch.arange"):
        return True
    value = module.definition(labels, labels) or labels
    return any(
        module.last_name(call.func) in TENSORS
        and any(module.dotted(each.func) in RANGES for each in everywhere(call.args[0], ast.Call))
        for call in everywhere(value, ast.Call)
        if call.args and isinstance(call.args[0], ast.Call)
    )


def is_of_arange(module: Module, labels: ast.expr) -> bool:
    """Whether labels are computed from such: ``n - n % 2 * 2 + 1`` are those of pairs in turns.

    ``torch.cat([n[half:], n[:half]])`` and ``n.roll(half)`` are those of two halves.
    """
    value = module.definition(labels, labels) or labels
    turns = isinstance(value, ast.Call) and module.last_name(value.func) in TURNING
    names = everywhere(value, ast.Name) if turns or isinstance(value, ast.BinOp) else []
    return any(is_arange(module, name) for name in names)


def is_made_by(module: Module, node: ast.expr, function: str) -> bool:
    """Whether a value, or that of a name, is what a function makes, on whatever device."""
    value = module.definition(node, node) or node
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if module.dotted(value.func) == function:
            return True
        value = value.func.value  # of torch.arange(n).to(device)
        value = module.definition(value, value) or value  # n = torch.arange(9); n.to(device)
    return False


def diagonals(module: Module) -> Iterator[tuple[ast.BinOp, ast.expr]]:
    """``log_softmax(scores) * torch.eye(n)``, each with its scores."""
    for node in module.nodes(ast.BinOp) if module.calls_to("eye") else ():
        if isinstance(node.op, ast.Mult):
            if is_made_by(module, node.right, "torch.eye"):
                yield node, node.left
            elif is_made_by(module, node.left, "torch.eye"):
                yield node, node.right


def whole_scores(module: Module) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Scores of which rows and columns are examples alike, each with a place that tells so.

    ``torch.diag(scores)`` takes those of each example and its partner; what is computed of
    ``scores`` and of ``scores.T`` looks for the partner in both directions. Scores of a batch
    against itself leave out those of each example with itself.
    """
    for call in module.calls_to("diag", "diagonal"):
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        scores = argument(call, 0, "input") if module.dotted(call.func)[:6] == "torch." else owner
        if scores is not None:
            yield call, scores
    for call in module.nodes(ast.Call):
        turned = transposed_operand(call.args[0]) if call.args else None
        if turned is not None and any(
            same_code(other.func, call.func) and other.args and same_code(other.args[0], turned)
            for other in module.calls_to(module.last_name(call.func))
            if module.function(other) is module.function(call)
        ):
            yield call, turned
    for function in module.all_functions:
        yield from scores_among_themselves(module, function)


def scores_among_themselves(
    module: Module, function: Function
) -> Iterator[tuple[ast.expr, ast.expr]]:
    """``exp(mm(x, x.t()) / heat)`` of a function that masks the diagonal out, with its product."""
    calls = within(function.body, ast.Call)
    names = {module.last_name(call.func) for call in calls}
    if {name.rstrip("_") for name in names}.isdisjoint(NORMALISING):
        return  # of no exp(), and no exp_()
    masks_diagonal = "fill_diagonal_" in names or any(
        module.last_name(call.func) == "eye" and is_taken_off(module, call)
        for call in (*calls, *calls_of_attributes(module, function))
    )
    for product in all_pairs_products(module, function) if masks_diagonal else ():
        if same_code(product.rows, product.columns) and not is_within_examples(product.node):
            yield product.node, product.node


def calls_of_attributes(module: Module, function: Function) -> Iterator[ast.Call]:
    """The calls in what attributes of its object hold: ``self.mask = 1 - torch.eye(n)``."""
    if not module.spells("eye"):
        return
    for attribute in within(function.body, ast.Attribute):
        if isinstance(attribute.value, ast.Name) and attribute.value.id == "self":
            for value in module.attribute_values.get(attribute.attr, ()):
                yield from everywhere(value, ast.Call)


def is_taken_off(module: Module, eye: ast.Call) -> bool:
    """Whether ``torch.eye(n)`` masks: ``ones - eye``, ``~eye``, ``eye.bool()``, or of that type."""
    if any(word.arg == "dtype" and module.text(word.value)[-4:] == "bool" for word in eye.keywords):
        return True
    below: ast.AST = eye
    for up in module.ancestors(eye):
        match up:
            case ast.BinOp(op=ast.Sub(), right=right) if right is below:
                return True
            case ast.UnaryOp(op=ast.Invert()) | ast.Attribute(attr="bool" | "byte"):
                return True
            case ast.stmt():
                return False
        below = up
    return False


@record
class Product:
    """A matrix of scores of all pairs: its expression, and the vectors of its rows and columns."""

    node: ast.expr
    rows: ast.expr
    columns: ast.expr


def products(module: Module, scores: ast.expr) -> Iterator[Product]:
    """The all-pairs products in ``scores`` and in the variables that it uses."""
    values = [scores]
    for name in everywhere(scores, ast.Name):
        value = module.definition(name, name)
        if value is not None:
            values.append(value)
    for value in values:
        yield from all_pairs_products(module, value)


def distant_product(module: Module, scores: ast.expr) -> Product | None:
    """The first all-pairs product that ``scores`` are made of in several steps.

    Not one with vectors that are detached, as those of a queue of earlier batches are.
    """
    values = [scores]
    for value in values:  # grows: a variable is made of others
        for name in everywhere(value, ast.Name):
            made_of = module.definition(name, name)
            if made_of is not None and made_of not in values:
                values.append(made_of)
    found = [
        product
        for value in values
        for product in (*all_pairs_products(module, value), *turned_before(module, value))
        if not any(node.attr == "detach" for node in everywhere(product.columns, ast.Attribute))
    ]
    return min(found, key=lambda product: position(product.node), default=None)


def all_pairs_products(module: Module, value: ast.AST) -> Iterator[Product]:
    """The all-pairs products below a node."""
    for call in everywhere(value, ast.Call):
        last = module.last_name(call.func)
        if last == "einsum" and len(call.args) == 3:
            rule = call.args[0]
            if isinstance(rule, ast.Constant) and is_all_pairs_rule(str(rule.value)):
                yield Product(call, call.args[1], call.args[2])
        elif last in ("mm", "matmul") and (operands := argument_values(call)):
            columns = transposed_operand(operands[-1])
            rows = operands[0] if len(operands) == 2 else getattr(call.func, "value", None)
            if columns is not None and rows is not None:
                yield Product(call, rows, columns)
        elif SIMILARITY.search(last) and len(call.args) >= 2:
            sides = crossed_operands(*call.args[:2])
            if sides is None and same_code(*call.args[:2]):
                sides = (call.args[0], call.args[1])  # alone with itself each has nothing to learn
            if sides is not None:
                yield Product(call, *sides)
        elif last == "sum" and isinstance(call.func, ast.Attribute):
            sides = broadcast_operands(call.func.value)
            if sides is not None:
                yield Product(call, *sides)
    for node in everywhere(value, ast.BinOp):
        columns = transposed_operand(node.right) if isinstance(node.op, ast.MatMult) else None
        if columns is not None:
            yield Product(node, node.left, columns)


def turned_before(module: Module, value: ast.AST) -> Iterator[Product]:
    """Products with a name for what is transposed: ``y = y.t()``, and ``x @ y`` or ``x.mm(y)``."""
    for node in (*everywhere(value, ast.BinOp), *everywhere(value, ast.Call)):
        match node:
            case ast.BinOp(left=rows, op=ast.MatMult(), right=ast.Name() as name):
                pass
            case (
                ast.Call(args=[rows, ast.Name() as name], keywords=[])
                | ast.Call(func=ast.Attribute(value=rows), args=[ast.Name() as name], keywords=[])
            ) if module.last_name(node.func) in ("mm", "matmul"):
                pass
            case _:
                continue
        turned = module.definition(name, name)
        columns = None if turned is None else transposed_operand(turned)
        if columns is not None:
            yield Product(node, rows, columns)


def is_all_pairs_rule(rule: str) -> bool:
    """Whether an einsum rule is like ``ab,cb->ac``."""
    sides, _, result = rule.replace(" ", "").partition("->")
    rows, _, columns = sides.partition(",")
    if not (len(rows) == len(columns) == 2 and (rows + columns).isalpha()):
        return False
    shared = rows[1] == columns[1] and rows[0] != columns[0]
    return shared and result == rows[0] + columns[0]


def transposed_operand(node: ast.expr) -> ast.expr | None:
    """``x`` of ``x.t()``, ``x.T``, ``x.transpose(0, 1)`` and ``torch.transpose(x, 0, 1)``.

    Also of ``x.permute(1, 0)``. Not of ``x.transpose(1, 2)``, which turns what each example has.
    """
    if isinstance(node, ast.Call):
        axes = [each.value for each in node.args if isinstance(each, ast.Constant)]
        if len(axes) == 2 and all(isinstance(axis, int) and axis > 0 for axis in axes):
            return None
        if axes == [1, 0] and isinstance(node.func, ast.Attribute) and node.func.attr == "permute":
            return node.func.value if len(node.args) == len(axes) else None
    match node:
        case ast.Call(func=ast.Attribute(value=inner, attr="contiguous"), args=[]):
            return transposed_operand(inner)
        case ast.Attribute(value=inner, attr="data"):
            return transposed_operand(inner)
        case ast.Call(func=ast.Attribute(value=ast.Name("torch"), attr=name), args=[inner, *_]):
            return inner if name in TRANSPOSES else None
    inner = node.func if isinstance(node, ast.Call) else node
    if isinstance(inner, ast.Attribute) and inner.attr in TRANSPOSES:
        return inner.value
    return None


def crossed_operands(*operands: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """``x`` and ``y`` of ``x.unsqueeze(1)`` and ``y[None]``, in either order."""
    sides: dict[object, ast.expr] = {}
    for operand in operands:
        match operand:
            case ast.Call(
                func=ast.Attribute(value=vectors, attr="unsqueeze"), args=[ast.Constant(axis)]
            ):
                sides[axis] = vectors
            case ast.Subscript(value=vectors, slice=index):
                axes = index.elts if isinstance(index, ast.Tuple) else [index]
                new = [n for n, each in enumerate(axes) if ast.unparse(each) == "None"]
                sides |= dict.fromkeys(new, vectors)
    return (sides[1], sides[0]) if sides.keys() == {0, 1} else None


def broadcast_operands(node: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """``x`` and ``y`` of ``x[:, None, :] * y[None, :, :]``."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return None
    sides = {}
    for side in (node.left, node.right):
        if isinstance(side, ast.Subscript) and isinstance(side.slice, ast.Tuple):
            first = side.slice.elts[0]
            sides["rows" if isinstance(first, ast.Slice) else "columns"] = side.value
    return (sides["rows"], sides["columns"]) if len(sides) == 2 else None


@record
class Mask:
    """A comparison of every label with every other, and the expressions of its labels."""

    node: ast.expr
    labels: tuple[ast.expr, ast.expr]


def masked_products(module: Module) -> Iterator[tuple[Product, Mask]]:
    """Products in a ``forward`` that compares labels pairwise, each with that comparison."""
    for function in module.all_functions:
        mask = next(masks(function), None) if function.name == "forward" else None
        product = next(all_pairs_products(module, function), None) if mask else None
        if mask and product:
            yield product, mask


def masks_of_batches(module: Module) -> Iterator[tuple[Function, Mask]]:
    """Functions that compare the labels of a batch pairwise, each with the first such comparison.

    ``y.expand(n, n).eq(y.expand(n, n).t())`` and ``y[:, None] == y[None]`` are those of examples;
    ``y[:, :, None] == y[:, None]`` are those of positions in one.
    """
    for function in module.all_functions:
        found = [mask for mask in masks(function) if not is_within_examples(mask.node)]
        if found:
            yield function, found[0]


def is_within_examples(node: ast.expr) -> bool:
    """Whether an expression has an axis for the batch beside the two whose pairs it takes."""
    return any(
        isinstance(each.slice, ast.Tuple) and len(each.slice.elts) > 2
        for each in everywhere(node, ast.Subscript)
    ) or any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr in ("unsqueeze", "transpose")
        and not (isinstance(axis, ast.Constant) and axis.value in (0, 1))
        for call in everywhere(node, ast.Call)
        for axis in call.args[-2:]
    )


def masks(function: Function) -> Iterator[Mask]:
    """The comparisons of every label with every other in a function."""
    for test in within(function.body, ast.Compare):
        if isinstance(test.ops[0], ast.Eq):
            yield from mask_of_all_pairs(test, test.left, test.comparators[0])
    for call in within(function.body, ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "eq":
            sides = (call.func.value, *argument_values(call))[-2:]  # torch.eq(a, b) and a.eq(b)
            yield from mask_of_all_pairs(call, *sides)


def mask_of_all_pairs(node: ast.expr, left: ast.expr, right: ast.expr) -> Iterator[Mask]:
    """The mask of a comparison of ``left`` and ``right``, if that compares all pairs."""
    lengthened = [has_new_axis(left), has_new_axis(right)]
    bases = base_expression(left), base_expression(right)
    names = [each.id for each in bases if isinstance(each, ast.Name)]
    if all(lengthened) or (any(lengthened) and len(names) == 2 and len(set(names)) == 1):
        yield Mask(node, bases)


def has_new_axis(node: ast.expr) -> bool:
    """Whether an expression is like ``x[:, None]``, ``x.unsqueeze(1)`` or ``x.T``."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
        return any(isinstance(e, ast.Constant) and e.value is None for e in node.slice.elts)
    return (
        transposed_operand(node) is not None
        or getattr(getattr(node, "func", None), "attr", "") == "unsqueeze"
    )


def base_expression(node: ast.expr) -> ast.expr:
    """``x`` of ``x[:, None]``, ``x.unsqueeze(0)`` and ``x.T``."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node
