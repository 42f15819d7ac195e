"""Wrapped models that stay in an object whose class has nothing to do with a training loop."""

from __future__ import annotations

import ast

from ..source.module import Module
from ..source.tree import everywhere
from .objects import classes_above, is_self
from .program import Program
from .train_loops import TrainLoop


def stays_in_another_class(
    program: Program, module: Module, wrap: ast.Call, loop: TrainLoop
) -> bool:
    """Whether ``self.model = DistributedDataParallel(…)`` is of another class than a loop's method.

    Neither inherits from the other, and what the loop's class reads of that name is its own.
    """
    owner, own = class_of_method(module, wrap), class_of_method(loop.module, loop.steps)
    stmt = module.statement(wrap)
    if owner is None or own is None or not isinstance(stmt, ast.Assign):
        return False
    above = [each for _, each in classes_above(program, (loop.module, own))]
    below = [each for _, each in classes_above(program, (module, owner))]
    if owner in (own, *above) or own in below:
        return False
    names = set()
    for target in stmt.targets:
        if not (isinstance(target, ast.Attribute) and is_own(module, target)):
            return False
        names.add(target.attr)
    uses = [node for node in everywhere(own, ast.Attribute) if node.attr in names]
    bound = {node.attr for node in uses if isinstance(node.ctx, ast.Store)}
    return all(is_own(loop.module, node) and node.attr in bound for node in uses)


def class_of_method(module: Module, node: ast.AST) -> ast.ClassDef | None:
    """The class in whose method a node stands."""
    function = module.function(node)
    owner = None if function is None else module.parents.get(function)
    return owner if isinstance(owner, ast.ClassDef) else None


def is_own(module: Module, node: ast.Attribute) -> bool:
    """Whether an attribute is of the method's own object: ``self.model``."""
    function = module.function(node)
    return (
        function is not None
        and isinstance(node.value, ast.Name)
        and is_self(function, node.value.id)
    )
