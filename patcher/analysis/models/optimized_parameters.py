"""Whose parameters an optimizer gets: at once, in lists that grow, in groups that are added to it.

``params = list(net.parameters())``, ``params += list(center.parameters())``, ``SGD(params)``,
``optimizer.add_param_group({"params": head.parameters()})``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import Function, argument_values, everywhere, parameters, precedes
from ..language.passed_arguments import argument_for_parameter
from ..training.frameworks import OPTIMIZERS, SEES_PARAMETERS
from ..training.program import Program

GROWING = ("append", "extend", "insert")
CONTAINERS = ("ModuleList", "ModuleDict", "Sequential")

Value = tuple[Module, ast.expr]


def optimized(program: Program) -> Iterator[Value]:
    """What optimizers get when they are made, and behind that."""
    for module, made in program.calls_to(*OPTIMIZERS, "add_param_group"):
        if program.is_live(module, made):
            yield from ((module, value) for value in argument_values(made))
    for module in program.modules:
        for groups in module.attributes("param_groups"):
            yield from ((module, value) for value in grown(module, groups))


def parameter_calls(
    program: Program, module: Module, value: ast.expr
) -> list[tuple[Module, ast.Attribute]]:
    """``model.parameters`` where it is called for a value, also through names and parameters."""
    found: list[tuple[Module, ast.Attribute]] = []
    pending: list[Value] = [(module, value)]
    seen: set[tuple[Function | None, str]] = set()
    for where, node in pending:
        found += (
            (where, call.func)
            for call in everywhere(node, ast.Call)
            if isinstance(call.func, ast.Attribute) and call.func.attr in SEES_PARAMETERS
        )
        for name in everywhere(node, ast.Name):
            key = where.function(name), name.id
            if key not in seen:
                seen.add(key)
                pending += ((where, each) for each in sources(where, name))
                pending += passed(program, where, name)
    return found


def models_in(module: Module, node: ast.expr) -> list[ast.expr]:
    """A model, and those in it or that it is one of: ``ModuleList([net, head])``."""
    found = [node]
    pending = [node] if isinstance(node, ast.Call) else sources(module, node)
    for value in pending:
        if isinstance(value, ast.Name | ast.Attribute):
            found.append(value)
        elif isinstance(value, ast.List | ast.Tuple | ast.Set):
            pending += value.elts
        elif isinstance(value, ast.Call) and module.last_name(value.func) in CONTAINERS:
            pending += argument_values(value)
    return found


def is_element_of_parameter(module: Module, model: ast.expr) -> bool:
    """``model`` of ``for model in models``, where callers pass the models: no name but for that."""
    function = module.function(model)
    if function is None or not isinstance(model, ast.Name):
        return False
    return any(
        isinstance(holder, ast.For | ast.comprehension)
        and isinstance(holder.iter, ast.Name)
        and holder.iter.id in parameters(function)
        for store in module.stores.get((function, model.id), ())
        for holder in [module.parents[store]]
    )


def sources(module: Module, node: ast.expr) -> list[ast.expr]:
    """The values that a plain name is bound to, is one after another of, or grows by."""
    if not isinstance(node, ast.Name):
        return []
    function = module.function(node)
    found = module.alternatives(node, node)
    for store in module.stores.get((function, node.id), ()):
        holder = module.parents[store]
        while isinstance(holder, ast.Tuple | ast.List | ast.Starred):
            holder = module.parents[holder]
        if isinstance(holder, ast.AugAssign) and precedes(holder, node):
            found.append(holder.value)
        elif isinstance(holder, ast.For | ast.comprehension):
            found.append(holder.iter)
    for use in module.occurrences(node.id):
        if isinstance(use, ast.Name) and precedes(use, node) and module.function(use) is function:
            found += grown(module, use)
    return found


def grown(module: Module, items: ast.expr) -> list[ast.expr]:
    """What a list grows by where it is named: ``items.append(value)``."""
    method = module.parents[items]
    call = module.parents.get(method)
    if (
        isinstance(method, ast.Attribute)
        and method.attr in GROWING
        and isinstance(call, ast.Call)
        and call.func is method
    ):
        return call.args
    return []


def passed(program: Program, module: Module, name: ast.Name) -> Iterator[Value]:
    """What callers pass for a name that is a parameter of its function."""
    function = module.function(name)
    if function is None or name.id not in parameters(function):
        return
    for caller, call in program.callers(function):
        value = argument_for_parameter(module, function, call, name.id)
        if value is not None and program.is_live(caller, call):
            yield caller, value
