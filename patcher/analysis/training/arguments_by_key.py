"""Loaders that a function makes for each key of a dictionary, told apart by a parameter of it."""

from __future__ import annotations

import ast

from ...source.tree import parameters
from ..language.passed_arguments import argument_for_parameter
from .constructed_loaders import Loader


def condition_in_factory(loader: Loader, item: ast.expr, only_for: str) -> str:
    """The condition of a dictionary's item in the function that makes it; or empty.

    ``{x: make(x) for x in ("train", "val")}`` gives ``split == 'train'`` of ``def make(split):``.
    """
    variable, _, key = only_for.partition(" == ")
    module = loader.module
    function = module.function(loader.call)
    call = loader.factory_call
    if function is None or call is not item or loader.others:
        return ""
    for name in parameters(function):
        passed = argument_for_parameter(module, function, call, name)
        is_key = isinstance(passed, ast.Name) and passed.id == variable
        if is_key and (function, name) not in module.stores:
            return f"{name} == {key}"
    return ""
