"""What ranks leave out of training differently, by a rank's own data or clock."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator

from ....record import record
from ...source.module import Module
from ...source.tree import (
    Function,
    bound_names,
    everywhere,
    is_inside,
    is_none,
    parameters,
    precedes,
    within,
)
from ..language.names import answered_once
from ..language.passed_arguments import argument_for_parameter
from ..language.process_exits import ends_well
from ..language.results import handed_back
from ..training.chosen_optimizers import is_optimizer_class
from ..training.program import Program
from ..training.train_loops import TrainLoop, is_optimizer_step
from .divergence_walk import (
    AGREEING_CALLS,
    BY_CLOCK,
    CLOCKS,
    SHAPE_ATTRIBUTES,
    DivergenceWalk,
    Exit,
    is_rate,
)

CLOCK_NAMES = {clock.rpartition(".")[2] for clock in CLOCKS}
LOOPS = (ast.For, ast.AsyncFor, ast.While)
MAX_CALLERS = 3
SAVES = ("save_on_main", "save_pretrained", "save_checkpoint", "save_model", "save_weights")
SETS_RATE = re.compile("^(adjust|update|decay|set|lower|reduce|drop|halve)_.*(lr|learning_rate)")
Matters = Callable[[Module, ast.stmt], bool]
Decision = tuple[ast.Call | ast.stmt, ast.expr]  # what is decided, and by what expression


@record
class RankDependentExit:
    """An exit from a training loop, and the outermost rank-dependent test around it.

    Or a backward pass or a step of the loop that the test lets through.
    """

    loop: TrainLoop
    exit: Exit | ast.Call
    test: ast.If
    names: frozenset[str]  # tainted names in the test that get their value outside of it


def rank_dependent_exits(
    program: Program,
    loop: TrainLoop,
    agreed: set[str],
    own_parameters: frozenset[str] = frozenset(),
) -> Iterator[RankDependentExit]:
    """Exits and steps that depend on a rank's own data.

    ``agreed`` names more calls equal on all ranks, ``own_parameters`` parameters of the function
    around the loop that are of this rank's data.
    """
    module = loop.module
    steps = [*conditional_steps(loop)]
    if not steps and not conditional_exits(loop):
        return
    sharded_calls = {
        f"{e.function.name}()"
        for e in program.evaluations
        if e.function and e.loader.distributed_samplers
    }
    walk = walk_of(program, module, loop, agreed, sharded_calls)
    walk.block(module.scope_statements(loop.steps), sharded_calls | own_parameters, None)
    left_out: list[tuple[Exit | ast.Call, ast.If]] = [
        (leaving, test) for leaving, test in walk.exits.items() if leaves_training(loop, leaving)
    ]
    tests: set[ast.If] = set()
    for call in steps:
        test = walk.gates.get(module.statement(call))
        if test is not None and test not in tests and is_left_out(loop, call, test):
            tests.add(test)
            left_out.append((call, test))
    for leaving, test in left_out:
        names = {
            name
            for name in walk.read(test.test) & set(walk.tainted_by)
            if any(test not in (up, *module.ancestors(up)) for up in walk.tainted_by[name])
        }
        yield RankDependentExit(loop, leaving, test, frozenset(names))


def own_parameters_of(
    program: Program, loop: TrainLoop, call: ast.Call, home: Module, function: Function
) -> frozenset[str]:
    """Parameters by which a call in a training loop passes what a rank has of its batches."""
    walk = walk_of_training(program, loop, frozenset())
    own = set(walk.tainted_by)
    values = {
        name: argument_for_parameter(home, function, call, name) for name in parameters(function)
    }
    return frozenset(
        name for name, value in values.items() if value and walk.depends_on(value, own)
    )


def clock_exits(
    program: Program, loop: TrainLoop, agreed: set[str]
) -> Iterator[tuple[Module, ast.stmt, ast.If]]:
    """Exits from training by the time of day, of which each rank asks its own clock.

    Each with the outermost such test around it; also in the functions that call the loop's.
    """
    if not program.calls_to(*CLOCK_NAMES):
        return
    for module, place in calling_places(program, loop):
        walk = walk_of(program, module, loop, agreed, set(), by_clock=True)
        walk.block(module.scope_statements(place), {BY_CLOCK}, None)
        ends = [each for each in walk.gates.items() if ends_well(module, each[0])]
        for leaving, test in (*walk.exits.items(), *ends):
            if leaves_loops(module, place, leaving) and not asks_whether_there_is(test.test):
                yield module, leaving, test


def asks_whether_there_is(test: ast.expr) -> bool:
    """``outputs is None``: of what a step returns, also beside times, the clock decides nothing."""
    match test:
        case ast.Compare(ops=[ast.Is() | ast.IsNot()], comparators=[other]):
            return is_none(other)
    return False


def calling_places(program: Program, loop: TrainLoop) -> Iterator[tuple[Module, ast.AST]]:
    """A training loop, then the calls that lead to it from outside, one of each function."""
    places: list[tuple[Module, ast.AST]] = [(loop.module, loop.steps)]
    seen: set[Function | None] = set()
    for _ in range(MAX_CALLERS):
        above: list[tuple[Module, ast.AST]] = []
        for module, place in places:
            function = module.function(place)
            if function not in seen:
                seen.add(function)
                yield module, place
                above += program.callers(function) if function is not None else []
        places = above


def leaves_loops(module: Module, place: ast.AST, leaving: ast.stmt) -> bool:
    """Whether an exit leaves the loop at a place, or one of those around it."""
    around = [up for up in module.ancestors(leaving) if isinstance(up, LOOPS)]
    left = around[:1] if isinstance(leaving, ast.Break | ast.Continue) else around
    return not {place, *module.ancestors(place)}.isdisjoint(left)


@answered_once
def walk_of_training(program: Program, loop: TrainLoop, agreed: frozenset[str]) -> DivergenceWalk:
    """The walk through the function of a loop; ``agreed`` names calls equal on all ranks."""
    walk = walk_of(program, loop.module, loop, {*agreed}, set())
    walk.block(loop.scope, set(), None)
    return walk


@answered_once
def walk_of_result(
    program: Program, module: Module, loop: TrainLoop, call: ast.Call, agreed: frozenset[str]
) -> DivergenceWalk:
    """The walk through the function of a call that follows what the call returns."""
    made = {f"{module.last_name(call.func)}()"}
    walk = walk_of(program, module, loop, {*agreed}, made)
    walk.kept.update(
        handed_back(program, module, call), alike_of_training(program, module, loop, call)
    )
    walk.block(module.scope_statements(call), made, None)
    return walk


def own_steps_and_results(
    program: Program, loop: TrainLoop, agreed: Collection[str] = ()
) -> tuple[list[ast.Call], list[ast.Return]]:
    """Calls of ``step`` by what a rank has seen of its batches, and where that is returned.

    Both in the function of a training loop. ``agreed`` names calls that are equal on all ranks.
    """
    walk = walk_of_training(program, loop, frozenset(agreed))
    return walk.steps, walk.results


def rates_by_own_batches(
    program: Program, loop: TrainLoop, agreed: Collection[str] = ()
) -> list[ast.stmt]:
    """Statements that set a rate to what a rank has seen of its batches."""
    walk = walk_of_training(program, loop, frozenset(agreed))
    return walk.rates


def changes_by_own_batches(
    program: Program, loop: TrainLoop, matters: Matters, agreed: Collection[str] = ()
) -> Iterator[tuple[ast.stmt, ast.If, frozenset[str]]]:
    """Statements that matter, and are reached by what a rank has seen of its batches.

    Each with the outermost such test around it, and the names in it that are of a rank's own, from
    outside of it. In the function of a training loop.
    """
    module = loop.module
    walk = walk_of_training(program, loop, frozenset(agreed))
    seen: set[ast.If] = set()
    for stmt, test in walk.gates.items():
        if test not in seen and matters(module, stmt):
            seen.add(test)
            names = {
                name
                for name in walk.read(test.test) & set(walk.tainted_by)
                if any(test not in (up, *module.ancestors(up)) for up in walk.tainted_by[name])
            }
            yield stmt, test, frozenset(names)


def changes_training(module: Module, stmt: ast.stmt) -> bool:
    """Whether a statement sets ``group["lr"]``, or loads a state that was kept."""
    if isinstance(stmt, ast.Assign | ast.AugAssign):
        targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
        return any(map(is_rate, targets))
    called = stmt.value if isinstance(stmt, ast.Expr) else None
    return isinstance(called, ast.Call) and module.last_name(called.func) == "load_state_dict"


def changes_rate_otherwise(module: Module, stmt: ast.stmt) -> bool:
    """Whether a statement makes an optimizer anew, or steps or calls what sets its rate."""
    called = stmt.value if isinstance(stmt, ast.Expr | ast.Assign) else None
    if not isinstance(called, ast.Call):
        return False
    if isinstance(stmt, ast.Assign):
        return is_optimizer_class(module, called.func)
    last = module.last_name(called.func)
    if last == "step" and isinstance(called.func, ast.Attribute):
        return "sched" in module.text(called.func.value).lower()
    return SETS_RATE.search(last) is not None


def keeps_weights(module: Module, stmt: ast.stmt) -> bool:
    """Whether a statement saves a model, or keeps a copy of its weights."""
    for call in everywhere(stmt, ast.Call):
        last = module.last_name(call.func)
        if last in SAVES or (last == "save" and module.dotted(call.func) == "torch.save"):
            return True
        if last == "deepcopy" and any(
            module.last_name(each.func) == "state_dict" for each in everywhere(call, ast.Call)
        ):
            return True
    return False


def decisions_by(
    program: Program,
    module: Module,
    loop: TrainLoop,
    call: ast.Call,
    matters: Matters,
    agreed: Collection[str] = (),
) -> list[Decision]:
    """Calls of ``step``, exits, statements that matter, and rates, by what a call returns.

    All in the function that calls, each with what it decides by.
    """
    walk = walk_of_result(program, module, loop, call, frozenset(agreed))
    changes = [(stmt, test.test) for stmt, test in walk.gates.items() if matters(module, stmt)]
    exits = [(leaving, test.test) for leaving, test in walk.exits.items()]
    rates = [
        (stmt, stmt.value)
        for stmt in walk.rates
        if isinstance(stmt, ast.Assign | ast.AugAssign | ast.Expr)
    ]
    return [*((step, step) for step in walk.steps), *exits, *changes, *rates]


def alike_of_training(
    program: Program, module: Module, loop: TrainLoop, call: ast.Call
) -> set[str]:
    """The names that get what a training returns and no rank has of its own, as its steps' number.

    ``global_step, loss = train(…)``.
    """
    function = loop.module.function(loop.steps)
    stmt = module.parents[call]
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) else None
    if function is None or not isinstance(target, ast.Tuple):
        return set()
    if (loop.module, function) not in program.callees(module, call):
        return set()
    walk = walk_of_training(program, loop, frozenset())
    own = set(walk.tainted_by)
    returned = [each.value for each in within(loop.scope, ast.Return)]
    alike: set[str] = set()
    for index, name in enumerate(target.elts):
        parts = [
            value.elts[index]
            for value in returned
            if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts)
        ]
        if len(parts) == len(returned) and not any(walk.depends_on(part, own) for part in parts):
            alike |= bound_names(name)
    return alike


def walk_of(
    program: Program,
    module: Module,
    loop: TrainLoop,
    agreed: set[str],
    sharded: set[str],
    *,
    by_clock: bool = False,
    wherever_from: bool = False,
) -> DivergenceWalk:
    """A walk that is to begin: what is alike on all ranks, and calls that score a rank's part."""
    agreeing = AGREEING_CALLS | SHAPE_ATTRIBUTES | agreed
    kinds = (by_clock, wherever_from)
    return DivergenceWalk(
        program, module, loop, agreeing, sharded, {}, {}, {}, {}, [], [], [], {}, set(), *kinds
    )


