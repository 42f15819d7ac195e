"""The test under which a variable is bound at a place, for code that is put there and reads it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from ...source.branches import exclusive, is_in
from ...source.module import Module
from ...source.tree import (
    FUNCTIONS,
    Function,
    bound_names,
    everywhere,
    is_inside,
    names_within,
    parameters,
    position,
)

LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
EXITS = ("exit", "_exit", "quit")
PURE = (
    *(ast.Name, ast.Attribute, ast.Constant, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.Tuple),
    *(ast.List, ast.expr_context, ast.cmpop, ast.boolop, ast.unaryop),
)


def binding_test(module: Module, place: ast.stmt, name: str) -> str | None:
    """A test that holds behind ``place`` where a name is bound; "" where it always is.

    None where that cannot be told. A name that is read there on every way has to be bound, or the
    program fails without us. One that may be None is not bound, but where it is asked for
    something.
    """
    function = module.function(place)
    if function is not None and (name in parameters(function) or is_outer(function, name)):
        return ""
    stores = module.stores.get((function, name), [])
    above = [each for each in stores if position(each) <= position(place)]
    may_be_none = any(is_none(module, each) for each in above)
    if is_read_on_every_way(module, place, name, may_be_none):
        return ""
    if not may_be_none and any(binds(each, name) for each in _passed(module, place)):
        return ""
    makers = [each for each in above if not (is_none(module, each) or rebinds(module, each))]
    if not makers and not may_be_none:
        return ""  # it comes from elsewhere
    tests = [_tests_around(module, each, place) for each in makers]
    texts = {
        module.conjunct(each[0]) if len(each) == 1 else "" for each in tests if each is not None
    }
    if None in tests or len(texts) != 1 or "" in texts:
        return None
    return texts.pop()


def is_outer(function: Function, name: str) -> bool:
    """Whether a function has a name from around it by ``global`` or ``nonlocal``."""
    outer: list[ast.Global | ast.Nonlocal] = [*everywhere(function, ast.Global)]
    outer += everywhere(function, ast.Nonlocal)
    return any(name in each.names for each in outer)


def rebinds(module: Module, store: ast.Name) -> bool:
    """``model = wrap(model)``, which asks for a model that is bound."""
    stmt = module.parents[store]
    return isinstance(stmt, ast.Assign) and bool(names_within(stmt.value, {store.id}))


def is_none(module: Module, store: ast.Name) -> bool:
    """``model = None``."""
    holder = module.parents[store]
    value = getattr(holder, "value", None)
    return isinstance(value, ast.Constant) and value.value is None


def _passed(module: Module, place: ast.stmt) -> Iterator[ast.stmt]:
    """The statements of all blocks around a place that are passed on the way behind it."""
    stmt: ast.AST = place
    while isinstance(stmt, ast.stmt) and not isinstance(stmt, FUNCTIONS):
        block = module.body(stmt)
        yield from block[: block.index(stmt) + (stmt is place)]
        stmt = module.parents[stmt]


def _passed_later(module: Module, place: ast.stmt) -> Iterator[ast.stmt]:
    """The statements behind a place, outwards, until one may leave."""
    stmt: ast.AST = place
    while isinstance(stmt, ast.stmt) and not isinstance(stmt, FUNCTIONS):
        block = module.body(stmt)
        for each in block[block.index(stmt) + 1 :]:
            yield each
            if may_leave(module, each):
                return
        stmt = module.parents[stmt]


def may_leave(module: Module, stmt: ast.stmt) -> bool:
    """Whether what follows a statement may not be reached."""
    return any(everywhere(stmt, kind) for kind in LEAVES) or any(
        module.last_name(call.func) in EXITS for call in everywhere(stmt, ast.Call)
    )


def leaves(stmt: ast.stmt) -> bool:
    """Whether nothing comes behind a statement."""
    return (
        isinstance(stmt, LEAVES)
        or (
            isinstance(stmt, ast.If)
            and any(map(leaves, stmt.body))
            and any(map(leaves, stmt.orelse))
        )
        or (
            isinstance(stmt, ast.Expr)
            and isinstance(stmt.value, ast.Call)
            and getattr(stmt.value.func, "attr", getattr(stmt.value.func, "id", "")) in EXITS
        )
    )


def binds(stmt: ast.stmt, name: str) -> bool:
    """Whether a statement binds a name on every way through it."""
    match stmt:
        case ast.If():
            return name in bound_names(stmt.test) or all(
                any(binds(each, name) or leaves(each) for each in branch)
                for branch in (stmt.body, stmt.orelse)
            )
        case ast.With() | ast.AsyncWith():
            own = any(name in bound_names(item) for item in stmt.items)
            return own or any(binds(each, name) for each in stmt.body)
        case ast.Try():
            ways = [[*stmt.body, *stmt.orelse], *(each.body for each in stmt.handlers)]
            return any(binds(each, name) for each in stmt.finalbody) or all(
                any(binds(each, name) or leaves(each) for each in way) for way in ways
            )
        case ast.For() | ast.AsyncFor() | ast.While() | ast.Match():
            return False
    return name in bound_names(stmt)


def reaching(module: Module, stores: Sequence[ast.Name], use: ast.AST) -> list[ast.Name]:
    """The bindings of a name whose value a later place may have, of those given, the last first."""
    return [
        store
        for number, store in reversed(list(enumerate(stores)))
        if not any(is_replaced(module, store, by, use) for by in stores[number + 1 :])
    ]


def is_replaced(module: Module, store: ast.Name, by: ast.Name, use: ast.AST) -> bool:
    """Whether every way from a binding to a later place passes another binding of the name."""
    for whole in module.ancestors(by):
        if is_inside(store, whole) or whole is use or is_inside(use, whole):
            return False
        if isinstance(whole, ast.stmt) and binds(whole, by.id):
            block = module.parents[whole]
            for end in (store, use):
                if is_inside(end, block) and not exclusive(whole, end):
                    return True
    return False


def is_read_on_every_way(module: Module, place: ast.stmt, name: str, as_object: bool) -> bool:
    """Whether the program itself reads a name wherever it comes to ``place``.

    ``as_object``: only what None could not answer counts.
    """
    ways = (*_passed(module, place), *_passed_later(module, place))
    return any(
        reads(module, each, name, as_object)
        for each in ways
        if not (isinstance(each, ast.If) and is_in(place, each))
    )


def reads(module: Module, stmt: ast.stmt, name: str, as_object: bool) -> bool:
    """Whether a statement reads a name on every way through it."""
    match stmt:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return False
        case ast.If():
            return reads_in(module, stmt.test, name, as_object) or all(
                any(reads(module, each, name, as_object) for each in branch)
                for branch in (stmt.body, stmt.orelse)
            )
        case ast.For() | ast.AsyncFor():
            return reads_in(module, stmt.iter, name, as_object)
        case ast.While():
            return reads_in(module, stmt.test, name, as_object)
        case ast.With() | ast.AsyncWith():
            return any(reads_in(module, each, name, as_object) for each in stmt.items) or any(
                reads(module, each, name, as_object) for each in stmt.body
            )
        case ast.Try():
            return any(reads(module, each, name, as_object) for each in stmt.finalbody)
        case ast.Match():
            return reads_in(module, stmt.subject, name, as_object)
    return reads_in(module, stmt, name, as_object)


def reads_in(module: Module, node: ast.AST, name: str, as_object: bool) -> bool:
    """Whether a name is read wherever ``node`` is evaluated."""
    for each in names_within([node] if isinstance(node, ast.stmt) else node, {name}):
        if not isinstance(each.ctx, ast.Load):
            continue
        up = module.parents[each]
        asked = isinstance(up, ast.Attribute) or (isinstance(up, ast.Call) and up.func is each)
        if (asked or not as_object) and is_evaluated(module, each, node):
            return True
    return False


def is_evaluated(module: Module, name: ast.expr, top: ast.AST) -> bool:
    """Whether nothing in ``top`` lets an expression out: a test, a lambda, a comprehension."""
    child: ast.AST = name
    for up in module.ancestors(name):
        if child is top:
            return True
        if isinstance(up, ast.Lambda | ast.comprehension | ast.ListComp | ast.GeneratorExp):
            return False
        if isinstance(up, ast.IfExp) and child is not up.test:
            return False
        if isinstance(up, ast.BoolOp) and child is not up.values[0]:
            return False
        child = up
    return child is top


def _tests_around(module: Module, store: ast.Name, place: ast.stmt) -> list[ast.expr] | None:
    """The tests that a binding needs and a place does not; None where they cannot be told.

    They have to say at the place what they said at the binding.
    """
    tests: list[ast.expr] = []
    child: ast.AST = store
    for up in module.ancestors(store):
        if is_in(place, up):
            break
        if isinstance(up, ast.If):
            if not any(is_in(child, stmt) for stmt in up.body):
                return None
            tests.append(up.test)
        elif isinstance(up, ast.For | ast.AsyncFor | ast.While | ast.Try):
            return None
        child = up
    return tests if all(stays(module, test, place) for test in tests) else None


def stays(module: Module, test: ast.expr, place: ast.stmt) -> bool:
    """Whether a test calls nothing, and nothing between it and a place changes what it reads."""
    if not all(isinstance(node, PURE) for node in ast.walk(test)):
        return False
    function, begin, end = module.function(test), position(test), place.end_lineno or place.lineno
    for name in everywhere(test, ast.Name):
        for store in module.stores.get((function, name.id), ()):
            if begin < position(store) and store.lineno <= end:
                return False
    return not any(
        isinstance(node.ctx, ast.Store) and begin < position(node) and node.lineno <= end
        for each in everywhere(test, ast.Attribute)
        for node in module.attributes(each.attr)
    )
