"""Which expressions are certainly strings, and which hold nothing else."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import argument, is_empty_list, parameters
from ..language.passed_arguments import default_value
from .possible_values import values_of
from .program import Program

MAX_DEPTH = 8
OF_STRINGS = {"lower", "upper", "strip", "lstrip", "rstrip", "replace", "join", "casefold"}
OF_STRINGS |= {"readline", "read", "decode", "title", "capitalize", "format"}
OF_OTHERS = {"copy.replace", "dataclasses.replace", "pickle.load"}
READS = {"readline", "read", "readlines"}  # bytes of a file that is opened so
PARTS = {"split", "rsplit", "splitlines", "readlines"}  # of a string or an open file
COLLECTIONS = {"set", "list", "sorted", "tuple", "frozenset", "reversed", "Counter"}
ADD_ONE = ("add", "append")
ADD_ALL = ("update", "extend")


def holds_words(program: Program, module: Module, node: ast.expr, depth: int = 0) -> bool:
    """Whether a loop over an expression certainly goes over strings."""
    if depth > MAX_DEPTH:
        return False
    if is_word(program, module, node, depth + 1):
        return True  # its letters
    match node:
        case ast.List() | ast.Tuple() | ast.Set():
            return bool(node.elts) and all(
                is_word(program, module, each, depth + 1) for each in node.elts
            )
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
            return is_word(program, module, node.elt, depth + 1)
        case ast.BinOp(op=ast.Add() | ast.BitOr()):
            return holds_words(program, module, node.left, depth + 1) and holds_words(
                program, module, node.right, depth + 1
            )
        case ast.BinOp(op=ast.BitAnd() | ast.Sub()):
            return holds_words(program, module, node.left, depth + 1)
        case ast.Subscript(slice=ast.Slice()):
            return holds_words(program, module, node.value, depth + 1)
        case ast.Call():
            return call_holds_words(program, module, node, depth)
        case ast.Name() | ast.Attribute():
            return name_holds_words(program, module, node, depth)
    return False


def call_holds_words(program: Program, module: Module, call: ast.Call, depth: int) -> bool:
    last = module.last_name(call.func)
    if isinstance(call.func, ast.Name) and last in COLLECTIONS and len(call.args) == 1:
        return holds_words(program, module, call.args[0], depth + 1)
    if isinstance(call.func, ast.Attribute) and last in PARTS and not is_of_series(call):
        if last in READS:
            return not opens_bytes(module)
        return not call.args or is_word(program, module, call.args[0], depth + 1)
    if module.dotted(call.func) in ("open", "io.open", "codecs.open"):
        return not reads_bytes(call)
    values = [*values_of(program, module, call)]
    return bool(values) and all(holds_words(program, *value, depth + 1) for value in values)


def name_holds_words(program: Program, module: Module, node: ast.expr, depth: int) -> bool:
    """A name whose values hold words, or that is filled with nothing else."""
    if isinstance(node, ast.Name) and may_be_passed_others(program, module, node):
        return False
    values = [*values_of(program, module, node)]
    filled = [value for value in values if not is_empty(value[1])]
    if not values or not all(holds_words(program, *value, depth + 1) for value in filled):
        return False
    text = module.text(node)
    added = [
        (call.func.attr, call.args)
        for call in module.calls_to(*ADD_ONE, *ADD_ALL)
        if isinstance(call.func, ast.Attribute) and module.text(call.func.value) == text
    ]
    joined = [
        each.value for each in module.nodes(ast.AugAssign) if module.text(each.target) == text
    ]
    return (
        bool(filled or added or joined)
        and all(
            (is_word if how in ADD_ONE else holds_words)(program, module, value, depth + 1)
            for how, values in added
            for value in values
        )
        and all(holds_words(program, module, value, depth + 1) for value in joined)
    )


def is_empty(value: ast.expr) -> bool:
    return is_empty_list(value) or (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Name)
        and value.func.id in COLLECTIONS
        and not value.args
    )


def is_word(program: Program, module: Module, node: ast.expr, depth: int = 0) -> bool:
    """Whether an expression is certainly a string."""
    if depth > MAX_DEPTH:
        return False
    match node:
        case ast.Constant():
            return isinstance(node.value, str)
        case ast.JoinedStr():
            return True
        case ast.Call(func=ast.Name(id="str")):
            return True
        case ast.Call(func=ast.Attribute(attr=name)) if name in OF_STRINGS:
            known = module.dotted(node.func) not in OF_OTHERS and not is_of_series(node)
            return known and not (name in READS and opens_bytes(module))
        case ast.BinOp(op=ast.Add()):
            return is_word(program, module, node.left, depth + 1) or is_word(
                program, module, node.right, depth + 1
            )
        case ast.Subscript() if not isinstance(node.slice, ast.Slice):
            return holds_words(program, module, node.value, depth + 1)
        case ast.Name():
            return is_name_of_word(program, module, node, depth)
    return False


def is_name_of_word(program: Program, module: Module, name: ast.Name, depth: int) -> bool:
    """A name that is bound to words alone, by assignments, loops or calls."""
    for up in module.ancestors(name):
        for part in getattr(up, "generators", ()):
            if isinstance(part.target, ast.Name) and part.target.id == name.id:
                return holds_words(program, module, part.iter, depth + 1)
    function = module.function(name)
    stores = module.stores.get((function, name.id), [])
    if function is not None and name.id in parameters(function):
        passed = [*values_of(program, module, name)]
        return (
            bool(passed)
            and not stores
            and not may_be_passed_others(program, module, name)
            and all(is_word(program, *value, depth + 1) for value in passed)
        )
    stores = [each for each in stores if not isinstance(module.parents[each], ast.comprehension)]
    return bool(stores) and all(is_bound_to_word(program, module, each, depth) for each in stores)


def may_be_passed_others(program: Program, module: Module, name: ast.Name) -> bool:
    """Whether a parameter may be more than what the known calls pass for it."""
    function = module.function(name)
    if function is None or name.id not in parameters(function):
        return False
    return bool(program.possible_callers(function)) or default_value(function, name.id) is not None


def is_bound_to_word(program: Program, module: Module, store: ast.Name, depth: int) -> bool:
    holder = module.parents[store]
    if isinstance(holder, ast.For):
        return holds_words(program, module, holder.iter, depth + 1)
    if isinstance(holder, ast.Tuple | ast.List):
        above = module.parents[holder]
        return isinstance(above, ast.Assign) and holds_words(
            program, module, above.value, depth + 1
        )
    return isinstance(holder, ast.Assign) and is_word(program, module, holder.value, depth + 1)


def is_of_series(call: ast.Call) -> bool:
    """Whether a method is of all strings of a table's column: ``frame.word.str.lower()``."""
    return (
        isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Attribute)
        and call.func.value.attr == "str"
    )


def opens_bytes(module: Module) -> bool:
    """Whether a file may be read as bytes."""
    return any(map(reads_bytes, module.calls_to("open")))


def reads_bytes(call: ast.Call) -> bool:
    """``open(path, "rb")``."""
    mode = argument(call, 1, "mode")
    return isinstance(mode, ast.Constant) and {"r", "b"} <= {*str(mode.value)}
