"""Steps that set a rate of their optimizer by what each rank sees of its batch."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.tree import within
from ..language.name_flow import names_in, spread
from ..training.program import Program
from ..training.train_loops import TrainLoop
from .batch_sizes import is_size
from .batch_taint import NotDealtError
from .steps_apart import names_of_batch, tainted_functions

RATES = ("lr", "momentum", "weight_decay")


def refuse_rates_by_batch(program: Program, loop: TrainLoop, names: set[str] | None = None) -> None:
    """Raise where ranks would step by rates of their own: ``group["lr"] = f(loss.item())``."""
    of_batch = names_of_batch(loop) if names is None else names
    for line in rates_by_batch(program, loop, of_batch):
        raise NotDealtError(
            f"line {line} sets a rate by the batch of one rank: set it by the mean over all ranks"
        )


def rates_by_batch(program: Program, loop: TrainLoop, of_batch: set[str]) -> Iterator[int]:
    """The lines that do, in a loop and in the functions that a step runs."""
    if not any(module.spells("param_groups") for module in program.modules):
        return
    blocks = [(loop.steps.body, made_of(loop.steps.body, of_batch))]
    blocks += [
        (function.body, names)
        for function, names in tainted_functions(program, loop, of_batch).items()
    ]
    for body, names in blocks:
        for stmt in within(body, ast.Assign):
            for target in stmt.targets:
                match target:
                    case ast.Subscript(slice=ast.Constant(value=key)) if key in RATES:
                        if names_in(stmt.value) & names:
                            yield stmt.lineno


def made_of(body: list[ast.stmt], of_batch: set[str]) -> frozenset[str]:
    """The names that hang on a batch behind a step, but for what only counts its examples."""
    counts = [place for place, stmt in enumerate(body) if counts_examples(stmt, of_batch)]
    starts, ends = (0, *(place + 1 for place in counts)), (*counts, len(body))
    parts = [body[start:end] for start, end in zip(starts, ends, strict=True) if start < end]
    names = frozenset(of_batch)
    for part in (*parts, *parts):  # of the last step, too
        names |= spread(part, names).names
    return names


def counts_examples(stmt: ast.stmt, of_batch: set[str]) -> bool:
    """``model.seen += x.size(0)``, which makes nothing else of the model one of the batch's."""
    return (
        isinstance(stmt, ast.AugAssign)
        and isinstance(stmt.target, ast.Attribute)
        and is_size(stmt.value, of_batch)
    )
