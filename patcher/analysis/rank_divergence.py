"""Decisions that ranks take differently because each looks at its own share of the data.

A walk through a training function in source order, keeping the names whose value comes from this
rank's batches: what a later assignment makes anew, or a collective makes equal, is forgotten.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...record import record
from ..source.module import Module
from ..source.tree import Function, below, bound_names, place, within
from .loaders import loader_of
from .program import Program
from .train_loops import TrainLoop

# Calls that answer alike on every rank, or of which only the size of the argument matters.
AGREED = {
    *("gathered", "mean_of_ranks", "on_any_rank", "all_gather", "all_reduce", "gather"),
    *("gather_for_metrics", "reduce", "len", "isinstance", "type", "hasattr"),
}
IN_PLACE = {"all_reduce", "broadcast", "broadcast_object_list", "all_gather_object", "all_gather"}
SHAPE = {"shape", "size", "device", "dtype", "dim", "ndim"}
FILLS = {"append", "extend", "add", "update"}
Exit = ast.Break | ast.Continue | ast.Return


@record
class Decision:
    """An exit from a training loop, and the outermost test by which a rank comes to it alone."""

    loop: TrainLoop
    exit: Exit
    test: ast.If
    names: frozenset[str]  # of the test, made of this rank's data outside of it


def decisions(program: Program, loop: TrainLoop, agreed: set[str]) -> Iterator[Decision]:
    """Exits that a rank takes by its own data; ``agreed`` names functions that answer alike."""
    module = loop.module
    if not exits(loop):
        return
    partial = {
        f"{e.function.name}()" for e in program.evaluations if e.function and e.loader.distributed
    }
    walk = _DivergenceWalk(program, module, loop, AGREED | SHAPE | agreed, partial, {}, {}, {})
    walk.block(module.scope_statements(loop.steps), partial, None)
    for leaving, test in walk.exits.items():
        if leaves_training(loop, leaving):
            names = {
                name
                for name in walk.read(test.test) & set(walk.made)
                if any(test not in (up, *module.ancestors(up)) for up in walk.made[name])
            }
            yield Decision(loop, leaving, test, frozenset(names))


def exits(loop: TrainLoop) -> list[Exit]:
    """Statements under a test that make a rank go through fewer batches than it would."""
    found: list[Exit] = []
    for kind in (ast.Break, ast.Continue, ast.Return):
        found += within(loop.scope, kind)
    return [
        leaving
        for leaving in found
        if isinstance(loop.module.parents[leaving], ast.If) and leaves_training(loop, leaving)
    ]


def leaves_training(loop: TrainLoop, leaving: Exit) -> bool:
    """Whether an exit makes this rank go through fewer batches than it would."""
    ups = list(loop.module.ancestors(leaving))
    around = [up for up in ups if isinstance(up, ast.For | ast.While)]
    training = {loop.steps, *loop.module.ancestors(loop.steps)}
    if not around or around[0] not in training:
        # A loop of its own inside the training loop: only a return gets out of it.
        return isinstance(leaving, ast.Return) and any(up in training for up in around)
    if isinstance(leaving, ast.Continue):
        if around[0] is loop.steps:
            return any(leaving.lineno < call.lineno for call in loop.backwards)
        return leaving.lineno < loop.steps.lineno
    return True


@record
class _DivergenceWalk:
    """What is known on the way; ``made`` and ``exits`` are what the walk is for."""

    program: Program
    module: Module
    loop: TrainLoop
    agreed: set[str]
    partial: set[str]  # calls of evaluations that score this rank's part
    made: dict[str, set[ast.stmt]]
    exits: dict[Exit, ast.If]
    known: dict[ast.AST, set[str]]

    def block(self, body: list[ast.stmt], own: set[str], under: ast.If | None) -> set[str]:
        """Names of this rank's data behind ``body``; ``under`` is the test it stands under."""
        own = set(own)
        for stmt in body:
            own = self.statement(stmt, own, under)
        return own

    def statement(self, stmt: ast.stmt, own: set[str], under: ast.If | None) -> set[str]:
        match stmt:
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign() if stmt.value is not None:
                self.assign(stmt, own, under)
            case ast.Expr(value=ast.Call() as call):
                self.call(stmt, call, own, under)
            case ast.If():
                inner = under or (stmt if self.tells(stmt.test, own) else None)
                after = self.block(stmt.body, own, inner)
                return after | self.block(stmt.orelse, own, inner)
            case ast.For() | ast.AsyncFor() | ast.While():
                return self.repeated(stmt, own, under)
            case ast.With() | ast.AsyncWith():
                return self.block(stmt.body, own, under)
            case ast.Try():
                parts = [stmt.body, stmt.orelse, stmt.finalbody, *(h.body for h in stmt.handlers)]
                return own.union(*(self.block(part, own, under) for part in parts))
            case ast.Break() | ast.Continue() | ast.Return():
                if under is not None:
                    self.exits.setdefault(stmt, under)
        return own

    def repeated(
        self, loop: ast.For | ast.AsyncFor | ast.While, own: set[str], under: ast.If | None
    ) -> set[str]:
        for _ in range(2):  # what a round leaves, the next one may read
            inside = set(own)
            if isinstance(loop, ast.For):
                names = bound_names(loop.target)
                if self.deals_a_share(loop):
                    names.discard(self.loop.step_name)
                    for name in names:
                        self.made.setdefault(name, set()).add(loop)
                    inside |= names
                elif self.tells(loop.iter, own):
                    inside |= names
                else:
                    inside -= names
            after = own | self.block(loop.body, inside, under)
            if after == own:
                break
            own = after
        return self.block(loop.orelse, own, under)

    def deals_a_share(self, loop: ast.For) -> bool:
        """Whether this rank goes through a part of the batches of its own."""
        if loop is self.loop.steps:
            return self.loop.loader is not None
        found = loader_of(self.program, self.module, loop)
        return found is not None and bool(found.distributed)

    def assign(
        self, stmt: ast.Assign | ast.AnnAssign | ast.AugAssign, own: set[str], under: ast.If | None
    ) -> None:
        assert stmt.value is not None
        told = under is not None or self.tells(stmt.value, own)
        targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
        for target in targets:
            for node in below(target):
                name = named(node)
                if not name:
                    continue
                if told:
                    own.add(name)
                    self.made.setdefault(name, set()).add(stmt)
                elif not isinstance(stmt, ast.AugAssign) and not isinstance(target, ast.Subscript):
                    own.discard(name)

    def call(self, stmt: ast.stmt, call: ast.Call, own: set[str], under: ast.If | None) -> None:
        last = self.module.last_name(call.func)
        if last in IN_PLACE:
            own -= {named(arg) for arg in call.args}
        elif isinstance(call.func, ast.Attribute) and last in FILLS:
            name = named(call.func.value)
            if name and (under or any(self.tells(arg, own) for arg in call.args)):
                own.add(name)
                self.made.setdefault(name, set()).add(stmt)

    def tells(self, node: ast.AST, own: set[str]) -> bool:
        """Whether the value of an expression depends on this rank's data."""
        return bool(own) and not own.isdisjoint(self.reads(node))

    def reads(self, node: ast.AST) -> set[str]:
        """Names, and calls of functions, that the value of an expression depends on."""
        if node not in self.known:
            self.known[node] = set(self._reads(node))
        return self.known[node]

    def _reads(self, node: ast.AST) -> Iterator[str]:
        table, index = place(node)
        end = table.ends[index]
        while index < end:
            part = table.nodes[index]
            called = self.module.last_name(part.func) if isinstance(part, ast.Call) else ""
            if called in self.agreed or (isinstance(part, ast.Attribute) and part.attr in SHAPE):
                index = table.ends[index]
                continue
            if called:
                yield f"{called}()"
            if name := named(part):
                yield name
            index += 1

    def read(self, node: ast.AST) -> set[str]:
        """Names that an expression depends on."""
        own = {name for name in map(named, below(node)) if name}
        return {name for name in own if self.tells(node, {name, *self.partial})}


def named(node: ast.AST) -> str:
    """A plain name, or an attribute of ``self``; the empty string for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"self.{node.attr}" if node.value.id == "self" else ""
    return ""


def in_lock_step(loop: TrainLoop, stmt: ast.stmt) -> bool:
    """Whether all ranks of a training pass ``stmt`` equally often."""
    training = {loop.steps, *loop.module.ancestors(loop.steps)}
    return all(
        up in training
        for up in loop.module.ancestors(stmt)
        if isinstance(up, ast.For | ast.While | ast.Try | Function)
    )


def is_number_test(module: Module, test: ast.expr, names: frozenset[str]) -> bool:
    """Whether a test compares each of the names as a number."""
    compared = {
        name
        for compare in within(test, ast.Compare)
        if all(isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for op in compare.ops)
        for side in (compare.left, *compare.comparators)
        for name in plain_names(module, side)
    }
    return names <= compared


def plain_names(module: Module, node: ast.expr) -> set[str]:
    """Names in an arithmetic expression of numbers."""
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
