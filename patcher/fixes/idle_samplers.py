"""Samplers of ranks that a script makes of its data, and forgets to hand to the loader."""

from __future__ import annotations

import ast

from ..analysis.training.constructed_loaders import Loader
from ..analysis.training.evaluations import stands_above
from ..analysis.training.frameworks import RANK_SAMPLERS
from ..source.module import Module
from ..source.tree import argument, is_none, same_code


def idle_sampler(module: Module, loader: Loader) -> str:
    """The name of a DistributedSampler of a loader's data that no call gets; empty without one.

    Its epochs may be set already, so that another sampler beside it would have one order.
    """
    for call in module.calls_to(*RANK_SAMPLERS[:1]):
        stmt = module.statement(call)
        if not (isinstance(stmt, ast.Assign) and len(stmt.targets) == 1):
            continue
        name = stmt.targets[0]
        if not isinstance(name, ast.Name) or module.function(stmt) is not module.function(
            loader.call
        ):
            continue
        values = module.alternatives(name, loader.call)
        if not all(is_none(each) or is_sampler_of(module, each, loader.dataset) for each in values):
            continue
        stores = module.stores.get((module.function(stmt), name.id), ())
        is_bound = any(map(is_none, values)) or any(
            stands_above(module, module.statement(store), loader.call) for store in stores
        )
        if values and is_bound and not is_passed(module, name.id):
            return name.id
    return ""


def is_sampler_of(module: Module, value: ast.expr, dataset: ast.expr | None) -> bool:
    """``DistributedSampler(data)``, also as ``DistributedSampler(data) if ddp else None``."""
    if isinstance(value, ast.IfExp):
        branches = (value.body, value.orelse)
        return all(is_none(each) or is_sampler_of(module, each, dataset) for each in branches)
    return (
        isinstance(value, ast.Call)
        and module.last_name(value.func) in RANK_SAMPLERS[:1]
        and same_code(argument(value, 0, "dataset"), dataset)
    )


def is_passed(module: Module, name: str) -> bool:
    """Whether a name is read for anything else than its attributes and tests of it."""
    return any(
        isinstance(each, ast.Name)
        and isinstance(each.ctx, ast.Load)
        and not isinstance(module.parents[each], ast.Attribute | ast.If | ast.Compare)
        for each in module.occurrences(name)
    )
