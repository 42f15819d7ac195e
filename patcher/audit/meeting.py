"""Collectives, and the tests that may keep some ranks away from them or from a file."""

from __future__ import annotations

import ast
import re

from ..analysis.effects import Effect, Kind
from ..source.module import Module
from ..source.tree import everywhere

NOT_HERE = ("init_process_group", "destroy_process_group", "DistributedDataParallel", "new_group")
EXISTS = ("exists", "isfile", "isdir", "is_file", "is_dir")
FIRST = re.compile(r"(^|_)(main|master|primary|leader|chief|coordinator|first|zero|rank)(_|\d|$)")


def is_collective(effect: Effect) -> bool:
    """Whether an effect is a collective that this obligation is about."""
    return (
        effect.kind is Kind.COLLECTIVE
        and isinstance(effect.node, ast.Call)
        and effect.module.last_name(effect.node.func) not in NOT_HERE
    )


def asks_for_file(module: Module, test: ast.expr) -> bool:
    """Whether a test asks whether a file exists, on this rank's own account."""
    calls = everywhere(test, ast.Call)
    agreed = any("any_rank" in module.last_name(c.func) for c in calls)
    return not agreed and any(module.last_name(call.func) in EXISTS for call in calls)


def sounds_of_the_first(test: ast.expr) -> bool:
    """Whether the names in a test sound as if it asked whether this process is the first."""
    names = [each.id for each in everywhere(test, ast.Name)]
    names += [each.attr for each in everywhere(test, ast.Attribute)]
    return any(FIRST.search(name.lower()) for name in names)
