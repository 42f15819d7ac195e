"""What a call passes for a parameter, and what the parameter is where it passes nothing."""

from __future__ import annotations

import ast
from typing import TypeGuard

from ...source.module import Module
from ...source.tree import Function, argument


def argument_for_parameter(
    module: Module, function: Function, call: ast.Call, name: str
) -> ast.expr | None:
    """The argument that ``call`` passes for the parameter ``name`` of ``function``."""
    names = [arg.arg for arg in (*function.args.posonlyargs, *function.args.args)]
    if is_bound(module, function):
        names = names[1:]  # self
    made = partial_of(module, call)
    if made is not None:
        bound = argument(made, names.index(name) + 1 if name in names else len(made.args), name)
        if bound is not None:
            return keyword_value(call, name) or bound
        names = names[len(made.args) - 1 :]
    index = names.index(name) if name in names else len(call.args)
    return argument(call, index, name)


def keyword_value(call: ast.Call, name: str) -> ast.expr | None:
    """What a call passes by a keyword."""
    return next((word.value for word in call.keywords if word.arg == name), None)


def keyword_of(module: Module, node: ast.expr) -> tuple[Function, str] | None:
    """The function of ``kwargs["loader"]``, which has ``**kwargs``, and the keyword."""
    match node:
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str(key))):
            function = module.function(node)
            others = None if function is None else function.args.kwarg
            if function is not None and others is not None and others.arg == name:
                return function, key
    return None


def partial_of(module: Module, call: ast.Call) -> ast.Call | None:
    """What made the function that is called, ``step = partial(train_step, model)``.

    ``module`` is any of the program's.
    """
    if module.graph is None or not isinstance(call.func, ast.Name):
        return None
    where = module.graph.module_of(call)
    if not where.spells("partial"):
        return None
    made = where.definition(call.func, call.func)
    return made if made is not None and is_partial(made, where) else None


def is_partial(value: ast.expr, module: Module) -> TypeGuard[ast.Call]:
    """``functools.partial(function, …)``."""
    return (
        isinstance(value, ast.Call)
        and bool(value.args)
        and module.dotted(value.func) == "functools.partial"
    )


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
