"""A walk through a training function that follows what a rank has of its own data.

In source order it keeps the set of names whose value comes from this rank's batches. Reassignments
and collectives remove names from it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ....record import record
from ...source.module import Module, cached_per_module
from ...source.tree import (
    argument_values,
    below,
    bound_names,
    everywhere,
    is_plain_call,
    locate,
    mentions,
    within,
)
from ..language.counted_attributes import counted_attributes
from ..language.objects import class_of
from ..training.loaders import loader_of
from ..training.program import Program
from ..training.train_loops import TrainLoop, calls_around, is_over_numbers
from .dealing import seeded_by_rank, takes_turns
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
DRAWS = {"next()", "__next__()"}  # among the tainted names
MUTATORS = {"append", "extend", "add", "update"}
Exit = ast.Break | ast.Continue | ast.Return
CLOCKS = {
    *("time.time", "time.perf_counter", "time.monotonic", "time.process_time"),
    *("timeit.default_timer", "datetime.datetime.now", "datetime.now"),
}
BY_CLOCK = "the time"  # stands for a name among those that are tainted


@record
class DivergenceWalk:
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
    rates: list[ast.stmt]  # that set a rate to this rank's data, under no such test
    told: dict[ast.Call, list[ast.expr]]  # statements by which all ranks tell something their own
    kept: set[str]  # names of what calls hand back as it was
    by_clock: bool  # nothing differs but the time
    wherever_from: bool = False  # ranks have batches of their own also of a loader that is unknown

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
        draws = self.draws_by_number(loop) if isinstance(loop, ast.For) else set[str]()
        for _ in range(2):  # the second iteration may read what the first one bound
            inside = set(tainted)
            if isinstance(loop, ast.For):
                names = bound_names(loop.target)
                if self.is_sharded(loop) and not takes_turns(loop) and draws:
                    inside = (inside - names) | draws  # each of its rounds draws a batch
                elif self.is_sharded(loop):
                    names -= {self.loop.step_name, enumerated_name(self.module, loop)}
                    names -= counted_names(self.module, loop)
                    for name in names:
                        self.tainted_by.setdefault(name, set()).add(loop)
                    inside |= names
                elif self.depends_on(loop.iter, tainted):
                    inside |= names
                else:
                    inside -= names
            after = tainted | (self.block(loop.body, inside, gate) - draws)
            if after == tainted:
                break
            tainted = after
        return self.block(loop.orelse, tainted, gate)

    def draws_by_number(self, loop: ast.For) -> set[str]:
        """The calls by which a loop over numbers draws its batches, ``next()``; none for another.

        Also those of functions that draw them.
        """
        found: set[str] = set()
        for call in within(loop.body, ast.Call) if is_over_numbers(self.module, loop) else ():
            name = f"{self.module.last_name(call.func)}()"
            below = self.program.functions_below(self.module, call)
            drawn = {
                f"{where.last_name(each.func)}()"
                for where, function in below
                for each in within(function.body, ast.Call)
            }
            if DRAWS & {name, *drawn}:
                found.add(name)
        return found and found | DRAWS

    def is_sharded(self, loop: ast.For) -> bool:
        """Whether each rank has its own batches in this loop."""
        if self.by_clock:
            return False
        if loop is self.loop.steps:
            is_of_data = self.wherever_from and not is_over_numbers(self.module, loop)
            has_own = self.loop.loader is not None or is_of_data or takes_turns(loop)
            return has_own or bool(seeded_by_rank(self.program))  # as the games of each rank
        loader = loader_of(self.program, self.module, loop)
        return loader is not None and bool(loader.distributed_samplers)

    def assign(
        self,
        stmt: ast.Assign | ast.AnnAssign | ast.AugAssign,
        tainted: set[str],
        gate: ast.If | None,
    ) -> None:
        assert stmt.value is not None
        is_name = self.by_clock and is_text(self.module, stmt.value)  # of a run, at most
        is_tainted = gate is not None or (self.depends_on(stmt.value, tainted) and not is_name)
        targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
        if is_tainted and gate is None and any(map(is_rate, targets)) and stmt not in self.rates:
            self.rates.append(stmt)
        for target in targets:
            for name in self.bound_in(target):
                if name in self.kept and isinstance(target, ast.Tuple):
                    continue
                if is_tainted:
                    tainted |= {name, parts_of_owner(name)}
                    self.tainted_by.setdefault(name, set()).add(stmt)
                    if self.selects(stmt.value, tainted):
                        tainted.add(size_of(name))
                elif not isinstance(stmt, ast.AugAssign) and not isinstance(target, ast.Subscript):
                    tainted -= {name, size_of(name), parts_of(name)}

    def bound_in(self, target: ast.expr) -> list[str]:
        """The variables that an assignment to a target gives a value, or a part of one.

        Not ``step`` of ``losses[step] = loss``.
        """
        parts = below(target)
        index = {
            node for part in parts if isinstance(part, ast.Subscript) for node in below(part.slice)
        }
        names = {node: self.name_of(node) for node in parts if node not in index}
        owners = {node.value for node in names if isinstance(node, ast.Attribute) and names[node]}
        return [name for node, name in names.items() if name and node not in owners]

    def name_of(self, node: ast.AST) -> str:
        """``x``, ``self.x``, or ``state.x`` where the module sets that; else the empty string."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{node.value.id}.{node.attr}"
            return name if name in attributes_set(self.module) else variable_name(node)
        return variable_name(node)

    def selects(self, value: ast.expr, tainted: set[str]) -> bool:
        """Whether the values of a tensor decide how many items an expression has."""
        calls, names = everywhere(value, ast.Call), everywhere(value, ast.Name)
        tests = [test for each in everywhere(value, ast.comprehension) for test in each.ifs]
        return (
            any(self.module.last_name(each.func) in SELECTING for each in calls)
            or any(size_of(each.id) in tainted for each in names)
            or any(self.depends_on(test, tainted) for test in tests)
        )

    def call(self, stmt: ast.stmt, call: ast.Call, tainted: set[str], gate: ast.If | None) -> None:
        last = self.module.last_name(call.func)
        depends = any(self.depends_on(value, tainted) for value in argument_values(call))
        if last == "step" and depends and call not in self.steps:
            self.steps.append(call)
        if depends and gate is None and stmt not in self.rates and self.sets_rate(call):
            self.rates.append(stmt)
        if depends and gate is None:
            values = argument_values(call)
            self.told[call] = [each for each in values if self.depends_on(each, tainted)]
        if last in IN_PLACE_COLLECTIVES:
            tainted -= {self.name_of(arg) for arg in argument_values(call)}
        elif isinstance(call.func, ast.Attribute) and last in MUTATORS:
            name = variable_name(call.func.value)
            if name and (gate or depends):
                tainted.add(name)
                self.tainted_by.setdefault(name, set()).add(stmt)
                if gate:  # as many as the test lets through
                    tainted.add(size_of(name))
        elif depends and last != "backward" and (name := self.object_told(call)):
            tainted.add(name)
            self.tainted_by.setdefault(name, set()).add(stmt)

    def sets_rate(self, call: ast.Call) -> bool:
        """Whether a function of the program that is called sets ``group["lr"]``."""
        return any(
            isinstance(node.ctx, ast.Store) and is_rate(node)
            for _, function in self.program.callees(self.module, call)
            if mentions(function, "param_groups")
            for node in within(function.body, ast.Subscript)
        )

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
            if isinstance(part, ast.Attribute) and part.attr in counted_attributes(self.program):
                index = table.ends[index]
                continue
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
            if name := self.name_of(part):
                yield name
            if isinstance(part, ast.Name):
                yield parts_of(name)
            elif name and isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
                yield part.value.id  # and no other part of it
                index += 1
            index += 1

    def read(self, node: ast.AST) -> set[str]:
        """Variables that an expression depends on."""
        names = {name for name in map(self.name_of, below(node)) if name}
        return {
            name
            for name in names
            if self.depends_on(node, {name, size_of(name), *self.sharded_calls})
        }


