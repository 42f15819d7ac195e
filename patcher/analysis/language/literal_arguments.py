"""What a function does for one call of it, by the literals among its arguments."""

from __future__ import annotations

import ast
import operator

from ...source.module import Module
from ...source.tree import Function, mentions, parameters, within
from .passed_arguments import argument_for_parameter, default_value, keyword_value

CallPlace = tuple[Module, ast.Call]
Calls = tuple[CallPlace, ...]  # of a function, of the function around that call, and so on
Literal = ast.Constant | None
LEAVING = (ast.Return, ast.Raise)
STEPS = ("backward", "step")
ORDERS = {ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Lt: operator.lt, ast.LtE: operator.le}


def is_possible(module: Module, function: Function, node: ast.AST, calls: Calls) -> bool:
    """Whether the calls can reach ``node`` in ``function``, by the tests around it."""
    child: ast.AST = node
    for up in module.ancestors(node):
        if isinstance(up, ast.If | ast.IfExp) and child is not up.test:
            truth = truth_of(module, function, calls, up.test)
            body = up.body if isinstance(up.body, list) else [up.body]
            in_body = any(item is child for item in body)
            if truth is not None and truth is not in_body:
                return False
        block = getattr(up, "body", None)
        if isinstance(block, list) and child in block:
            for above in block[: block.index(child)]:
                leaves = isinstance(above, ast.If) and isinstance(above.body[-1], LEAVING)
                if leaves and truth_of(module, function, calls, above.test):
                    return False
        if up is function:
            break
        child = up
    return True


def truth_of(module: Module, function: Function, calls: Calls, test: ast.expr) -> bool | None:
    """What a test of parameters says for the calls; None unless literals decide it."""
    match test:
        case ast.Attribute(value=ast.Name() as model, attr="training"):
            return _is_training(module, function, calls[0], model)
        case ast.Name():
            named = _named_test(module, function, test)
            if named is not None:
                return truth_of(module, function, calls, named)
            return _truth_of_parameter(module, function, calls, test)
        case ast.Constant():
            return bool(test.value)
        case ast.UnaryOp(op=ast.Not()):
            truth = truth_of(module, function, calls, test.operand)
            return None if truth is None else not truth
        case ast.BoolOp():
            decisive = isinstance(test.op, ast.Or)
            truths = [truth_of(module, function, calls, part) for part in test.values]
            if decisive in truths:
                return decisive
            return None if None in truths else not decisive
        case (
            ast.Compare(
                left=name, ops=[ast.Eq() | ast.NotEq() as op], comparators=[ast.Constant() as word]
            )
            | ast.Compare(
                left=ast.Constant() as word, ops=[ast.Eq() | ast.NotEq() as op], comparators=[name]
            )
        ):
            value = passed_literal(module, function, calls, name)
            return None if value is None else (value.value == word.value) is isinstance(op, ast.Eq)
        case ast.Compare(
            left=name, ops=[order], comparators=[ast.Constant(value=int() | float() as limit)]
        ) if type(order) in ORDERS:
            value = passed_literal(module, function, calls, name)
            number = None if value is None else value.value
            return ORDERS[type(order)](number, limit) if isinstance(number, int | float) else None
        case ast.Compare(ops=[ast.In() | ast.NotIn() as op], comparators=[words]):
            is_in = _is_among(module, function, calls[0], test.left, words)
            return None if is_in is None else is_in is isinstance(op, ast.In)
        case ast.Call(
            func=ast.Attribute(value=ast.Name() as name, attr="startswith" | "endswith" as which),
            args=[ast.Constant(value=str() as part)],
        ):
            value = literal(module, function, calls[0], name)
            whole = None if value is None else value.value
            return getattr(whole, which)(part) if isinstance(whole, str) else None
        case ast.Compare(
            ops=[ast.Is() | ast.IsNot() as op], comparators=[ast.Constant(value=None)]
        ):
            value = literal(module, function, calls[0], test.left)
            return None if value is None else (value.value is None) is isinstance(op, ast.Is)
    return None


def _is_among(
    module: Module, function: Function, place: CallPlace, part: ast.expr, whole: ast.expr
) -> bool | None:
    """``split in ("train", "dev")`` and ``"train" in split``; None unless literals decide it."""
    match part, whole:
        case _, ast.Tuple() | ast.List() | ast.Set():
            words = [each.value for each in whole.elts if isinstance(each, ast.Constant)]
            value = literal(module, function, place, part)
            if value is None or len(words) < len(whole.elts):
                return None
            return value.value in words
        case ast.Constant(value=str() as word), ast.Name():
            value = literal(module, function, place, whole)
            text = None if value is None else value.value
            return word in text if isinstance(text, str) else None
    return None


