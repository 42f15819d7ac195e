"""Let a data set that draws its examples at random draw others on each rank."""

from __future__ import annotations

import ast

from ..analysis.training.constructed_loaders import Loader
from ..analysis.training.program import Program
from ..editing.edits import Define, Edit, Import, Rewrite
from .process_group import lone_process_test

DRAWN_APART = "DrawnApart"  # of helper_code.py


def draw_examples_apart(program: Program, loader: Loader) -> tuple[Edit, ...]:
    """Edits that wrap the data set of a dealt loader on ranks; none where it has no name.

    A sampler goes over the same object, which is not to be made twice.
    """
    module, data = loader.module, loader.dataset
    if not isinstance(data, ast.Name | ast.Attribute | ast.Subscript):
        return ()
    alone = lone_process_test(program, module, loader.call)
    dealt = Rewrite(data, f" if {alone} else {DRAWN_APART}({module.text(data)})", after=True)
    torch = (Import("torch"),) if "torch.distributed" in alone else ()
    return (dealt, Define(DRAWN_APART, module.statement(loader.call)), *torch)