def conditional_steps(loop: TrainLoop) -> Iterator[ast.Call]:
    """The loop's backward passes and optimizer steps that stand under a test in it."""
    module = loop.module
    for call in (*loop.backwards, *optimizer_steps(loop)):
        ups = [*module.ancestors(call)]
        if loop.steps in ups and any(isinstance(up, ast.If) for up in ups[: ups.index(loop.steps)]):
            yield call


def optimizer_steps(loop: TrainLoop) -> list[ast.Call]:
    """The calls by which a loop's optimizers step."""
    calls = within(loop.steps.body, ast.Call)
    return [
        each
        for each in calls
        if loop.module.last_name(each.func) == "step" and is_optimizer_step(loop.module, each)
    ]


def is_left_out(loop: TrainLoop, call: ast.Call, test: ast.If) -> bool:
    """Whether ranks that answer a test of the loop otherwise go on without such a call.

    What a batch has, and whether it has it, is the same on all ranks as far as can be told.
    """
    if test not in within(loop.steps.body, ast.If) or any(
        isinstance(op, ast.In | ast.NotIn | ast.Is | ast.IsNot)
        for compare in everywhere(test.test, ast.Compare)
        for op in compare.ops
    ):
        return False
    in_body = any(is_inside(call, stmt) for stmt in test.body)
    other = test.orelse if in_body else test.body
    name = loop.module.last_name(call.func)
    return not any(loop.module.last_name(each.func) == name for each in within(other, ast.Call))


