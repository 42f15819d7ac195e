"""Collectives, and the tests that may keep some ranks away from them or from a file."""

from __future__ import annotations

import ast
import re

from ..analysis.training.program import Program
from ..source.module import Module
from ..source.tree import everywhere

EXISTS = ("exists", "isfile", "isdir", "is_file", "is_dir")
FIRST = re.compile(r"(^|_)(main|master|primary|leader|chief|coordinator|first|zero|rank)(_|\d|$)")


def asks_for_file(module: Module, test: ast.expr) -> bool:
    """Whether a test asks whether a file exists, on this rank's own account."""
    calls = everywhere(test, ast.Call)
    agreed = any("any_rank" in module.last_name(c.func) for c in calls)
    return not agreed and any(module.last_name(call.func) in EXISTS for call in calls)


def sounds_of_the_first(program: Program, test: ast.expr) -> bool:
    """Whether the names in a test sound as if it asked whether this process is the first.

    Not switches of the command line, which is the same for all ranks: ``args.do_zero_shot``. Nor
    what all ranks answer alike, ``on_any_rank(…)`` of a patch.
    """
    asked = test.operand if isinstance(test, ast.UnaryOp) else test
    if isinstance(asked, ast.Call) and getattr(asked.func, "id", "") == "on_any_rank":
        return False
    names = [each.id for each in everywhere(test, ast.Name)]
    names += [
        each.attr for each in everywhere(test, ast.Attribute) if not is_switch(program, each.attr)
    ]
    return any(FIRST.search(name.lower()) for name in names)


def is_switch(program: Program, name: str) -> bool:
    """Whether an attribute is a switch of the command line, which no module assigns."""
    option = program.options.get(name)
    return (
        option is not None
        and option.is_switch
        and not any(name in module.attribute_values for module in program.modules)
    )
