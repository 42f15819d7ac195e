"""Evaluations: loops over a loader with a model in eval mode, and the results they accumulate.

An evaluation is a function of its own, or a loop inside the training code.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from ....record import record
from ...source.module import Module
from ...source.tree import (
    FUNCTIONS,
    Function,
    argument,
    argument_values,
    bound_names,
    is_false,
    is_inside,
    locate,
    names_within,
    number_of,
    parameters,
    within,
)
from ..language.call_graph import CallGraph
from ..language.training_calls import GRADLESS
from .accumulators import Accumulator, accumulated
from .constructed_loaders import Loader
from .loaders import loader_of
from .train_loops import is_backward

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@record
class Evaluation:
    """A loop over a loader with a model in eval mode.

    ``function`` is the evaluating function; None where the loop is part of the training code.
    """

    module: Module
    function: Function | None
    loop: ast.For
    loader: Loader
    mode: ast.stmt  # model.eval(), or the loop if nothing calls that
    model: str  # the source text of the model in eval mode
    graph: CallGraph

    @property
    def name(self) -> str:
        """What messages call it."""
        if self.function is None:
            return f"the evaluation in line {self.loop.lineno}"
        return f"{self.function.name}()"

    @property
    def before(self) -> list[ast.stmt]:
        """Statements above the loop in its block, and above any ``with`` directly around it."""
        statements: list[ast.stmt] = []
        node: ast.stmt = self.loop
        while True:
            body = self.module.body(node)
            statements = [*body[: body.index(node)], *statements]
            parent = self.module.parents[node]
            if not isinstance(parent, ast.With):
                return statements
            node = parent

    @cached_property
    def changed_names(self) -> set[str]:
        """Names that the loop binds or calls methods of."""
        return bound_names(self.loop) | {
            call.func.value.id
            for call in within(self.loop.body, ast.Call)
            if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name)
        }

    def leaves(self, name: str) -> bool:
        """Whether code outside the loop may read the value that the loop gave a name."""
        return name in self.changed_names and self.is_read_later(name)

    def is_read_later(self, name: str) -> bool:
        """Whether code outside the loop may read the value that a name has behind it."""
        return survives(self.module, self.loop, name)

    @cached_property
    def accumulators(self) -> dict[str, Accumulator] | None:
        """What the loop accumulates for later: lists, numbers, arrays, by name.

        None when it accumulates anything else or exits early: ranks' parts cannot then be combined.
        """
        return accumulated(self)


def survives(module: Module, loop: ast.For, name: str) -> bool:
    """Whether code outside the loop may read the value that the loop gave a name."""
    reads = names_within(module.scope_statements(loop), {name})
    if all(is_inside(read, loop) for read in reads):
        return False
    outer_loops = [up for up in module.ancestors(loop) if isinstance(up, (ast.For, ast.While))]
    return any(may_see(module, read, loop, outer_loops) for read in reads)


def may_see(
    module: Module, name: ast.Name, loop: ast.For, outer_loops: list[ast.For | ast.While]
) -> bool:
    """Whether a read of a name may see the value from inside the loop.

    False if every path rebinds the name after the loop, or earlier in the same outer iteration.
    """
    if not isinstance(name.ctx, ast.Load) or is_inside(name, loop):
        return False
    first = loop.end_lineno or loop.lineno
    if name.lineno <= loop.lineno:
        around = [up for up in outer_loops if is_inside(name, up)]
        if not around:
            return False
        first = around[-1].lineno - 1
    return not is_bound_between(module, name, first)


def is_bound_between(module: Module, name: ast.Name, first: int) -> bool:
    """Whether every path from below line ``first`` to a read binds the name."""
    for store in module.stores.get((module.function(name), name.id), ()):
        if first < store.lineno <= name.lineno:
            stmt = module.statement(store)
            is_plain = isinstance(stmt, (ast.Assign, ast.AnnAssign)) and stmt.lineno > first
            if is_plain and stands_above(module, stmt, name):
                return True
    child: ast.AST = name
    for up in module.ancestors(name):
        if isinstance(up, FUNCTIONS):
            break
        if isinstance(up, COMPREHENSIONS) and any(
            name.id in bound_names(part.target) for part in up.generators
        ):
            return True
        if (
            isinstance(up, ast.For)
            and up.lineno > first
            and child in up.body
            and name.id in bound_names(up.target)
        ):
            return True
        child = up
    return False


def stands_above(module: Module, stmt: ast.stmt, node: ast.AST) -> bool:
    """Whether a statement comes before ``node`` in its block, or that of a ``with`` around it."""
    while True:
        table, number = locate(stmt)
        last = number_of(module.body(stmt)[-1])
        if table.ends[number] <= number_of(node) < table.ends[last]:
            return True
        parent = module.parents[stmt]
        if not isinstance(parent, ast.With) or may_swallow(module, parent):
            return False
        stmt = parent


def may_swallow(module: Module, block: ast.With) -> bool:
    """Whether a ``with`` may go on behind an error in its body: those of torch and files do not."""
    calls = [item.context_expr for item in block.items]
    names = [module.dotted(call.func) for call in calls if isinstance(call, ast.Call)]
    known = [name for name in names if name.startswith("torch.") or name == "open"]
    return len(known) < len(calls)


def find_evaluations(graph: CallGraph) -> list[Evaluation]:
    """All evaluations of a program: first those of evaluating functions."""
    in_functions = [
        evaluation
        for module in graph.modules
        for function in evaluating_functions(module)
        for evaluation in _in_function(graph, module, function)
    ]
    return in_functions + [each for module in graph.modules for each in _inline(graph, module)]


def evaluating_functions(module: Module) -> list[Function]:
    """Functions that put something in eval mode or run without gradients."""
    calling = {module.function(call) for call in module.calls_to("eval", *GRADLESS)}
    calling |= {module.function(call) for call in module.calls_to("train") if is_eval_mode(call)}
    return [
        function
        for function in module.all_functions
        if function in calling or is_gradless(module, function)
    ]


def _in_function(graph: CallGraph, module: Module, function: Function) -> Iterator[Evaluation]:
    """The evaluations of an evaluating function: one per loop over a loader."""
    calls = within(function.body, ast.Call)
    if any(is_backward(call) for call in calls):
        return
    modes = [call for call in calls if is_eval_mode(call)]
    has_gradless_block = any(module.last_name(call.func) in GRADLESS for call in calls)
    if not (modes or has_gradless_block or is_gradless(module, function)):
        return
    for loop in within(function.body, ast.For):
        loader = loader_of(graph, module, loop)
        if loader is None or any(hands_optimizer_on(c) for c in within(loop.body, ast.Call)):
            continue
        if modes:
            mode, model = module.statement(modes[0]), receiver(module, modes[0])
            yield Evaluation(module, function, loop, loader, mode, model, graph)
        elif models := called_parameters(function, loop):
            yield Evaluation(module, function, loop, loader, loop, models[0], graph)


def hands_optimizer_on(call: ast.Call) -> bool:
    """Whether a call clears gradients or passes an optimizer: what is called goes back and steps.

    ``loss_scaler(loss, optimizer)``, an object of the script's own.
    """
    if isinstance(call.func, ast.Attribute) and call.func.attr == "zero_grad":
        return True
    names = [
        getattr(value, "id", "") or getattr(value, "attr", "") for value in argument_values(call)
    ]
    return any("optim" in name.lower() for name in names)


def is_gradless(module: Module, function: Function) -> bool:
    """Whether a function is decorated with ``torch.no_grad()`` or the like."""
    nodes = function.decorator_list
    funcs = [node.func if isinstance(node, ast.Call) else node for node in nodes]
    return any(module.last_name(func) in GRADLESS for func in funcs)


def called_parameters(function: Function, loop: ast.For) -> list[str]:
    """Parameters of the function that the loop calls, such as a model."""
    names = parameters(function)
    callees = (call.func for call in within(loop.body, ast.Call))
    return [func.id for func in callees if isinstance(func, ast.Name) and func.id in names]


def is_eval_mode(call: ast.Call) -> bool:
    """Whether a call is ``model.eval()``, ``model.train(False)`` or that of ``self.model``."""
    func = call.func
    if not isinstance(func, ast.Attribute):
        return False
    switch = argument(call, 0, "mode")
    is_off = switch is None if func.attr == "eval" else switch is not None and is_false(switch)
    return (
        is_off
        and func.attr in ("eval", "train")
        and (
            isinstance(func.value, ast.Name)
            or (isinstance(func.value, ast.Attribute) and isinstance(func.value.value, ast.Name))
        )
    )


def receiver(module: Module, call: ast.Call) -> str:
    """The source text of ``x`` in ``x.method()``."""
    assert isinstance(call.func, ast.Attribute)
    return module.text(call.func.value)


def without_withs(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements, with those inside each ``with`` in its place."""
    for stmt in body:
        yield from without_withs(stmt.body) if isinstance(stmt, ast.With) else [stmt]


