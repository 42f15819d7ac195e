"""Statements as edits take them: with the test that guards nothing else, or as dedented text."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from textwrap import dedent

from ..editing.edits import Define, Edit, Rewrite
from ..source.module import Module
from ..source.tree import mentions, position


def with_gate(module: Module, stmt: ast.stmt) -> ast.stmt:
    """The ``if`` that holds nothing but ``stmt``, or ``stmt`` itself; its ``pass`` is nothing."""
    gate = module.parents[stmt]
    if isinstance(gate, ast.If):
        blocks = [*filter(None, map(without_pass, (gate.body, gate.orelse)))]
        if blocks == [[stmt]]:
            return gate
    return stmt


def is_text(stmt: ast.stmt) -> bool:
    """Whether a statement is a docstring."""
    return isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant)


def without_pass(block: list[ast.stmt]) -> list[ast.stmt]:
    """The statements of a block that do something."""
    return [stmt for stmt in block if not isinstance(stmt, ast.Pass)]


def main_guard(module: Module) -> ast.If | None:
    """The first ``if __name__ == "__main__":`` at module level."""
    for stmt in module.tree.body:
        if isinstance(stmt, ast.If) and mentions(stmt.test, "__name__"):
            return stmt
    return None


def dedented_lines(module: Module, first: int, last: int) -> str:
    """The source lines from ``first`` to ``last``, at the left margin."""
    return dedent("".join(module.line(number) for number in range(first, last + 1)))


def arguments_in_order(call: ast.Call) -> list[ast.expr | ast.keyword]:
    """The arguments of a call, in source order."""
    arguments: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    return sorted(arguments, key=position)


def without_arguments(
    words: list[ast.expr | ast.keyword], dropped: Sequence[int]
) -> Iterator[Rewrite]:
    """Edits that take some of the arguments of a call out, by their places in source order."""
    for first in [index for index in dropped if index - 1 not in dropped]:
        behind = next((i for i in range(first, len(words)) if i not in dropped), None)
        if behind is not None:
            yield Rewrite(words[first], "", words[behind], before=True)
        elif first:
            yield Rewrite(words[first - 1], "", words[-1], after=True)


def save_on_main(module: Module, call: ast.Call) -> tuple[Edit, ...]:
    """Edits that turn ``torch.save(obj, path)`` into a save by rank 0; none for other calls."""
    if len(call.args) > 2 or any(isinstance(value, ast.Starred) for value in call.args):
        return ()
    edits: list[Edit] = [Rewrite(call.func, "save_on_main"), Define("save_on_main")]
    for word in call.keywords:
        if word.arg is None:
            return ()
        if word.arg == "f":
            edits.append(Rewrite(word, f"path={module.text(word.value)}"))
    return tuple(edits)


def lines_of(module: Module, first: ast.stmt, last: ast.stmt) -> str:
    """The lines from one statement to another, without others that share the first or the last."""
    end = last.end_lineno or last.lineno, last.end_col_offset or 0
    rest = module.text_between(end, (end[0] + 1, 0))
    text = module.text_between((first.lineno, first.col_offset), end)
    return module.margin(first) + text + ("\n" if rest.lstrip().startswith(";") else rest)
