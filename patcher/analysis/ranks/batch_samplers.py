"""What lies behind the ``batch_sampler`` of a DataLoader: whether its batches are dealt by rank."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import argument_values, mentions
from ..training.frameworks import RANK_SAMPLERS
from ..training.possible_values import Place, values_of
from ..training.program import Program

PLAIN = ("RandomSampler", "SequentialSampler", "WeightedRandomSampler", "SubsetRandomSampler")
OF_RANKS = ("get_rank", "num_replicas", "world_size")  # in a class that deals by itself
MAX_STEPS = 16


def deals_by_rank(program: Program, module: Module, batch_sampler: ast.expr) -> bool | None:
    """Whether a batch_sampler's batches differ between ranks; None where that cannot be told."""
    answers: set[bool | None] = set()
    pending: list[tuple[Module, ast.expr, int, bool]] = [(module, batch_sampler, 0, False)]
    while pending:
        where, node, steps, in_class = pending.pop()
        answer = is_dealt(program, where, node)
        found = list(sources(program, where, node)) if steps < MAX_STEPS else []
        is_own = answer is not None or in_class  # what a class of the program draws from is data
        if answer is not None or steps == MAX_STEPS or not (found or is_own):
            answers.add(answer)
        pending += [(*place, steps + 1, is_own) for place in found]
    if True in answers:
        return True
    return False if answers == {False} else None


def is_dealt(program: Program, module: Module, node: ast.expr) -> bool | None:
    """The answer for one sampler: torch's, or of a class of the program."""
    if not isinstance(node, ast.Call):
        return None
    found = program.resolve(module, node.func)
    if found is not None and isinstance(found[1], ast.ClassDef):
        return is_own_dealer(program, module, node)
    name = module.last_name(node.func)
    return True if name in RANK_SAMPLERS else False if name in PLAIN else None


def is_own_dealer(program: Program, module: Module, node: ast.expr) -> bool:
    """Whether a sampler is of a class of the program that deals to the ranks."""
    found = program.resolve(module, node.func) if isinstance(node, ast.Call) else None
    if found is None or not isinstance(found[1], ast.ClassDef):
        return False
    return any(mentions(found[1], word) for word in OF_RANKS)


def sources(program: Program, module: Module, node: ast.expr) -> Iterator[Place]:
    """Where the samplers of an expression come from next; nothing for a sampler itself."""
    if isinstance(node, ast.IfExp):
        yield from ((module, node.body), (module, node.orelse))
    elif isinstance(node, ast.Call) and draws_from_arguments(program, module, node):
        for value in argument_values(node):
            if isinstance(value, ast.Name | ast.Call | ast.IfExp):
                yield module, value
    elif isinstance(node, ast.Name | ast.Call):
        yield from values_of(program, module, node)


def draws_from_arguments(program: Program, module: Module, call: ast.Call) -> bool:
    """Whether a call makes batches of another sampler's numbers."""
    found = program.resolve(module, call.func)
    is_own = found is not None and isinstance(found[1], ast.ClassDef)
    return is_own or module.last_name(call.func) == "BatchSampler"
