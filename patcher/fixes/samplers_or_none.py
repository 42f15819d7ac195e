"""Loaders whose sampler is one by weights on one branch, and None on the other: both are dealt."""

from __future__ import annotations

import ast

from ..analysis.training.constructed_loaders import Loader
from ..editing.edits import Edit, Rewrite
from ..source.module import Module
from ..source.tree import argument, is_false, is_none, is_true, keyword, same_code
from .dataset_by_name import dataset_by_name
from .loader_options import may_shuffle, options_of

WISHES = (ast.Name, ast.Attribute, ast.Subscript, ast.Compare, ast.BoolOp, ast.UnaryOp)


def may_be_none(module: Module, loader: Loader) -> bool:
    """Whether a loader's sampler has a name that is None on some way to it.

    ``sampler = None`` in a branch, or above ``if args.balanced: sampler = …``.
    """
    sampler = argument(loader.call, 3, "sampler")
    if isinstance(sampler, ast.Attribute):
        return any(map(is_none, loader.samplers))
    if not isinstance(sampler, ast.Name):
        return False
    if any(map(is_none, module.alternatives(sampler, sampler))):
        return True
    function = module.function(sampler)
    stmts = [module.statement(store) for store in module.stores.get((function, sampler.id), ())]
    if not stmts or not isinstance(stmts[0], ast.Assign) or not is_none(stmts[0].value):
        return False
    block = module.body(stmts[0])
    return not any(stmt in block for stmt in stmts[1:])


def deal_without_sampler(
    module: Module, loader: Loader, alone: str, lone: str, names: tuple[str, ...]
) -> tuple[Edit, ...]:
    """Edits that give ranks a DistributedSampler where the name of the sampler is None.

    ``alone`` tells where a process has the loader for itself, ``lone`` where it may shuffle.
    """
    sampler, shuffle = keyword(loader.call, "sampler"), argument(loader.call, 2, "shuffle")
    if sampler is None or loader.dataset is None:
        return ()
    how = ""
    data, edits = dataset_by_name(module, loader.call, loader.dataset, names)
    options = options_of(loader.call)
    if shuffle is None and any(may_shuffle(module, each) for each in options):
        if len(options) > 1 or not isinstance(options[0], ast.Name | ast.Attribute):
            return ()
        words = module.text(options[0])
        how = f", shuffle={words}.get('shuffle', False)"
        ranks = f" if {lone} else {{**{words}, 'shuffle': False}}"
        edits.append(Rewrite(options[0], ranks, after=True))
    elif shuffle is None or is_false(shuffle):
        how = ", shuffle=False"
    elif is_true(shuffle):
        return ()  # beside a sampler torch refuses it
    elif isinstance(shuffle, WISHES):
        wish = module.conjunct(shuffle)
        edits.append(Rewrite(shuffle, f"{wish} and {lone}"))
        how = "" if asks_for_none(shuffle, sampler.value) else f", shuffle={module.text(shuffle)}"
    else:
        return ()
    name = module.text(sampler.value)
    dealt = f"DistributedSampler({data}{how})"
    choice = f"{name} if {name} is not None or {alone} else {dealt}"
    return (*edits, Rewrite(sampler.value, choice))


def asks_for_none(test: ast.expr, sampler: ast.expr) -> bool:
    """``sampler is None`` and ``not sampler``."""
    match test:
        case ast.Compare(left=left, ops=[ast.Is()], comparators=[other]):
            return same_code(left, sampler) and is_none(other)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return same_code(operand, sampler)
    return False
