"""Edits that count the batches of all ranks, where an evaluation counts those of its loader.

``total / len(loader)`` divides what all ranks have added up by the batches of one rank's share.
"""

from __future__ import annotations

import ast

from ...record import record
from ..analysis.training.accumulators import is_shown
from ..analysis.training.evaluations import Evaluation, stands_above
from ..editing.edits import Edit, Rewrite
from ..source.module import Module
from ..source.tree import below, everywhere, names_within

NAME = "eval_batches"


@record
class CountedBatches:
    """Lines to stand behind the loop, edits of what is there, and reads that are right then."""

    lines: tuple[str, ...]
    edits: tuple[Edit, ...]
    reads: frozenset[ast.expr]


def counted_batches(evaluation: Evaluation) -> CountedBatches:
    """How an evaluation counts the batches of all ranks instead of one's."""
    module, loop = evaluation.module, evaluation.loop
    lines: list[str] = []
    edits: list[Edit] = []
    reads: set[ast.expr] = set()
    for call in module.calls_to("len"):
        loader = loader_counted(evaluation, call)
        if loader is None:
            continue
        stmt = module.statement(call)
        if stands_above(module, loop, call):
            count = f"{NAME} = gathered(len({module.text(loader)}))"
            if not module.occurrences(NAME) or count in lines:
                lines += [] if count in lines else [count]
                edits.append(Rewrite(call, NAME))
                reads.add(loader)
        elif is_shown(module, call):  # progress
            reads.add(loader)
        elif isinstance(stmt, ast.Assign) and stmt in evaluation.before and stmt.value is call:
            name = stmt.targets[0]
            if isinstance(name, ast.Name) and is_read_behind(module, loop, name):
                lines.append(f"{name.id} = gathered({name.id})")
                reads.add(loader)
    return CountedBatches(tuple(lines), tuple(edits), frozenset(reads))


def loader_counted(evaluation: Evaluation, call: ast.Call) -> ast.expr | None:
    """The loader in ``len(loader)`` of an evaluation, in its function."""
    module, loop = evaluation.module, evaluation.loop
    if len(call.args) != 1 or module.function(call) is not module.function(loop):
        return None
    texts = {
        module.text(node) for node in below(loop.iter) if isinstance(node, ast.Name | ast.Attribute)
    }
    for name in everywhere(loop.iter, ast.Name):
        value = module.definition(name, name)  # bar = tqdm(loader)
        texts |= set() if value is None else {module.text(n) for n in everywhere(value, ast.Name)}
    loaders = {text for text in texts if text == evaluation.loader.name or text[:5] == "self."}
    return call.args[0] if module.text(call.args[0]) in loaders else None


def is_read_behind(module: Module, loop: ast.For, name: ast.Name) -> bool:
    """Whether a name is bound once, and read behind the loop or for messages alone."""
    uses = names_within(module.scope_statements(loop), {name.id})
    return all(
        use is name
        or (
            isinstance(use.ctx, ast.Load)
            and (is_shown(module, use) or stands_above(module, loop, use))
        )
        for use in uses
    )
