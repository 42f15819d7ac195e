"""Calls that make an optimizer whose class is chosen first: ``getattr(torch.optim, name)(…)``.

Or taken from a dictionary, by a test, or under another name: ``Optimizer = Adam if … else SGD``.
Or whose class is not known, and is used as one: ``optimizer = Muon(model.parameters())``, which the
script steps, and clears of gradients.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import everywhere
from ..language.call_graph import CallGraph
from .frameworks import OPTIMIZERS, SEES_PARAMETERS
from .possible_values import Place, values_of

PACKAGE = "torch.optim"
BASES = ("torch.optim.Optimizer", "torch.optim.optimizer.Optimizer")
MAX_STEPS = 4  # names and parameters between a call and the class


def chosen_optimizers(graph: CallGraph) -> list[tuple[Module, ast.Call]]:
    """The calls of a class of torch's optimizers that is not called by its own name."""
    used = [
        (module, call) for module in graph.modules for call in used_as_optimizers(graph, module)
    ]
    if not any(module.spells("optim") for module in graph.modules):
        return used
    chosen = [
        (module, call)
        for module in graph.modules
        for call in module.nodes(ast.Call)
        if (call.args or call.keywords)
        and not is_optimizer_class(module, call.func)
        and is_one_of_classes(graph, module, call.func)
    ]
    return [*chosen, *(each for each in used if each not in chosen)]


def used_as_optimizers(graph: CallGraph, module: Module) -> Iterator[ast.Call]:
    """The calls that get a model's parameters, and whose result is stepped and cleared.

    Not those of a class of the program, unless it is an optimizer of its own.
    """
    cleared = {
        module.text(call.func.value)
        for call in module.calls_to("zero_grad")
        if isinstance(call.func, ast.Attribute)
    }
    if not cleared:
        return
    stepped = {
        module.text(each)
        for call in module.calls_to("step")
        if isinstance(call.func, ast.Attribute)
        for each in (call.args or [call.func.value])
    }
    for stmt in module.nodes(ast.Assign):
        made = stmt.value
        if not isinstance(made, ast.Call) or len(stmt.targets) != 1:
            continue
        if module.text(stmt.targets[0]) not in cleared & stepped:
            continue
        values = [*made.args, *(word.value for word in made.keywords)]
        takes = any(
            isinstance(call.func, ast.Attribute) and call.func.attr in SEES_PARAMETERS
            for value in values
            for call in everywhere(value, ast.Call)
        )
        if takes and module.last_name(made.func) not in OPTIMIZERS and may_be(graph, module, made):
            yield made


def may_be(graph: CallGraph, module: Module, made: ast.Call) -> bool:
    """Whether a call is of no function or class of the program but of an optimizer's."""
    found = graph.resolve(module, made.func)
    if found is None:
        return True
    where, owner = found
    return isinstance(owner, ast.ClassDef) and is_own_optimizer(where, owner)


def is_own_optimizer(module: Module, owner: ast.ClassDef) -> bool:
    """Whether a class is one of torch's optimizers of the script's own."""
    return any(module.dotted(base) in BASES for base in owner.bases)


def is_optimizer_class(module: Module, node: ast.expr) -> bool:
    """Whether a name is that of an optimizer's class: ``optim.SGD``."""
    if not isinstance(node, ast.Name | ast.Attribute):
        return False
    package, _, name = module.dotted(node).rpartition(".")
    return name in OPTIMIZERS or (package == PACKAGE and name[:1].isupper())


def is_one_of_classes(graph: CallGraph, module: Module, node: ast.expr, steps: int = 0) -> bool:
    """Whether an expression is a class of an optimizer, whichever one is chosen."""
    if steps > MAX_STEPS:
        return False
    match node:
        case ast.Call(func=ast.Name(id="getattr"), args=[package, *_]):
            return module.dotted(package) == PACKAGE
        case ast.Call(func=ast.Name(id="partial") | ast.Attribute(attr="partial"), args=[made, *_]):
            choices = [(module, made)]
        case ast.Call(func=ast.Attribute(value=table, attr="get"), args=[_, *default]):
            choices = [*elements(graph, module, table), *((module, each) for each in default)]
        case ast.Subscript(value=table):
            choices = [*elements(graph, module, table)]
        case ast.IfExp(body=body, orelse=orelse):
            choices = [(module, body), (module, orelse)]
        case ast.Name() | ast.Attribute() if is_optimizer_class(module, node):
            return steps > 0
        case ast.Name():
            choices = [*values_of(graph, module, node)]
        case _:
            return False
    return bool(choices) and all(
        is_one_of_classes(graph, where, each, steps + 1) for where, each in choices
    )


def elements(graph: CallGraph, module: Module, table: ast.expr) -> Iterator[Place]:
    """What a dictionary has, also under a name; what is no dictionary is its own element."""
    shown = [*values_of(graph, module, table)] if isinstance(table, ast.Name) else [(module, table)]
    for where, each in shown:
        if isinstance(each, ast.Dict):
            yield from ((where, value) for value in each.values)
        else:
            yield where, each
