"""Losses that a script makes itself a mean over the tokens of a mask."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..analysis.batches.batch_sizes import is_size
from ..analysis.batches.class_weights import bound_to
from ..analysis.batches.loss_reduction import LOSS, Reduction, reduction_of
from ..analysis.batches.summed_losses import COMPARISONS
from ..analysis.training.program import Program
from ..source.module import Module
from ..source.tree import (
    Function,
    argument,
    assigned_pairs,
    bound_names,
    everywhere,
    is_inside,
    mentions,
    within,
)

UNSURE = (ast.If, ast.IfExp, ast.For, ast.While, ast.Try, ast.FunctionDef, ast.Lambda)
GUARDS = ("max", "clamp", "clamp_min", "clamp_", "maximum")  # against a number of none
SCORE = re.compile("acc|prec|recall|iou|metric|ratio", re.IGNORECASE)
MASK = re.compile("(mask|valid)s?$", re.IGNORECASE)
SMALL = re.compile("eps|smooth|tiny", re.IGNORECASE)
DRAWN = ("randperm", "argsort", "arange", "topk", "randint", "choice", "sort")  # equally many
CASTS = (
    *("float", "item", "to", "type_as", "long", "bool", "int", "type", "view", "unsqueeze"),
    *("detach", "squeeze"),
)
ELEMENTWISE = (
    *("abs", "pow", "square", "sqrt", "log", "exp", "clamp", *CASTS),
    *("softplus", "relu", "sigmoid", "logsigmoid", "tanh", "log_prob"),
)


def masked_count(module: Module, stmt: ast.Assign) -> ast.expr | None:
    """``mask.sum()`` of ``loss = losses.sum() / mask.sum()``, where the loss is what is returned.

    A mask is what a comparison makes: no gradient comes through it.
    """
    value = stmt.value
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Div):
        return None
    if summed(module, value.left) is None or not is_result(module, stmt):
        return None
    count = without_casts(value.right)
    if isinstance(count, ast.Name):  # n_word = mask.sum().item()
        count = without_casts(module.definition(count, count) or count)
    mask = summed(module, count)
    return count if mask is not None and is_mask(module, mask) else None


def means_over_masks(module: Module) -> Iterator[tuple[ast.BinOp | ast.AugAssign, ast.expr]]:
    """``(losses * mask).sum() / mask.sum()``, each with the mask, whatever that is made of.

    And ``loss /= mask.sum()`` and ``loss / max(count, 1)`` of what a comparison makes, or as many
    as ``torch.nonzero(mask)`` finds.
    """
    for stmt in module.nodes(ast.AugAssign):
        if isinstance(stmt.op, ast.Div) and is_of_loss(module, stmt):
            mask = counted(module, stmt.value)
            if mask is not None:
                yield stmt, mask
    for node in module.nodes(ast.BinOp):
        if not isinstance(node.op, ast.Div):
            continue
        losses, mask = (summed(module, without_casts(side)) for side in (node.left, node.right))
        mask = mask and without_casts(mask)
        if losses and isinstance(mask, ast.Name) and is_times(module, losses, mask.id):
            yield node, mask
        elif is_of_loss(module, node) and not is_score(module, node):
            mask = counted(module, node.right) if losses is None else None
            mask = mask or found_in(module, node.right)
            if mask is not None:
                yield node, mask


def counted(module: Module, count: ast.expr, is_summed: bool = False) -> ast.expr | None:
    """The mask whose number of true elements a value is: ``positives`` of ``max(1, n)``.

    Where ``n = positives.sum(1).sum()``, or of ``n.clamp(min=1)`` and ``n + 1e-6``.
    """
    node = without_casts(count)
    match node:
        case ast.Name():
            value = module.definition(node, node)
            return None if value is None else counted(module, value, is_summed)
        case ast.Attribute(value=owner, attr="data"):
            return counted(module, owner, is_summed)
        case ast.BinOp(left=owner, op=ast.Add(), right=added) if is_small(module, added):
            return counted(module, owner, is_summed)
        case ast.Call(func=func, args=parts):
            if (mask := found_in(module, node)) is not None:
                return mask
            if isinstance(func, ast.Attribute) and not module.dotted(func).startswith("torch."):
                parts = [func.value]
            if module.last_name(func) in GUARDS:
                masks = (counted(module, each, is_summed) for each in parts)
                return next((mask for mask in masks if mask is not None), None)
            is_whole = is_summed or summed(module, node) is not None
            if module.last_name(func) == "sum" and parts and is_whole:
                if is_mask(module, parts[0]):
                    return without_casts(parts[0])
                return counted(module, parts[0], is_summed=True)
    return None


def is_small(module: Module, node: ast.expr) -> bool:
    """``1e-6``, and ``eps`` or ``self.smooth``, which is added to a number that may be 0."""
    is_named = isinstance(node, ast.Name | ast.Attribute)
    return isinstance(node, ast.Constant) or (
        is_named and SMALL.search(module.last_name(node)) is not None
    )


def is_times(module: Module, losses: ast.expr, mask: str) -> bool:
    """Whether losses are a product with a mask: ``losses * mask``, or by ``losses *= mask``."""
    made = module.definition(losses, losses) or losses
    if isinstance(made, ast.BinOp) and mentions(made, mask):
        return True
    return any(mentions(factor, mask) for factor in factors_behind(module, losses))


def factors_behind(module: Module, losses: ast.expr) -> list[ast.expr]:
    """What statements of their own multiply losses by: ``losses *= mask``."""
    if not isinstance(losses, ast.Name):
        return []
    return [
        stmt.value
        for stmt in within(module.scope_statements(losses), ast.AugAssign)
        if isinstance(stmt.op, ast.Mult)
        and isinstance(stmt.target, ast.Name)
        and stmt.target.id == losses.id
    ]


def found_in(module: Module, count: ast.expr) -> ast.expr | None:
    """The mask of a number of places: ``torch.nonzero(mask).size(0)`` and ``len(mask.nonzero())``.

    Also by ``size()[0]`` and ``shape[0]``, under a name, ``torch.count_nonzero(mask)``, and of
    what a mask picks, ``boxes[mask].size(0)``.
    """
    node = count
    if isinstance(node, ast.Name):
        node = module.definition(node, node) or node
    if isinstance(node, ast.Call) and module.last_name(node.func) == "count_nonzero":
        return argument_or_owner(module, node) if not argument(node, 1, "dim") else None
    match node:
        case ast.Call(func=ast.Name(id="len"), args=[places]):
            pass
        case ast.Call(func=ast.Attribute(value=places, attr="size"), args=[_]):
            pass
        case ast.Subscript(value=ast.Call(func=ast.Attribute(value=places, attr="size"), args=[])):
            pass
        case ast.Subscript(value=ast.Attribute(value=places, attr="shape")):
            pass
        case _:
            return None
    if isinstance(places, ast.Name):
        places = module.definition(places, places) or places
    if isinstance(places, ast.Call) and module.last_name(places.func) in ("nonzero", "argwhere"):
        return argument_or_owner(module, places)
    picked: ast.expr | None = places
    while isinstance(picked, ast.Call) and module.last_name(picked.func) in ("view", "reshape"):
        picked = argument_or_owner(module, picked)
    match picked:
        case ast.Subscript(slice=ast.Tuple(elts=[rows, *_]) | rows):
            return rows if is_mask(module, rows) else None
    return None


def argument_or_owner(module: Module, call: ast.Call) -> ast.expr | None:
    """``x`` of ``torch.nonzero(x)`` and of ``x.nonzero()``."""
    if module.dotted(call.func).startswith("torch."):
        return argument(call, 0, "input")
    return call.func.value if isinstance(call.func, ast.Attribute) else None


def is_score(module: Module, node: ast.expr | ast.stmt) -> bool:
    """Whether a value is bound to what is called a score, which nothing goes back from."""
    stmt = module.statement(node)
    return any(map(SCORE.search, bound_names(stmt)))


def means_over_selections(program: Program, module: Module) -> Iterator[tuple[ast.Call, ast.expr]]:
    """``l1_loss(made[mask], wanted[mask])``, and such a loss by ``.mean()``, each with the mask.

    Also of a name, ``rest = (made - wanted)[mask]``, by ``losses.masked_select(mask)``, and of what
    lists of places pick, as of the cells where boxes are: ``made[b, anchor, y, x]``.
    """
    found: dict[ast.Call, ast.expr] = {}
    parts: list[tuple[ast.expr, ast.expr]] = [
        (part, part.slice)
        for part in module.nodes(ast.Subscript)
        if isinstance(part.ctx, ast.Load)
        and (selects(program, module, part.slice) or picks_rows(module, part.slice))
    ]
    for selected in module.calls_to("masked_select"):
        place = 1 if module.dotted(selected.func).startswith("torch.") else 0
        mask = argument(selected, place, "mask")
        parts += [] if mask is None else [(selected, mask)]
    for part, mask in parts:
        for use in (part, *names_of(module, part)):
            call = taken_by(module, use)
            if (
                call is not None
                and is_of_loss(module, call)
                and reduction_of(program, module, call) is Reduction.MEAN
            ):
                found.setdefault(call, mask)
    yield from found.items()


def taken_by(module: Module, part: ast.expr) -> ast.Call | None:
    """The call that gets a part of a tensor, or what is made of each of its elements."""
    for up in module.ancestors(part):
        if isinstance(up, ast.stmt):
            return None
        if isinstance(up, ast.Call) and module.last_name(up.func) not in ELEMENTWISE:
            return up
    return None


def names_of(module: Module, part: ast.expr) -> Iterator[ast.Name]:
    """The places that read the name which a statement gives to a part of a tensor."""
    stmt = module.statement(part)
    if not isinstance(stmt, ast.Assign) or taken_by(module, part) is not None:
        return
    values = dict(assigned_pairs(stmt))  # also of ``pos, neg = x[is_pos], x[is_neg]``
    targets = [name for name, value in values.items() if part is value or is_inside(part, value)]
    for name in module.occurrences(*targets) if targets else ():
        if (
            isinstance(name, ast.Name)
            and isinstance(name.ctx, ast.Load)
            and module.function(name) is module.function(stmt)
            and module.definition(name, name) is values[name.id]
        ):
            yield name


def ratios_of_sums(module: Module) -> Iterator[tuple[ast.BinOp, ast.expr]]:
    """``(2 * (p * t).sum() + 1) / (p.sum() + t.sum() + 1)``, a Dice loss, with a sum of its top.

    Both are sums over a batch: their ratio is no mean of the ratios of its parts.
    """
    for node in module.nodes(ast.BinOp):
        if isinstance(node.op, ast.Div) and is_of_loss(module, node):
            products = [
                each
                for each in sums_in(module, node.left)
                if isinstance(module.definition(each, each) or each, ast.BinOp)
            ]
            if products and sums_in(module, node.right):
                yield node, products[0]


def sums_in(module: Module, node: ast.expr, depth: int = 0) -> list[ast.expr]:
    """What is summed as a whole in an arithmetic expression, also under names."""
    node = without_casts(node)
    if (whole := summed(module, node)) is not None:
        return [whole]
    match node:
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult(), left=left, right=right):
            return [*sums_in(module, left, depth), *sums_in(module, right, depth)]
        case ast.Name() if depth < 3 and (value := module.definition(node, node)) is not None:
            return sums_in(module, value, depth + 1)
    return []


def selects(program: Program, module: Module, index: ast.expr) -> bool:
    """Whether an index is a mask, here or wherever its function gets it from, or is called one."""
    if is_called_mask(module, index):
        return True
    if not isinstance(index, ast.Name) or module.alternatives(index, index):
        return is_mask(module, index)
    values = bound_to(program, module, index)
    return bool(values) and all(is_mask(*value) for value in values)


def is_called_mask(module: Module, index: ast.expr) -> bool:
    """``valid_mask``, ``batch["mask"]`` and ``sample.valid``, unless they are drawn."""
    match index:
        case ast.Name(id=name):
            makers = module.alternatives(index, index)
            calls = [call for made in makers for call in everywhere(made, ast.Call)]
            if any(module.last_name(call.func) in DRAWN for call in calls):
                return False
        case ast.Subscript(slice=ast.Constant(value=str(name))) | ast.Attribute(attr=name):
            pass
        case _:
            return False
    return MASK.search(name) is not None


def picks_rows(module: Module, index: ast.expr) -> bool:
    """Whether an index is of lists of places, whose number the function asks: ``b.shape[0]``."""
    match index:
        case ast.Tuple(elts=[ast.Name() as first, ast.Name(), *rest]):
            if not all(isinstance(each, ast.Name) for each in rest):
                return False
        case _:
            return False
    scope = module.scope_statements(index)
    sizes = [*within(scope, ast.Call), *within(scope, ast.Subscript)]
    return any(is_size(size, {first.id}) for size in sizes)


def is_of_loss(module: Module, node: ast.expr | ast.stmt) -> bool:
    """Whether what is around a place is called a loss: its statement's names, function or class."""
    owner, function = module.enclosing_class(node), module.function(node)
    stmt = module.statement(node)
    names = [*bound_names(stmt), getattr(owner, "name", ""), getattr(function, "name", "")]
    return any(map(LOSS.search, names))


