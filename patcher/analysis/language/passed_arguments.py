"""What a call passes for a parameter, and what the parameter is where it passes nothing."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import Function, argument


def argument_for_parameter(
    module: Module, function: Function, call: ast.Call, name: str
) -> ast.expr | None:
    """The argument that ``call`` passes for the parameter ``name`` of ``function``."""
    names = [arg.arg for arg in (*function.args.posonlyargs, *function.args.args)]
    if is_bound(module, function):
        names = names[1:]  # self
    index = names.index(name) if name in names else len(call.args)
    return argument(call, index, name)


def is_bound(module: Module, function: Function) -> bool:
    """Whether a function is a method whose first parameter is the object or class."""
    return isinstance(module.parents.get(function), ast.ClassDef) and not any(
        module.last_name(each) == "staticmethod" for each in function.decorator_list
    )


def default_value(function: Function, name: str) -> ast.expr | None:
    """The default value of a parameter."""
    named = [*function.args.posonlyargs, *function.args.args]
    defaults = function.args.defaults
    for arg, value in zip(named[len(named) - len(defaults) :], defaults, strict=True):
        if arg.arg == name:
            return value
    for arg, kw_default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        if arg.arg == name:
            return kw_default
    return None
