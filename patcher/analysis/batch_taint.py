"""What of a training step hangs on its batch, which differs between ranks that take turns."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable, Iterator

from ...record import record
from ..source.module import Module
from ..source.tree import below, everywhere, within
from .program import Program
from .train_loops import TrainLoop

ARITHMETIC = ("min", "max", "int", "len", "float", "round", "abs", "slice")
FILLING = ("append", "extend", "add", "update", "insert", "copy_")
# Methods that all ranks have to come to, or that may lead there.
TOGETHER = {
    *("step", "backward", "zero_grad", "save", "load_state_dict", "eval", "train", "evaluate"),
    *("fit", "save_pretrained", "test", "validate", "barrier"),
}


class NotDealtError(Exception):
    """Ranks cannot share a loop's batches; the text says why."""


@record
class Tainted:
    """Names whose value hangs on the batch."""

    names: frozenset[str]


def names_in(node: ast.AST) -> set[str]:
    """The names in code; ``self.x`` is one, and ``self`` alone is none."""
    found = set()
    for part in below(node):
        if isinstance(part, ast.Name) and part.id != "self":
            found.add(part.id)
        elif (
            isinstance(part, ast.Attribute)
            and isinstance(part.value, ast.Name)
            and part.value.id == "self"
        ):
            found.add(f"self.{part.attr}")
    return found


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


def spread(module: Module, body: list[ast.stmt], names: Iterable[str]) -> Tainted:
    """The names, and all that get something of them in a block, also by the way through tests."""
    known = set(names)
    while True:
        before = len(known)
        for targets, value in flows(body):
            if names_in(value) & known:
                for target in targets:
                    known |= roots(target)
        for test in within(body, ast.If):
            if names_in(test.test) & known:
                for stmt in (*test.body, *test.orelse):
                    for targets, _ in flows([stmt]):
                        known |= set().union(*map(roots, targets))
        if len(known) == before:
            return Tainted(frozenset(known))


def flows(body: list[ast.stmt]) -> Iterator[tuple[list[ast.expr], ast.expr]]:
    """What is bound or filled in a block, and the value that it gets."""
    for assign in within(body, ast.Assign):
        yield assign.targets, assign.value
    for add in within(body, ast.AugAssign):
        yield [add.target], add.value
    for annotated in within(body, ast.AnnAssign):
        if annotated.value is not None:
            yield [annotated.target], annotated.value
    for walrus in within(body, ast.NamedExpr):
        yield [walrus.target], walrus.value
    for loop in within(body, ast.For):
        yield [loop.target], loop.iter
    for block in within(body, ast.With):
        for item in block.items:
            if item.optional_vars is not None:
                yield [item.optional_vars], item.context_expr
    for call in within(body, ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr in FILLING:
            for value in call.args:
                yield [call.func.value], value


def roots(target: ast.expr) -> set[str]:
    """The names that an assignment to a target changes."""
    if isinstance(target, ast.Tuple | ast.List):
        return set().union(*map(roots, target.elts))
    if isinstance(target, ast.Starred):
        return roots(target.value)
    while isinstance(target, ast.Subscript | ast.Attribute):
        owner = target.value
        if isinstance(target, ast.Attribute) and isinstance(owner, ast.Name) and owner.id == "self":
            return {f"self.{target.attr}"}
        target = owner
    return {target.id} if isinstance(target, ast.Name) else set()


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
            case ast.Assign() | ast.AugAssign() | ast.AnnAssign() | ast.Expr():
                if any(concerns(program, module, call) for call in everywhere(stmt, ast.Call)):
                    yield stmt
            case _:
                yield stmt
