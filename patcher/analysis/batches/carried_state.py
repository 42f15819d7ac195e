"""What a training step takes over from the step before, so that its batches follow each other."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import (
    Function,
    ancestors,
    below,
    bound_names,
    everywhere,
    is_within,
    names_within,
    position,
    within,
)
from ..language.name_flow import Tainted, names_in, roots, spread
from ..training.program import Program
from ..training.train_loops import TrainLoop, is_backward
from .batch_taint import NotDealtError
from .loss_names import names_gone_back_from

COUNTERS = {"range", "enumerate"}
COMPREHENSIONS: tuple[type[ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp], ...] = (
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)


def refuse_carried(program: Program, loop: TrainLoop, taint: Tainted) -> None:
    """Raise where a step goes on with what the step before computed from its batch."""
    module, body = loop.module, loop.steps.body
    losses = names_gone_back_from(loop)
    own = bound_names(loop.steps.target) if isinstance(loop.steps, ast.For) else set[str]()
    for name, line in carried_names(body, taint):
        if name in own:
            continue  # batch = [each.cuda() for each in batch]
        if spread(body, {name}).names & losses:
            raise NotDealtError(
                f"they follow each other: line {line} goes on with the {name} of the batch before"
            )
    for name, line in kept_by_functions(program, loop) if loop.goes_back_elsewhere else ():
        raise NotDealtError(
            f"they may follow each other: in line {line} a step keeps {name} for the next one"
        )
    for name, line in tables_of_networks(program, loop):
        raise NotDealtError(
            f"they may follow each other: in line {line} a step fills {name} of a network"
        )
    for where, attribute in kept_by_networks(program):
        if not resets(program, module, body, attribute):
            raise NotDealtError(
                f"they may follow each other: in line {where} a network keeps self.{attribute}"
                " from batch to batch"
            )


def is_of_the_round_before(use: ast.expr, store: ast.expr) -> bool:
    """Whether an inner loop reads what its own round before has bound: ``if t > 0: x = mu[i]``."""
    for up in ancestors(use):
        tests = [up.test] if isinstance(up, ast.If) else []
        tests += tests[0].values if tests and isinstance(tests[0], ast.BoolOp) else []
        numbers = {name.id for test in tests for name in (number_above_0(test),) if name}
        for loop in ancestors(up) if numbers else ():
            if isinstance(loop, ast.For) and numbers & bound_names(loop.target):
                is_range = isinstance(loop.iter, ast.Call) and names_in(loop.iter.func) <= COUNTERS
                return is_range and is_within(store, loop.body)
    return False


def number_above_0(test: ast.expr) -> ast.Name | None:
    """``t`` of ``t > 0``, ``t != 0`` and ``t``."""
    match test:
        case ast.Compare(left=ast.Name() as name, ops=[ast.Gt() | ast.NotEq()], comparators=[zero]):
            return name if isinstance(zero, ast.Constant) and zero.value == 0 else None
        case ast.Name():
            return test
    return None


def carried_names(body: list[ast.stmt], taint: Tainted) -> Iterator[tuple[str, int]]:
    """Names that a step reads before it binds them, and that hold something of a batch."""
    own = names_of_comprehensions(body)
    for name in sorted(bound_names(body) & taint.names):
        uses = sorted(set(names_within(body, {name})) - own, key=position)
        stores = [use for use in uses if isinstance(use.ctx, ast.Store)]
        loads = [use for use in uses if isinstance(use.ctx, ast.Load)]
        if not stores:
            continue
        first = next(
            (
                stmt
                for kind in (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For, ast.With)
                for stmt in within(body, kind)
                if is_within(stores[0], [stmt])
            ),
            None,
        )
        if first is None:
            continue  # in the head of a test, which binds it before it goes on
        early = [
            use
            for use in loads
            if (position(use) < position(stores[0]) and not is_of_the_round_before(use, stores[0]))
            or (use in below(first) and not isinstance(first, ast.For | ast.With | ast.If))
        ]
        if early:
            yield name, early[0].lineno
        elif isinstance(first, ast.AugAssign):
            yield name, first.lineno


def kept_by_functions(program: Program, loop: TrainLoop) -> Iterator[tuple[str, int]]:
    """What functions of a step bind for other functions or later steps, and a loss is made of.

    Attributes of objects and global names; each with the line where it is bound.
    """
    found = program.functions_below(loop.module, *loop.steps.body)
    places = [each for _, each in found if each.name != "forward"]
    read: dict[str, list[Function]] = {}
    for function in places:
        for name in {*names_in(function)}:
            read.setdefault(name, []).append(function)
    for function in places:
        shared = {name for each in within(function.body, ast.Global) for name in each.names}
        shared |= {name for each in within(function.body, ast.Nonlocal) for name in each.names}
        bindings: list[tuple[ast.stmt, list[ast.expr]]] = [
            (each, each.targets) for each in within(function.body, ast.Assign)
        ]
        bindings += [(each, [each.target]) for each in within(function.body, ast.AugAssign)]
        for stmt, targets in bindings:
            for name in sorted(set[str]().union(*map(roots, targets))):
                is_kept = name.startswith("self.") or name in shared
                if is_kept and any(
                    leads_to_loss(each, name, each is not function) for each in read.get(name, ())
                ):
                    yield name, stmt.lineno


def tables_of_networks(program: Program, loop: TrainLoop) -> Iterator[tuple[str, int]]:
    """Tables that methods of networks fill in a step and read: ``self.memory[nodes] = values``.

    Each with the line where an element is set.
    """
    for module, function in program.functions_below(loop.module, *loop.steps.body):
        owner = module.enclosing_class(function)
        if owner is None or not any(module.last_name(base) == "Module" for base in owner.bases):
            continue
        for stmt in within(function.body, ast.Assign):
            for target in stmt.targets:
                match target:
                    case ast.Subscript(
                        value=ast.Attribute(value=ast.Name(id="self"), attr=name), slice=index
                    ) if not isinstance(index, ast.Constant):
                        reads = [
                            each
                            for each in everywhere(owner, ast.Attribute)
                            if each.attr == name and each is not target.value
                        ]
                        if any(isinstance(each.ctx, ast.Load) for each in reads):
                            yield f"self.{name}", stmt.lineno


def leads_to_loss(function: Function, name: str, is_bound_elsewhere: bool) -> bool:
    """Whether a function makes a loss of a name; where it binds it too, of what it had before."""
    losses = {
        each
        for call in within(function.body, ast.Call)
        if is_backward(call) and isinstance(call.func, ast.Attribute)
        for each in names_in(call.func.value)
    }
    if not spread(function.body, {name}).names & losses:
        return False
    if is_bound_elsewhere:
        return True
    found: list[ast.Name | ast.Attribute] = []
    for attribute in within(function.body, ast.Attribute):
        if f"self.{attribute.attr}" == name:
            found.append(attribute)
    found += names_within(function.body, {name})
    stores = sorted((each for each in found if isinstance(each.ctx, ast.Store)), key=position)
    if not stores:
        return True  # an element of it
    for stmt in within(function.body, ast.Assign):
        if is_within(stores[0], [stmt]):
            return any(
                position(each) < position(stores[0]) or each in below(stmt.value)
                for each in found
                if isinstance(each.ctx, ast.Load)
            )
    return True


def names_of_comprehensions(body: list[ast.stmt]) -> set[ast.Name]:
    """The uses of names that a comprehension binds for itself: ``[x.cuda() for x in batch]``."""
    found: set[ast.Name] = set()
    for kind in COMPREHENSIONS:
        for each in within(body, kind):
            bound = set().union(*(bound_names(part.target) for part in each.generators))
            found |= {name for name in everywhere(each, ast.Name) if name.id in bound}
    return found


def kept_by_networks(program: Program) -> Iterator[tuple[int, str]]:
    """Attributes that a forward pass reads before it binds them: ``self.hidden``."""
    for module in program.modules:
        for owner in module.nodes(ast.ClassDef):
            for method in owner.body:
                if not (isinstance(method, ast.FunctionDef) and method.name == "forward"):
                    continue
                own = [
                    node
                    for node in within(method.body, ast.Attribute)
                    if isinstance(node.value, ast.Name) and node.value.id == "self"
                ]
                for store in own:
                    if not isinstance(store.ctx, ast.Store):
                        continue
                    stmt = module.statement(store)
                    if any(
                        load.attr == store.attr
                        and isinstance(load.ctx, ast.Load)
                        and (load.lineno < store.lineno or load in below(stmt))
                        for load in own
                    ) and program.is_live(module, store):
                        yield store.lineno, store.attr


def resets(program: Program, module: Module, body: list[ast.stmt], attribute: str) -> bool:
    """Whether a step binds an attribute anew, itself or by a method that does."""
    blocks = [body]
    for call in within(body, ast.Call):
        called = program.callees(module, call)
        blocks += [function.body for _, function in called if function.name != "forward"]
    return any(
        node.attr == attribute and isinstance(node.ctx, ast.Store)
        for block in blocks
        for node in within(block, ast.Attribute)
    )
