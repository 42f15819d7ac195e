"""The iterator of a DataLoader is asked for a batch by a method that is gone.

What         iter(loader).next(), which iterators of torch's loaders had until torch 1.12.
At run time  AttributeError: '_SingleProcessDataLoaderIter' object has no attribute 'next', at the
             first batch.
Example      images, labels = dataiter.next()
Fix          next(dataiter), which every torch knows.
Fix safety   Safe: the method was another name for it.
Source       https://github.com/pytorch/pytorch/pull/80131
"""

import ast
from collections.abc import Iterator

from ..analysis.batches.batch_origins import bound_value
from ..analysis.training.loaders import trace_loader
from ..analysis.training.program import Program
from ..editing.edits import Rewrite
from ..findings import Finding, Safety, Severity
from ..source.module import Module

CODE, SEVERITY, SAFETY = "DF913", Severity.ERROR, Safety.SAFE


def findings(program: Program) -> Iterator[Finding]:
    for module in program.modules:
        for call in module.calls_to("next"):
            if not isinstance(call.func, ast.Attribute) or call.args or call.keywords:
                continue
            batches = call.func.value
            if is_iter_of_loader(program, module, batches):
                edit = Rewrite(call, f"next({module.text(batches)})")
                yield Finding(module, call, "iterators of loaders have no next()", (edit,))


def is_iter_of_loader(program: Program, module: Module, node: ast.expr) -> bool:
    """Whether a value is ``iter(loader)`` on every way to its use."""
    values: list[ast.expr | None] = [node]
    if isinstance(node, ast.Name):
        stores = module.stores.get((module.function(node), node.id), ())
        # Where nothing above binds it, a loop comes back to what does: try, and iter() in except.
        values = [*module.alternatives(node, node)] or [bound_value(module, s) for s in stores]
    if isinstance(node, ast.Attribute):
        values = [*module.attribute_values.get(node.attr, [])]
    return bool(values) and all(
        isinstance(value, ast.Call)
        and module.dotted(value.func) == "iter"
        and trace_loader(program, module, value) is not None
        for value in values
    )
