"""Training loops: their loader, step counter, gradient clipping and accumulation."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property

from ...record import record
from ..source.module import Module
from ..source.tree import Function, argument, below, bound_names, is_inside, within
from .call_graph import CallGraph
from .conditions import plain_test
from .loaders import SOURCE_NAMES, Loader, loader_of, next_loader

# Calls that loop as their first argument does. The last two are methods of capabilities' Resumable.
PASSED_THROUGH = ("tqdm", "enumerate", "epochs", "steps")
CLIPPING = ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_")


@record
class TrainLoop:
    """A loop with a backward pass, in the function (or module) around it."""

    module: Module
    steps: ast.For | ast.While
    epochs: ast.For | None
    loader: Loader | None
    backwards: tuple[ast.Call, ...]
    clips: tuple[ast.stmt, ...]
    step_test: ast.If | None  # the accumulation test around optimizer.step()
    accumulation: ast.expr | None  # the number of micro-batches per optimizer step in that test
    step_name: str  # the name of the micro-batch's number, from enumerate or range; or empty
    step_start: int = 0  # the first micro-batch's number
    steps_in_else: bool = False  # the accumulation test holds for all but the last micro-batch

    @property
    def scope(self) -> list[ast.stmt]:
        """The body of the function (or module) around the loop."""
        return self.module.scope_statements(self.steps)

    @property
    def step_block(self) -> list[ast.stmt]:
        """The statements that run when the accumulation test lets an optimizer step through."""
        assert self.step_test is not None
        return self.step_test.orelse if self.steps_in_else else self.step_test.body

    @cached_property
    def counters(self) -> set[str]:
        """Names that count optimizer steps: ``global_step += 1`` under the accumulation test."""
        if self.step_test is None:
            return set()
        return {
            node.target.id
            for node in within(self.step_block, ast.AugAssign)
            if isinstance(node.target, ast.Name)
            and isinstance(node.value, ast.Constant)
            and node.value.value == 1
        }


def is_backward(call: ast.Call) -> bool:
    """Whether a call is ``loss.backward()``."""
    return isinstance(call.func, ast.Attribute) and call.func.attr == "backward"


def is_step(call: ast.Call) -> bool:
    """Whether a call may step an optimizer: ``step()``, ``step_and_update_lr()``."""
    if not isinstance(call.func, ast.Attribute):
        return False
    return call.func.attr == "step" or call.func.attr.startswith("step_")


def loop_around(module: Module, node: ast.AST) -> ast.For | ast.While | None:
    """The innermost loop around ``node`` in its own function."""
    for up in module.ancestors(node):
        if isinstance(up, ast.For | ast.While | Function):
            return None if isinstance(up, Function) else up
    return None


def train_loops(graph: CallGraph, module: Module) -> Iterator[TrainLoop]:
    """The training loops of a module: the innermost loops around each backward pass."""
    owners: dict[ast.For | ast.While, list[ast.Call]] = defaultdict(list)
    for call in module.calls_to("backward"):
        loop = loop_around(module, call)
        if loop is not None and is_backward(call):
            owners[loop].append(call)
    for loop, backwards in owners.items():
        test, modulo, in_else = _accumulation(module, loop)
        outer = loop_around(module, loop)
        loader = loader_of(graph, module, loop) if isinstance(loop, ast.For) else None
        name, start = _step_number(module, loop)
        yield TrainLoop(
            module,
            loop,
            outer if isinstance(outer, ast.For) else None,
            loader or next_loader(graph, module, loop.body),
            tuple(backwards),
            tuple(
                module.statement(call)
                for call in within(loop.body, ast.Call)
                if module.last_name(call.func) in CLIPPING
            ),
            test,
            modulo,
            name,
            start,
            in_else,
        )


def _step_number(module: Module, loop: ast.For | ast.While) -> tuple[str, int]:
    """The name that numbers the loop's micro-batches, and the first number."""
    unknown = "", 0
    if not isinstance(loop, ast.For):
        return unknown
    target = loop.target
    for function, call in calls_around(module, loop.iter):
        if function == "enumerate":
            first = argument(call, 1, "start")
            start = 0 if first is None else getattr(first, "value", None)
            if isinstance(target, ast.Tuple) and start in (0, 1):
                name = target.elts[0]
                return (name.id, start) if isinstance(name, ast.Name) else unknown
            break
        if function in ("range", "trange") and len(call.args) == 1:
            return (target.id, 0) if isinstance(target, ast.Name) else unknown
    return unknown


