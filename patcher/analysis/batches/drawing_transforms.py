"""Transforms that draw for each example: random crops and flips, also of an evaluation's data."""

from __future__ import annotations

import ast
import re

from ...source.module import Module
from ...source.tree import argument_values
from ..training.evaluations import Evaluation
from ..training.only_values import origin
from ..training.program import Program

DRAWING = re.compile(r"^(Random(?!.*Sampler)|ColorJitter$|(Auto|Rand)Augment$|TrivialAugment)")
MAX_PARTS = 60


def drawn_by_transforms(program: Program, evaluation: Evaluation) -> tuple[Module, ast.Call] | None:
    """A random transform that the data of an evaluation are made with.

    ``Compose([RandomCrop(32), ToTensor()])``, passed to what the loader's data set is made by.
    """
    loader = evaluation.loader
    if loader.dataset is None:
        return None
    pending = [origin(program, loader.module, loader.dataset)]
    for module, node in pending:  # grows
        if len(pending) > MAX_PARTS:
            return None
        parts: list[ast.expr] = []
        match node:
            case ast.Call():
                if DRAWING.search(module.last_name(node.func)):
                    return module, node
                parts = argument_values(node)
            case ast.List() | ast.Tuple():
                parts = node.elts
        pending += [origin(program, module, part) for part in parts]
    return None
