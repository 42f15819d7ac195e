"""Which parts of an expression count micro-batches, and how each counts optimizer steps instead."""

from __future__ import annotations

import ast

from ....record import record
from ...source.module import Module
from ...source.tree import below, everywhere, is_inside, mentions, parameters
from ..training.loaders import trace_loader
from ..training.program import Program
from ..training.train_loops import TrainLoop
from .batches_of_all import ROUNDING
from .example_counts import is_loader_length, resolve

STEPS = "steps_per_epoch"
"""Stands in the texts for the number of optimizer steps of an epoch."""


@record
class MicroBatchTerms:
    """The parts of an expression that count micro-batches."""

    length: str  # text of the loader's length
    accumulation: str  # text of the number of accumulation steps
    rewrites: list[tuple[ast.expr, str]]  # nodes, and the text that counts optimizer steps


def micro_batch_terms(program: Program, loop: TrainLoop, value: ast.expr) -> MicroBatchTerms | None:
    """``len(loader)`` in ``value``, or that divided by the accumulation; None without either.

    ``len(loader) // accumulation`` leaves out the step of the last micro-batches of an epoch.
    """
    module = loop.module
    lengths = [
        node
        for node in below(value)
        if isinstance(node, ast.expr) and is_loader_length(program, loop, node)
    ]
    if not lengths or any(may_divide_itself(program, loop, node) for node in lengths):
        return None
    length = module.text(lengths[0])
    divided = [
        node
        for node in below(value)
        if isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.FloorDiv | ast.Div)
        and any(is_accumulation(loop, part) for part in below(node.right))
    ]
    if not divided:
        rewrites = [(node, STEPS) for node in lengths]
        return MicroBatchTerms(length, accumulation_at(loop, value), rewrites)
    rewrites = []
    for node in divided:
        quotient = rounded_down(module, node)
        if quotient is None or not is_accumulation(loop, node.right):
            continue
        length_factors = [factor for factor in factors(node.left) if factor in lengths]
        if length_factors == [node.left]:
            if loop.loader is not None and not loop.drops_rest:
                rewrites.append((quotient, STEPS))
        elif len(length_factors) == 1:  # micro-batches of all epochs: each epoch has its rest
            rewrites.append((quotient, product_text(module, node.left, length_factors[0])))
    if not rewrites:
        return None
    return MicroBatchTerms(length, module.operand(divided[0].right), rewrites)


def rounded_down(module: Module, node: ast.BinOp) -> ast.expr | None:
    """``a // b``, and ``int(a / b)`` around ``a / b``; None where it is not rounded down."""
    if isinstance(node.op, ast.FloorDiv):
        return node
    call = module.parents[node]
    is_int = isinstance(call, ast.Call) and module.last_name(call.func) in ("int", "floor")
    return call if is_int and isinstance(call, ast.Call) else None


def may_divide_itself(program: Program, loop: TrainLoop, length: ast.expr) -> bool:
    """Whether a length goes to a function of the program that has to do with accumulation."""
    assert loop.accumulation is not None
    names = {name.id for name in everywhere(loop.accumulation, ast.Name)}
    names = {part.attr for part in everywhere(loop.accumulation, ast.Attribute)} or names
    calls = [up for up in loop.module.ancestors(length) if isinstance(up, ast.Call)]
    return any(
        mentions(function, name)
        for call in calls
        for _, function in (
            *program.callees(loop.module, call),
            *program.possible_callees(loop.module, call),
        )
        for name in names
    )


def is_accumulation(loop: TrainLoop, node: ast.AST) -> bool:
    """Whether ``node`` is the accumulation, also under another name.

    ``args.n`` counts as ``self.args.n``, ``n`` as what it was assigned last, ``config["n"]`` too,
    and so does the same number where both are written out.
    """
    match node, loop.accumulation:
        case ast.Constant(value=written), ast.Constant(value=number):
            return bool(written == number)
    if not isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
        return False
    assert loop.accumulation is not None
    module = loop.module
    names = {module.text(each) for each in (node, resolve(module, node))}
    meant = {module.text(each) for each in (loop.accumulation, resolve(module, loop.accumulation))}
    return any(meant & {name, f"self.{name}"} for name in names)


def accumulation_at(loop: TrainLoop, node: ast.expr) -> str:
    """The text of the accumulation in the function around ``node``: without ``self.`` if it can."""
    text = accumulation_text(loop)
    without_self = text.removeprefix("self.")
    function = loop.module.function(node)
    names = set() if function is None else parameters(function)
    return without_self if without_self.partition(".")[0] in names else text


def accumulation_text(loop: TrainLoop) -> str:
    """The text of the number of accumulation steps, as an operand."""
    assert loop.accumulation is not None
    return loop.module.operand(loop.accumulation)


def factors(node: ast.expr) -> list[ast.expr]:
    """The factors of a product; any other expression is its only factor."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return [*factors(node.left), *factors(node.right)]
    return [node]


def product_text(module: Module, node: ast.expr, length: ast.expr) -> str:
    """The text of a product, with the steps of an epoch in the place of the loader's length."""
    texts = []
    for factor in factors(node):
        text = STEPS if factor is length else module.text(factor)
        is_plain = isinstance(
            factor, ast.Name | ast.Attribute | ast.Constant | ast.Call | ast.Subscript
        )
        texts.append(text if is_plain else f"({text})")
    return " * ".join(texts)


def counted_besides(program: Program, loop: TrainLoop, value: ast.expr) -> str:
    """Another loader of the same batches whose length a number is, and no accumulation's; or "".

    ``epochs * len(whole)``, where the loop goes through a part of the data at first.
    """
    assert loop.loader is not None
    module, size = loop.module, loop.loader.batch_size
    trained = [each.loader.call for each in program.train_loops if each.loader is not None]
    parts = [*everywhere(value, ast.Name), *everywhere(value, ast.Attribute)]
    if size is None or any(is_accumulation(loop, each) for each in parts):
        return ""
    for call in everywhere(value, ast.Call):
        if module.last_name(call.func) != "len" or len(call.args) != 1:
            continue
        if any(
            isinstance(up, ast.Call) and module.last_name(up.func) not in ROUNDING
            for up in module.ancestors(call)
            if up is value or is_inside(up, value)
        ):
            continue  # a function may divide it
        other = trace_loader(program, module, call.args[0])
        if other is None or other.batch_size is None or other.call in trained:
            continue
        is_alike = other.module.text(other.batch_size) == loop.loader.module.text(size)
        if is_alike and program.evaluation_of(other.module, other.call) is None:
            return module.text(call.args[0])
    return ""