def _named_test(module: Module, function: Function, name: ast.Name) -> ast.expr | None:
    """The test that a local name stands for: ``is_train = optimizer is not None``, bound once."""
    stores = module.stores.get((function, name.id), ())
    if len(stores) != 1 or name.id in parameters(function):
        return None
    value = module.definition(name, name)
    if value is None or module.statement(stores[0]) not in function.body:
        return None
    return None if mentions(value, name.id) else value


def _truth_of_parameter(
    module: Module, function: Function, calls: Calls, name: ast.Name
) -> bool | None:
    """Whether a parameter is true, which the caller may have been told by its own caller."""
    value = literal(module, function, calls[0], name)
    if value is not None:
        return bool(value.value)
    (where, call), *above = calls
    passed = argument_for_parameter(module, function, call, name.id)
    around = where.function(call)
    if passed is None or around is None or not above:
        return None
    return truth_of(where, around, tuple(above), passed)


def _is_training(
    module: Module, function: Function, place: CallPlace, model: ast.Name
) -> bool | None:
    """Whether a model that a call passes is in train mode, by the last line above that sets it."""
    if any(sets_mode(module, call, model.id) for call in within(function.body, ast.Call)):
        return None
    where, call = place
    passed = argument_for_parameter(module, function, call, model.id)
    if passed is None:
        return None
    name = where.text(passed)
    for up in (call, *where.ancestors(call)):
        if isinstance(up, Function):
            return None
        for above in reversed(above_in_block(where, up) if isinstance(up, ast.stmt) else []):
            modes = [each for each in within([above], ast.Call) if sets_mode(where, each, name)]
            if modes:
                is_plain = isinstance(above, ast.Expr) and above.value is modes[0]
                return switches_on(where, modes[0]) if is_plain else None
    return None


def above_in_block(module: Module, stmt: ast.stmt) -> list[ast.stmt]:
    """The statements ahead of one in its block."""
    block = module.body(stmt)
    return block[: block.index(stmt)]


def sets_mode(module: Module, call: ast.Call, model: str) -> bool:
    """Whether a call is ``model.train()`` or ``model.eval()``."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    return (
        owner is not None
        and module.last_name(call.func) in ("train", "eval")
        and module.text(owner) == model
    )


def switches_on(module: Module, mode: ast.Call) -> bool:
    """Whether a call that sets a model's mode sets that of training; not ``model.train(False)``."""
    off = mode.args and isinstance(mode.args[0], ast.Constant) and not mode.args[0].value
    return module.last_name(mode.func) == "train" and not off


def literal_truth(module: Module, function: Function, call: ast.Call, name: str) -> bool | None:
    """Whether a parameter is true for one call; None unless its argument is a literal."""
    passed = argument_for_parameter(module, function, call, name)
    value = passed or default_value(function, name)
    return bool(value.value) if isinstance(value, ast.Constant) else None


def literal(module: Module, function: Function, place: CallPlace, name: ast.expr) -> Literal:
    """The literal that a call passes for a parameter, which the function leaves as it is."""
    if not isinstance(name, ast.Name) or (function, name.id) in module.stores:
        return None
    where, call = place
    passed = argument_for_parameter(module, function, call, name.id)
    by_name_only = name.id in {arg.arg for arg in function.args.kwonlyargs}
    if passed is None and may_be_among_others(where, call, name.id, by_name_only):
        return None
    value = passed or default_value(function, name.id)
    return value if isinstance(value, ast.Constant) else None


def passed_literal(module: Module, function: Function, calls: Calls, name: ast.expr) -> Literal:
    """The literal that a call passes for a parameter, or its caller was told by its own caller."""
    value = literal(module, function, calls[0], name)
    (where, call), *above = calls
    around = where.function(call)
    if value is not None or not above or around is None or not isinstance(name, ast.Name):
        return value
    if (function, name.id) in module.stores:
        return None
    passed = argument_for_parameter(module, function, call, name.id)
    return None if passed is None else passed_literal(where, around, tuple(above), passed)


def may_be_among_others(
    module: Module,
    call: ast.Call,
    name: str,
    by_name_only: bool,
    seen: frozenset[ast.Call] = frozenset(),
) -> bool:
    """Whether ``*arguments`` or ``**options`` of a call may hold a parameter.

    Where a function hands on its own ``**options``, by what its callers pass.
    """
    if not by_name_only and any(isinstance(arg, ast.Starred) for arg in call.args):
        return True
    if all(word.arg for word in call.keywords):
        return False
    texts = [node.value for node in module.nodes(ast.Constant) if isinstance(node.value, str)]
    words = [word.arg for each in module.calls_to("dict") for word in each.keywords]
    if name in words or any(text.lstrip("-").replace("-", "_") == name for text in texts):
        return True
    around = module.function(call)
    if around is None or around.args.kwarg is None or module.graph is None or call in seen:
        return False
    return any(
        keyword_value(each, name) is not None
        or may_be_among_others(where, each, name, True, seen | {call})
        for where, each in module.graph.callers(around)
    )
