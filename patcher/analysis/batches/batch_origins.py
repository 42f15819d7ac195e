"""Whether all ranks have the same data before them: no library deals it, and no set orders it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import Function, everywhere, parameters, within
from ..language.passed_arguments import argument_for_parameter
from ..training.program import Program
from .batch_taint import NotDealtError, UnknownOriginError
from .set_order import makes_set

MAX_DEPTH = 8
BUILTINS = {"list", "tuple", "sorted", "zip", "map", "filter", "reversed", "range", "enumerate"}
# Libraries whose functions give the same for the same: none of them has an order of its own.
KNOWN_ROOTS = {"numpy", "np", "json", "pickle", "csv", "pandas", "itertools", "copy", "math"}
KNOWN_METHODS = {
    *("split", "chunk", "items", "values", "keys", "tolist", "readlines", "unbind", "numpy"),
    *("to", "cuda", "cpu", "long", "float", "transpose", "permute", "contiguous", "view", "t"),
    *("reshape", "iterrows", "itertuples", "copy", "unsqueeze", "squeeze"),
}
TEXT_ITERATORS = ("BucketIterator", "Iterator")
IN_ORDER = ("list", "tuple", "enumerate", "iter", "zip", "map")


def refuse_unknown_origin(program: Program, module: Module, node: ast.expr) -> None:
    """Raise unless what a loop goes over is made by the program, or by what is known."""
    where = unknown_origin(program, module, node, 0)
    if where:
        raise UnknownOriginError(
            f"whether all ranks get the same ones of {where} cannot be told: if that goes over a"
            " DataLoader, let the loop go over it by its own name, and patch again"
        )


def unknown_origin(program: Program, module: Module, node: ast.expr, depth: int) -> str:
    """What of an iterable is not known to be the same on all ranks, as text; "" for nothing."""
    text = " ".join(module.text(node).split())
    told = f"`{text}` in line {node.lineno}"
    if depth > MAX_DEPTH:
        return told
    match node:
        case ast.Constant() | ast.ListComp() | ast.GeneratorExp() | ast.List() | ast.Tuple():
            parts = [part.iter for part in getattr(node, "generators", [])]
            return first_unknown(program, module, parts, depth)
        case ast.Subscript():
            return unknown_origin(program, module, node.value, depth + 1)
        case ast.IfExp():
            return first_unknown(program, module, [node.body, node.orelse], depth)
        case ast.Name():
            return unknown_name(program, module, node, depth)
        case ast.Attribute():
            values = [
                (where, value)
                for where in program.modules
                for value in where.attribute_values.get(node.attr, ())
            ]
            if not values:
                return told
            return next(
                (why for where, value in values
                 if (why := unknown_origin(program, where, value, depth + 1))),
                "",
            )  # fmt: skip
        case ast.Call():
            return told if unknown_call(program, module, node, depth) else ""
    return told


def first_unknown(program: Program, module: Module, nodes: list[ast.expr], depth: int) -> str:
    return next(
        (why for node in nodes if (why := unknown_origin(program, module, node, depth + 1))), ""
    )


def unknown_name(program: Program, module: Module, name: ast.Name, depth: int) -> str:
    """What is not known of a variable or a parameter."""
    told = f"`{name.id}` in line {name.lineno}"
    function = module.function(name)
    if function is not None and name.id in parameters(function):
        passed = [
            (where, argument_for_parameter(module, function, call, name.id))
            for where, call in program.callers(function)
        ]
        if not passed or any(value is None for _, value in passed):
            return told
        return next(
            (why for where, value in passed if value is not None
             and (why := unknown_origin(program, where, value, depth + 1))),
            "",
        )  # fmt: skip
    scope = function if (function, name.id) in module.stores else None
    stores = module.stores.get((scope, name.id), [])
    if not stores:
        found = program.resolve(module, name)
        if found is not None and isinstance(found[1], ast.expr):
            return unknown_origin(program, found[0], found[1], depth + 1)
        return told
    for store in stores:
        value = bound_value(module, store)
        if value is None:
            return told
        if name.id in {each.id for each in everywhere(value, ast.Name)} and depth > 2:
            continue  # data = data[order]
        if why := unknown_origin(program, module, value, depth + 1):
            return why
    return ""


def bound_value(module: Module, store: ast.Name) -> ast.expr | None:
    """What is assigned to a name, or unpacked into it."""
    holder = module.parents[store]
    while isinstance(holder, ast.Tuple | ast.List | ast.Starred):
        holder = module.parents[holder]
    if isinstance(holder, ast.Assign):
        return holder.value
    if isinstance(holder, ast.AnnAssign | ast.AugAssign):
        return holder.value
    return None


def unknown_call(program: Program, module: Module, call: ast.Call, depth: int) -> bool:
    """Whether it is not known that a call gives the same batches on all ranks."""
    last, dotted = module.last_name(call.func), module.dotted(call.func)
    own = program.callees(module, call)
    found = program.resolve(module, call.func)
    if last in ("range", "trange", "arange", "permutation", "randperm"):
        return False
    if isinstance(call.func, ast.Name) and call.func.id in BUILTINS and not own:
        return bool(first_unknown(program, module, call.args, depth))
    if found is not None and isinstance(found[1], ast.ClassDef):
        return class_is_unknown(program, found[0], found[1], depth)
    if own:
        return any(function_is_unknown(program, where, each, depth) for where, each in own)
    root = dotted.partition(".")[0]
    if root == "torchtext" or (last == "splits" and "torchtext" in module.imported_packages):
        return not any(kind in dotted for kind in TEXT_ITERATORS)
    if root == "torch":
        return dotted.startswith("torch.utils.data")
    if root in KNOWN_ROOTS:
        return False
    if dotted == "open":
        return False
    if isinstance(call.func, ast.Attribute) and last in KNOWN_METHODS:
        return bool(unknown_origin(program, module, call.func.value, depth + 1))
    return True


def function_is_unknown(program: Program, module: Module, function: Function, depth: int) -> bool:
    """Whether a function's results, or what a generator goes over, are not known."""
    if within(function.body, ast.Yield):
        return any(
            bool(unknown_origin(program, module, loop.iter, depth + 1))
            for loop in within(function.body, ast.For)
            if within(loop.body, ast.Yield)
        )
    results = [each.value for each in within(function.body, ast.Return) if each.value is not None]
    return not results or bool(first_unknown(program, module, results, depth + 1))


