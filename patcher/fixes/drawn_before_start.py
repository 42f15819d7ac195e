"""Random numbers that a script draws before it starts its ranks, which get the same ones.

Under a launcher each process draws them itself, and has to draw what the others draw.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..analysis.batches.random_draws import is_draw, is_seeded, library
from ..analysis.ranks.started_workers import NotLaunchableError, StartedWorker
from ..analysis.training.program import Program
from ..editing.edits import Edit, Import, Insert
from ..source.module import Module
from ..source.tree import Function, everywhere, is_inside, precedes
from .statements import is_text, main_guard

IN_LAUNCH = "if 'LOCAL_RANK' in os.environ:  # each rank draws what all of them get"
SEEDS = {"random": "random.seed", "numpy": "numpy.random.seed", "torch": "torch.manual_seed"}
ADDRESS = ("port", "url", "addr")  # of a store, which is the launcher's


def seeds_of_launcher(program: Program, started: StartedWorker) -> Iterator[Edit]:
    """Edits that seed what is drawn ahead of the start, or NotLaunchableError."""
    libraries = sorted({library(*draw) for draw in draws_before(program, started)})
    if not libraries:
        return
    module, function = started.module, started.module.function(started.stmt)
    guard = main_guard(module)
    body = function.body if function is not None else [] if guard is None else guard.body
    code = body[1:] if body and is_text(body[0]) else body
    if not code or not set(libraries) <= SEEDS.keys():
        raise NotLaunchableError("it draws random numbers first, which its ranks get")
    seed = "(int(os.environ['MASTER_PORT']))"
    lines = [f"    {SEEDS[one]}{seed}" for one in libraries]
    yield Insert(code[0], "\n".join([IN_LAUNCH, *lines]))
    yield from (Import(one) for one in libraries)


def draws_before(program: Program, started: StartedWorker) -> Iterator[tuple[Module, ast.Call]]:
    """Draws in the statements ahead of the start, and in what they call, that follow no seed."""
    module, function = started.module, started.module.function(started.stmt)
    ahead = [
        stmt
        for stmt in module.scope_statements(started.stmt)
        for stmt in (stmt, *everywhere(stmt, ast.stmt))
        if module.function(stmt) is function
        and precedes(stmt, started.stmt)
        and not is_inside(started.stmt, stmt)
    ]
    ahead = [stmt for stmt in ahead if not isinstance(stmt, Function | ast.ClassDef)]
    places = [(module, call) for stmt in ahead for call in everywhere(stmt, ast.Call)]
    below = program.functions_below(module, *ahead)
    places += [(where, call) for where, each in below for call in everywhere(each, ast.Call)]
    for where, call in dict.fromkeys(places):
        text = where.text(where.statement(call)).lower()
        if any(word in text for word in ADDRESS):
            continue
        if is_draw(program, where, call) and not is_seeded(where, call):
            yield where, call
