"""Loaders whose sampler is None on one branch, and not on the other: both are dealt."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ..analysis.training.constructed_loaders import Loader
from ..analysis.training.frameworks import DEALT_BATCHES
from ..analysis.training.program import Program
from ..editing.edits import Define, Edit, Rewrite
from ..source.module import Module
from ..source.tree import argument, is_false, is_none, is_true, keyword, same_code
from .dataset_by_name import dataset_by_name
from .dealt_batches import may_take_turns, taking_turns
from .loader_options import may_shuffle, options_of

WISHES = (ast.Name, ast.Attribute, ast.Subscript, ast.Compare, ast.BoolOp, ast.UnaryOp)


def may_be_none(module: Module, loader: Loader) -> bool:
    """Whether a loader's sampler has a name that is None on some way to it.

    ``sampler = None`` in a branch, or above ``if args.balanced: sampler = …``. Also of one that is
    chosen in place: ``Own(data) if args.balanced else None``.
    """
    sampler = argument(loader.call, 3, "sampler")
    if isinstance(sampler, ast.Attribute | ast.IfExp):
        return any(map(is_none, chosen(loader.samplers)))
    if not isinstance(sampler, ast.Name):
        return False
    if any(map(is_none, chosen(module.alternatives(sampler, sampler)))):
        return True
    function = module.function(sampler)
    stmts = [module.statement(store) for store in module.stores.get((function, sampler.id), ())]
    if not stmts or not isinstance(stmts[0], ast.Assign) or not is_none(stmts[0].value):
        return False
    block = module.body(stmts[0])
    return not any(stmt in block for stmt in stmts[1:])


def chosen(values: Iterable[ast.expr]) -> list[ast.expr]:
    """The values, both of those of which a test chooses one."""
    parts = ((v.body, v.orelse) if isinstance(v, ast.IfExp) else (v,) for v in values)
    return [part for each in parts for part in each]


def deal_own_or_none(
    program: Program, loader: Loader, alone: str, lone: str, names: tuple[str, ...]
) -> tuple[Edit, ...]:
    """The same where the sampler is one of the script's own: ranks take turns at its batches.

    ``sampler = Own(data) if args.balanced else None``
    """
    module, sampler = loader.module, keyword(loader.call, "sampler")
    made = [each for each in chosen(loader.samplers) if not is_none(each)]
    if sampler is None or not made or not may_take_turns(program, loader, made):
        return ()
    whole = made[0] if isinstance(sampler.value, ast.IfExp) else sampler.value
    turns = taking_turns(loader, module.text(whole))
    edits = deal_without_sampler(module, loader, alone, lone, names, turns)
    return (*edits, Define(DEALT_BATCHES, module.statement(loader.call))) if edits else ()


def deal_without_sampler(
    module: Module, loader: Loader, alone: str, lone: str, names: tuple[str, ...], own: str = ""
) -> tuple[Edit, ...]:
    """Edits that give ranks a DistributedSampler where the name of the sampler is None.

    ``alone`` tells where a process has the loader for itself, ``lone`` where it may shuffle;
    ``own`` is what ranks get where the name is a sampler's, which is that sampler by default.
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
    if isinstance(sampler.value, ast.IfExp):
        ways = [
            f"({module.text(part)} if {alone} else {dealt if is_none(part) else own})"
            for part in (sampler.value.body, sampler.value.orelse)
        ]
        choice = f" if {module.text(sampler.value.test)} else ".join(ways)
    elif own:
        choice = f"{name} if {alone} else {dealt} if {name} is None else {own}"
    return (*edits, Rewrite(sampler.value, choice))


def asks_for_none(test: ast.expr, sampler: ast.expr) -> bool:
    """``sampler is None`` and ``not sampler``."""
    match test:
        case ast.Compare(left=left, ops=[ast.Is()], comparators=[other]):
            return same_code(left, sampler) and is_none(other)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return same_code(operand, sampler)
    return False