def is_rate(target: ast.expr) -> bool:
    """``group["lr"]``."""
    return (
        isinstance(target, ast.Subscript)
        and isinstance(target.slice, ast.Constant)
        and target.slice.value == "lr"
    )


def is_text(module: Module, value: ast.expr) -> bool:
    """Whether a value is surely a text: ``f"{name}-{time.time()}"``, ``now.strftime(…)``."""
    if isinstance(value, ast.Call):
        return module.last_name(value.func) in ("str", "format", "strftime", "isoformat")
    return (
        isinstance(value, ast.JoinedStr)
        or (
            isinstance(value, ast.BinOp)
            and any(is_text(module, side) for side in (value.left, value.right))
        )
        or (isinstance(value, ast.Constant) and isinstance(value.value, str))
    )


@cached_per_module
def attributes_set(module: Module) -> frozenset[str]:
    """What a module gives a value of an object's parts, as ``state.step``."""
    return frozenset(
        f"{node.value.id}.{node.attr}"
        for node in module.nodes(ast.Attribute)
        if isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name)
    )


def parts_of_owner(name: str) -> str:
    """How an object is told among the tainted names, where ``x.a`` is one; else the name."""
    owner, dot, _ = name.partition(".")
    return parts_of(owner) if dot and owner != "self" else name


def parts_of(name: str) -> str:
    """How it is told among the tainted names that some part of an object is."""
    return f"{name}.*"


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


def counted_names(module: Module, loop: ast.For) -> set[str]:
    """The names that go through numbers beside the batches: ``zip(loader, cycle(range(4)))``."""
    if not (is_plain_call(loop.iter, "zip") and isinstance(loop.target, ast.Tuple)):
        return set()
    pairs = zip(loop.target.elts, loop.iter.args, strict=False)
    return {
        target.id
        for target, zipped in pairs
        if isinstance(target, ast.Name) and goes_through_numbers(module, zipped)
    }


def goes_through_numbers(module: Module, node: ast.expr) -> bool:
    """``range(4)``, ``itertools.count()`` and either in ``itertools.cycle(…)``."""
    while isinstance(node, ast.Call) and node.args and module.last_name(node.func) == "cycle":
        node = node.args[0]
    return isinstance(node, ast.Call) and module.last_name(node.func) in ("range", "count")


def enumerated_name(module: Module, loop: ast.For) -> str:
    """The name that ``enumerate`` counts in, from wherever it starts; or empty."""
    first = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) else None
    is_counted = any(name == "enumerate" for name, _ in calls_around(module, loop.iter))
    return first.id if is_counted and isinstance(first, ast.Name) else ""
