"""The values that names, attributes and calls have in each kind of process.

What a name stands for is followed through all statements that bind it, branch by branch, into
functions, methods and properties, and into other modules. ``Evaluate`` is the evaluation of an
expression, in analysis/ranks/rank_reach; UNKNOWN is the answer wherever anything cannot be told.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from ...source.module import Module, cached_per_module
from ...source.tree import FUNCTIONS, Function, ancestors, is_inside, position, walk, within
from ..language.names import parameter_names
from ..language.objects import attribute_values, class_of, method_of
from ..language.passed_arguments import argument_for_parameter
from .roles import ALL_UNKNOWN, UNKNOWN, Values

Evaluate = Callable[[Module, ast.expr], Values]
MAX_BINDINGS = 12  # of one name; above, it is unknown
ROLE_COUNT = 3


def name_values(evaluate: Evaluate, module: Module, node: ast.Name) -> Values:
    """The values of a plain name, by all statements that may have bound it."""
    function = module.function(node)
    scope = function
    while scope is not None and (scope, node.id) not in module.stores:
        if node.id in parameter_names(module)[scope]:
            return _parameter_values(evaluate, module, scope, node.id)
        scope = module.function(scope)
    stores = module.stores.get((scope, node.id), [])
    if scope is None:
        stores = [*stores, *_global_stores(module, node.id)]
    if not stores:
        return _imported_values(evaluate, module, node)
    if scope is not None and node.id in parameter_names(module)[scope]:
        return ALL_UNKNOWN
    in_loop = any(isinstance(up, ast.For | ast.While) for up in ancestors(node))
    if scope is function and not in_loop:
        stores = [store for store in stores if position(store) < position(node)] or stores
    if len(stores) > MAX_BINDINGS:
        return ALL_UNKNOWN
    columns = [_binding_values(evaluate, module, store) for store in stores]
    reached = [_reach(evaluate, module, store) for store in stores]
    return tuple(
        [
            _last_value(
                [(each[role], column[role]) for each, column in zip(reached, columns, strict=True)]
            )
            for role in range(ROLE_COUNT)
        ]
    )


def _last_value(bindings: list[tuple[object, object]]) -> object:
    """The value after bindings that each certainly happens (True), never (False) or perhaps."""
    possible: list[object] = []
    for happens, value in bindings:
        if happens is True:
            possible = [value]
        elif happens is not False:
            possible.append(value)
    return _only(possible)


def _only(values: list[object]) -> object:
    if not values or any(value is UNKNOWN for value in values):
        return UNKNOWN
    first = values[0]
    return first if all(type(v) is type(first) and v == first for v in values) else UNKNOWN


@cached_per_module
def _globals(module: Module) -> dict[str, list[ast.Name]]:
    found: dict[str, list[ast.Name]] = {}
    for stmt in module.nodes(ast.Global):
        function = module.function(stmt)
        for name in stmt.names:
            found.setdefault(name, []).extend(module.stores.get((function, name), ()))
    return found


def _global_stores(module: Module, name: str) -> list[ast.Name]:
    """Bindings of a module's name in functions that declare it global."""
    return _globals(module).get(name, [])


def _binding_values(evaluate: Evaluate, module: Module, store: ast.Name) -> Values:
    """The value that one binding gives its name."""
    holder = module.parents[store]
    match holder:
        case ast.Assign(value=value):
            return evaluate(module, value)
        case ast.AnnAssign(value=ast.expr() as value) | ast.NamedExpr(value=value):
            return evaluate(module, value)
        case ast.Tuple() | ast.List():
            stmt = module.parents[holder]
            if isinstance(stmt, ast.Assign):
                index = next(n for n, item in enumerate(holder.elts) if item is store)
                return _element_values(evaluate, module, stmt.value, index)
    return ALL_UNKNOWN


def _element_values(evaluate: Evaluate, module: Module, value: ast.expr, index: int) -> Values:
    if isinstance(value, ast.Tuple | ast.List):
        is_known = index < len(value.elts)
        return evaluate(module, value.elts[index]) if is_known else ALL_UNKNOWN
    if isinstance(value, ast.Call):
        found = callee(module, value)
        if found is not None:
            known = module.element_values.get((value, index))
            if known is None:  # a function that returns what it is called for again has no end
                module.element_values[value, index] = ALL_UNKNOWN
                known = returned_values(evaluate, *found, index)
                module.element_values[value, index] = known
            return known
        if module.last_name(value.func) == "get_dist_info" and index < 2:
            return ((0, 0, 1), (1, 2, 2))[index]
    return ALL_UNKNOWN


