"""The standard library's ast, as far as a check needs it: its types and its parser are C.

To import ast itself takes a fourteenth of what a check of one script takes: it brings enum,
contextlib and what writes trees as text. The few functions that are wanted of it import it.
"""

from __future__ import annotations

import _ast
import sys

TYPE_CHECKING = False  # typing takes long to import
if TYPE_CHECKING:
    import ast as ast
    from collections.abc import Callable
    from typing import Any
else:
    ast = type(sys)("ast")
    vars(ast).update(vars(_ast))

LATER = ("dump", "iter_child_nodes", "unparse")


def parse(text: str) -> ast.Module:
    """The tree of a text, as ast.parse. Raises SyntaxError, ValueError or RecursionError."""
    tree: Any = compile(text, "<unknown>", "exec", _ast.PyCF_ONLY_AST)
    whole: ast.Module = tree
    return whole


def later(name: str) -> Callable[..., Any]:
    """A function of ast, which is imported when it is called."""

    def call(*args: object, **named: object) -> Any:
        import ast as whole

        return getattr(whole, name)(*args, **named)

    return call


# Not by a __getattr__ of the module: each look-up in one that has such takes longer.
vars(ast).update({name: later(name) for name in LATER}, parse=parse)
