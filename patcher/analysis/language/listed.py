"""What lists, tuples and dictionaries of a program hold, where all of it can be seen.

In a display, a comprehension, a function's result, or put in later: ``loaders.append(loader)``.
"""

from __future__ import annotations

import ast

from ...source.branches import is_in
from ...source.module import Module
from ...source.tree import Function, bound_names, everywhere, parameters, within
from .call_graph import CallGraph
from .dictionaries import values_of
from .passed_arguments import argument_for_parameter

MAX_DEPTH = 5  # names and calls between an expression and a display
COPIES = ("list", "tuple", "dict", "OrderedDict", "sorted", "reversed")
VIEWS = ("values", "copy")
PUTS_ONE = ("append", "insert", "add")
PUTS_ALL = ("extend", "update")

Place = tuple[Module, ast.expr]


def elements_of(
    graph: CallGraph, module: Module, node: ast.expr, depth: int = 0
) -> list[Place] | None:
    """The elements, or a dictionary's values, as expressions; None where some cannot be seen."""
    if depth > MAX_DEPTH:
        return None
    match node:
        case ast.List() | ast.Tuple():
            plain = not any(isinstance(each, ast.Starred) for each in node.elts)
            return [(module, each) for each in node.elts] if plain else None
        case ast.Dict():
            return None if None in node.keys else [(module, each) for each in node.values]
        case ast.ListComp() | ast.GeneratorExp():
            return [(module, node.elt)]
        case ast.DictComp():
            return [(module, node.value)]
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return joined(graph, [(module, left), (module, right)], depth)
        case ast.Call(func=ast.Attribute(value=owner, attr=attr), args=[]) if attr in VIEWS:
            return elements_of(graph, module, owner, depth + 1)
        case ast.Call(args=[], keywords=words) if module.last_name(node.func) in COPIES:
            return [(module, each.value) for each in words]
        case ast.Call(args=[source]) if module.last_name(node.func) in COPIES:
            return elements_of(graph, module, source, depth + 1)
        case ast.Call():
            results = [
                (where, result.value)
                for where, function in graph.callees(module, node)[:1]
                for result in within(function.body, ast.Return)
                if result.value is not None and where.function(result) is function
            ]
            return joined(graph, results, depth) if results else None
        case ast.Name() | ast.Attribute():
            bound = [place for place in values_of(graph, module, node) if place[1] is not node]
            return joined(graph, bound, depth) if bound else None
    return None


def joined(graph: CallGraph, places: list[Place], depth: int) -> list[Place] | None:
    """The elements of several, and what is put in later; None where some cannot be seen."""
    found: list[Place] = []
    for where, value in places:
        own = elements_of(graph, where, value, depth + 1)
        more = None if own is None else put_in(graph, where, value, depth)
        if own is None or more is None:
            return None
        found += [*own, *more]
    return found


def put_in(graph: CallGraph, module: Module, value: ast.expr, depth: int) -> list[Place] | None:
    """What is put into a list or dictionary behind the statement that binds it to a name."""
    stmt = module.statement(value)
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) and stmt.value is value else None
    if not isinstance(target, ast.Name | ast.Attribute):
        return []
    text, scope = module.text(target), module.function(stmt)
    if isinstance(target, ast.Name) and is_filled_by_callee(graph, module, target, scope):
        return None
    found: list[Place] = []

    def is_it(owner: ast.expr) -> bool:
        is_seen = isinstance(target, ast.Attribute) or module.function(owner) in (scope, None)
        return is_seen and module.text(owner) == text

    for method in module.attributes(*PUTS_ONE, *PUTS_ALL):
        call = module.parents[method]
        if not isinstance(call, ast.Call) or call.func is not method or not is_it(method.value):
            continue
        if not call.args:
            return None
        if method.attr in PUTS_ONE:
            found.append((module, call.args[-1]))
            continue
        more = elements_of(graph, module, call.args[0], depth + 1)
        if more is None:
            return None
        found += more
    for assign in module.nodes(ast.Assign):
        for each in assign.targets:
            if isinstance(each, ast.Subscript) and is_it(each.value):
                found.append((module, assign.value))
    if any(is_it(add.target) for add in module.nodes(ast.AugAssign)):
        return None
    return found


def is_filled_by_callee(
    graph: CallGraph, module: Module, target: ast.Name, scope: Function | None
) -> bool:
    """Whether a function of the program puts something into a list that it is passed."""
    for use in module.occurrences(target.id):
        call = module.parents[use]
        if not isinstance(call, ast.Call) or module.function(use) is not scope:
            continue
        for where, function in graph.callees(module, call):
            for name in parameters(function):
                if argument_for_parameter(where, function, call, name) is use and any(
                    isinstance(each.value, ast.Name)
                    and each.value.id == name
                    and each.attr in (*PUTS_ONE, *PUTS_ALL)
                    for each in everywhere(function, ast.Attribute)
                ):
                    return True
    return False


def comprehension_of(module: Module, name: ast.Name) -> ast.comprehension | None:
    """The part of a comprehension around a name that binds it."""
    for up in module.ancestors(name):
        if isinstance(up, ast.ListComp | ast.GeneratorExp | ast.DictComp):
            for part in up.generators:
                if name.id in bound_names(part.target) and not is_in(name, part.iter):
                    return part
    return None


def all_of(module: Module, part: ast.comprehension) -> str:
    """What a comprehension takes its loaders from, as far as one can go over them again."""
    match part.target, part.iter:
        case ast.Name(), ast.Name() | ast.Attribute():
            return module.text(part.iter)
        case ast.Tuple(), ast.Call(func=ast.Attribute(value=owner, attr="items")):
            return f"{module.text(owner)}.values()"
    return ""


def place_in(target: ast.expr, name: ast.Name) -> int | None:
    """The place of a name in a tuple that is unpacked; None for a target of its own."""
    names = [each.id if isinstance(each, ast.Name) else "" for each in getattr(target, "elts", ())]
    return names.index(name.id) if name.id in names else None
