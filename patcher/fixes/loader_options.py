"""Give a sampler to a loader that is made with ``**options``, which may tell it to shuffle."""

from __future__ import annotations

import ast

from ..editing.edits import Edit, Rewrite
from ..source.module import Module


def options_of(call: ast.Call) -> list[ast.expr]:
    """What a call unpacks: ``options`` of ``DataLoader(data, **options)``."""
    return [word.value for word in call.keywords if word.arg is None]


def may_shuffle(module: Module, options: ast.expr) -> bool:
    """Whether ``**options`` of a loader may hold ``shuffle``."""
    if may_hold(module, "shuffle"):
        return True
    values = module.alternatives(options, options) or [options]
    return not all(isinstance(value, ast.Dict) and all(value.keys) for value in values)


def may_hold(module: Module, key: str) -> bool:
    """Whether a dictionary of the module may have a key."""
    return any(node.value == key for node in module.nodes(ast.Constant))


def with_sampler(module: Module, options: ast.expr, sampler: str, alone: str) -> tuple[Edit, ...]:
    """Edits by which only a lone process shuffles as ``options`` tell; () where none are known."""
    if not isinstance(options, ast.Name | ast.Attribute):
        return ()
    name = module.text(options)
    ranks = f"{{**{name}, 'shuffle': False, 'sampler': {sampler}}}"
    return (Rewrite(options, f" if {alone} else {ranks}", after=True),)
