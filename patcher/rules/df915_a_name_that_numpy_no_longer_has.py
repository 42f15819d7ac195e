"""A name that numpy no longer has.

What         np.float, np.int, np.object and np.str, other names of Python's own types, gone with
             numpy 1.24; np.Inf, np.NaN, np.float_, np.product and others, gone with numpy 2.
At run time  AttributeError where the line is reached, such as when an early stop begins to count.
Example      self.best_loss = np.Inf
Fix          The name that all versions of numpy have, or Python's type.
Fix safety   Safe: both names stand for the same thing, or the line could only raise.
Source       https://numpy.org/doc/stable/numpy_2_0_migration_guide.html
"""

import ast
from collections.abc import Iterator

from ..analysis.training.program import Program
from ..editing.edits import Rewrite
from ..findings import Finding, Safety, Severity
from ..source.module import Module

CODE, SEVERITY, SAFETY = "DF915", Severity.DEGRADED, Safety.SAFE

RENAMED = {
    "Inf": "inf",
    "Infinity": "inf",
    "infty": "inf",
    "PINF": "inf",
    "NaN": "nan",
    "float_": "float64",
    "complex_": "complex128",
    "unicode_": "str_",
    "string_": "bytes_",
    "product": "prod",
    "cumproduct": "cumprod",
    "sometrue": "any",
    "alltrue": "all",
}
OF_PYTHON = {"float", "int", "object", "str", "complex"}


def findings(program: Program) -> Iterator[Finding]:
    for module in program.modules:
        for node in module.attributes(*RENAMED, *OF_PYTHON):
            if module.dotted(node) in (f"numpy.{node.attr}", f"np.{node.attr}") and isinstance(
                node.ctx, ast.Load
            ):
                yield Finding(module, node, f"np.{node.attr} is gone", todays(module, node))


def todays(module: Module, node: ast.Attribute) -> tuple[Rewrite, ...]:
    """The edit that puts a name of today; none where the module calls something else so."""
    if node.attr in RENAMED:
        return (Rewrite(node, f"{module.text(node.value)}.{RENAMED[node.attr]}"),)
    is_taken = any(name == node.attr for _, name in module.stores) or any(
        function.name == node.attr for function in module.all_functions
    )
    return () if is_taken else (Rewrite(node, node.attr),)
