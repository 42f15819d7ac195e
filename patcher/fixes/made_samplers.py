"""Samplers that a function of the program makes: what they draw is dealt where it is called."""

from __future__ import annotations

import ast

from ..analysis.training.program import Program
from ..source.module import Module
from ..source.tree import within

# Those of torch, which draw alike on all ranks.
DRAWERS = ("RandomSampler", "SequentialSampler", "SubsetRandomSampler", "WeightedRandomSampler")


def makes_sampler(program: Program, module: Module, call: ast.Call) -> bool:
    """Whether a call is of one function, which returns a sampler of torch on every way out."""
    functions = program.callees(module, call)
    if len(functions) != 1 or program.resolve(module, call.func) is None:
        return False
    ((where, function),) = functions
    returns = within(function.body, ast.Return)
    return bool(returns) and all(
        each.value is not None and is_drawer(where, each.value) for each in returns
    )


def is_drawer(module: Module, value: ast.expr) -> bool:
    """Whether a value is such a sampler, on whatever branch its name is bound."""
    values = module.alternatives(value, value) if isinstance(value, ast.Name) else [value]
    return bool(values) and all(
        isinstance(each, ast.Call)
        and module.dotted(each.func).startswith("torch.utils.data")
        and module.last_name(each.func) in DRAWERS
        for each in values
    )