def _reach(evaluate: Evaluate, module: Module, node: ast.AST) -> Values:
    """Whether each role comes to a node, by the tests around it in its function."""
    reach: list[object] = [True] * ROLE_COUNT
    child = node
    for up in ancestors(node):
        if isinstance(up, FUNCTIONS):
            if isinstance(node, ast.Name) and any(
                isinstance(stmt, ast.Global) and node.id in stmt.names for stmt in up.body
            ):
                return tuple(value and UNKNOWN for value in reach)
            break
        tests: Values | None = None
        if isinstance(up, ast.If) and child is not up.test:
            in_body = any(child is item for item in up.body)
            answers = evaluate(module, up.test)
            if answers is ALL_UNKNOWN:
                answers = _asks_for_group(module, up)
            tests = tuple(_truth(value, in_body) for value in answers)
        elif isinstance(up, ast.match_case):
            tests = _case_values(evaluate, module, up)
        elif isinstance(up, ast.For | ast.While | ast.ExceptHandler):
            tests = ALL_UNKNOWN
        if tests is not None:
            reach = [_both(*pair) for pair in zip(reach, tests, strict=True)]
        child = up
    return tuple(reach)


def _asks_for_group(module: Module, test: ast.If) -> Values:
    """The answers to ``if args.ddp:``, in one branch of which the process group is made."""
    for call in module.calls_to("init_process_group"):
        if is_inside(call, test):
            makes = any(is_inside(call, stmt) for stmt in test.body)
            return (not makes, makes, makes)
    return ALL_UNKNOWN


def _truth(value: object, wanted: bool) -> object:
    return UNKNOWN if value is UNKNOWN else bool(value) is wanted


def _both(first: object, second: object) -> object:
    if first is False or second is False:
        return False
    return UNKNOWN if UNKNOWN in (first, second) else True


def _case_values(evaluate: Evaluate, module: Module, case: ast.match_case) -> Values:
    """Whether each role comes into a case: a literal, or ``_`` behind literals."""
    match = module.parents[case]
    if not isinstance(match, ast.Match) or case.guard is not None:
        return ALL_UNKNOWN
    subjects = evaluate(module, match.subject)
    results: list[object] = []
    for subject in subjects:
        result: object = UNKNOWN
        for each in match.cases if subject is not UNKNOWN else ():
            is_match = _fits(each, subject)
            if each is case:
                result = is_match
                break
            if is_match is not False:
                result = False if is_match is True else UNKNOWN
                break
        results.append(result)
    return tuple(results)


def _fits(case: ast.match_case, subject: object) -> object:
    pattern = case.pattern
    if case.guard is not None:
        return UNKNOWN
    if isinstance(pattern, ast.MatchAs) and pattern.pattern is None:
        return True
    if isinstance(pattern, ast.MatchValue) and isinstance(pattern.value, ast.Constant):
        return subject == pattern.value.value
    return UNKNOWN


def _imported_values(evaluate: Evaluate, module: Module, node: ast.expr) -> Values:
    found = None if module.graph is None else module.graph.resolve(module, node)
    if found is None or found[1] is node:
        return ALL_UNKNOWN
    where, value = found
    if not isinstance(value, ast.expr):
        return ALL_UNKNOWN
    stmt = where.parents.get(value)
    if (
        where is not module
        and isinstance(stmt, ast.Assign)
        and isinstance(stmt.targets[0], ast.Name)
    ):
        return name_values(evaluate, where, stmt.targets[0])
    return evaluate(where, value)


def _parameter_values(evaluate: Evaluate, module: Module, function: Function, name: str) -> Values:
    """The value of a parameter, where all calls pass the same one, which differs between roles."""
    graph = module.graph
    if graph is None or graph.possible_callers(function):
        return ALL_UNKNOWN
    passed: list[Values] = []
    for where, call in graph.callers(function):
        value = argument_for_parameter(module, function, call, name)
        if value is None:
            return ALL_UNKNOWN
        passed.append(evaluate(where, value))
    if not passed or any(each != passed[0] for each in passed):
        return ALL_UNKNOWN
    return passed[0]


