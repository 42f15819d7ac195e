"""What ranks leave out of training differently, because it depends on a rank's own data.

A taint analysis: a walk through the training function in source order keeps the set of names whose
value comes from this rank's batches. Reassignments and collectives remove names from it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ....record import record
from ...source.module import Module
from ...source.tree import (
    Function,
    argument_values,
    below,
    bound_names,
    everywhere,
    is_inside,
    locate,
    parameters,
    precedes,
    within,
)
from ..language.objects import class_of
from ..language.passed_arguments import argument_for_parameter
from ..training.loaders import loader_of
from ..training.program import Program
from ..training.train_loops import TrainLoop, calls_around, is_optimizer_step
from .dealing import takes_turns
from .rank_reach import RANKS, value_for_role

# Calls that return the same on every rank, or depend only on the size or type of their argument.
AGREEING_CALLS = {
    *("gathered", "mean_of_ranks", "on_any_rank", "all_gather", "all_reduce", "gather"),
    *("gather_for_metrics", "reduce", "len", "isinstance", "type", "hasattr"),
}
IN_PLACE_COLLECTIVES = {
    "all_reduce",
    "broadcast",
    "broadcast_object_list",
    "all_gather_object",
    "all_gather",
}
SHAPE_ATTRIBUTES = {"shape", "size", "device", "dtype", "dim", "ndim", "requires_grad"}
SIZES = {"len", *SHAPE_ATTRIBUTES}
# Calls whose result has as many items as the values of their argument decide.
SELECTING = {"where", "nonzero", "argwhere", "masked_select", "unique"}
MUTATORS = {"append", "extend", "add", "update"}
Exit = ast.Break | ast.Continue | ast.Return
CLOCKS = {
    *("time.time", "time.perf_counter", "time.monotonic", "time.process_time"),
    *("timeit.default_timer", "datetime.datetime.now", "datetime.now"),
}
LOOPS = (ast.For, ast.AsyncFor, ast.While)
BY_CLOCK = "the time"  # stands for a name among those that are tainted
MAX_CALLERS = 3


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
    walk = _walk_of(program, module, loop, agreed, sharded_calls)
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
    walk = _walk_of(program, loop.module, loop, set(), set())
    walk.block(loop.scope, set(), None)
    own = set(walk.tainted_by)
    values = {
        name: argument_for_parameter(home, function, call, name) for name in parameters(function)
    }
    return frozenset(
        name for name, value in values.items() if value and walk.depends_on(value, own)
    )


def clock_exits(
    program: Program, loop: TrainLoop, agreed: set[str]
) -> Iterator[tuple[Module, Exit, ast.If]]:
    """Exits from training by the time of day, of which each rank asks its own clock.

    Each with the outermost such test around it; also in the functions that call the loop's.
    """
    places: list[tuple[Module, ast.AST]] = [(loop.module, loop.steps)]
    seen: set[Function | None] = set()
    for _ in range(MAX_CALLERS):
        above: list[tuple[Module, ast.AST]] = []
        for module, place in places:
            function = module.function(place)
            if function in seen:
                continue
            seen.add(function)
            walk = _walk_of(program, module, loop, agreed, set(), by_clock=True)
            walk.block(module.scope_statements(place), {BY_CLOCK}, None)
            training = {place, *module.ancestors(place)}
            for leaving, test in walk.exits.items():
                around = [up for up in module.ancestors(leaving) if isinstance(up, LOOPS)]
                left = around if isinstance(leaving, ast.Return) else around[:1]
                if not training.isdisjoint(left):
                    yield module, leaving, test
            above += program.callers(function) if function is not None else []
        places = above


def own_steps_and_results(
    program: Program, loop: TrainLoop
) -> tuple[list[ast.Call], list[ast.Return]]:
    """Calls of ``step`` by what a rank has seen of its batches, and where that is returned.

    Both in the function of a training loop.
    """
    walk = _walk_of(program, loop.module, loop, set(), set())
    walk.block(loop.scope, set(), None)
    return walk.steps, walk.results


def decisions_by(
    program: Program, module: Module, loop: TrainLoop, call: ast.Call
) -> list[ast.Call | Exit]:
    """Calls of ``step`` and exits by what a call returns, in the function that calls."""
    made = {f"{module.last_name(call.func)}()"}
    walk = _walk_of(program, module, loop, set(), made)
    walk.kept.update(handed_back(program, module, call))
    walk.block(module.scope_statements(call), made, None)
    return [*walk.steps, *walk.exits]


def handed_back(program: Program, module: Module, call: ast.Call) -> set[str]:
    """The names that a call binds to its own arguments: ``loss, optimizer = train(optimizer)``."""
    stmt = module.statement(call)
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) and stmt.value is call else None
    if not isinstance(target, ast.Tuple):
        return set()
    returned = [
        (where, function, result.value.elts)
        for where, function in program.callees(module, call)
        for result in within(function.body, ast.Return)
        if isinstance(result.value, ast.Tuple) and len(result.value.elts) == len(target.elts)
    ]
    return {
        name.id
        for place, name in enumerate(target.elts)
        if isinstance(name, ast.Name)
        and returned
        and all(
            isinstance(part := parts[place], ast.Name)
            and part.id in parameters(function)
            and (function, part.id) not in where.stores
            for where, function, parts in returned
        )
    }


def _walk_of(
    program: Program,
    module: Module,
    loop: TrainLoop,
    agreed: set[str],
    sharded: set[str],
    *,
    by_clock: bool = False,
) -> _DivergenceWalk:
    agreeing = AGREEING_CALLS | SHAPE_ATTRIBUTES | agreed
    return _DivergenceWalk(
        program, module, loop, agreeing, sharded, {}, {}, {}, {}, [], [], set(), by_clock
    )


def conditional_steps(loop: TrainLoop) -> Iterator[ast.Call]:
    """The loop's backward passes and optimizer steps that stand under a test in it."""
    module = loop.module
    steps = [each for each in module.calls_to("step") if is_optimizer_step(module, each)]
    for call in (*loop.backwards, *steps):
        ups = [*module.ancestors(call)]
        if loop.steps in ups and any(isinstance(up, ast.If) for up in ups[: ups.index(loop.steps)]):
            yield call


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
    """Whether an exit makes this rank train on fewer batches."""
    ups = list(loop.module.ancestors(leaving))
    around = [up for up in ups if isinstance(up, ast.For | ast.While)]
    training = {loop.steps, *loop.module.ancestors(loop.steps)}
    if not around or around[0] not in training:
        # It leaves a loop inside the training loop: only a return leaves that one too.
        return isinstance(leaving, ast.Return) and any(up in training for up in around)
    if isinstance(leaving, ast.Continue):
        if around[0] is loop.steps:
            return any(precedes(leaving, call) for call in loop.backwards)
        return precedes(leaving, loop.steps)
    return True


