"""Files that a program looks for in one function, and that another writes under a composed name."""

from __future__ import annotations

import ast
import re

from ..analysis.effects.path_text import text_of_path
from ..analysis.language.names import answered_once
from ..analysis.training.program import Program
from ..source.module import Module
from ..source.tree import Function, argument
from .rank_0_first import branch_if_missing

LOOKS = ("exists", "isfile", "is_file")
PART = re.compile(r"\{[^{}]*\}|<\w+>|\*")  # of a path as text, that is not text itself
LEAST = 5  # letters that names without their endings have to have in common


def looked_for_elsewhere(
    program: Program, module: Module, call: ast.Call, path: ast.expr
) -> tuple[Module, ast.Call] | None:
    """The test in another function for a file which a call may write, by the texts of both paths.

    ``open(f"cache.{kind}.pkl", "wb")`` and ``os.path.exists("cache.train.pkl")``.
    """
    pieces = PART.split(text_at(program, module, path))
    common = "".join(pieces).rpartition("/")[2].rpartition(".")[0]
    if len(common) < LEAST:
        return None
    pattern = re.compile(".*".join(map(re.escape, pieces)))
    function = module.function(call)
    for where, look, text in tested_paths(program):
        if where.function(look) is function or not pattern.fullmatch(text):
            continue
        if function is None or leads_to(program, where, look, function):
            return where, look
    return None


def leads_to(program: Program, module: Module, look: ast.Call, function: Function) -> bool:
    """Whether a function runs where the file that a test looks for is not there."""
    tests = [up for up in module.ancestors(look) if isinstance(up, ast.If)]
    branch = branch_if_missing(module, tests[0]) if tests else None
    return any(below is function for _, below in program.functions_below(module, *(branch or ())))


@answered_once
def tested_paths(program: Program) -> list[tuple[Module, ast.Call, str]]:
    """The calls of a program that ask whether there is a file, with its path as text."""
    found = []
    for module, call in program.calls_to(*LOOKS):
        if program.is_live(module, call):
            path = argument(call, 0, "path") or getattr(call.func, "value", None)
            if isinstance(path, ast.expr):
                found.append((module, call, text_at(program, module, path)))
    return found


def text_at(program: Program, module: Module, path: ast.expr) -> str:
    """A path as text, where it stands; of a name, that of its value."""
    value = module.definition(path, path) if isinstance(path, ast.Name) else None
    return text_of_path(program, module, value or path)
