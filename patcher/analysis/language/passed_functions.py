"""Functions that are passed as values: ``train(data, evaluate)``, which calls its parameter."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ...source.module import Module, Resolver
from ...source.tree import FUNCTIONS, Function, is_inside, parameters
from .passed_arguments import argument_for_parameter, default_value, is_bound

Callee = tuple[Module, Function]


MAX_DEPTH = 3  # functions that hand a function on


def passed_functions(
    graph: Resolver, module: Module, function: Function, name: str, depth: int = 0
) -> list[Callee] | None:
    """The functions of the program that known calls pass for a parameter; None for other things.

    Also those that a caller has been passed itself, or has given a name of its own.
    """
    found: list[Callee] = []
    calls = graph.callers(function)
    for where, call in calls:
        if any(word.arg is None for word in call.keywords):
            return None
        value = argument_for_parameter(module, function, call, name)
        if value is None:
            where, value = module, default_value(function, name)
        if value is None:
            return None
        if isinstance(value, ast.Constant):
            continue  # None, which nothing calls
        scope = where.function(value)
        if scope is not None and is_parameter(where, scope, value) and scope is not function:
            handed_on = (
                None
                if depth == MAX_DEPTH or graph.possible_callers(scope)
                else passed_functions(graph, where, scope, where.last_name(value), depth + 1)
            )
            if handed_on is None:
                return None
            found += handed_on
            continue
        definition = graph.resolve(where, where.definition(value, value) or value)
        if definition is not None and isinstance(definition[1], ast.Name | ast.Attribute):
            definition = graph.resolve(definition[0], definition[1])
        if definition is None or not isinstance(definition[1], FUNCTIONS):
            return None
        found.append((definition[0], definition[1]))
    return found if calls else None


def is_parameter(module: Module, scope: Function, value: ast.expr) -> bool:
    """Whether a value is a parameter of the function around it, which nothing binds anew."""
    return (
        isinstance(value, ast.Name)
        and value.id in parameters(scope)
        and module.definition(value, value) is None
    )


def calls_of_parameter(
    graph: Resolver, module: Module, use: ast.expr
) -> list[tuple[Module, ast.Call]]:
    """The calls of a function value by the parameter that it is passed for, or the default of.

    None of them where the parameter is used for anything else.
    """
    receiver = _receiver(graph, module, use)
    if receiver is None:
        return []
    home, function, name = receiver
    calls = [call for call in home.calls_to(name) if home.function(call) is function]
    called = {id(call.func) for call in calls}
    for each in home.occurrences(name):
        if not is_inside(each, function) or not isinstance(each, ast.Name):
            continue
        stmt = home.parents[each]
        binds_itself = isinstance(stmt, ast.Assign) and home.text(stmt) == f"{name} = {name}"
        if id(each) not in called and not binds_itself and not isinstance(stmt, ast.Compare):
            return []
    return [(home, call) for call in calls]


def calls_by_attribute(
    graph: Resolver, modules: Iterable[Module], function: Function
) -> Iterator[tuple[Module, ast.Call]]:
    """Calls of an attribute that is bound to a function: ``self.loss = f``, ``self.loss(x)``.

    Of whatever object, so that it is no proof; or of a name of the module, ``loss = losses.f``.
    """
    targets = [
        (where, target)
        for where, use in graph.possible_callers(function)
        if isinstance(bound := where.parents[use], ast.Assign) and bound.value is use
        for target in bound.targets
    ]
    for where, target in targets:
        if not isinstance(target, ast.Name):
            continue
        for call in where.calls_to(target.id):
            scope = where.function(call)
            is_own = scope is not None and target.id in parameters(scope)
            is_bound = is_own or (scope, target.id) in where.stores
            if scope is where.function(target) or not is_bound:
                yield where, call
    names = {target.attr for _, target in targets if isinstance(target, ast.Attribute)}
    for module in modules if names else ():
        calls = module.calls_to(*names)
        yield from ((module, call) for call in calls if isinstance(call.func, ast.Attribute))


def _receiver(
    graph: Resolver, module: Module, use: ast.expr
) -> tuple[Module, Function, str] | None:
    """The function that a value is passed to or is a default of, and its parameter."""
    above = module.parents[use]
    if isinstance(above, ast.arguments):
        function = module.parents[above]
        if isinstance(function, FUNCTIONS):
            names = [each.arg for each in (*above.posonlyargs, *above.args, *above.kwonlyargs)]
            named = [name for name in names if default_value(function, name) is use]
            return (module, function, named[0]) if named else None
        return None
    call = module.parents[above] if isinstance(above, ast.keyword) else above
    if not isinstance(call, ast.Call) or use is call.func:
        return None
    found = graph.resolve(module, call.func)
    if found is None or not isinstance(found[1], FUNCTIONS):
        return None
    home, function = found[0], found[1]
    if isinstance(above, ast.keyword):
        return (home, function, above.arg) if above.arg else None
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    names = names[1:] if is_bound(home, function) else names
    taken = [name for name in names if argument_for_parameter(home, function, call, name) is use]
    return (home, function, taken[0]) if taken else None
