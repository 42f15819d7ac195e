"""Branches that no call of the program takes, of a switch that has one value for all of them."""

from __future__ import annotations

import ast

from ...source.module import Module, Resolver
from ...source.tree import parameters
from .passed_arguments import argument_for_parameter, default_value

LEAVING = (ast.Return, ast.Raise)
MAX_DEPTH = 4


def is_never_reached(
    graph: Resolver, module: Module, node: ast.AST, call: ast.Call | None = None
) -> bool:
    """Whether settled tests lead past a place in its function, for all calls or for the one told.

    As past ``loss.sum()`` of ``return loss.mean() if self.average else loss.sum()``, where each
    object is made with ``average=True``, by default.
    """
    function = module.function(node)
    child: ast.AST = node
    for up in module.ancestors(node):
        if isinstance(up, ast.If | ast.IfExp) and child is not up.test:
            body = up.body if isinstance(up.body, list) else [up.body]
            truth = settled(graph, module, up.test, call)
            if truth is not None and truth is not any(item is child for item in body):
                return True
        for block in (getattr(up, "body", None), getattr(up, "orelse", None)):
            if isinstance(block, list) and child in block:
                for above in block[: block.index(child)]:
                    leaves = isinstance(above, ast.If) and isinstance(above.body[-1], LEAVING)
                    if leaves and settled(graph, module, above.test, call):
                        return True
        if up is function:
            break
        child = up
    return False


def settled(
    graph: Resolver, module: Module, test: ast.expr, call: ast.Call | None = None
) -> bool | None:
    """What a test of switches says, if it says the same for all calls and objects.

    Or ``labels is not None``, for a ``call`` that passes more than a constant.
    """
    match test:
        case ast.UnaryOp(op=ast.Not()):
            truth = settled(graph, module, test.operand, call)
            return None if truth is None else not truth
        case ast.Compare(
            left=ast.Name() as asked,
            ops=[ast.Is() | ast.IsNot() as op],
            comparators=[ast.Constant(value=None)],
        ) if call is not None and passes_a_value(module, call, asked):
            return isinstance(op, ast.IsNot)
        case ast.Name() | ast.Attribute():
            value = constant(graph, module, test)
            return None if value is None else bool(value.value)
        case ast.Compare(
            left=left,
            ops=[ast.Eq() | ast.NotEq() | ast.Is() | ast.IsNot() as op],
            comparators=[ast.Constant() as word],
        ):
            value = constant(graph, module, left)
            if value is None:
                return None
            return (value.value == word.value) is isinstance(op, ast.Eq | ast.Is)
    return None


def passes_a_value(module: Module, call: ast.Call, name: ast.Name) -> bool:
    """Whether a call passes more than a constant for a parameter, which nothing has changed yet."""
    function = module.function(name)
    if function is None or name.id not in parameters(function):
        return False
    if any(each.lineno < name.lineno for each in module.stores.get((function, name.id), ())):
        return False
    passed = argument_for_parameter(module, function, call, name.id)
    return passed is not None and not isinstance(passed, ast.Constant)


def constant(
    graph: Resolver, module: Module, node: ast.expr, depth: int = 0
) -> ast.Constant | None:
    """The one constant that a parameter is for all calls, or an attribute for all objects."""
    if isinstance(node, ast.Constant):
        return node
    function = module.function(node)
    if depth > MAX_DEPTH or function is None:
        return None
    if isinstance(node, ast.Attribute):
        owner = module.enclosing_class(node)
        values = module.attribute_values.get(node.attr, [])
        is_own = isinstance(node.value, ast.Name) and node.value.id == "self"
        if not is_own or len(values) != 1 or module.enclosing_class(values[0]) is not owner:
            return None
        return constant(graph, module, values[0], depth + 1)
    if not isinstance(node, ast.Name) or node.id not in parameters(function):
        return None
    if (function, node.id) in module.stores:
        return None
    found: list[ast.Constant] = []
    for where, call in graph.callers(function):
        if any(word.arg is None for word in call.keywords):
            return None
        passed = argument_for_parameter(module, function, call, node.id)
        value = default_value(function, node.id) if passed is None else passed
        known = None if value is None else constant(graph, where, value, depth + 1)
        if known is None:
            return None
        found.append(known)
    same = found and all(each.value == found[0].value for each in found)
    return found[0] if same else None
