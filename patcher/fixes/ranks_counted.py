"""The number of ranks as the text of an edit, also where the group is yet to be made."""

from __future__ import annotations

import ast

from ..analysis.ranks.before_group import runs_before_group
from ..analysis.training.program import Program
from ..editing.edits import Import
from ..source.module import Module
from .process_group import NUMBER_OF_RANKS

OF_LAUNCHER = "int(os.environ.get('WORLD_SIZE', 1))"


def number_of_ranks(program: Program, module: Module, node: ast.AST) -> tuple[str, Import]:
    """The text of the number of ranks at a place, and the import that it needs."""
    if runs_before_group(program, module, node):
        return OF_LAUNCHER, Import("os")
    return NUMBER_OF_RANKS, Import("torch")
