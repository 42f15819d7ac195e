"""What happens once per optimizer step hangs on the step, not on the micro-batch.

What              Logging, evaluating and saving every n steps stand where the step counter has just
                  moved. What rank 0 alone has, such as a writer for TensorBoard, is used by rank 0
                  alone.
At run time       With accumulation 4 an evaluation runs four times in a row at each interval, and
                  once before the first step, when the counter is 0. The other ranks call a method
                  of None, and the job dies.
How it is judged  In a loop with a test that waits for the last micro-batch, a test of the counter
                  that this one moves has to stand inside it, or ask for it too. A name that is None
                  on the other ranks must not be asked for an attribute where they come to.
When unknown      Never: a test with other parts may ask for the same in another way.
Source            https://docs.pytorch.org/docs/stable/notes/amp_examples.html
"""

import ast
from collections.abc import Iterator

from ..analysis.language.conditions import tests_before
from ..analysis.ranks.rank_reach import Role, value_for_role
from ..analysis.training.program import Program
from ..analysis.training.scheduler_steps import names_asked
from ..analysis.training.train_loops import TrainLoop
from ..source.module import Module
from ..source.tree import Function, everywhere, is_inside, mentions, names_within, within
from .ranks import has_several_ranks, ranks_at
from .verdict import AuditVerdict, violated

CODE = "O8"


def verdicts(program: Program, original: Program | None) -> Iterator[AuditVerdict]:
    for loop in program.train_loops:
        if program.is_live(loop.module, loop.steps):
            yield from gates(loop)
    if has_several_ranks(program):
        for module in program.modules:
            for function in (None, *module.all_functions):
                if function is None or function in program.live_functions:
                    yield from none_on_others(program, module, function)


def gates(loop: TrainLoop) -> Iterator[AuditVerdict]:
    """Tests of the step counter that each micro-batch passes."""
    module, last = loop.module, loop.step_test
    if last is None or loop.accumulation is None or not loop.counters:
        return
    if isinstance(loop.accumulation, ast.Constant) and loop.accumulation.value == 1:
        return
    asked = names_asked(module, last.test)
    for gate in within(loop.steps.body, ast.If):
        counter = counted_in(gate.test, loop.counters)
        if not counter or gate is last or is_inside(gate, last) or is_inside(last, gate):
            continue
        if any(is_exit_for(module, stmt, asked) for stmt in loop.steps.body):
            continue
        tests = [gate.test, *tests_before(module, gate)]
        names = {name for test in tests for name in names_asked(module, test)}
        flags = {  # bound where the step is taken
            name
            for stmt in (
                *within(loop.step_block, ast.Assign),
                *within(loop.step_block, ast.AugAssign),
            )
            for name in (
                [t.id for t in stmt.targets if isinstance(t, ast.Name)]
                if isinstance(stmt, ast.Assign)
                else []
            )
        }
        if names & asked or names & (flags - {counter}):
            continue
        yield violated(
            module,
            gate,
            f"it asks for `{counter}` with each micro-batch, and the counter moves in line"
            f" {last.lineno} only",
        )


def counted_in(test: ast.expr, counters: set[str]) -> str:
    """The counter of which a test takes ``counter % n``, or the empty string."""
    for node in everywhere(test, ast.BinOp):
        left = node.left
        if isinstance(node.op, ast.Mod) and isinstance(left, ast.Name) and left.id in counters:
            return left.id
    return ""


def is_exit_for(module: Module, stmt: ast.stmt, asked: set[str]) -> bool:
    """Whether a statement goes on with the next micro-batch unless the step is taken."""
    return (
        isinstance(stmt, ast.If)
        and any(isinstance(each, ast.Continue) for each in stmt.body)
        and any(mentions(stmt.test, name) for name in asked)
    )


def none_on_others(
    program: Program, module: Module, function: Function | None
) -> Iterator[AuditVerdict]:
    """Attributes of a name that is None on all ranks but 0, where those come to."""
    names = {
        name
        for (scope, name), stores in module.stores.items()
        if scope is function and is_none_on_others(program, module, stores)
    }
    if not names:
        return
    body = module.tree.body if function is None else function.body
    for name in names_within(body, names):
        parent = module.parents[name]
        if not isinstance(parent, ast.Attribute) or not isinstance(name.ctx, ast.Load):
            continue
        if Role.OTHER not in ranks_at(program, module, name):
            continue
        if any(mentions(test, name.id) for test in tests_before(module, name)):
            continue
        if any(
            isinstance(up, ast.BoolOp | ast.IfExp) and mentions(up, name.id)
            for up in module.ancestors(name)
        ):
            continue
        yield violated(
            module,
            name,
            f"`{name.id}` is None on all ranks but 0, and they come to `.{parent.attr}`",
        )


def is_none_on_others(program: Program, module: Module, stores: list[ast.Name]) -> bool:
    """Whether ranks other than 0 bind a name to None only, and rank 0 to something else too."""
    is_something = False
    is_none = False
    for store in stores:
        stmt = module.parents[store]
        if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
            return False
        roles = ranks_at(program, module, stmt)
        if Role.OTHER in roles:
            if isinstance(stmt.value, ast.Constant) and stmt.value.value is None:
                is_none = True
            elif isinstance(stmt.value, ast.IfExp) and (
                value_for_role(module, stmt.value, Role.OTHER) is None
            ):
                is_none = True
                test = value_for_role(module, stmt.value.test, Role.MAIN)
                chosen = stmt.value.body if test is True else stmt.value.orelse
                is_something |= isinstance(test, bool) and not isinstance(chosen, ast.Constant)
            else:
                return False
        elif roles:
            is_something = True
    return is_none and is_something