def summed(module: Module, node: ast.expr) -> ast.expr | None:
    """``x`` of ``x.sum()`` and ``torch.sum(x)``, over all of it."""
    if not isinstance(node, ast.Call) or node.keywords:
        return None
    if module.dotted(node.func) == "torch.sum":
        return node.args[0] if len(node.args) == 1 else None
    is_method = isinstance(node.func, ast.Attribute) and node.func.attr == "sum" and not node.args
    return node.func.value if is_method and isinstance(node.func, ast.Attribute) else None


def without_casts(node: ast.expr) -> ast.expr:
    """``mask.sum()`` of ``mask.sum().float()``."""
    while (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in CASTS
    ):
        node = node.func.value
    return node


def is_mask(module: Module, node: ast.expr, depth: int = 0) -> bool:
    """Whether a value is what a comparison makes, also cast, under a name or joined by ``&``."""
    node = without_casts(node)
    match node:
        case ast.Compare():
            return True
        case ast.Call(func=ast.Attribute(attr=name)):
            return name in COMPARISONS
        case ast.BinOp(op=ast.BitAnd() | ast.BitOr(), left=left, right=right):
            return is_mask(module, left, depth) and is_mask(module, right, depth)
        case ast.Name() if depth < 3:
            values = module.alternatives(node, node)
            return bool(values) and all(is_mask(module, each, depth + 1) for each in values)
    return False


