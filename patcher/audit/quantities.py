"""What a number is made of: its factors and divisors, by what they stand for."""

from __future__ import annotations

import ast
from collections import Counter

from ...record import record
from ..analysis.ranks.manual_sharding import looks_like_world_size
from ..analysis.training.loaders import trace_loader
from ..analysis.training.only_values import value_of
from ..analysis.training.program import Program
from ..analysis.training.train_loops import TrainLoop
from ..source.module import Module
from ..source.tree import precedes, same_code

MAX_DEPTH = 8
TENSORS = ("TensorDataset", "tensor", "stack", "LongTensor", "FloatTensor", "as_tensor")
ROUNDING = ("int", "round", "ceil", "floor", "max", "float", "abs", "trunc")
WORLD, LOADER, DATA = "<world size>", "<len of the loader>", "<len of the data>"


@record
class Quantity:
    """A product: how often each part is a factor, and a divisor."""

    factors: Counter[str]
    divisors: Counter[str]

    def __contains__(self, part: str) -> bool:
        return part in self.factors or part in self.divisors


def meaning(program: Program, module: Module, node: ast.expr, depth: int = 0) -> str:
    """The text of an expression with names replaced by the values they stand for."""
    if depth > MAX_DEPTH:
        return module.text(node)
    if isinstance(node, ast.Name):
        found = value_of(program, module, node)
        return node.id if found is None else meaning(program, *found, depth + 1)
    if isinstance(node, ast.Call) and module.last_name(node.func) in ROUNDING and node.args:
        return meaning(program, module, node.args[0], depth + 1)
    return plain_text(module, node)


def plain_text(module: Module, node: ast.expr) -> str:
    """The text of an expression without blanks, ``self.args.steps`` as ``args.steps``.

    That is where all that is assigned to the attribute has its name.
    """
    text = "".join(module.text(node).split())
    own, _, rest = text.partition(".")
    values = module.attribute_values.get(rest.partition(".")[0], ())
    same = [isinstance(v, ast.Name) and v.id == rest.partition(".")[0] for v in values]
    return rest if own == "self" and same and all(same) else text


def quantity(
    program: Program, module: Module, node: ast.expr, loop: TrainLoop, depth: int = 0
) -> Quantity:
    """The factors and divisors of an expression; a sum with a constant counts as the rest."""

    def of(part: ast.expr) -> Quantity:
        return quantity(program, module, part, loop, depth + 1)

    if depth > MAX_DEPTH:
        return one(module.text(node))
    match node:
        case ast.Name():
            found = value_of(program, module, node)
            if looks_like_world_size(program, module, node):
                return one(WORLD)
            if found is not None:
                return quantity(program, *found, loop, depth + 1)
            return one(node.id)
        case ast.IfExp() if looks_like_world_size(program, module, node):
            return one(WORLD)
        case ast.UnaryOp(operand=operand):
            return of(operand)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            first, second = of(left), of(right)
            return Quantity(first.factors + second.factors, first.divisors + second.divisors)
        case ast.BinOp(left=left, op=ast.Div() | ast.FloorDiv(), right=right):
            first, second = of(without_rest(left, right)), of(right)
            return Quantity(first.factors + second.divisors, first.divisors + second.factors)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right) if is_one_or_none(right):
            return of(left)
        case ast.Call():
            name = module.last_name(node.func)
            if name in ROUNDING and node.args:
                return of(node.args[0])
            if looks_like_world_size(program, module, node):
                return one(WORLD)
            if name == "len" and len(node.args) == 1:
                return one(length(program, module, node.args[0], loop))
        case ast.Attribute():
            if looks_like_world_size(program, module, node):
                return one(WORLD)
            if node.attr == "batch_size" and (size := size_of_loader(program, module, node, loop)):
                return quantity(program, *size, loop, depth + 1)
            values = [
                value
                for value in module.attribute_values.get(node.attr, ())
                if module.function(value) is module.function(node)
            ]
            if len(values) == 1 and precedes(values[0], node):
                return of(values[0])
    return one(plain_text(module, node))


def without_rest(counted: ast.expr, size: ast.expr) -> ast.expr:
    """``n`` of ``(n + size - 1) // size``, which rounds up; what is counted otherwise."""
    match counted:
        case ast.BinOp(ast.BinOp(left, ast.Add(), added), ast.Sub(), ast.Constant()):
            pass
        case ast.BinOp(left, ast.Add(), ast.BinOp(added, ast.Sub(), ast.Constant())):
            pass
        case _:
            return counted
    return left if same_code(added, size) else counted


def is_one_or_none(node: ast.expr) -> bool:
    """A constant, or one for what is left: ``1 if n % size else 0``, ``n % size != 0``."""
    match node:
        case ast.IfExp(body=ast.Constant(), orelse=ast.Constant()):
            return True
        case ast.Call(func=ast.Name(id="int" | "bool"), args=[inner]):
            return is_one_or_none(inner) or isinstance(inner, ast.BinOp)
        case ast.Compare(left=ast.BinOp(op=ast.Mod())):
            return True
    return isinstance(node, ast.Constant)


def one(part: str) -> Quantity:
    """A quantity of a single factor."""
    return Quantity(Counter([part]), Counter())


def is_made_of(module: Module, data: ast.expr, source: str, depth: int = 0) -> bool:
    """Whether a data set is a source, or has tensors of each of its elements.

    ``TensorDataset(ids, labels)`` with ``ids = torch.tensor([each.ids for each in source])``.
    """
    if module.text(data) == source:
        return True
    if isinstance(data, ast.Name):
        values = module.alternatives(data, data) if depth < MAX_DEPTH else []
        return bool(values) and all(is_made_of(module, v, source, depth + 1) for v in values)
    if isinstance(data, ast.ListComp):
        (first, *more) = data.generators
        return not more and not first.ifs and module.text(first.iter) == source
    if isinstance(data, ast.Call) and module.last_name(data.func) in TENSORS and data.args:
        return is_made_of(module, data.args[0], source, depth + 1)
    return False


def size_of_loader(
    program: Program, module: Module, node: ast.Attribute, loop: TrainLoop
) -> tuple[Module, ast.expr] | None:
    """What ``loader.batch_size`` was made with, of the loop's loader."""
    loader = loop.loader
    traced = trace_loader(program, module, node.value) if loader is not None else None
    if traced is None or loader is None or traced.call is not loader.call:
        return None
    return None if loader.batch_size is None else (loader.module, loader.batch_size)


def length(program: Program, module: Module, node: ast.expr, loop: TrainLoop) -> str:
    """What ``len(node)`` is the length of: the loop's loader, its data, or something else."""
    loader = loop.loader
    if loader is None:
        return f"len({module.text(node)})"
    traced = trace_loader(program, module, node)
    if traced is not None and traced.call is loader.call:
        return LOADER
    if isinstance(node, ast.Attribute) and node.attr == "dataset":
        owner = trace_loader(program, module, node.value)
        if owner is not None and owner.call is loader.call:
            return DATA
    if loader.dataset is not None and (
        module is loader.module
        and module.function(node) is module.function(loader.call)
        and is_made_of(module, loader.dataset, module.text(node))
    ):
        return DATA
    return f"len({module.text(node)})"
