"""Functions that compute a value of what they are passed, and do nothing else."""

from __future__ import annotations

import ast
import re

from ..analysis.batches.random_draws import is_draw
from ..analysis.training.program import Program
from ..source.module import Module
from ..source.tree import Function, parameters

MAX_DEPTH = 3
LIBRARIES = ("torch", "numpy", "math", "torch.nn.functional", "PIL.Image")
NO_VALUES = re.compile("_$|^set_|^save|^load|seed|dropout|^use_|^tofile$|^from_file$")
"""Functions of these that do something, or draw."""
BUILTINS = {
    *("len", "range", "int", "float", "str", "bool", "list", "tuple", "dict", "set", "zip"),
    *("enumerate", "min", "max", "abs", "round", "sum", "sorted", "isinstance", "format"),
}
# Methods of tensors, arrays and texts that leave them alone.
METHODS = {
    *("clamp", "clip", "view", "reshape", "permute", "transpose", "contiguous", "t", "flatten"),
    *("size", "dim", "numel", "squeeze", "unsqueeze", "expand", "repeat", "clone", "copy"),
    *("float", "double", "half", "long", "int", "byte", "to", "type", "type_as", "astype"),
    *("cpu", "cuda", "numpy", "detach", "item", "tolist", "min", "max", "argmax"),
    *("mean", "sum", "std", "var", "add", "sub", "mul", "div", "pow", "exp", "log", "sqrt"),
    *("abs", "sigmoid", "softmax", "format", "join", "split", "strip", "lower", "upper"),
}
BINDING = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Import, ast.ImportFrom)
STATEMENTS = (*BINDING, ast.Return, ast.Expr, ast.If, ast.For)
"""What such a function is made of; it binds plain names alone."""


def only_computes(program: Program, module: Module, call: ast.Call, depth: int = 0) -> bool:
    """Whether a call of the program's functions surely does nothing but compute its result.

    It changes nothing that it is passed, draws nothing and calls nothing that may be a model.
    """
    callees = program.callees(module, call)
    return (
        bool(callees)
        and depth < MAX_DEPTH
        and not program.possible_callees(module, call)
        and all(_is_plain(program, *each, depth) for each in callees)
    )


def _is_plain(program: Program, module: Module, function: Function, depth: int) -> bool:
    if not isinstance(function, ast.FunctionDef) or function.decorator_list:
        return False
    passed = parameters(function)
    inside = [node for stmt in function.body for node in ast.walk(stmt)]
    return not any(_changes_something(node, passed) for node in inside) and all(
        _leaves_alone(program, module, node, passed, depth)
        for node in inside
        if isinstance(node, ast.Call)
    )


def _changes_something(node: ast.AST, passed: set[str]) -> bool:
    """Whether a node may change what its function is passed, or run code at another time."""
    match node:
        case ast.Attribute(ctx=context) | ast.Subscript(ctx=context):
            return not isinstance(context, ast.Load)
        case ast.AugAssign(target=ast.Name(id=name)):
            return name in passed  # x *= 2 changes the caller's tensor
        case ast.stmt():
            return not isinstance(node, STATEMENTS)
    return isinstance(node, (ast.Lambda, ast.Yield, ast.YieldFrom, ast.Await))


def _leaves_alone(
    program: Program, module: Module, call: ast.Call, passed: set[str], depth: int
) -> bool:
    func = call.func
    if is_draw(program, module, call) or any(word.arg == "out" for word in call.keywords):
        return False
    if isinstance(func, ast.Name) and func.id not in passed and func.id in BUILTINS:
        return True
    library, _, last = module.dotted(func).rpartition(".")
    if library in LIBRARIES:
        return last.islower() and NO_VALUES.search(last) is None
    if isinstance(func, ast.Attribute) and func.attr in METHODS:
        return True
    return only_computes(program, module, call, depth + 1)