def callee(module: Module, call: ast.Call) -> tuple[Module, Function | ast.Lambda] | None:
    """The function of the program, method or lambda that a call runs."""
    func = call.func
    graph = module.graph
    if isinstance(func, ast.Name):
        value = module.definition(func, func)
        if isinstance(value, ast.Lambda):
            return module, value
    found = None if graph is None else graph.resolve(module, func)
    if found is None and isinstance(func, ast.Name) and (None, func.id) not in module.stores:
        function = module.functions.get(func.id) if func.id not in module.aliases else None
        if function is not None and not isinstance(module.parents[function], ast.ClassDef):
            return module, function
    if found is not None:
        where, definition = found
        if isinstance(definition, (*FUNCTIONS, ast.Lambda)):
            return where, definition
        return None
    if graph is not None and isinstance(func, ast.Attribute):
        owner = class_of(graph, module, func.value)
        return None if owner is None else method_of(graph, owner, func.attr)
    return None


def returned_values(
    evaluate: Evaluate, module: Module, function: Function | ast.Lambda, index: int | None = None
) -> Values:
    """What a function returns in each role; with ``index``, that element of the tuple."""
    if isinstance(function, ast.Lambda):
        return evaluate(module, function.body) if index is None else ALL_UNKNOWN
    if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in walk(function.body)):
        return ALL_UNKNOWN

    def value_of(node: ast.expr | None) -> Values:
        if node is None:
            return (None,) * ROLE_COUNT
        return (
            evaluate(module, node)
            if index is None
            else _element_values(evaluate, module, node, index)
        )

    results: list[object] = []
    for role in range(ROLE_COUNT):
        outcomes = list(_run(evaluate, module, function.body, role, value_of))
        results.append(_only([None if value is FALLS_THROUGH else value for value in outcomes]))
    return tuple(results)


FALLS_THROUGH = object()


def _run(
    evaluate: Evaluate,
    module: Module,
    body: list[ast.stmt],
    role: int,
    value_of: Callable[[ast.expr | None], Values],
) -> Iterator[object]:
    """The values that a block may return in a role, or FALLS_THROUGH behind it."""
    for stmt in body:
        if isinstance(stmt, ast.Return):
            yield value_of(stmt.value)[role]
            return
        if isinstance(stmt, ast.Raise):
            return
        blocks = _blocks(evaluate, module, stmt, role)
        if blocks is None:
            if within(stmt, ast.Return) and not isinstance(stmt, (*FUNCTIONS, ast.ClassDef)):
                yield UNKNOWN
            continue
        goes_on = False
        for block in blocks:
            for value in _run(evaluate, module, block, role, value_of):
                if value is FALLS_THROUGH:
                    goes_on = True
                else:
                    yield value
        if not goes_on:
            return
    yield FALLS_THROUGH


def _blocks(
    evaluate: Evaluate, module: Module, stmt: ast.stmt, role: int
) -> list[list[ast.stmt]] | None:
    """The blocks of a statement of which one runs; None for a loop or a plain statement."""
    match stmt:
        case ast.If():
            test = evaluate(module, stmt.test)[role]
            if test is UNKNOWN:
                return [stmt.body, stmt.orelse]
            return [stmt.body if test else stmt.orelse]
        case ast.With():
            return [stmt.body]
        case ast.Try():
            return [[*stmt.body, *stmt.orelse, *stmt.finalbody]]
    return None


def attribute_by_class(evaluate: Evaluate, module: Module, node: ast.Attribute) -> Values:
    """The value of an attribute or property of an object whose class the program defines."""
    graph = module.graph
    owner = None if graph is None else class_of(graph, module, node.value)
    if owner is None or graph is None:
        return ALL_UNKNOWN
    method = method_of(graph, owner, node.attr)
    if method is not None:
        return returned_values(evaluate, *method)
    values = [evaluate(where, value) for where, value in attribute_values(graph, owner, node.attr)]
    return values[0] if values and all(each == values[0] for each in values) else ALL_UNKNOWN
