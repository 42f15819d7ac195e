"""Data sets that draw an example at random, whichever one they are asked for.

A sampler that deals indices by rank deals nothing then: ranks with the same random numbers draw the
same examples, in every step.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import Function, argument_values, everywhere, names_within, within
from ..language.name_flow import flows, names_in, reached, taking
from ..language.objects import class_of, method_of
from ..language.results import unpacked_result
from ..ranks.rank_reach import RANK_NAMES
from ..training.constructed_loaders import Loader
from ..training.possible_values import values_of
from ..training.program import Program
from .random_draws import ALIKE, SEED_FUNCTIONS, is_draw, is_of_helper

CHOICES = ("choice", "choices", "sample")
RANKS = (*RANK_NAMES, "get_rank")
MAX_STEPS = 3  # names and parameters between a seed and the rank in it


def drawn_example(program: Program, loader: Loader) -> tuple[Module, ast.Call] | None:
    """A draw by which a loader's data set may choose an example, in place of its index."""
    for module, value in data_sets(program, loader):
        owner = class_of(program, module, value)
        method = None if owner is None else method_of(program, owner, "__getitem__")
        if method is not None and (draw := drawn_for_index(program, *method)) is not None:
            return method[0], draw
    return None


def data_sets(program: Program, loader: Loader) -> Iterator[tuple[Module, ast.expr]]:
    """What a loader's data set may be made of, also ``train, test = make_data()``."""
    module, data = loader.module, loader.dataset
    if data is None:
        return
    values = module.alternatives(data, data)
    if values or not isinstance(data, ast.Name) or not (unpacked := unpacked_result(module, data)):
        yield from ((module, value) for value in values or [data])
        return
    call, place = unpacked
    for where, function in program.callees(module, call) if isinstance(call, ast.Call) else ():
        for result in within(function.body, ast.Return):
            if isinstance(result.value, ast.Tuple) and place < len(result.value.elts):
                yield where, result.value.elts[place]


def drawn_for_index(program: Program, module: Module, function: Function) -> ast.Call | None:
    """A draw in ``__getitem__`` that chooses what is returned, if the index may not."""
    if len(function.args.args) < 2:
        return None
    index = function.args.args[1].arg
    drawn = {
        name.id: call
        for stmt in within(function.body, ast.Assign)
        for call in everywhere(stmt.value, ast.Call)
        if is_draw(program, module, call) and not names_within(call, {index})
        for target in stmt.targets
        for name in everywhere(target, ast.Name)
    }
    chosen = [call for call in drawn.values() if module.last_name(call.func) in CHOICES]
    chosen += [
        drawn[name.id]
        for part in within(function.body, ast.Subscript)
        for name in everywhere(part.slice, ast.Name)
        if name.id in drawn
    ]
    chosen += [
        call
        for part in within(function.body, ast.Subscript)
        for call in everywhere(part.slice, ast.Call)
        if is_draw(program, module, call) and not names_within(call, {index})
    ]
    results = [each.value for each in within(function.body, ast.Return) if each.value is not None]
    by_index = names_made_of(function, index, {*drawn})
    is_passed_on = any(
        names_within(stmt.value, by_index) for stmt in within(function.body, ast.Expr)
    )  # random.seed(index)
    if not chosen or is_passed_on or any(names_within(value, by_index) for value in results):
        return None
    return chosen[0]


def names_made_of(function: Function, name: str, drawn: set[str]) -> set[str]:
    """A name, and those that a function makes of it, but for those that it draws.

    So is ``ids`` of ``for place, word in enumerate(rows[index]): ids[place] = choice(words)``.
    """
    pairs = [
        (names_in(value) | names_of_places(targets), taking(targets) - drawn)
        for targets, value in flows(function.body)
    ]
    return reached(pairs, {name})


def names_of_places(targets: list[ast.expr]) -> set[str]:
    """The names that tell which place of something is set: ``i`` of ``ids[i] = word``."""
    places = [each.slice for target in targets for each in everywhere(target, ast.Subscript)]
    return set().union(*map(names_in, places))


def ranks_draw_alike(program: Program) -> bool:
    """Whether all ranks surely begin with the same random numbers, and nothing tells them apart."""
    seeds = [
        (module, call)
        for module, call in program.calls_to(*SEED_FUNCTIONS)
        if argument_values(call) and not is_of_helper(module, call)
    ]
    if any(
        tells_ranks_apart(program, module, value)
        for module, call in seeds
        for value in argument_values(call)
    ):
        return False
    if any(program.is_live(module, call) for module, call in program.calls_to(ALIKE)):
        return True
    return any(
        program.is_live(module, call)
        and not everywhere(call.args[0] if call.args else call, ast.Call)
        and not is_asked_for(module, call)
        for module, call in seeds
        if call.args
    )


def tells_ranks_apart(
    program: Program, module: Module, value: ast.expr, steps: int = MAX_STEPS
) -> bool:
    """Whether a seed may be another one on each rank, by its names or by what they hold."""
    names: list[ast.expr] = [*everywhere(value, ast.Name), *everywhere(value, ast.Attribute)]
    called = {module.last_name(name) for name in names}
    if any("rank" in name or "gpu" in name or name in RANKS for name in called):
        return True
    return steps > 0 and any(
        tells_ranks_apart(program, where, each, steps - 1)
        for name in names
        for where, each in values_of(program, module, name)
        if each is not value
    )


def is_asked_for(module: Module, call: ast.Call) -> bool:
    """Whether a seed is set on demand only: ``if args.seed is not None:``."""
    return any(
        isinstance(up, ast.If) and "seed" in module.text(up.test) for up in module.ancestors(call)
    )
