"""Losses in which the examples of a batch have mixed, by a walk through a training step.

Each name is followed by what it is to the examples: one row for each, or means over them. A mean of
what examples give is alike for one process and for ranks; a product of means, a row less the mean
of all rows, and what compares examples are not. Where the kind of a value is not known, nothing is
said.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from ...source.module import Module
from ...source.tree import Function, bound_names, parameters, within
from ..language.passed_arguments import argument_for_parameter
from ..models.model_results import forward_of
from ..ranks.divergence_walk import variable_name
from ..training.program import Program
from ..training.train_loops import TrainLoop, is_backward
from .batch_functions import BENDS, COMPARES, MEETS, called, multiplied, pairs, product
from .batch_values import FREE, BatchValue, Mixture, ValueKind, as_kind, bent, joined, mixture
from .loss_reduction import FUNCTIONS_OF_LOSS, LOSS, Reduction, reduction_of
from .steps_apart import names_of_batch

MAX_DEPTH = 4
FILLING = ("append", "extend", "add")
SIZES = ast.Lt | ast.LtE | ast.Gt | ast.GtE
ALIKE = ("shape", "device", "dtype", "ndim")
Names = dict[str, BatchValue]


def mixed_examples(program: Program, loop: TrainLoop) -> Iterator[Mixture]:
    """Where examples have mixed in the losses that a loop goes back from, each place once."""
    if loop.loader is None or not isinstance(loop.steps, ast.For):
        return
    walk = BatchWalk(program)
    names = {name: BatchValue(ValueKind.ROWS, is_bundle=True) for name in names_of_batch(loop)}
    walk.block(loop.module, loop.steps.body, names)
    yield from walk.found


class BatchWalk:
    """A walk through the code of a step; ``found`` are the places where its losses have mixed."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.found: list[Mixture] = []
        self.running: list[Function] = []

    def block(self, module: Module, body: list[ast.stmt], names: Names) -> list[BatchValue]:
        """Walk through statements, and return the values that they return."""
        return [value for stmt in body for value in self.statement(module, stmt, names)]

    def statement(self, module: Module, stmt: ast.stmt, names: Names) -> list[BatchValue]:
        match stmt:
            case ast.Assign(targets=targets, value=value):
                self.assign(module, targets, value, names)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self.assign(module, [target], value, names)
            case ast.AugAssign(target=target, op=op, value=value):
                before, given = (self.value(module, each, names) for each in (target, value))
                bind(target, self.operated(module, value, before, op, given), names)
            case ast.Expr(value=ast.Call() as call):
                self.expression(module, call, names)
            case ast.Return(value=ast.expr() as value):
                return [self.value(module, value, names)]
            case ast.If():
                return self.branches(module, stmt, names)
            case ast.For(target=target, iter=iterated, body=body):
                self.go_over(module, target, iterated, names)
                return self.block(module, body, names)
            case ast.With(body=body) | ast.While(body=body):
                return self.block(module, body, names)
            case ast.Try(body=body, orelse=orelse, finalbody=final):
                return self.block(module, [*body, *orelse, *final], names)
        return []

    def expression(self, module: Module, call: ast.Call, names: Names) -> None:
        """A statement that is a call: a backward pass, or one that fills what it is called on."""
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if owner is None or not is_backward(call):
            given = self.value(module, call, names)
            method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            if owner is not None and (method in FILLING or method.endswith("_")):
                kept = joined(self.value(module, owner, names), given)
                bind(owner, BatchValue(kept.kind, kept.mixed, is_bundle=True), names)
            return
        loss = self.value(module, call.args[0] if call.args else owner, names)
        if loss.mixed is not None and loss.mixed not in self.found:
            self.found.append(loss.mixed)

    def branches(self, module: Module, test: ast.If, names: Names) -> list[BatchValue]:
        """Both branches of a test; what they bind may be of either."""
        asked = self.value(module, test.test, names)
        bound = bound_names([*test.body, *test.orelse])
        before = {name: names[name] for name in bound & names.keys()}
        results = self.block(module, test.body, names)
        first = {name: names[name] for name in bound & names.keys()}
        names.update(before)
        results += self.block(module, test.orelse, names)
        decided = self.decided(module, test.test, asked)
        for name in bound & {*first, *names}:
            both = joined(first.get(name, FREE), names.get(name, FREE))
            if decided is not None:
                names[name] = BatchValue(both.kind, both.mixed or decided, both.shifted)
            elif first.get(name) != names.get(name):
                names[name] = both
        return results

    def decided(self, module: Module, test: ast.expr, asked: BatchValue) -> Mixture | None:
        """The place where a test asks how large a mean over the batch is; None for others."""
        if asked.kind is not ValueKind.MEAN or asked.is_sum:
            return None
        for compare in within(test, ast.Compare):
            ends = [compare.left, *compare.comparators]
            is_zero = any(isinstance(each, ast.Constant) and each.value == 0 for each in ends)
            if not is_zero and all(isinstance(op, SIZES) for op in compare.ops):
                return mixture(
                    module, test, ValueKind.MEAN, asked, "{} asks for one rank's mean"
                ).mixed
        return None

    def go_over(self, module: Module, target: ast.expr, iterated: ast.expr, names: Names) -> None:
        """Bind what a loop goes over: a number may pick one example, a row is that of one."""
        given = self.value(module, iterated, names)
        is_number = isinstance(iterated, ast.Call) and module.last_name(iterated.func) != "items"
        is_plain = given.kind is ValueKind.FREE and not is_number
        bind(target, FREE if is_plain else BatchValue(ValueKind.VAGUE, given.mixed), names)

    def assign(self, module: Module, targets: list[ast.expr], node: ast.expr, names: Names) -> None:
        value = self.value(module, node, names)
        for target in targets:
            bind(target, value, names)

    def value(self, module: Module, node: ast.expr, names: Names) -> BatchValue:
        """What an expression is to the examples of the batch."""

        def of(part: ast.expr) -> BatchValue:
            return self.value(module, part, names)

        match node:
            case ast.Name() | ast.Attribute() if variable_name(node) in names:
                return names[variable_name(node)]
            case ast.Attribute(value=owner, attr=attr):
                given = FREE if attr in ALIKE else of(owner)
                if attr == "T" and given.kind is ValueKind.ROWS:
                    return as_kind(given, ValueKind.TURNED)
                return (
                    as_kind(given, ValueKind.VAGUE) if attr == "loss" and given != FREE else given
                )
            case ast.BinOp(left=left, op=op, right=right):
                return self.operated(module, node, of(left), op, of(right))
            case ast.Compare(left=left, comparators=others):
                return self.compared(module, node, [of(left), *map(of, others)])
            case ast.BoolOp(values=values):
                return bent(joined(*map(of, values)))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                both = joined(of(body), of(orelse))
                mixed = both.mixed or self.decided(module, test, of(test))
                return BatchValue(both.kind, mixed, both.shifted)
            case ast.Subscript(value=owner, slice=index):
                return self.picked(of(owner), index, of)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                each = tuple(map(of, parts))
                made = joined(*each)
                return BatchValue(made.kind, made.mixed, made.shifted, is_bundle=True, parts=each)
            case ast.Dict(values=parts):
                made = joined(*map(of, parts))
                return BatchValue(made.kind, made.mixed, made.shifted, is_bundle=True)
            case ast.ListComp(elt=element) | ast.GeneratorExp(elt=element):
                inner = dict(names)
                for part in node.generators:
                    self.go_over(module, part.target, part.iter, inner)
                made = self.value(module, element, inner)
                is_known = made.kind in (ValueKind.FREE, ValueKind.MEAN)
                return as_kind(made, made.kind if is_known else ValueKind.VAGUE)
            case ast.UnaryOp(operand=inner) | ast.Starred(value=inner) | ast.NamedExpr(value=inner):
                return of(inner)
            case ast.Call():
                return self.call(module, node, names)
        return FREE

    def operated(
        self, module: Module, node: ast.expr, left: BatchValue, op: ast.operator, right: BatchValue
    ) -> BatchValue:
        """``left + right`` and other operators."""
        whole = joined(left, right)
        match op:
            case ast.Add() | ast.Sub():
                shifted = whole.shifted
                is_shift = {left.kind, right.kind} == {ValueKind.ROWS, ValueKind.MEAN}
                if is_shift and shifted is None and not (left.is_extreme or right.is_extreme):
                    shifted = mixture(module, node, ValueKind.ROWS, FREE, MEETS).mixed
                is_flat = left.is_flat and (right.is_flat or right.kind is not ValueKind.ROWS)
                return pairs(module, node, left, right) or BatchValue(
                    whole.kind, whole.mixed, shifted, is_flat, is_sum=whole.is_sum
                )
            case ast.Mult() | ast.Div():
                return product(module, node, left, right, isinstance(op, ast.Div))
            case ast.MatMult():
                return multiplied(left, right)
            case ast.Pow() if left.kind is ValueKind.MEAN and right.kind is ValueKind.FREE:
                return mixture(module, node, ValueKind.MEAN, whole, BENDS)
        return bent(whole)

    def compared(self, module: Module, node: ast.expr, values: list[BatchValue]) -> BatchValue:
        """``left < right``: one truth for each example, or one of the whole batch."""
        whole, kinds = bent(joined(*values)), {each.kind for each in values}
        if {ValueKind.ROWS, ValueKind.MEAN} <= kinds:
            whole = mixture(module, node, ValueKind.ROWS, whole, MEETS)
        elif kinds == {ValueKind.ROWS, ValueKind.AHEAD}:
            whole = mixture(module, node, ValueKind.ROWS, whole, COMPARES)
        is_sum = whole.is_sum or whole.kind is ValueKind.ROWS
        return BatchValue(whole.kind, whole.mixed, is_flat=values[0].is_flat, is_sum=is_sum)

    def picked(
        self, value: BatchValue, index: ast.expr, of: Callable[[ast.expr], BatchValue]
    ) -> BatchValue:
        """``value[index]``."""
        is_rows = value.kind is ValueKind.ROWS
        first, others = index, list[ast.expr]()
        if isinstance(index, ast.Tuple) and index.elts:
            first, *others = index.elts
        if isinstance(index, ast.Constant) and isinstance(index.value, int):
            if index.value < len(value.parts):
                return value.parts[index.value]
            if value.is_bundle:
                return value
        if value.is_bundle and isinstance(index, ast.Constant):
            return value
        if isinstance(first, ast.Slice):
            is_column = len(others) == 1 and isinstance(others[0], ast.Constant)
            by = joined(*map(of, others))
            return BatchValue(
                value.kind, value.mixed or by.mixed, value.shifted, is_rows and is_column
            )
        if isinstance(first, ast.Constant):
            if first.value is Ellipsis:
                return value
            kind = ValueKind.AHEAD if first.value is None else ValueKind.VAGUE
            return as_kind(value, kind) if is_rows else value
        by = of(index)
        mixed = value.mixed or by.mixed
        match value.kind, by.kind:
            case ValueKind.FREE, kind:
                return BatchValue(
                    kind if kind in (ValueKind.ROWS, ValueKind.FREE) else ValueKind.VAGUE, mixed
                )
            case ValueKind.MEAN, ValueKind.ROWS:
                return BatchValue(ValueKind.ROWS, mixed)
            case ValueKind.ROWS, (ValueKind.VAGUE | ValueKind.MEAN | ValueKind.AHEAD):
                return BatchValue(ValueKind.VAGUE, mixed)
        if is_rows and others:
            return BatchValue(ValueKind.VAGUE, mixed)
        return BatchValue(value.kind, mixed, value.shifted, value.is_flat)

    def call(self, module: Module, call: ast.Call, names: Names) -> BatchValue:
        """What a call returns: of the program's own code, of a loss, or of torch."""
        name = module.last_name(call.func)
        given = {
            node: self.value(module, node, names)
            for node in (*call.args, *(word.value for word in call.keywords))
        }
        args, owner = [*given.values()], None
        if isinstance(call.func, ast.Attribute) and not is_of_library(module, call):
            owner = self.value(module, call.func.value, names)
            owner = None if owner == FREE else owner
        whole = joined(*args, *([] if owner is None else [owner]))
        if whole == FREE:
            return FREE
        callees = self.program.callees(module, call)
        is_loss = name in FUNCTIONS_OF_LOSS or LOSS.search(name) is not None
        if not callees and is_loss:
            forward = forward_of(self.program, module, call.func)
            callees = [] if forward is None else [forward]
        if callees and len(self.running) < MAX_DEPTH:
            results = [
                self.result(module, where, function, call, given, names)
                for where, function in callees
                if function not in self.running
            ]
            return results[0] if len(results) == 1 else joined(*results)
        is_each = any(
            word.arg == "reduction" and module.text(word.value)[1:-1] == "none"
            for word in call.keywords
        )
        if not is_each and not is_loss:
            return called(module, call, name, owner, args)
        made = bent(whole)
        if any(each.kind is ValueKind.MEAN for each in args):
            made = mixture(module, call, ValueKind.MEAN, made, "{} is of means over the batch")
        if is_each:
            return BatchValue(ValueKind.ROWS, made.mixed, is_flat=True)
        is_known = reduction_of(self.program, module, call) in (Reduction.MEAN, Reduction.SUM)
        return BatchValue(ValueKind.MEAN if is_known else ValueKind.VAGUE, made.mixed)

    def result(
        self,
        module: Module,
        where: Module,
        function: Function,
        call: ast.Call,
        given: dict[ast.expr, BatchValue],
        names: Names,
    ) -> BatchValue:
        """What a function of the program returns for such arguments."""
        own = {name: value for name, value in names.items() if name.startswith("self.")}
        for name in parameters(function):
            passed = argument_for_parameter(module, function, call, name)
            if passed in given:
                own[name] = given[passed]
        self.running.append(function)
        results = self.block(where, function.body, own)
        self.running.pop()
        names.update({name: value for name, value in own.items() if name.startswith("self.")})
        return results[0] if len(results) == 1 else joined(*results)


def is_of_library(module: Module, call: ast.Call) -> bool:
    """Whether a call is of a function of torch and the like, and of no value's method."""
    return module.dotted(call.func).split(".")[0] in ("torch", "numpy", "math")


def bind(target: ast.expr, value: BatchValue, names: Names) -> None:
    """Give the names of a target a value; an element makes of its whole what is not followed."""
    match target:
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            given = value.parts if len(value.parts) == len(parts) else (value,) * len(parts)
            for part, each in zip(parts, given, strict=True):
                bind(part, each, names)
        case ast.Starred(value=inner):
            bind(inner, value, names)
        case ast.Subscript(value=owner) if variable_name(owner):
            before = names.get(variable_name(owner), FREE)
            names[variable_name(owner)] = as_kind(joined(before, value), ValueKind.VAGUE)
        case ast.Name() | ast.Attribute() if variable_name(target):
            names[variable_name(target)] = value