@record
class _DivergenceWalk:
    """The walk through a training function; its results are ``tainted_by`` and ``exits``."""

    program: Program
    module: Module
    loop: TrainLoop
    agreed: set[str]  # calls and attributes that are equal on all ranks
    sharded_calls: set[str]  # of evaluations that score this rank's part of the data
    tainted_by: dict[str, set[ast.stmt]]  # statements that gave a name this rank's data
    exits: dict[Exit, ast.If]
    gates: dict[ast.stmt, ast.If]  # of plain statements
    cache: dict[ast.AST, set[str]]  # of reads()
    steps: list[ast.Call]  # of a schedule, by this rank's data
    results: list[ast.Return]  # that hand on this rank's data
    kept: set[str]  # names of what calls hand back as it was
    by_clock: bool  # nothing differs but the time

    def block(self, body: list[ast.stmt], tainted: set[str], gate: ast.If | None) -> set[str]:
        """Tainted names after ``body``; ``gate`` is the outermost tainted test around it."""
        tainted = set(tainted)
        for stmt in body:
            tainted = self.statement(stmt, tainted, gate)
        return tainted

    def statement(self, stmt: ast.stmt, tainted: set[str], gate: ast.If | None) -> set[str]:
        if gate is not None:
            self.gates.setdefault(stmt, gate)
        match stmt:
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign() if stmt.value is not None:
                self.assign(stmt, tainted, gate)
            case ast.Expr(value=ast.Call() as call):
                self.call(stmt, call, tainted, gate)
            case ast.If():
                inner = gate or (stmt if self.depends_on(stmt.test, tainted) else None)
                after = self.block(stmt.body, tainted, inner)
                otherwise = self.block(stmt.orelse, tainted, inner)
                taken = {value_for_role(self.module, stmt.test, role) for role in RANKS}
                if taken == {True}:
                    return after
                return otherwise if taken == {False} else after | otherwise
            case ast.For() | ast.AsyncFor() | ast.While():
                return self.loop_statement(stmt, tainted, gate)
            case ast.With() | ast.AsyncWith():
                return self.block(stmt.body, tainted, gate)
            case ast.Try():
                parts = [stmt.body, stmt.orelse, stmt.finalbody, *(h.body for h in stmt.handlers)]
                return tainted.union(*(self.block(part, tainted, gate) for part in parts))
            case ast.Break() | ast.Continue() | ast.Return():
                if gate is not None:
                    self.exits.setdefault(stmt, gate)
                value = stmt.value if isinstance(stmt, ast.Return) else None
                if value is not None and self.depends_on(value, tainted):
                    assert isinstance(stmt, ast.Return)
                    self.results.extend([] if stmt in self.results else [stmt])
        return tainted

    def loop_statement(
        self, loop: ast.For | ast.AsyncFor | ast.While, tainted: set[str], gate: ast.If | None
    ) -> set[str]:
        for _ in range(2):  # the second iteration may read what the first one bound
            inside = set(tainted)
            if isinstance(loop, ast.For):
                names = bound_names(loop.target)
                if self.is_sharded(loop):
                    names -= {self.loop.step_name, enumerated_name(self.module, loop)}
                    for name in names:
                        self.tainted_by.setdefault(name, set()).add(loop)
                    inside |= names
                elif self.depends_on(loop.iter, tainted):
                    inside |= names
                else:
                    inside -= names
            after = tainted | self.block(loop.body, inside, gate)
            if after == tainted:
                break
            tainted = after
        return self.block(loop.orelse, tainted, gate)

    def is_sharded(self, loop: ast.For) -> bool:
        """Whether each rank has its own batches in this loop."""
        if self.by_clock:
            return False
        if loop is self.loop.steps:
            return self.loop.loader is not None or takes_turns(loop)
        loader = loader_of(self.program, self.module, loop)
        return loader is not None and bool(loader.distributed_samplers)

    def assign(
        self,
        stmt: ast.Assign | ast.AnnAssign | ast.AugAssign,
        tainted: set[str],
        gate: ast.If | None,
    ) -> None:
        assert stmt.value is not None
        is_tainted = gate is not None or self.depends_on(stmt.value, tainted)
        targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
        for target in targets:
            for node in below(target):
                name = variable_name(node)
                if not name or (name in self.kept and isinstance(target, ast.Tuple)):
                    continue
                if is_tainted:
                    tainted.add(name)
                    self.tainted_by.setdefault(name, set()).add(stmt)
                    if self.selects(stmt.value, tainted):
                        tainted.add(size_of(name))
                elif not isinstance(stmt, ast.AugAssign) and not isinstance(target, ast.Subscript):
                    tainted -= {name, size_of(name)}

    def selects(self, value: ast.expr, tainted: set[str]) -> bool:
        """Whether the values of a tensor decide how many items an expression has."""
        calls, names = everywhere(value, ast.Call), everywhere(value, ast.Name)
        return any(self.module.last_name(each.func) in SELECTING for each in calls) or any(
            size_of(each.id) in tainted for each in names
        )

    def call(self, stmt: ast.stmt, call: ast.Call, tainted: set[str], gate: ast.If | None) -> None:
        last = self.module.last_name(call.func)
        depends = any(self.depends_on(value, tainted) for value in argument_values(call))
        if last == "step" and depends and call not in self.steps:
            self.steps.append(call)
        if last in IN_PLACE_COLLECTIVES:
            tainted -= {variable_name(arg) for arg in argument_values(call)}
        elif isinstance(call.func, ast.Attribute) and last in MUTATORS:
            name = variable_name(call.func.value)
            if name and (gate or depends):
                tainted.add(name)
                self.tainted_by.setdefault(name, set()).add(stmt)
        elif depends and (name := self.object_told(call)):
            tainted.add(name)
            self.tainted_by.setdefault(name, set()).add(stmt)

    def object_told(self, call: ast.Call) -> str:
        """The object of a class of the program that a call tells something; or empty.

        ``early_stopping(loss, model)``, and ``self.stopper.step(loss)``.
        """
        owner = call.func
        if isinstance(owner, ast.Attribute) and variable_name(owner.value) not in ("", "self"):
            owner = owner.value
        known = class_of(self.program, self.module, owner)
        return variable_name(owner) if known is not None else ""

    def depends_on(self, node: ast.AST, tainted: set[str]) -> bool:
        """Whether the value of an expression depends on tainted names."""
        return bool(tainted) and not tainted.isdisjoint(self.reads(node))

    def reads(self, node: ast.AST) -> set[str]:
        """Names and calls (as ``f()``) that the value of an expression depends on."""
        if node not in self.cache:
            self.cache[node] = set(self._reads(node))
        return self.cache[node]

    def _reads(self, node: ast.AST) -> Iterator[str]:
        table, index = locate(node)
        end = table.ends[index]
        while index < end:
            part = table.nodes[index]
            called = self.module.last_name(part.func) if isinstance(part, ast.Call) else ""
            is_shape = isinstance(part, ast.Attribute) and part.attr in SHAPE_ATTRIBUTES
            if called in self.agreed or is_shape:
                if is_shape or called in SIZES:
                    for pick in everywhere(part, ast.Subscript):
                        yield variable_name(pick.slice)  # labels[mask].size(), by the mask
                    for sized in everywhere(part, ast.Name):
                        yield size_of(sized.id)
                index = table.ends[index]
                continue
            if called:
                yield f"{called}()"
                if isinstance(part, ast.Call) and self.module.dotted(part.func) in CLOCKS:
                    yield BY_CLOCK
            if name := variable_name(part):
                yield name
            index += 1

    def read(self, node: ast.AST) -> set[str]:
        """Variables that an expression depends on."""
        names = {name for name in map(variable_name, below(node)) if name}
        return {
            name
            for name in names
            if self.depends_on(node, {name, size_of(name), *self.sharded_calls})
        }


def size_of(name: str) -> str:
    """How the number of items of a variable is called among the tainted names."""
    return f"len({name})"


def variable_name(node: ast.AST) -> str:
    """``x`` or ``self.x`` if a node is one of these; else the empty string."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"self.{node.attr}" if node.value.id == "self" else ""
    return ""


def enumerated_name(module: Module, loop: ast.For) -> str:
    """The name that ``enumerate`` counts in, from wherever it starts; or empty."""
    first = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) else None
    is_counted = any(name == "enumerate" for name, _ in calls_around(module, loop.iter))
    return first.id if is_counted and isinstance(first, ast.Name) else ""


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
    return names <= compared


def plain_names(module: Module, node: ast.expr) -> set[str]:
    """The names in an arithmetic expression."""
    match node:
        case ast.Name():
            return {node.id}
        case ast.BinOp(left=left, right=right):
            return plain_names(module, left) | plain_names(module, right)
        case ast.UnaryOp(operand=operand):
            return plain_names(module, operand)
        case ast.Call(args=args) if module.dotted(node.func) in ("round", "abs", "min", "max"):
            return set().union(*(plain_names(module, arg) for arg in args))
    return set()
