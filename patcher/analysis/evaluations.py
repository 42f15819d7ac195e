"""Loops over a loader with a model in eval mode, and what is left of them behind.

An evaluation is all that a function does, or stands among the statements that train.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from ...record import record
from ..source.module import Module
from ..source.tree import (
    FUNCTIONS,
    Function,
    assigned_pairs,
    bound_names,
    is_empty_list,
    is_inside,
    is_number,
    names_within,
    number_of,
    parameters,
    place,
    within,
)
from .loaders import Loader, loader_of
from .train_loops import is_backward

if TYPE_CHECKING:
    from .program import Program


COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
GRADLESS = ("no_grad", "inference_mode")
TOLD = ("print", "info", "debug", "warning", "set_description", "set_postfix", "update")
FILLS = ("append", "extend", "update", "add", "add_batch", "insert", "setdefault", "put")
WRITES = ("write", "writelines", "writerow", "writerows", "dump", "save", "add_scalar")


@record
class Evaluation:
    """A loop over a loader with a model in eval mode: a function's own, or in the training code.

    ``function`` is the one that does nothing else; None where the loop stands inline.
    """

    module: Module
    function: Function | None
    loop: ast.For
    loader: Loader
    mode: ast.stmt  # model.eval(), or the loop where nobody asks for it
    model: str  # the model put in eval mode, as it is spelled

    @property
    def name(self) -> str:
        """What a message calls it."""
        if self.function is None:
            return f"the evaluation in line {self.loop.lineno}"
        return f"{self.function.name}()"

    @property
    def before(self) -> list[ast.stmt]:
        """Statements above the loop in its block, and above a ``with`` that is all around it."""
        found: list[ast.stmt] = []
        node: ast.stmt = self.loop
        while True:
            body = self.module.body(node)
            found = [*body[: body.index(node)], *found]
            above = self.module.parents[node]
            if not isinstance(above, ast.With):
                return found
            node = above

    @cached_property
    def touched(self) -> set[str]:
        """Names that the loop binds, and those whose methods it calls."""
        return bound_names(self.loop) | {
            call.func.value.id
            for call in within(self.loop.body, ast.Call)
            if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name)
        }

    def leaves(self, name: str) -> bool:
        """Whether a name may be read, outside of the loop, as it left it."""
        return name in self.touched and survives(self.module, self.loop, name)

    @cached_property
    def accumulators(self) -> dict[str, ast.stmt] | None:
        """Lists and numbers that the loop fills and later statements read, with their start.

        None when the loop keeps something else, or leaves early: then no share of it can be added
        up to the whole.
        """
        if self.loop.orelse:
            return None
        if any(within(self.loop.body, kind) for kind in (ast.Break, ast.Return)):
            return None
        start: dict[str, ast.stmt] = {}
        for stmt in self.before:
            if isinstance(stmt, ast.Assign):
                for name, value in assigned_pairs(stmt):
                    start[name] = stmt
                    if not is_empty_list(value) and not is_number(value):
                        del start[name]
        filled = filled_in(self.module, self.loop, set(start))
        if filled is None or counts_by(self.module, self.loop, filled):
            return None
        if any(map(self.leaves, bound_names(self.loop) - set(start))):
            return None
        if self.loader.name in behind(self.module, self.loop) and self.leaves(self.loader.name):
            return None
        if keeps_elsewhere(self, set(start)):
            return None
        return {
            name: start[name] for name in sorted(filter(self.leaves, filled), key=list(start).index)
        }


def filled_in(module: Module, loop: ast.For, start: set[str]) -> set[str] | None:
    """Names of ``start`` that the body appends or adds to; None where it does anything else."""
    filled: set[str] = set()
    if any(bound_names(stmt) & start for stmt in within(loop.body, ast.Assign)):
        return None
    for name in names_within(loop.body, start):
        held = module.parents[name]
        if isinstance(held, ast.Attribute) and is_called(module, held):
            if held.attr not in ("append", "extend"):
                return None
            filled.add(name.id)
    for stmt in within(loop.body, ast.AugAssign):
        if isinstance(stmt.target, ast.Name):
            if not isinstance(stmt.op, ast.Add):
                return None
            filled.add(stmt.target.id)
    return filled if filled <= start else None


def is_called(module: Module, func: ast.expr) -> bool:
    """Whether an expression is what a call calls."""
    call = module.parents[func]
    return isinstance(call, ast.Call) and call.func is func


def keeps_elsewhere(evaluation: Evaluation, start: set[str]) -> bool:
    """Whether the body fills a meter, a table or a file, which no sum or list stands for."""
    module, body = evaluation.module, evaluation.loop.body
    made = bound_names(evaluation.before) - start if evaluation.before else set()
    for call in within(body, ast.Call):
        if any(word.arg == "file" for word in call.keywords):
            return True
        if not isinstance(call.func, ast.Attribute):
            continue
        name, held = call.func.attr, call.func.value
        if name in WRITES and not module.dotted(call.func).startswith("tqdm"):
            return True
        if isinstance(held, ast.Name):
            kept = held.id not in start and (held.id in made or name in FILLS)
            if kept and evaluation.leaves(held.id):
                return True
        elif isinstance(held, ast.Attribute) and name in FILLS:
            return True
    contexts = [node.ctx for node in within(body, ast.Subscript)]
    contexts += [node.ctx for node in within(body, ast.Attribute)]
    return not all(isinstance(context, ast.Load) for context in contexts)


def counts_by(module: Module, loop: ast.For, filled: set[str]) -> bool:
    """Whether the body computes with its batch's number, or with what it has gathered so far.

    A share starts from 0 again; a test and a message may ask.
    """
    numbers = set(filled)
    first = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) else loop.target
    counted = isinstance(loop.iter, ast.Call) and module.dotted(loop.iter.func) == "enumerate"
    if isinstance(first, ast.Name) and counted:
        numbers.add(first.id)
    return any(
        isinstance(name.ctx, ast.Load) and not is_told(module, name)
        for name in names_within(loop.body, numbers)
    )


def is_told(module: Module, name: ast.Name) -> bool:
    """A read for a test, for a message, or to append to it."""
    child: ast.AST = name
    for up in module.ancestors(name):
        if isinstance(up, ast.If) and child is up.test:
            return True
        if isinstance(up, ast.Call):
            last = module.last_name(up.func)
            if last in TOLD or (child is up.func and last in ("append", "extend")):
                return True
        if isinstance(up, ast.stmt):
            return False
        child = up
    return False


def behind(module: Module, loop: ast.For) -> set[str]:
    """Names read in the statements behind the loop, in the block that holds it."""
    body = module.body(loop)
    rest = body[body.index(loop) + 1 :]
    return {name.id for name in within(rest, ast.Name) if isinstance(name.ctx, ast.Load)}


def survives(module: Module, loop: ast.For, name: str) -> bool:
    """Whether a name may be read, outside of the loop, as it left it."""
    reads = names_within(module.scope_statements(loop), {name})
    if all(is_inside(read, loop) for read in reads):
        return False
    rounds = [up for up in module.ancestors(loop) if isinstance(up, (ast.For, ast.While))]
    return any(may_see(module, read, loop, rounds) for read in reads)


def may_see(
    module: Module, name: ast.Name, loop: ast.For, rounds: list[ast.For | ast.While]
) -> bool:
    """Whether a name may be read as the loop, inside the loops ``rounds``, left it.

    It is not where it was bound anew on every way to the read: behind the loop, or, above it in an
    enclosing loop, since that one's round began.
    """
    if not isinstance(name.ctx, ast.Load) or is_inside(name, loop):
        return False
    first = loop.end_lineno or loop.lineno
    if name.lineno <= loop.lineno:
        around = [up for up in rounds if is_inside(name, up)]
        if not around:
            return False
        first = around[-1].lineno - 1
    return not is_bound_between(module, name, first)


def is_bound_between(module: Module, name: ast.Name, first: int) -> bool:
    """Whether every way from below line ``first`` to the read binds the name."""
    for store in module.stores.get((module.function(name), name.id), ()):
        if first < store.lineno <= name.lineno:
            stmt = module.statement(store)
            plain = isinstance(stmt, (ast.Assign, ast.AnnAssign)) and stmt.lineno > first
            if plain and stands_above(module, stmt, name):
                return True
    child: ast.AST = name
    for up in module.ancestors(name):
        if isinstance(up, FUNCTIONS):
            break
        if isinstance(up, COMPREHENSIONS) and any(
            name.id in bound_names(part.target) for part in up.generators
        ):
            return True
        inside = isinstance(up, ast.For) and up.lineno > first and child in up.body
        if inside and name.id in bound_names(up.target):  # type: ignore[attr-defined]
            return True
        child = up
    return False


def stands_above(module: Module, stmt: ast.stmt, node: ast.AST) -> bool:
    """Whether a statement stands above ``node`` in a block that holds both."""
    table, number = place(stmt)
    last = number_of(module.body(stmt)[-1])
    return table.ends[number] <= number_of(node) < table.ends[last]


def evaluating(module: Module) -> list[Function]:
    """Functions in which something is put in eval mode, or runs without gradients."""
    asking = {module.function(call) for call in module.calls_to("eval", *GRADLESS)}
    return [
        function
        for function in module.functions.values()
        if function in asking or decorated(module, function)
    ]


def in_function(program: Program, module: Module, function: Function) -> Iterator[Evaluation]:
    """The evaluations that are all a function does: one per loop over a loader."""
    calls = within(function.body, ast.Call)
    if any(is_backward(call) for call in calls):
        return
    modes = [call for call in calls if is_eval_mode(call)]
    asked = any(module.last_name(call.func) in GRADLESS for call in calls)
    if not (modes or asked or decorated(module, function)):
        return
    for loop in within(function.body, ast.For):
        loader = loader_of(program, module, loop)
        if loader is None:
            continue
        if modes:
            mode, model = module.statement(modes[0]), owner(module, modes[0])
            yield Evaluation(module, function, loop, loader, mode, model)
        elif models := called_parameters(function, loop):
            yield Evaluation(module, function, loop, loader, loop, models[0])


def decorated(module: Module, function: Function) -> bool:
    """Whether a decorator keeps a function from making gradients."""
    nodes = function.decorator_list
    funcs = [node.func if isinstance(node, ast.Call) else node for node in nodes]
    return any(module.last_name(func) in GRADLESS for func in funcs)


def called_parameters(function: Function, loop: ast.For) -> list[str]:
    """Parameters that the loop calls: a model that nobody puts in eval mode."""
    known = parameters(function)
    calls = (call.func for call in within(loop.body, ast.Call))
    return [func.id for func in calls if isinstance(func, ast.Name) and func.id in known]


def is_eval_mode(call: ast.Call) -> bool:
    """``model.eval()`` or ``self.model.eval()``."""
    func = call.func
    return (
        isinstance(func, ast.Attribute)
        and func.attr == "eval"
        and not call.args
        and (
            isinstance(func.value, ast.Name)
            or (isinstance(func.value, ast.Attribute) and isinstance(func.value.value, ast.Name))
        )
    )


def owner(module: Module, call: ast.Call) -> str:
    """What stands before the dot of a method's call."""
    assert isinstance(call.func, ast.Attribute)
    return module.text(call.func.value)


def opened(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements, those of a ``with`` in the place of it."""
    for stmt in body:
        yield from opened(stmt.body) if isinstance(stmt, ast.With) else [stmt]


def inline(program: Program, module: Module) -> Iterator[Evaluation]:
    """Evaluations among the statements that train, or at module level."""
    scopes = {module.function(call) for call in module.calls_to("backward")} | {None}
    modes = [call for call in module.calls_to("eval") if is_eval_mode(call)]
    for mode in modes:
        if module.function(mode) not in scopes:
            continue
        stmt = module.statement(mode)
        body = module.body(stmt)
        for follower in opened(body[body.index(stmt) + 1 :]):
            if isinstance(follower, ast.For):
                loader = loader_of(program, module, follower)
                if any(is_backward(call) for call in within(follower, ast.Call)):
                    break
                if loader is not None and loader.cycle is None:
                    yield Evaluation(module, None, follower, loader, stmt, owner(module, mode))
                    break
            elif isinstance(follower, ast.Expr) and any(
                isinstance(call.func, ast.Attribute) and call.func.attr == "train"
                for call in within(follower, ast.Call)
            ):
                break
