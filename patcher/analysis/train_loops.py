"""Loops that back-propagate: what they go through, count, clip and wait for."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from ...record import record
from ..source.module import Module
from ..source.tree import (
    Function,
    argument,
    below,
    bound_names,
    within,
)
from .loaders import Loader, loader_of, next_loader

if TYPE_CHECKING:
    from .program import Program

SEVERAL = ("init_process_group", "DistributedDataParallel", "DataParallel")
THROUGH = ("tqdm", "enumerate", "epochs", "steps")  # loops as its first argument does


@record
class TrainLoop:
    """A loop that back-propagates, in the function (or module) that holds it."""

    module: Module
    steps: ast.For | ast.While
    epochs: ast.For | None
    loader: Loader | None
    backwards: tuple[ast.Call, ...]
    clips: tuple[ast.stmt, ...]
    step_test: ast.If | None  # the accumulation test around optimizer.step()
    accumulation: ast.expr | None  # what it takes the step number modulo
    step_name: str  # the micro-batch's number, where enumerate or range gives it
    step_start: int = 0  # what it starts from

    @property
    def scope(self) -> list[ast.stmt]:
        """Statements of the function that trains."""
        return self.module.scope_statements(self.steps)

    @cached_property
    def counters(self) -> set[str]:
        """Names that count optimizer steps."""
        if self.step_test is None:
            return set()
        return {
            node.target.id
            for node in within(self.step_test.body, ast.AugAssign)
            if isinstance(node.target, ast.Name)
            and isinstance(node.value, ast.Constant)
            and node.value.value == 1
        }


def is_backward(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "backward"


def loop_around(module: Module, node: ast.AST) -> ast.For | ast.While | None:
    """The loop around ``node`` in its own function."""
    for up in module.ancestors(node):
        if isinstance(up, ast.For | ast.While | Function):
            return None if isinstance(up, Function) else up
    return None


def train_loops(program: Program, module: Module) -> Iterator[TrainLoop]:
    owners: dict[ast.For | ast.While, list[ast.Call]] = defaultdict(list)
    for call in module.calls_to("backward"):
        loop = loop_around(module, call)
        if loop is not None and is_backward(call):
            owners[loop].append(call)
    for loop, backwards in owners.items():
        test, modulo = _accumulation(module, loop)
        outer = loop_around(module, loop)
        loader = loader_of(program, module, loop) if isinstance(loop, ast.For) else None
        name, start = _step_number(module, loop)
        yield TrainLoop(
            module,
            loop,
            outer if isinstance(outer, ast.For) else None,
            loader or next_loader(program, module, loop.body),
            tuple(backwards),
            tuple(
                module.statement(call)
                for call in within(loop.body, ast.Call)
                if module.last_name(call.func)
                in ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_")
            ),
            test,
            modulo,
            name,
            start,
        )


def _step_number(module: Module, loop: ast.For | ast.While) -> tuple[str, int]:
    """The name that counts the loop's micro-batches, and what it starts from."""
    none = "", 0
    if not isinstance(loop, ast.For):
        return none
    target = loop.target
    for name, call in calls_around(module, loop.iter):
        if name == "enumerate":
            first = argument(call, 1, "start")
            start = 0 if first is None else getattr(first, "value", None)
            if isinstance(target, ast.Tuple) and start in (0, 1):
                return (target.elts[0].id, start) if isinstance(target.elts[0], ast.Name) else none
            break
        if name in ("range", "trange") and len(call.args) == 1:
            return (target.id, 0) if isinstance(target, ast.Name) else none
    return none


def calls_around(module: Module, source: ast.expr | None) -> Iterator[tuple[str, ast.Call]]:
    """Names and calls through which a loop goes, outermost first.

    They are followed through names, ``tqdm``, ``enumerate`` and what a resumable loop goes through.
    """
    for _ in range(5):
        if isinstance(source, ast.Name):
            source = module.definition(source, source)
        elif isinstance(source, ast.Call):
            name = module.last_name(source.func)
            yield name, source
            source = source.args[0] if name in THROUGH and source.args else None


def _accumulation(
    module: Module, loop: ast.For | ast.While
) -> tuple[ast.If | None, ast.expr | None]:
    """The test around ``optimizer.step()`` and the number of micro-batches it waits for."""
    for call in within(loop.body, ast.Call):
        if not (isinstance(call.func, ast.Attribute) and call.func.attr == "step"):
            continue
        for up in module.ancestors(call):
            if up is loop:
                break
            if isinstance(up, ast.If):
                for node in below(up.test):
                    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
                        return up, node.right
    # A test that was already given a name: ``last = (step + 1) % n == 0 or …``; ``if last:``
    for stmt in within(loop.body, ast.If):
        if isinstance(stmt.test, ast.Name):
            for assign in within(loop.body, ast.Assign):
                if bound_names(assign) == {stmt.test.id}:
                    for node in below(assign.value):
                        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
                            return stmt, node.right
    return None, None


def trains_on_several(program: Program) -> bool:
    """Whether there is a training loop, and something by which several cards or ranks train."""
    return bool(program.train_loops) and any(
        module.calls_to(*SEVERAL) for module in program.modules
    )


def is_trained_on(program: Program, module: Module, function: Function | None) -> bool:
    """Whether a step computes it: in the loop's function, a forward, or in what the step calls."""
    loops = program.train_loops
    if getattr(function, "name", "") == "forward":
        return True
    if any(loop.module.function(loop.steps) is function for loop in loops):
        return True
    if function is None or any(each.function is function for each in program.evaluations):
        return False
    return any(
        loop.steps in where.ancestors(call)
        for where, call in program.callers(function)
        for loop in loops
    )
