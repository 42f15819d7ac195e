"""What a training loop compares with its optimizer steps or tells a schedule, by its text."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import Function, below, everywhere, is_within, names_within, within
from .scheduler_steps import steps_with_micro_batches
from .schedules import HORIZONS, makes_schedule, own_schedules, sets_rate
from .train_loops import TrainLoop, is_over_numbers


def step_quantities(loop: TrainLoop) -> set[str]:
    """The text of each expression that is compared with a step counter or passed to a schedule."""
    module = loop.module
    texts: set[str] = set()
    for counter in names_within(loop.scope, loop.counters):
        node = module.parents[counter]
        if isinstance(node, ast.Compare):
            texts.update(module.text(side) for side in (node.left, *node.comparators))
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and node.left is counter:
            texts.add(module.text(node.right))
    kinds = own_schedules(module).union(filter(makes_schedule, module.called_names))
    for call in module.calls_to(*kinds):
        is_of_loop = any(is_within(call, scope) for scope in method_bodies(loop))
        if is_of_loop and not steps_with_micro_batches(loop, module, call):
            for value in (*call.args, *call.keywords):
                texts |= texts_in(module, value)
                for name in everywhere(value, ast.Name):
                    for function in functions_named(module, name.id):
                        texts |= texts_in(module, function)
    for scope in method_bodies(loop):
        for stmt in within(scope, ast.Assign):
            if any(sets_rate(target) for target in stmt.targets):
                texts |= texts_in(module, stmt.value)
                for name in everywhere(stmt.value, ast.Name):
                    for value in module.alternatives(name, name):
                        texts |= texts_in(module, value)
    texts.update(
        module.text(word.value)
        for scope in method_bodies(loop)
        for call in within(scope, ast.Call)
        for word in call.keywords
        if word.arg in HORIZONS and not steps_with_micro_batches(loop, module, call)
    )
    return texts


def computed_from(loop: TrainLoop, quantities: set[str]) -> set[str]:
    """Quantities, and what they are computed from: ``total = steps_per_epoch * epochs``."""
    module = loop.module
    texts = set(quantities)
    for stmt in reversed(within(loop.scope, ast.Assign)):
        if any(module.text(target) in texts for target in stmt.targets):
            parts = everywhere(stmt.value, ast.Name)
            texts |= {part.id for part in parts if not is_within(part, loop.place)}
    return texts


def texts_in(module: Module, node: ast.AST) -> set[str]:
    """The texts of the names and attributes in code."""
    return {
        module.text(part) for part in below(node) if isinstance(part, (ast.Attribute, ast.Name))
    }


def functions_named(module: Module, name: str) -> Iterator[Function]:
    """The module's functions of a name, such as one that LambdaLR takes."""
    for function in module.nodes(ast.FunctionDef):
        if function.name == name:
            yield function


def restart_intervals(loop: TrainLoop) -> Iterator[str]:
    """``if step % epoch_size == 0: batches = iter(loader)``: a rank's batches end sooner."""
    module = loop.module
    for test in everywhere(loop.steps, ast.If):
        if any(module.dotted(call.func) == "iter" for call in within(test.body, ast.Call)):
            for node in everywhere(test.test, ast.BinOp):
                if isinstance(node.op, ast.Mod):
                    yield module.text(node.right)


def numbers_of_draws(loop: TrainLoop) -> set[str]:
    """What ``for i in range(batches): x = next(stream)`` counts to: a rank's batches end sooner."""
    counts = isinstance(loop.steps, ast.While) or is_over_numbers(loop.module, loop.steps)
    drawn = counts and any(
        isinstance(call.func, ast.Name | ast.Attribute)
        and loop.module.last_name(call.func) == "next"
        for call in within(loop.steps.body, ast.Call)
    )
    return texts_in(loop.module, drawn_by(loop.steps)) if drawn else set()


def drawn_by(loop: ast.For | ast.While) -> ast.expr:
    """What tells how often a loop runs."""
    return loop.iter if isinstance(loop, ast.For) else loop.test


def method_bodies(loop: TrainLoop) -> list[list[ast.stmt]]:
    """The body of the function that trains and, if it is a method, of the class's other methods."""
    module = loop.module
    function = module.function(loop.place)
    owner = None if function is None else module.parents[function]
    methods = owner.body if isinstance(owner, ast.ClassDef) else []
    others = [m.body for m in methods if isinstance(m, Function) and m is not function]
    return [loop.scope, *others]