def conditional_exits(loop: TrainLoop) -> list[Exit]:
    """Conditional ``break``, ``continue`` and ``return`` that skip training batches."""
    candidates: list[Exit] = []
    for kind in (ast.Break, ast.Continue, ast.Return):
        candidates += within(loop.scope, kind)
    return [
        leaving
        for leaving in candidates
        if isinstance(loop.module.parents[leaving], ast.If) and leaves_training(loop, leaving)
    ]


def leaves_training(loop: TrainLoop, leaving: Exit) -> bool:
    """Whether an exit makes this rank train on fewer batches, or take fewer steps."""
    ups = list(loop.module.ancestors(leaving))
    around = [up for up in ups if isinstance(up, ast.For | ast.While)]
    training = {loop.steps, *loop.module.ancestors(loop.steps)}
    if not around or around[0] not in training:
        # It leaves a loop inside the training loop: only a return leaves that one too.
        return isinstance(leaving, ast.Return) and any(up in training for up in around)
    if isinstance(leaving, ast.Continue):
        if around[0] is loop.steps:
            behind = (*loop.backwards, *optimizer_steps(loop))
            return any(precedes(leaving, call) for call in behind)
        return precedes(leaving, loop.steps)
    return True


def in_lock_step(loop: TrainLoop, stmt: ast.stmt) -> bool:
    """Whether all ranks execute ``stmt`` equally often during training."""
    training = {loop.steps, *loop.module.ancestors(loop.steps)}
    return all(
        up in training
        for up in loop.module.ancestors(stmt)
        if isinstance(up, ast.For | ast.While | ast.Try | Function)
    )


