"""Lists of what training steps see of each example, and that are saved behind them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import argument_values, bound_names, everywhere, mentions, precedes, within
from ..training.program import Program
from ..training.train_loops import TrainLoop
from .loss_names import contents, is_text, names_gone_back_from
from .saved_tables import SAVES
from .seen_by_ranks import JOINING, filled, joins_batches, made_of, names_of_batch

# Calls whose result has all that they get, and no number that is made of it.
PUTS_TOGETHER = {
    *("cat", "stack", "concatenate", "concat", "vstack", "hstack", "array", "asarray", "tensor"),
    *("as_tensor", "list", "tolist", "numpy", "cpu", "detach", "to", "squeeze", "DataFrame"),
}
MAX_NAMES = 3  # from what is saved to the list


def saved_collections(program: Program, loop: TrainLoop) -> Iterator[tuple[ast.stmt, str]]:
    """Statements ``seen.append(features)`` of steps behind which ``seen`` is saved.

    Also where the function of the steps returns it, and its callers save it. Not what has one
    number for each batch, as the history of a loss.
    """
    module, body = loop.module, loop.steps.body
    if not module.calls_to("append", "extend") or not program.calls_to(*SAVES):
        return
    if any(joins_batches(module, call) for call in within(body, ast.Call)):
        return
    known = made_of(body, names_of_batch(loop)) - made_of(body, names_gone_back_from(loop))
    told: set[str] = set()
    for stmt, name in filled(program, module, body, known):
        if name in told or not collects(module, stmt) or not is_bound_outside(loop, name):
            continue
        told.add(name)
        if is_saved(module, loop.steps, name) or is_saved_by_callers(program, loop, name):
            yield stmt, name


def collects(module: Module, stmt: ast.stmt) -> bool:
    """Whether a statement puts something into a list, and no number or text that is made of it."""
    call = stmt.value if isinstance(stmt, ast.Expr) else None
    if not isinstance(call, ast.Call) or module.last_name(call.func) not in ("append", "extend"):
        return False
    made = {module.last_name(each.func) for each in everywhere(call, ast.Call)}
    is_number = not made.isdisjoint(("item", "float", "int", "mean", "sum", "format", "str"))
    return not is_number and not any(map(is_text, argument_values(call)))


def is_bound_outside(loop: TrainLoop, name: str) -> bool:
    """Whether a list is made ahead of the steps, and not for each of them."""
    return name.isidentifier() and all(name not in bound_names(stmt) for stmt in loop.steps.body)


def is_saved(module: Module, place: ast.AST, name: str) -> bool:
    """Whether a call behind a place in its function saves what a name has, of this rank alone.

    A file whose name has the rank in it is one of several, which have all.
    """
    calls = within(module.scope_statements(place), ast.Call)
    behind = [call for call in calls if precedes(place, call)]
    joins = [call for call in behind if JOINING.search(module.last_name(call.func))]
    if any(mentions(value, name) for call in joins for value in argument_values(call)):
        return False
    return any(
        name in names_kept(module, part)
        for call in behind
        if module.last_name(call.func) in SAVES and "rank" not in module.text(call).lower()
        for part in parts_of(call)
    )


def parts_of(call: ast.Call) -> list[ast.expr]:
    """What a call gets: its arguments, and what it is a method of."""
    owner = [call.func.value] if isinstance(call.func, ast.Attribute) else []
    return [*argument_values(call), *owner]


def is_saved_by_callers(program: Program, loop: TrainLoop, name: str) -> bool:
    """Whether the function of the steps returns a list, and a caller saves it."""
    function = loop.module.function(loop.steps)
    if function is None:
        return False
    for value in [each.value for each in within(loop.scope, ast.Return) if each.value]:
        parts = value.elts if isinstance(value, ast.Tuple) else [value]
        places = [i for i, part in enumerate(parts) if name in names_kept(loop.module, part)]
        for where, call in program.callers(function) if places else ():
            holder = where.parents[call]
            target = holder.targets[0] if isinstance(holder, ast.Assign) else None
            targets = target.elts if isinstance(target, ast.Tuple) else [target]
            if len(targets) == len(parts) and any(
                isinstance(got := targets[place], ast.Name) and is_saved(where, call, got.id)
                for place in places
            ):
                return True
    return False


def names_kept(module: Module, value: ast.expr, depth: int = 0) -> set[str]:
    """The names of which a value has all: of lists and dictionaries, and what is put together."""
    match value:
        case ast.Name(id=name):
            made = module.alternatives(value, value) if depth < MAX_NAMES else []
            return {name}.union(*(names_kept(module, each, depth + 1) for each in made))
        case ast.Dict(values=parts) | ast.List(elts=parts) | ast.Tuple(elts=parts):
            return set().union(*(names_kept(module, each, depth) for each in parts))
        case ast.Call(func=func) if module.last_name(func) in PUTS_TOGETHER:
            return set().union(*(names_kept(module, each, depth) for each in parts_of(value)))
        case ast.Call(func=ast.Name(id="dict")):
            return set().union(*map(contents, argument_values(value)))
    return set()
