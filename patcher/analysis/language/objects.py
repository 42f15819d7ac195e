"""Classes of the program: which one an object is of, their methods, and what attributes hold."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.module import Module, Resolver
from ...source.tree import FUNCTIONS, Function, everywhere, within
from .names import parameter_names
from .passed_arguments import argument_for_parameter
from .tables import items_of_call

MAX_DEPTH = 8
# Questions for classes that wait for each other: one asks who calls a method, which asks for the
# classes of other objects, and so on. Further down the answer is unknown, before the stack ends.
MAX_WAITING = 50
ClassOf = tuple[Module, ast.ClassDef]
BESIDE = ("setter", "deleter", "overload")  # decorators of what is no method of its own
# Methods that return the object they are called on.
RETURN_SELF = {"to", "cuda", "cpu", "eval", "train", "half", "float", "double", "bfloat16"}


def class_of(graph: Resolver, module: Module, node: ast.expr, depth: int = 0) -> ClassOf | None:
    """The class of the program that the object ``node`` is an instance of; None if unknown."""
    known: dict[ast.expr, ClassOf | None] = module.program_answers.setdefault("classes", {})
    if node in known:
        return known[node]
    waiting = _waiting(graph)
    if depth > MAX_DEPTH or len(waiting) > MAX_WAITING:
        return None
    known[node] = None  # where its value depends on itself
    waiting.append(node)
    try:
        known[node] = found = _class_of(graph, module, node, depth)
    finally:
        waiting.pop()
    return found


def classes_of(graph: Resolver, module: Module, node: ast.expr) -> list[ClassOf]:
    """The classes that an object may be an instance of, one for each branch that makes it."""
    known: dict[ast.expr, list[ClassOf]] = module.program_answers.setdefault(classes_of, {})
    waiting = _waiting(graph)
    if node in known or len(waiting) > MAX_WAITING:
        return known.get(node, [])
    known[node] = []  # where its value depends on itself
    waiting.append(node)
    try:
        one = class_of(graph, module, node)
        made = [
            owner
            for where, value in _made_by_branches(graph, module, node)
            if value is not node
            for owner in classes_of(graph, where, value)
        ]
        known[node] = [*dict.fromkeys(made if one is None else (one, *made))]
    finally:
        waiting.pop()
    return known[node]


def _waiting(graph: Resolver) -> list[ast.expr]:
    """The objects of a program whose classes are being asked for."""
    waiting: list[ast.expr] = graph.modules[0].program_answers.setdefault(_waiting, [])
    return waiting


def _made_by_branches(
    graph: Resolver, module: Module, node: ast.expr
) -> list[tuple[Module, ast.expr]]:
    """What makes an object: values of a name or a parameter, results of a function."""
    match node:
        case ast.IfExp(body=body, orelse=orelse):
            return [(module, body), (module, orelse)]
        case ast.Name(id=name):
            function = module.function(node)
            if values := module.alternatives(node, node):
                return [(module, value) for value in values]
            if function is not None and name in parameter_names(module)[function]:
                passed = [
                    (where, argument_for_parameter(module, function, call, name))
                    for where, call in graph.callers(function)
                ]
                return [(where, value) for where, value in passed if value is not None]
        case ast.Call(func=func):
            match named_definition(graph, module, func):
                case where, ast.FunctionDef() as function:
                    results = within(function.body, ast.Return)
                    return [(where, each.value) for each in results if each.value is not None]
    return []


def _class_of(graph: Resolver, module: Module, node: ast.expr, depth: int) -> ClassOf | None:
    match node:
        case ast.Name():
            return _class_of_name(graph, module, node, depth)
        case ast.Attribute():
            owner = class_of(graph, module, node.value, depth + 1)
            if owner is None:
                return None
            for where, value in attribute_values(graph, owner, node.attr):
                found = class_of(graph, where, value, depth + 1)
                if found is not None:
                    return found
        case ast.Call():
            return _class_of_call(graph, module, node, depth)
    return None


def _class_of_name(graph: Resolver, module: Module, node: ast.Name, depth: int) -> ClassOf | None:
    function = module.function(node)
    owner = None if function is None else module.parents.get(function)
    if isinstance(owner, ast.ClassDef) and function is not None and is_self(function, node.id):
        return module, owner
    value = module.definition(node, node)
    if value is not None and is_from_checkpoint(module, value):
        value = module.definition(node, value)  # what takes its place again is of its class
    if value is None and (part := _class_of_part(graph, module, node, depth)) is not None:
        return part
    if value is None and function is not None:
        parameter = next((a for a in everywhere(function.args, ast.arg) if a.arg == node.id), None)
        if parameter is not None:
            named = _named_class(graph, module, parameter.annotation)
            return named or _class_of_passed(graph, module, function, node.id, depth)
    if value is None and (function, node.id) not in module.stores:
        found = graph.resolve(module, node)
        if found is not None and isinstance(found[1], ast.expr):
            return class_of(graph, found[0], found[1], depth + 1)
    return None if value is None or value is node else class_of(graph, module, value, depth + 1)


def _class_of_part(graph: Resolver, module: Module, node: ast.Name, depth: int) -> ClassOf | None:
    """The class of a name that is bound once, to a part of what a function returns in a tuple."""
    stores = [*module.stores.get((module.function(node), node.id), ())]
    holder = module.parents[stores[0]] if len(stores) == 1 else None
    stmt = module.parents[holder] if isinstance(holder, ast.Tuple) else None
    if not isinstance(stmt, ast.Assign) or not isinstance(stmt.value, ast.Call):
        return None
    assert isinstance(holder, ast.Tuple)
    found = named_definition(graph, module, stmt.value.func)
    if found is None or not isinstance(found[1], FUNCTIONS):
        return None
    place = holder.elts.index(stores[0])
    parts = [
        result.value.elts[place] if len(result.value.elts) == len(holder.elts) else None
        for result in within(found[1].body, ast.Return)
        if isinstance(result.value, ast.Tuple)
    ]
    made = {None if part is None else class_of(graph, found[0], part, depth + 1) for part in parts}
    return made.pop() if len(made) == 1 else None


def is_from_checkpoint(module: Module, value: ast.expr) -> bool:
    """``checkpoint["meter"]``, of what has been loaded from a file."""
    if not isinstance(value, ast.Subscript):
        return False
    loaded = module.definition(value.value, value)
    return isinstance(loaded, ast.Call) and module.last_name(loaded.func) == "load"


def _class_of_passed(
    graph: Resolver, module: Module, function: Function, name: str, depth: int
) -> ClassOf | None:
    """The class of what every call of a function, or of a method, passes for a parameter."""
    is_method = isinstance(module.parents[function], ast.ClassDef)
    if not (is_method or isinstance(module.parents[function], ast.Module)):
        return None
    if graph.possible_callers(function):
        return None
    found: set[ClassOf | None] = set()
    for where, call in graph.callers(function):
        passed = argument_for_parameter(module, function, call, name)
        found.add(None if passed is None else class_of(graph, where, passed, depth + 1))
    return found.pop() if len(found) == 1 else None


def _class_of_call(graph: Resolver, module: Module, call: ast.Call, depth: int) -> ClassOf | None:
    func = call.func
    if isinstance(func, ast.Name) and (owner := _own_class(module, func)) is not None:
        return module, owner
    found = named_definition(graph, module, func)
    if found is not None:
        where, definition = found
        if isinstance(definition, ast.ClassDef):
            return where, definition
        if isinstance(definition, FUNCTIONS):
            for result in within(definition.body, ast.Return):
                made = result.value and class_of(graph, where, result.value, depth + 1)
                if made:
                    return made
        return None
    if (common := _class_of_items(graph, items_of_call(graph, module, func))) is not None:
        return common
    if (made := _class_of_method(graph, module, func, depth)) is not None:
        return made
    if isinstance(func, ast.Attribute) and func.attr in RETURN_SELF:
        return class_of(graph, module, func.value, depth + 1)
    if module.dotted(func) == "torch.compile" and call.args:
        return class_of(graph, module, call.args[0], depth + 1)
    return None


def _class_of_method(graph: Resolver, module: Module, func: ast.expr, depth: int) -> ClassOf | None:
    """The class of what a method of an object returns, or its ``__call__``."""
    held, name = func, "__call__"
    if isinstance(func, ast.Attribute):
        held, name = func.value, func.attr
    owner = class_of(graph, module, held, depth + 1)
    found = owner and method_of(graph, owner, name)
    if not owner or not found:
        return None
    where, method = found
    for result in within(method.body, ast.Return):
        if isinstance(result.value, ast.Name) and is_self(method, result.value.id):
            return owner
        made = result.value and class_of(graph, where, result.value, depth + 1)
        if made:
            return made
    return None


def _own_class(module: Module, name: ast.Name) -> ast.ClassDef | None:
    """The class that ``cls`` of a class method is, or one below it."""
    function = module.function(name)
    owner = None if function is None else module.parents.get(function)
    if function is None or not isinstance(owner, ast.ClassDef) or not is_self(function, name.id):
        return None
    decorators = {getattr(each, "id", "") for each in function.decorator_list}
    return owner if "classmethod" in decorators else None


def _class_of_items(graph: Resolver, items: list[tuple[Module, ast.expr]]) -> ClassOf | None:
    """The class that all classes of a table are, or inherit from."""
    named = [_named_class(graph, *item) for item in items]
    owners = [owner for owner in named if owner is not None]
    if not owners or len(owners) < len(items):
        return None
    above = [[definition for _, definition in classes_above(graph, owner)] for owner in owners]
    common = (
        owner
        for owner in classes_above(graph, owners[0])
        if all(owner[1] in definitions for definitions in above)
    )
    return next(common, None)


def named_definition(
    graph: Resolver, module: Module, node: ast.expr
) -> tuple[Module, ast.AST] | None:
    """What a name stands for, also by other names of it: ``Trainer = LongTrainer``."""
    for _ in range(MAX_DEPTH):
        found = graph.resolve(module, node)
        value = module.definition(node, node) if found is None else found[1]
        if not isinstance(value, ast.Name | ast.Attribute):
            return found
        module, node = (module, value) if found is None else (found[0], value)
    return None


def _named_class(graph: Resolver, module: Module, node: ast.expr | None) -> ClassOf | None:
    found = None if node is None else graph.resolve(module, node)
    if found is not None and isinstance(found[1], ast.ClassDef):
        return found[0], found[1]
    return None


def is_self(function: Function, name: str) -> bool:
    """Whether a name is the first parameter of a method."""
    first = [*function.args.posonlyargs, *function.args.args][:1]
    decorators = {getattr(d, "id", "") for d in function.decorator_list}
    return bool(first) and first[0].arg == name and not decorators & {"staticmethod"}


def is_property(method: Function) -> bool:
    """Whether a method is read as an attribute."""
    kinds = {getattr(d, "id", getattr(d, "attr", "")) for d in method.decorator_list}
    return bool(kinds & {"property", "cached_property"})


def classes_above(graph: Resolver, owner: ClassOf) -> list[ClassOf]:
    """A class and the program's classes that it inherits from, nearest first. Cached."""
    module, definition = owner
    known: dict[ast.ClassDef, list[ClassOf]] = module.program_answers.setdefault(classes_above, {})
    if definition not in known:
        known[definition] = _classes_above(graph, owner)
    return known[definition]