def is_number_test(module: Module, test: ast.expr, names: frozenset[str]) -> bool:
    """Whether a test compares each of ``names`` as a number, with ``<`` and the like."""
    compared = {
        name
        for compare in within(test, ast.Compare)
        if all(isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for op in compare.ops)
        for side in (compare.left, *compare.comparators)
        for name in plain_names(module, side)
    }
    picked = {
        name.id for each in within(test, ast.Subscript) for name in everywhere(each.value, ast.Name)
    }
    return names <= compared - picked


def counted_by(
    module: Module, test: ast.If, names: frozenset[str]
) -> tuple[ast.If, frozenset[str]] | None:
    """The test above by which a number is counted, and the numbers of this rank's own in it.

    ``if total < best: best, bad = total, 0`` and ``else: bad += 1``, of ``if bad > 3: break``: the
    mean of the counts is none.
    """
    block = module.body(test)
    for above in reversed(block[: block.index(test)]):
        if isinstance(above, ast.If) and names <= bound_names(above):
            compared = {name.id for name in everywhere(above.test, ast.Name)} - names
            bound = [bound_names(stmt) for stmt in block if stmt is not above]
            own = frozenset(compared.intersection(set[str]().union(*bound)))
            is_counted = bool(own) and is_number_test(module, above.test, own)
            return (above, own) if is_counted else None
    return None


def is_compared_with_more(loop: TrainLoop, test: ast.If, numbers: frozenset[str]) -> bool:
    """Whether a test compares numbers with what other statements bind to something else.

    ``best`` of ``value < best``, where another branch says ``best = total``: the mean of ``value``
    over the ranks does not make the answers alike.
    """
    others = {name.id for name in everywhere(test.test, ast.Name)} - numbers
    body = loop.steps.body if loop.epochs is None else loop.epochs.body
    return any(
        others & bound_names(stmt)
        and not is_inside(stmt, test)
        and {name.id for name in everywhere(stmt.value, ast.Name)} - numbers - others
        for stmt in within(body, ast.Assign)
    )


def plain_names(module: Module, node: ast.expr) -> set[str]:
    """The names in an arithmetic expression."""
    match node:
        case ast.Name():
            return {node.id}
        case ast.BinOp(left=left, right=right):
            return plain_names(module, left) | plain_names(module, right)
        case ast.UnaryOp(operand=operand):
            return plain_names(module, operand)
        case ast.Call(args=[_]) if module.dotted(node.func) in ("min", "max"):
            return set()  # of a list
        case ast.Call(args=args) if module.dotted(node.func) in ("round", "abs", "min", "max"):
            return set().union(*(plain_names(module, arg) for arg in args))
    return set()
