"""Learning rates that a script makes of its batch: ``lr = args.lr * args.batch_size / 256``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence, Set

from ...source.module import Module
from ..training.program import Program
from .loader_batches import batch_size_sources, involves, names_in

Place = tuple[Module, ast.expr]

RATE = re.compile(r"(?:^|_)b?lrs?(?:$|_|\d)|learning_?rate", re.IGNORECASE)
OF_TIMES = re.compile("step|iter|epoch|decay|every|freq|num|count", re.IGNORECASE)
BATCH = re.compile(r"batch|(?:^|_)bsz?(?:$|_)", re.IGNORECASE)
OF_RANKS = re.compile(r"world|gpu|rank|proc|device|replica|node", re.IGNORECASE)
KEEPING = ("sqrt", "float", "int", "round", "min", "max")


def rates_of_batch(program: Program) -> Iterator[Place]:
    """Where the batch of a training loop's loader is a factor of a learning rate.

    Not where cards or ranks are counted in it, or what the loader gets is so many times as much.
    """
    names = names_of_batches(program)
    if not names:
        return
    for module in program.modules:
        if not any(module.spells(name) for name in names):
            continue
        kept = module.occurrences(*sorted(names))
        makers = [*kept, *products_of(module, kept)]
        for node in makers:
            chain = factors_around(module, node)
            is_part = chain is not node and is_rate(module, chain) and not counts_ranks(chain)
            if is_part and program.is_live(module, node):
                yield module, node


def names_of_batches(program: Program) -> set[str]:
    """The names and attributes that the batches of training loaders come from."""
    names: set[str] = set()
    for loop in program.train_loops:
        if loop.loader is None or loop.loader.batch_size is None:
            continue
        values = batch_size_sources(program, loop.loader)
        if involves(values, "gpu", ast.Mult) or any(map(OF_RANKS.search, names_in(values))):
            continue
        names |= {name for name in names_in(values) if BATCH.search(name)}
    return names


def products_of(module: Module, nodes: Sequence[ast.expr]) -> Iterator[ast.Name]:
    """The uses of a name for the product of a batch: ``whole = args.batch_size * args.steps``."""
    for node in nodes:
        stmt = module.statement(node)
        chain = factors_around(module, node)
        if chain is node or not isinstance(stmt, ast.Assign) or stmt.value is not chain:
            continue
        if is_rate(module, chain) or counts_ranks(chain):
            continue
        targets = {target.id for target in stmt.targets if isinstance(target, ast.Name)}
        for use in module.occurrences(*sorted(targets)) if targets else ():
            if isinstance(use, ast.Name) and module.definition(use, use) is chain:
                yield use


def factors_around(module: Module, node: ast.expr) -> ast.expr:
    """The product that a value is a factor of, and no divisor, with what keeps it one."""
    while True:
        up = module.parents[node]
        match up:
            case ast.BinOp(op=ast.Mult()):
                node = up
            case ast.BinOp(op=ast.Div()) if up.left is node:
                node = up
            case ast.Call(func=func) if node in up.args and module.last_name(func) in KEEPING:
                node = up
            case _:
                return node


def is_rate(module: Module, chain: ast.expr) -> bool:
    """Whether a product has a learning rate among its factors, or is called one."""
    if names_rate(names_in([chain])):
        return True
    match module.parents[chain]:
        case ast.Assign(targets=targets, value=value) if value is chain:
            return names_rate(names_in([*targets]))
        case ast.AugAssign(target=target, op=ast.Mult()):
            return names_rate(names_in([target]))
        case ast.keyword(arg=str(name)):
            return names_rate({name})
    return False


def names_rate(names: Set[str]) -> bool:
    """Whether one of some names is that of a rate, and not of when it changes."""
    return any(RATE.search(name) and not OF_TIMES.search(name) for name in names)


def counts_ranks(chain: ast.expr) -> bool:
    """Whether cards or ranks are counted in a product."""
    return any(map(OF_RANKS.search, names_in([chain])))