def is_result(module: Module, stmt: ast.Assign) -> bool:
    """Whether the function returns the name, alone or first, or the step goes back from it."""
    target = stmt.targets[0]
    assert isinstance(target, ast.Name)
    scope = module.scope_statements(stmt)
    results = [each.value for each in within(scope, ast.Return)]
    results = [each.elts[0] if isinstance(each, ast.Tuple) else each for each in results]
    results += [
        call.func.value
        for call in within(scope, ast.Call)
        if isinstance(call.func, ast.Attribute) and call.func.attr == "backward"
    ]
    return any(isinstance(each, ast.Name) and each.id == target.id for each in results)


def is_for_training_alone(program: Program, function: Function | None) -> bool:
    """Whether all calls of a function stand in training steps, where each step comes to them."""
    if function is None or program.possible_callers(function):
        return False
    callers = program.callers(function)
    return bool(callers) and all(is_in_each_step(program, *caller) for caller in callers)


def is_in_each_step(program: Program, module: Module, call: ast.Call) -> bool:
    """Whether a call stands in a training step, under no test that ranks may answer differently."""
    above: list[ast.AST] = []
    for up in module.ancestors(call):
        if any(up is loop.steps for loop in program.train_loops):
            return not any(isinstance(each, UNSURE) for each in above)
        above.append(up)
    return False
