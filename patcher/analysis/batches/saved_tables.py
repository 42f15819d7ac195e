"""Tables that training steps fill by the numbers of their examples, and that are saved behind."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import argument_values, is_inside, precedes, within
from ..language.name_flow import names_in, roots
from ..training.train_loops import TrainLoop
from .loss_names import contents
from .seen_by_ranks import JOINING, assignments, joins_batches, made_anew, made_of, names_of_batch

SAVES = ("save", "savez", "savez_compressed", "savetxt", "dump", "save_on_main", "to_csv")


def saved_tables(loop: TrainLoop) -> Iterator[tuple[ast.stmt, str]]:
    """Statements ``labels[numbers] = probs`` of steps behind which ``labels`` is saved.

    Each table once. Its other rows are as they were before on this rank.
    """
    module, body = loop.module, loop.steps.body
    saved = {name for call in calls_behind(loop, *SAVES) for name in saved_names(module, call)}
    saved -= joined_behind(loop) if saved else set()
    if not saved or any(joins_batches(module, call) for call in within(body, ast.Call)):
        return
    known = made_of(body, names_of_batch(loop))
    anew = made_anew(body)
    for stmt, targets, value in assignments(body):
        for target in targets:
            if isinstance(target, ast.Subscript) and names_in(target.slice) & known:
                kept = (roots(target) - anew) & saved if contents(value) & known else set[str]()
                saved -= kept
                yield from ((stmt, name) for name in sorted(kept))


def calls_behind(loop: TrainLoop, *names: str) -> list[ast.Call]:
    """The calls of some functions behind the steps, in their function; of all if none is named."""
    module = loop.module
    scope = module.function(loop.steps)
    return [
        call
        for call in (module.calls_to(*names) if names else module.nodes(ast.Call))
        if module.function(call) is scope
        and precedes(loop.steps, call)
        and not is_inside(call, loop.steps)
    ]


def joined_behind(loop: TrainLoop) -> set[str]:
    """The names that ranks put together behind the steps: ``all_reduce(table)``."""
    joining = [c for c in calls_behind(loop) if JOINING.search(loop.module.last_name(c.func))]
    return {name for call in joining for value in argument_values(call) for name in contents(value)}


def saved_names(module: Module, call: ast.Call) -> set[str]:
    """The names that a call saves, and those of which they are made: ``y = new_y``."""
    names: set[str] = set()
    for value in argument_values(call):
        names |= contents(value)
        for name in within([module.statement(call)], ast.Name):
            if name.id in contents(value):
                for made in module.alternatives(name, name):
                    names |= contents(made)
    return names