def _inline(graph: CallGraph, module: Module) -> Iterator[Evaluation]:
    """Evaluation loops inside training functions or at module level."""
    scopes = {module.function(call) for call in module.calls_to("backward")} | {None}
    modes = [call for call in module.calls_to("eval", "train") if is_eval_mode(call)]
    for mode in modes:
        if module.function(mode) not in scopes:
            continue
        stmt = module.statement(mode)
        around = next((up for up in module.ancestors(stmt) if isinstance(up, ast.For)), None)
        if around is not None and not any(map(is_backward, within(around, ast.Call))):
            loader = loader_of(graph, module, around)
            if loader is not None and loader.cycle is None:  # for batch in loader: model.eval() …
                model = receiver(module, mode)
                yield Evaluation(module, None, around, loader, around, model, graph)
                continue
        body = module.body(stmt)
        for follower in without_withs(body[body.index(stmt) + 1 :]):
            if isinstance(follower, ast.For):
                loader = loader_of(graph, module, follower)
                if any(is_backward(call) for call in within(follower, ast.Call)):
                    break
                if loader is not None and loader.cycle is None:
                    model = receiver(module, mode)
                    yield Evaluation(module, None, follower, loader, stmt, model, graph)
                    break
            elif isinstance(follower, ast.Expr) and any(
                isinstance(call.func, ast.Attribute) and call.func.attr == "train"
                for call in within(follower, ast.Call)
            ):
                break