def class_is_unknown(program: Program, module: Module, owner: ast.ClassDef, depth: int) -> bool:
    """Whether a class of the program does not iterate by code of its own."""
    methods = {each.name: each for each in owner.body if isinstance(each, ast.FunctionDef)}
    iterates = methods.get("__iter__")
    if iterates is None:
        return "__getitem__" not in methods or bool(owner.bases)
    return function_is_unknown(program, module, iterates, depth) and not returns_self(iterates)


def returns_self(function: ast.FunctionDef) -> bool:
    return any(
        isinstance(each.value, ast.Name) and each.value.id == "self"
        for each in within(function.body, ast.Return)
    )


def refuse_order_of_sets(program: Program) -> None:
    """Raise where the order of a set, which each process has another of, becomes that of data."""
    for module in program.modules:
        for node in sets_in_order(module):
            if program.is_live(module, node):
                raise NotDealtError(
                    f"line {node.lineno} of {module.source.path.name} goes through a set, in"
                    " another order in each process: sort it first"
                )


def sets_in_order(module: Module) -> Iterator[ast.expr]:
    """Sets that are listed, numbered or looped over."""
    if not module.calls_to("set") and not module.nodes(ast.SetComp):
        return
    for node in (*module.nodes(ast.SetComp), *module.nodes(ast.Call), *module.nodes(ast.Name)):
        value: ast.expr = node
        if isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                continue
            up = module.parents[node]
            if not is_ordered_use(module, node, up):
                continue
            value = module.definition(node, node) or node
        if makes_set(value) and is_ordered_use(module, node, module.parents[node]):
            yield node


def is_ordered_use(module: Module, node: ast.expr, up: ast.AST) -> bool:
    """Whether code takes the elements of a set in their order."""
    if isinstance(up, ast.Call) and node in up.args:
        return (
            isinstance(up.func, ast.Name) and up.func.id in IN_ORDER and not is_sorted(module, up)
        )
    if isinstance(up, ast.For):
        return up.iter is node
    if isinstance(up, ast.comprehension):
        return up.iter is node and not is_sorted(module, module.parents[up])
    return False


def is_sorted(module: Module, node: ast.AST) -> bool:
    """Whether the list is sorted, counted or made a set right away."""
    up = module.parents.get(node)
    return isinstance(up, ast.Call) and module.last_name(up.func) in (
        *("sorted", "len", "set", "sum", "max", "min", "any", "all", "frozenset"),
    )
