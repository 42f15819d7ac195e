"""Whether ranks get batches of their own from a loop that makes them without a DataLoader."""

from __future__ import annotations

import ast

from ..analysis.batches.random_draws import ALIKE
from ..analysis.training.program import Program
from ..analysis.training.train_loops import TrainLoop, calls_around
from ..source.module import Module
from ..source.tree import everywhere, names_within, parameters, within
from .group_setup import is_our_group

# What reinforcement learning acts in, and gets its data from.
ENVIRONMENTS = {"gym", "gymnasium", "envpool", "isaacgym", "isaaclab", "brax", "procgen"}


def may_draw_apart(program: Program, loop: TrainLoop) -> bool:
    """Whether ranks may get batches of their own: from what is not read, or drawn at random."""
    if gathers_experience(program):
        return True
    if cuts_batches(program, loop):
        return False
    if program.unread:
        return True
    if draws_alike(program):
        return False
    if not isinstance(loop.steps, ast.For):
        return True
    source = loop.steps.iter
    if isinstance(source, ast.Name) and source.id in loop.module.unbound_names:
        return True
    names = [name for name, _ in calls_around(loop.module, source)]
    return any(name in ("range", "trange", "count") for name in names)


def gathers_experience(program: Program) -> bool:
    """Whether a program that knows of ranks acts in environments, each rank in its own."""
    return not knew_no_ranks(program) and any(
        not ENVIRONMENTS.isdisjoint(module.imported_packages) for module in program.modules
    )


def knew_no_ranks(program: Program) -> bool:
    """Whether a patch has made the program's only process group."""
    return all(is_our_group(*group) for group in program.calls_to("init_process_group"))


def draws_alike(program: Program) -> bool:
    """Whether ranks shuffle by one seed, in a script that knew of no ranks and so deals nothing.

    Or by the random numbers of rank 0, which they have taken from it.
    """
    return knew_no_ranks(program) and any(
        module.dotted(call.func) in ("torch.manual_seed", ALIKE) and program.is_live(module, call)
        for module, call in program.calls_to("manual_seed", ALIKE)
    )


def cuts_batches(program: Program, loop: TrainLoop) -> bool:
    """``batch = data[step * size : (step + 1) * size]``, or in a function: the same on all.

    ``step`` numbers the loop, or is added to in it. So is ``batches[step]``, of all batches.
    """
    module, steps = loop.module, loop.steps
    if isinstance(steps, ast.For) and takes_each(module, steps):
        return True
    if isinstance(steps, ast.For):
        numbers = {name.id for name in everywhere(steps.target, ast.Name)}
    else:
        added = [stmt.target for stmt in within(steps.body, ast.AugAssign)]
        numbers = {target.id for target in added if isinstance(target, ast.Name)}
    for stmt in within(steps.body, ast.Assign):
        if names_within(stmt.value, numbers):
            numbers |= {target.id for target in stmt.targets if isinstance(target, ast.Name)}
    if any(names_within(each, numbers) for each in within(steps.body, ast.Slice)):
        return True
    return any(
        names_within(each, set(parameters(function)))
        for call in within(steps.body, ast.Call)
        if any(isinstance(value, ast.Name) and value.id in numbers for value in call.args)
        for _, function in program.callees(module, call)
        for each in within(function.body, ast.Slice)
    )


def takes_each(module: Module, steps: ast.For) -> bool:
    """``for i in range(len(batches)):``, and ``batches[i]`` in it."""
    counted = {
        module.text(call.args[0])
        for call in everywhere(steps.iter, ast.Call)
        if module.last_name(call.func) == "len" and call.args
    }
    return any(
        is_number_of(steps.target, each.slice) and module.text(each.value) in counted
        for each in within(steps.body, ast.Subscript)
    )


def is_number_of(target: ast.expr, index: ast.expr) -> bool:
    """Whether an index is the plain name that a loop binds."""
    return isinstance(target, ast.Name) and isinstance(index, ast.Name) and target.id == index.id
