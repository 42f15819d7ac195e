"""Options without a parser: fields of a class that code of the script sets from ``sys.argv``."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ....recipes.script_flags import Option
from ...source.module import Module
from ...source.tree import Function, argument, everywhere, within


def argv_fields(module: Module) -> Iterator[Option]:
    """The fields of the classes whose objects get attributes from words ``--name=value``.

    Such a function reads ``sys.argv``, holds the text ``--``, makes an object of the class, and
    calls ``setattr`` on it with a name that is no constant.
    """
    classes = {owner.name: owner for owner in module.nodes(ast.ClassDef)}
    for call in module.calls_to("setattr"):
        function = module.function(call)
        target, name = argument(call, 0), argument(call, 1)
        if function is None or not _reads_words(module, function):
            continue
        if not isinstance(target, ast.Name) or not isinstance(name, ast.Name):
            continue
        made = module.single_assignment(function, target.id)
        owner = classes.get(module.last_name(made.func)) if isinstance(made, ast.Call) else None
        for field in owner.body if owner is not None else ():
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                default = field.value.value if isinstance(field.value, ast.Constant) else None
                dest = field.target.id
                yield Option(field, (f"--{dest}",), dest, default)


def _reads_words(module: Module, function: Function) -> bool:
    """Whether a function goes over the words of the command line that begin with two dashes."""
    return any(
        module.dotted(node) == "sys.argv" for node in within(function.body, ast.Attribute)
    ) and any(node.value == "--" for node in everywhere(function, ast.Constant))
