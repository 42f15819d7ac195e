"""By what a loss is multiplied or divided: the examples of a batch, or a number of the script's."""

from __future__ import annotations

import ast

from ...source.tree import ancestors, everywhere, same_code
from ..settings.flag_roles import options_in
from ..training.program import Program


def counts_examples(node: ast.expr) -> bool:
    """``len(x)``, ``x.size(0)`` and ``x.shape[0]``, of what has a name."""
    match node:
        case ast.Call(func=ast.Name(id="len"), args=[ast.Name()]):
            return True
        case ast.Call(
            func=ast.Attribute(value=ast.Name(), attr="size"), args=[ast.Constant(value=0)]
        ):
            return True
        case ast.Subscript(
            value=ast.Attribute(value=ast.Name(), attr="shape"), slice=ast.Constant(value=0)
        ):
            return True
        case ast.Call(func=ast.Name(id="float" | "int"), args=[inner]):
            return counts_examples(inner)
    return False


def is_batch_size(program: Program, node: ast.expr) -> bool:
    """Whether a number is an option that says how many examples are in a batch of the training."""
    asked = {each.attr for each in everywhere(node, ast.Attribute)} & set(program.options)
    loaders = [loop.loader for loop in program.train_loops if loop.loader is not None]
    return any(
        asked.intersection(options_in(program, loader.module, loader.batch_size))
        for loader in loaders
        if asked and loader.batch_size is not None
    )


def is_factor(program: Program, node: ast.expr) -> bool:
    """Whether a value is a number of the script's: a constant, an option, a sum of them.

    Or how many examples there are in all. Not the size of a batch, which makes a mean of a sum.
    """
    return is_length_of_data(program, node) or (
        not is_batch_size(program, node)
        and not any(everywhere(node, ast.Call))
        and all(
            name.id in program.argument_names or is_of_settings(program, name)
            for name in everywhere(node, ast.Name)
        )
    )


def is_of_settings(program: Program, owner: ast.Name) -> bool:
    """``self`` of ``self.args.weight``, where there is such an option."""
    holder = ancestors(owner)[0]
    option = ancestors(holder)[0] if isinstance(holder, ast.Attribute) else None
    return (
        isinstance(holder, ast.Attribute)
        and holder.attr in program.argument_names
        and isinstance(option, ast.Attribute)
        and option.attr in program.options
    )


def is_length_of_data(program: Program, node: ast.expr) -> bool:
    """``len(train_set)`` and ``len(loader.dataset)`` of a loader that the program trains with."""
    match node:
        case ast.Call(func=ast.Name(id="len"), args=[ast.Name() | ast.Attribute() as counted]):
            loaders = [loop.loader for loop in program.train_loops if loop.loader is not None]
            if isinstance(counted, ast.Attribute) and counted.attr == "dataset":
                owner = counted.value
                return any(
                    isinstance(owner, ast.Name) and owner.id == each.name for each in loaders
                )
            return any(
                each.dataset is not None and same_code(counted, each.dataset) for each in loaders
            )
    return False
