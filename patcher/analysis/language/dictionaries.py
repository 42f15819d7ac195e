"""Loaders by phase: what ``loaders[phase]``, or a name bound in each, is in the phase that trains.

Many scripts for pictures keep ``{"train": …, "val": …}``, and one loop trains and evaluates.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.branches import is_in
from ...source.module import Module
from ...source.tree import (
    Function,
    argument,
    bound_names,
    everywhere,
    is_inside,
    parameters,
    same_code,
    within,
)
from .call_graph import CallGraph
from .literal_arguments import STEPS
from .passed_arguments import argument_for_parameter
from .settled_tests import constant

DICTIONARIES = ("dict", "collections.OrderedDict")
MAX_DEPTH = 3  # names that stand for one another


def key_that_trains(module: Module, node: ast.Subscript) -> str:
    """The key of ``loaders["train"]``; of ``loaders[phase]`` the one under whose test a loop steps.

    Empty where there is none.
    """
    if isinstance(node.slice, ast.Constant):
        return node.slice.value if isinstance(node.slice.value, str) else ""
    if not isinstance(node.slice, ast.Name):
        return ""
    loop = loop_over(module, node)
    return "" if loop is None else key_of_steps(module, loop, node.slice.id)


def key_of_all_calls(graph: CallGraph, module: Module, node: ast.Subscript) -> str:
    """The key of ``loaders[split]``, where all calls of the function pass the same one."""
    value = constant(graph, module, node.slice) if isinstance(node.slice, ast.Name) else None
    return value.value if value is not None and isinstance(value.value, str) else ""


def loop_over(module: Module, node: ast.expr) -> ast.For | None:
    """The loop that goes over an expression, perhaps through calls around it."""
    for up in module.ancestors(node):
        if isinstance(up, ast.For) and (node is up.iter or is_inside(node, up.iter)):
            return up
    return None


def key_of_steps(module: Module, block: ast.For | Function, phase: str) -> str:
    """The text that a variable has where a loop or function steps: ``if phase == "train":``."""
    for call in within(block.body, ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr in STEPS:
            for key in keys_tested(module, call, block, phase):
                return key
    return ""


def key_in_call(module: Module, function: Function, call: ast.Call, phase: str) -> str:
    """The text that a variable has where a function steps that a call passes it to."""
    for name in parameters(function):
        passed = argument_for_parameter(module, function, call, name)
        if isinstance(passed, ast.Name) and passed.id == phase:
            return key_of_steps(module, function, name)
    return ""


def pair_of(module: Module, name: ast.Name) -> tuple[ast.For, str] | None:
    """The loop over pairs that binds a name, and what is ahead: ``for phase, loader in pairs:``."""
    for up in module.ancestors(name):
        if isinstance(up, ast.For) and name.id in bound_names(up.target):
            target = up.target
            if isinstance(target, ast.Tuple) and len(target.elts) == 2:
                first, second = target.elts
                if isinstance(first, ast.Name) and isinstance(second, ast.Name):
                    return (up, first.id) if second.id == name.id else None
            return None
        if isinstance(up, Function):
            return None
    return None


def in_phase(module: Module, name: ast.Name) -> tuple[ast.For, str] | None:
    """The loop over pairs that binds what an inner loop goes over, and the key where that steps."""
    pair, inner = pair_of(module, name), loop_over(module, name)
    if pair is None or inner is None:
        return None
    key = key_of_steps(module, inner, pair[1])
    return (pair[0], key) if key else None


def second_of_pair(
    graph: CallGraph, module: Module, pairs: ast.expr, key: str
) -> tuple[Module, ast.expr] | None:
    """``loader`` of ``[("train", loader), …]`` or ``{"train": loader, …}.items()`` by its key."""
    if isinstance(pairs, ast.Call) and isinstance(pairs.func, ast.Attribute):
        if pairs.func.attr != "items" or pairs.args:
            return None
        for where, value in values_of(graph, module, pairs.func.value):
            item, only_for = item_of(where, value, key)
            if item is not None and not only_for:
                return where, item
        return None
    for where, value in values_of(graph, module, pairs):
        for each in value.elts if isinstance(value, ast.List | ast.Tuple) else ():
            match each:
                case ast.Tuple(elts=[ast.Constant(value=name), item]) if name == key:
                    return where, item
    return None


def keys_tested(
    module: Module, call: ast.Call, loop: ast.For | Function, name: str
) -> Iterator[str]:
    """The texts that a variable has to be equal to for a call to run, by the tests around it."""
    for up in module.ancestors(call):
        if up is loop:
            return
        if not isinstance(up, ast.If) or not any(is_inside(call, stmt) for stmt in up.body):
            continue
        named = module.definition(up.test, up) if isinstance(up.test, ast.Name) else None
        for test in everywhere(named or up.test, ast.Compare):
            sides = (test.left, test.comparators[0])
            names = [side.id for side in sides if isinstance(side, ast.Name)]
            texts = [side.value for side in sides if isinstance(side, ast.Constant)]
            if isinstance(test.ops[0], ast.Eq) and names == [name]:
                yield from (text for text in texts if isinstance(text, str))


def is_of_other_phase(module: Module, store: ast.Name, name: ast.Name) -> bool:
    """Whether the loop over a name steps under a test alone, and it is bound in the other branch.

    ``if train: loader = train_loader`` and ``else: loader = test_loader`` above one loop for both.
    """
    loop = module.statement(name)
    if not isinstance(loop, ast.For) or not is_in(name, loop.iter):
        return False
    steps = [
        call
        for call in within(loop.body, ast.Call)
        if isinstance(call.func, ast.Attribute) and call.func.attr in STEPS
    ]
    return bool(steps) and any(
        isinstance(choice, ast.If)
        and is_settled(module, choice.test, loop)
        and all(is_in_other_branch(module, call, choice, store, loop) for call in steps)
        for choice in module.ancestors(store)
    )


def is_settled(module: Module, test: ast.expr, loop: ast.For) -> bool:
    """Whether a test answers the same in a loop as above it: no name of it is bound there."""
    return bool(everywhere(test, ast.Name)) and not (
        {each.id for each in everywhere(test, ast.Name)} & bound_names(loop)
    )


def is_in_other_branch(
    module: Module, call: ast.Call, choice: ast.If, store: ast.Name, loop: ast.For
) -> bool:
    """Whether a call of a loop stands under a test of which a binding is the other branch."""
    in_body = any(is_in(store, stmt) for stmt in choice.body)
    return any(
        isinstance(up, ast.If)
        and is_in(up, loop)
        and same_code(up.test, choice.test)
        and any(is_in(call, stmt) for stmt in (up.orelse if in_body else up.body))
        for up in module.ancestors(call)
    )


def values_of(
    graph: CallGraph, module: Module, node: ast.expr, depth: int = 0
) -> Iterator[tuple[Module, ast.expr]]:
    """What an expression may stand for, through names, parameters and attributes of the class."""
    if depth > MAX_DEPTH:
        return
    if isinstance(node, ast.Attribute):
        owner = module.enclosing_class(node)
        for value in module.attribute_values.get(node.attr, ()):
            if owner is not None and module.enclosing_class(value) is owner:
                yield from values_of(graph, module, value, depth + 1)
    if not isinstance(node, ast.Name):
        yield module, node
        return
    function = module.function(node)
    bound = module.alternatives(node, node)
    if not bound and function is not None and node.id in parameters(function):
        names = [arg.arg for arg in (*function.args.posonlyargs, *function.args.args)]
        skip = isinstance(module.parents.get(function), ast.ClassDef)
        for where, call in graph.callers(function):
            index = names.index(node.id) - skip if node.id in names else len(call.args)
            passed = argument(call, index, node.id)
            if passed is not None:
                yield from values_of(graph, where, passed, depth + 1)
        return
    if not bound:
        bound = [
            holder.value
            for store in module.stores.get((None, node.id), ())
            for holder in [module.parents[store]]
            if isinstance(holder, ast.Assign)
        ]
    for value in bound:
        yield from values_of(graph, module, value, depth + 1)


def item_of(module: Module, value: ast.expr, key: str) -> tuple[ast.expr | None, str]:
    """What a dictionary holds under a key; with the condition, where one expression makes all.

    ``{x: make(x) for x in ["train", "val"]}`` gives ``make(x)`` and ``x == 'train'``.
    """
    called = module.dotted(value.func) if isinstance(value, ast.Call) else ""
    is_call = isinstance(value, ast.Call) and called in DICTIONARIES and not value.args
    if isinstance(value, ast.Dict) or is_call:
        for name, item in items_of(value):
            if name == key:
                return item, ""
        assigned = module.statement(value)
        target = assigned.targets[0] if isinstance(assigned, ast.Assign) else None
        return (None, "") if target is None else item_put(module, target, key)
    if not isinstance(value, ast.DictComp) or not (keys := keys_of(module, value)):
        return None, ""
    if key not in keys:
        return None, ""
    assert isinstance(value.key, ast.Name)
    return value.value, f"{value.key.id} == {key!r}" if len(keys) > 1 else ""


def keys_of(module: Module, source: ast.expr, depth: int = 0) -> list[object]:
    """The constants that a loop over keys goes through; those of a comprehension are its keys.

    ``for x in ["train", "val"]``, ``for x, data in sets.items()``, ``in [("train", data)]``.
    """
    if depth > MAX_DEPTH:
        return []
    if isinstance(source, ast.Call) and isinstance(source.func, ast.Attribute):
        is_view = source.func.attr in ("items", "keys") and not source.args
        return keys_of(module, source.func.value, depth + 1) if is_view else []
    if isinstance(source, ast.Name):
        source = module.definition(source, source) or source
    if isinstance(source, ast.DictComp):
        part, *more = source.generators
        target = first_target(part.target)
        is_plain = not more and not part.ifs and module.text(target) == module.text(source.key)
        is_plain = is_plain and isinstance(target, ast.Name)
        return keys_of(module, part.iter, depth + 1) if is_plain else []
    listed: list[ast.expr | None] = []
    if isinstance(source, ast.List | ast.Tuple):
        listed += source.elts
    elif isinstance(source, ast.Dict):
        listed += source.keys
    firsts = [
        each.elts[0] if isinstance(each, ast.Tuple) and each.elts else each for each in listed
    ]
    return [each.value for each in firsts if isinstance(each, ast.Constant)]


def items_of(value: ast.expr) -> Iterator[tuple[object, ast.expr]]:
    """The constant keys of ``{"train": a}`` or ``dict(train=a)``, each with what it has."""
    if isinstance(value, ast.Call):
        yield from ((word.arg, word.value) for word in value.keywords)
    elif isinstance(value, ast.Dict):
        for name, item in zip(value.keys, value.values, strict=True):
            if isinstance(name, ast.Constant):
                yield name.value, item


def item_put(module: Module, dictionary: ast.expr, key: str) -> tuple[ast.expr | None, str]:
    """What ``loaders["train"] = …`` puts into a dictionary in the same function.

    So does ``loaders[x] = …`` in a loop over keys, by a condition where it puts in all of them.
    """
    text = module.text(dictionary)
    for stmt in within(module.scope_statements(dictionary), ast.Assign):
        target = stmt.targets[0]
        if not isinstance(target, ast.Subscript) or module.text(target.value) != text:
            continue
        if isinstance(target.slice, ast.Constant) and target.slice.value == key:
            return stmt.value, ""
        if isinstance(target.slice, ast.Name):
            value, only_for = put_in_loop(module, stmt, target.slice.id, key)
            if value is not None:
                return value, only_for
    return None, ""


def put_in_loop(
    module: Module, stmt: ast.Assign, name: str, key: str
) -> tuple[ast.expr | None, str]:
    """What ``loaders[name] = …`` puts in where the loop over keys around it is at one of them."""
    loops = [up for up in module.ancestors(stmt) if isinstance(up, ast.For)]
    loop = next((up for up in loops if module.text(first_target(up.target)) == name), None)
    keys = [] if loop is None else keys_of(module, loop.iter)
    if loop is None or key not in keys:
        return None, ""
    values = module.alternatives(stmt.value, stmt.value) or [stmt.value]
    for value in values:
        if is_made_for(module, value, name, key):
            return value, ""
    is_for_all = len(values) == 1 and module.body(stmt) is loop.body
    return (stmt.value, f"{name} == {key!r}") if is_for_all else (None, "")


def is_made_for(module: Module, value: ast.expr, name: str, key: str) -> bool:
    """Whether a value is bound under ``if name == key:``, to which ``and`` may add."""
    for up in module.ancestors(value):
        if not isinstance(up, ast.If) or not any(is_in(value, stmt) for stmt in up.body):
            continue
        match up.test:
            case ast.BoolOp(op=ast.And(), values=parts):
                pass
            case part:
                parts = [part]
        for part in parts:
            match part:
                case ast.Compare(ast.Name(tested), [ast.Eq()], [ast.Constant(constant)]):
                    if (tested, constant) == (name, key):
                        return True
    return False


def first_target(target: ast.expr) -> ast.expr:
    """``x`` of ``for x, data in …``; the target itself, if it is one name."""
    return target.elts[0] if isinstance(target, ast.Tuple) else target
