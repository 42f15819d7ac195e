"""What is told the number of an epoch: a sampler, or a data set that changes with it."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import Function
from ..language.objects import class_of
from .program import Program


def may_tell_sampler(program: Program, module: Module, node: ast.Attribute) -> bool:
    """Whether ``x.set_epoch`` may reach a sampler; not that of a data set which is made harder.

    As ``loader.dataset.set_epoch(epoch)``, and what has a ``__getitem__`` and names no sampler.
    """
    owner = node.value
    if isinstance(owner, ast.Attribute) and owner.attr == "dataset":
        return False
    found = class_of(program, module, owner)
    if found is None:
        return True
    where, made = found
    methods = {each.name: each for each in made.body if isinstance(each, Function)}
    told = methods.get(node.attr)
    return told is None or "__getitem__" not in methods or "sampler" in where.text(told).lower()
