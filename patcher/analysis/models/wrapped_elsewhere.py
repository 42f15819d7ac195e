"""Wrapped models that stay in an object whose class has nothing to do with a training loop."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import everywhere, within
from ..language.objects import classes_above, is_self
from ..training.program import Program
from ..training.train_loops import TrainLoop


def stays_in_another_class(
    program: Program, module: Module, wrap: ast.Call, loop: TrainLoop
) -> bool:
    """Whether ``self.model = DistributedDataParallel(…)`` is of another class than a loop's method.

    Neither inherits from the other, and the loop calls a model that its own class binds: one of the
    same name, or one that it wraps in DataParallel. A model may come as an argument otherwise.
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
    if not all(is_own(loop.module, node) for node in uses):
        return False
    return any(
        isinstance(call.func, ast.Attribute)
        and is_own(loop.module, call.func)
        and binds_model(loop.module, own, call.func.attr, names)
        for call in within(loop.steps.body, ast.Call)
    )


def binds_model(module: Module, owner: ast.ClassDef, attr: str, names: set[str]) -> bool:
    """Whether a class assigns an attribute that has one of the names, or DataParallel there."""
    return any(
        isinstance(target, ast.Attribute)
        and target.attr == attr
        and is_own(module, target)
        and (
            attr in names
            or (
                isinstance(stmt.value, ast.Call)
                and module.last_name(stmt.value.func) == "DataParallel"
            )
        )
        for stmt in everywhere(owner, ast.Assign)
        for target in stmt.targets
    )


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