def _classes_above(graph: Resolver, owner: ClassOf) -> list[ClassOf]:
    found, pending = dict[ast.ClassDef, Module](), [owner]
    while pending:
        module, definition = pending.pop(0)
        if definition not in found:
            found[definition] = module
            bases = (_named_class(graph, module, base) for base in definition.bases)
            pending += [base for base in bases if base is not None]
    return [(module, definition) for definition, module in found.items()]


def method_of(graph: Resolver, owner: ClassOf, name: str) -> tuple[Module, Function] | None:
    """The method ``name`` of a class, also an inherited one; of several the last one in it."""
    for module, definition in classes_above(graph, owner):
        for member in reversed(definition.body):
            if (
                isinstance(member, FUNCTIONS)
                and member.name == name
                and not any(module.last_name(each) in BESIDE for each in member.decorator_list)
            ):
                return module, member
    return None


def is_read_whole(graph: Resolver, owner: ClassOf) -> bool:
    """Whether a class and all above it are of the program, so that no method is missed."""
    above = classes_above(graph, owner)
    bases = sum(
        not (isinstance(base, ast.Name) and base.id == "object")
        for _, each in above
        for base in each.bases
    )
    return bases < len(above)


def attribute_values(
    graph: Resolver, owner: ClassOf, name: str
) -> Iterator[tuple[Module, ast.expr]]:
    """The values that a class and its bases assign to ``self.name``, or to it in their body."""
    for module, definition in classes_above(graph, owner):
        for value in module.attribute_values.get(name, ()):
            if module.enclosing_class(value) is definition:
                yield module, value
        for stmt in definition.body:
            if isinstance(stmt, ast.Assign) and any(
                isinstance(target, ast.Name) and target.id == name for target in stmt.targets
            ):
                yield module, stmt.value