def calls_around(module: Module, iterable: ast.expr | None) -> Iterator[tuple[str, ast.Call]]:
    """The calls around what a loop iterates over, outermost first, each with its function's name.

    ``enumerate`` and ``tqdm`` of ``enumerate(tqdm(loader))``; variables are followed.
    """
    for _ in range(5):
        if isinstance(iterable, ast.Name):
            iterable = module.definition(iterable, iterable)
        elif isinstance(iterable, ast.Call):
            name = module.last_name(iterable.func)
            yield name, iterable
            first = argument(iterable, 0, *SOURCE_NAMES)
            iterable = first if name in PASSED_THROUGH else None


def _accumulation(
    module: Module, loop: ast.For | ast.While
) -> tuple[ast.If | None, ast.expr | None, bool]:
    """The test around ``optimizer.step()``, and the number of micro-batches that it waits for.

    The last value tells whether the step is in the test's ``else``.
    """
    found: tuple[ast.If, ast.expr, bool] | None = None
    for call in within(loop.body, ast.Call):
        if not is_optimizer_step(module, call):
            continue
        test = _test_of_step(module, loop, call)
        if test is None and not _is_tested(module, loop, call):
            return None, None, False  # it steps with every batch, whatever else waits
        found = found or test
    if found is not None:
        return found
    return None, None, False


def _test_of_step(
    module: Module, loop: ast.For | ast.While, call: ast.Call
) -> tuple[ast.If, ast.expr, bool] | None:
    """The test around a step of an optimizer, its divisor, and whether the step is in its else."""
    child: ast.AST = call
    for up in module.ancestors(call):
        if up is loop:
            break
        divisor = _divisor(_test_in(module, loop, up)) if isinstance(up, ast.If) else None
        if isinstance(up, ast.If) and divisor is not None:
            return up, divisor, any(child is item for item in up.orelse)
        child = up
    return None


def _is_tested(module: Module, loop: ast.For | ast.While, call: ast.Call) -> bool:
    """Whether a step stands under any test in its loop, such as one of the precision."""
    return any(isinstance(up, ast.If) and is_inside(up, loop) for up in module.ancestors(call))


def is_optimizer_step(module: Module, call: ast.Call) -> bool:
    """Whether a call is ``optimizer.step()`` or a scaler's, and not that of a schedule."""
    if not (isinstance(call.func, ast.Attribute) and call.func.attr == "step"):
        return False
    owner = call.func.value
    if "sched" in module.text(owner).lower():
        return False
    made = module.definition(owner, call) if isinstance(owner, ast.Name) else None
    if not isinstance(made, ast.Call):
        return True
    name = module.dotted(made.func)
    return "lr_scheduler" not in name and "schedule" not in name.lower()


def _test_in(module: Module, loop: ast.For | ast.While, stmt: ast.If) -> ast.expr:
    """What an ``if`` of a loop asks; a name stands for its test where that is in the loop, too."""
    plain = plain_test(module, stmt.test)[0]
    if isinstance(plain, ast.Name):  # ``last = (step + 1) % n == 0 or …``, bound more than once
        for assign in within(loop.body, ast.Assign):
            if bound_names(assign) == {plain.id} and _divisor(assign.value) is not None:
                return assign.value
    return plain if is_inside(plain, loop) else stmt.test


def _divisor(test: ast.expr) -> ast.expr | None:
    """``n`` of the first ``… % n`` in an expression."""
    for node in below(test):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            return node.right
    return None
