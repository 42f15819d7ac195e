"""Generators of the program that go over a loader, again and again or once.

``def infinite(loader): while True: yield from loader``, as scripts that count steps have them.
Unlike itertools.cycle they keep no batch: each pass begins the loader anew, in another order.
Others give each batch on, moved to a card: ``for batch in loader: yield batch.cuda()``.
Objects of classes do so too, which begin ``iter(self.loader)`` anew in their ``__next__``.
"""

from __future__ import annotations

import ast

from ....record import record
from ...source.module import Module
from ...source.tree import Function, is_true, parameters, within
from ..language.call_graph import CallGraph
from ..language.passed_arguments import argument_for_parameter

LEAVES = (ast.Break, ast.Continue, ast.Return)
COUNTS_ON = ("count", "repeat")


@record
class EndlessBatches:
    """A generator, or the constructor of an object, over a loader, which is its first argument."""

    module: Module
    function: Function
    loader: str  # the parameter
    passes: tuple[ast.stmt, ...]  # what begins a pass over it
    text: str  # what the loader is called there


def endless_batches(graph: CallGraph, module: Module, call: ast.Call) -> EndlessBatches | None:
    """The generator that a call makes, where it never comes to the end of its loader."""
    if not call.args or not isinstance(call.func, ast.Name | ast.Attribute):
        return None
    for where, function in graph.callees(module, call)[:1]:
        if function.name == "__init__":
            return endless_object(where, function, module, call)
        yields = [*within(function.body, ast.Yield)], [*within(function.body, ast.YieldFrom)]
        if not any(yields):
            return None
        for name in parameters(function):
            passes = passes_over(where, function, name)
            passed = argument_for_parameter(where, function, call, name)
            if passes and passed is call.args[0] and (function, name) not in where.stores:
                return EndlessBatches(where, function, name, passes, name)
    return None


def endless_object(
    where: Module, constructor: Function, module: Module, call: ast.Call
) -> EndlessBatches | None:
    """The same of an object whose ``__next__`` begins the loader anew where that ends.

    ``except StopIteration: self.batches = iter(self.loader)``
    """
    owner = where.enclosing_class(constructor)
    methods = [] if owner is None else [m for m in owner.body if isinstance(m, Function)]
    taking = [method for method in methods if method.name in ("__next__", "next")]
    for stmt in within(constructor.body, ast.Assign) if taking else ():
        match stmt:
            case ast.Assign(
                targets=[ast.Attribute(value=ast.Name(id="self"), attr=attribute)],
                value=ast.Name(id=name),
            ) if name in parameters(constructor) and (constructor, name) not in where.stores:
                text = f"self.{attribute}"
                begun = [
                    begin
                    for handler in within(taking[0].body, ast.Try)
                    for except_ in handler.handlers
                    for begin in within(except_.body, ast.Assign)
                    if where.text(begin.value) == f"iter({text})"
                ]
                is_bound_once = [where.text(v) for v in where.attribute_values.get(attribute, ())]
                passed = argument_for_parameter(where, constructor, call, name)
                if begun and passed is call.args[0] and is_bound_once == [name]:
                    return EndlessBatches(where, constructor, name, tuple(begun), text)
    return None


def passed_on(graph: CallGraph, module: Module, call: ast.Call) -> tuple[Module, ast.expr] | None:
    """What a generator goes over, where it gives one batch on for each; with its module.

    Of a method that is called by ``self.batches()`` it may be an attribute of the object.
    """
    if not isinstance(call.func, ast.Name | ast.Attribute):
        return None
    for where, function in graph.callees(module, call)[:1]:
        yields = within(function.body, ast.Yield)
        if len(yields) != 1 or any(within(function.body, ast.YieldFrom)):
            return None
        stmt = where.statement(yields[0])
        loop = where.parents[stmt]
        if (
            not isinstance(loop, ast.For)
            or loop not in function.body
            or stmt not in loop.body
            or any(within(loop.body, kind) for kind in LEAVES)
        ):
            return None  # it leaves batches out
        if loop_over := [name for name in parameters(function) if is_over(where, loop.iter, name)]:
            passed = argument_for_parameter(where, function, call, loop_over[0])
            is_bound = (function, loop_over[0]) in where.stores
            return None if passed is None or is_bound else (module, passed)
        is_own = isinstance(loop.iter, ast.Attribute) and where.text(loop.iter.value) == "self"
        if is_own and module.text(call.func).startswith("self."):
            return where, loop.iter
    return None


def passes_over(module: Module, function: Function, name: str) -> tuple[ast.stmt, ...]:
    """The statements in endless loops of a function that begin a pass over what a name has."""
    endless: list[ast.For | ast.While] = [
        *(each for each in within(function.body, ast.While) if is_true(each.test)),
        *(each for each in within(function.body, ast.For) if has_no_end(module, each.iter)),
    ]
    return tuple(
        dict.fromkeys(
            stmt
            for loop in endless
            for stmt in (
                *(each for each in within(loop.body, ast.For) if is_over(module, each.iter, name)),
                *(
                    module.statement(each)
                    for each in within(loop.body, ast.YieldFrom)
                    if is_over(module, each.value, name)
                ),
                *(
                    module.statement(each)
                    for each in within(loop.body, ast.Call)
                    if module.last_name(each.func) == "iter" and is_over(module, each, name)
                ),
                *(
                    module.statement(each)
                    for each in within(loop.body, ast.Call)
                    if isinstance(each.func, ast.Attribute)
                    and each.func.attr == "__iter__"
                    and is_over(module, each.func.value, name)
                ),
            )
        )
    )


def has_no_end(module: Module, source: ast.expr) -> bool:
    """Whether a loop goes over ``itertools.count()`` or its like."""
    return (
        isinstance(source, ast.Call)
        and module.last_name(source.func) in COUNTS_ON
        and module.dotted(source.func).startswith("itertools.")
    )


def is_over(module: Module, source: ast.expr, name: str) -> bool:
    """Whether a loop goes over what a name has, perhaps through ``enumerate`` or ``iter``."""
    while isinstance(source, ast.Call) and source.args:
        if module.last_name(source.func) not in ("enumerate", "iter", "tqdm"):
            return False
        source = source.args[0]
    return isinstance(source, ast.Name) and source.id == name


def returns_one_of(
    graph: CallGraph, module: Module, call: ast.Call, names: tuple[str, ...]
) -> bool:
    """Whether a function of the program returns a call of some names, as of a bar: ``tqdm(x)``."""
    return any(
        isinstance(value, ast.Call) and where.last_name(value.func) in names
        for where, function in graph.callees(module, call)
        for result in within(function.body, ast.Return)
        if result.value is not None
        for value in (result.value, *where.alternatives(result.value, result.value))
    )
