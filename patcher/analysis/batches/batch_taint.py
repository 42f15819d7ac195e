"""What of a training step hangs on its batch, which differs between ranks that take turns."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator

from ...source.module import Module
from ...source.tree import below, everywhere, mentions, within
from ..language.name_flow import Tainted, names_in
from ..training.program import Program
from ..training.train_loops import TrainLoop

ARITHMETIC = ("min", "max", "int", "len", "float", "round", "abs", "slice")
# Methods that all ranks have to come to, or that may lead there.
TOGETHER = {
    *("step", "backward", "zero_grad", "save", "load_state_dict", "eval", "train", "evaluate"),
    *("fit", "save_pretrained", "test", "validate", "barrier"),
}
# Errors that end a training; of the first two DF509 sees to what catches them.
FAILURES = (
    *("Exception", "RuntimeError", "ValueError", "AssertionError", "ArithmeticError"),
    *("FloatingPointError", "OverflowError"),
)


class NotDealtError(Exception):
    """Ranks cannot share a loop's batches; the text says why."""


class UnknownOriginError(NotDealtError):
    """Where the batches come from is not read, so that they may be dealt there."""


def is_arithmetic(node: ast.expr) -> bool:
    """Whether a value is computed by operators and min, max and the like alone."""
    known = (
        *(ast.Name, ast.Attribute, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Compare, ast.IfExp),
        *(ast.Tuple, ast.operator, ast.unaryop, ast.cmpop, ast.expr_context),
    )
    return all(
        isinstance(part, known)
        or (
            isinstance(part, ast.Call)
            and (
                (isinstance(part.func, ast.Name) and part.func.id in ARITHMETIC)
                or (isinstance(part.func, ast.Attribute) and part.func.attr == "size")
            )
        )
        or (isinstance(part, ast.Subscript) and isinstance(part.slice, ast.Constant))
        for part in below(node)
    )


def refuse_turns_that_part(program: Program, loop: TrainLoop, taint: Tainted) -> None:
    """Raise where ranks may do different things together, as a test of the batch decides."""
    module, body = loop.module, loop.steps.body
    for attempt in within(body, ast.Try):
        raise NotDealtError(f"line {attempt.lineno} may skip a step on one rank alone")
    tests: list[ast.If | ast.While] = [*within(body, ast.If), *within(body, ast.While)]
    for test in tests:
        if not names_in(test.test) & taint.names:
            continue
        stmt = next(apart(program, module, loop.steps, [*test.body, *test.orelse]), None)
        if stmt is not None:
            raise NotDealtError(
                f"ranks that take turns would not all come to line {stmt.lineno}, which hangs"
                f" on the test in line {test.lineno}"
            )


def concerns_all(program: Program, module: Module, call: ast.Call) -> bool:
    """Whether a call may be one that all ranks have to make: of the program's code, or a step."""
    if program.callees(module, call) or program.possible_callees(module, call):
        return True
    return is_made_together(module, call)


def is_made_together(module: Module, call: ast.Call) -> bool:
    """Whether a call that is none of the program's functions may be one of all ranks."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr in TOGETHER
    name = module.last_name(call.func)
    return name not in module.aliases and not hasattr(builtins, name)


Concerns = Callable[[Program, Module, ast.Call], bool]


def apart(
    program: Program,
    module: Module,
    steps: ast.stmt,
    body: list[ast.stmt],
    concerns: Concerns = concerns_all,
) -> Iterator[ast.stmt]:
    """The statements that all ranks have to run, or none: those with calls that concern all."""
    for stmt in body:
        match stmt:
            case ast.If() | ast.While() | ast.For() | ast.With():
                yield from apart(program, module, steps, stmt.body, concerns)
                yield from apart(program, module, steps, getattr(stmt, "orelse", []), concerns)
            case ast.Break() | ast.Continue():
                around = next(
                    up for up in module.ancestors(stmt) if isinstance(up, ast.For | ast.While)
                )
                if around is steps or around in module.ancestors(steps):
                    yield stmt
            case ast.Pass():
                pass
            case ast.Raise() if ends_the_job(module, stmt):
                pass
            case ast.Assign() | ast.AugAssign() | ast.AnnAssign() | ast.Expr():
                if any(concerns(program, module, call) for call in everywhere(stmt, ast.Call)):
                    yield stmt
            case _:
                yield stmt


def ends_the_job(module: Module, stmt: ast.Raise) -> bool:
    """Whether a rank that raises an error ends, and the launcher all others with it.

    Nothing in the module takes it up, but what catches all errors of a training (DF509).
    """
    kind = stmt.exc.func if isinstance(stmt.exc, ast.Call) else stmt.exc
    if not isinstance(kind, ast.Name) or kind.id not in FAILURES:
        return False
    return kind.id in FAILURES[:2] or not any(
        mentions(handler.type, kind.id)
        for handler in module.nodes(ast.ExceptHandler)
        if handler.type is not None
    )
