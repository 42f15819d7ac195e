"""Code that one process may run several times: in a loop, or in a function that one calls."""

from __future__ import annotations

import ast

from ...source.branches import exclusive
from ...source.module import Module
from ...source.tree import FUNCTIONS, Function
from .program import Program

LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp)


def runs_again(program: Program, module: Module, node: ast.AST) -> ast.AST | None:
    """The loop, or else the second call, that brings a process to a place once more; or None."""
    pending: list[tuple[Module, ast.AST]] = [(module, node)]
    seen: set[Function] = set()
    twice: ast.AST | None = None
    while pending:
        where, place = pending.pop()
        for up in where.ancestors(place):
            if isinstance(up, FUNCTIONS):
                break
            if isinstance(up, LOOPS):
                return up
        function = where.function(place)
        if function is None or function in seen:
            continue
        seen.add(function)
        calls = live_calls(program, function)
        for number, (home, call) in enumerate(calls):
            for other, second in calls[:number]:
                if other is home and not exclusive(second, call):
                    twice = call
        pending += calls
    return twice


def live_calls(program: Program, function: Function) -> list[tuple[Module, ast.Call]]:
    """The calls of a function that the program may come to."""
    return [
        (where, call) for where, call in program.callers(function) if program.is_live(where, call)
    ]
