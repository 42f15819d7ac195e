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
from ..training.program import Program
from ..training.train_loops import TrainLoop, is_backward
from .batch_functions import BENDS, COMPARES, MEETS, called, multiplied, pairs, product
from .batch_values import FREE, Kind, Mixture, Value, as_kind, bent, joined, mixture
from .loss_reduction import FUNCTIONS_OF_LOSS, LOSS, Reduction, reduction_of
from .steps_apart import names_of_batch

MAX_DEPTH = 4
FILLING = ("append", "extend", "add")
SIZES = ast.Lt | ast.LtE | ast.Gt | ast.GtE
ALIKE = ("shape", "device", "dtype", "ndim")
Names = dict[str, Value]


def mixed_examples(program: Program, loop: TrainLoop) -> Iterator[Mixture]:
    """Where examples have mixed in the losses that a loop goes back from, each place once."""
    if loop.loader is None or not isinstance(loop.steps, ast.For):
        return
    walk = Walk(program)
    names = {name: Value(Kind.ROWS, is_bundle=True) for name in names_of_batch(loop)}
    walk.block(loop.module, loop.steps.body, names)
    yield from walk.found


class Walk:
    """A walk through the code of a step; ``found`` are the places where its losses have mixed."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.found: list[Mixture] = []
        self.running: list[Function] = []

    def block(self, module: Module, body: list[ast.stmt], names: Names) -> list[Value]:
        """Walk through statements, and return the values that they return."""
        return [value for stmt in body for value in self.statement(module, stmt, names)]

    def statement(self, module: Module, stmt: ast.stmt, names: Names) -> list[Value]:
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
                bind(owner, Value(kept.kind, kept.mixed, is_bundle=True), names)
            return
        loss = self.value(module, call.args[0] if call.args else owner, names)
        if loss.mixed is not None and loss.mixed not in self.found:
            self.found.append(loss.mixed)

    def branches(self, module: Module, test: ast.If, names: Names) -> list[Value]:
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
            same = first.get(name) == names.get(name)
            names[name] = names[name] if same and decided is None else both
            if decided is not None:
                names[name] = Value(both.kind, both.mixed or decided, both.shifted)
        return results

    def decided(self, module: Module, test: ast.expr, asked: Value) -> Mixture | None:
        """The place where a test asks how large a mean over the batch is; None for others."""
        if asked.kind is not Kind.MEAN or asked.is_sum:
            return None
        for compare in within(test, ast.Compare):
            ends = [compare.left, *compare.comparators]
            is_zero = any(isinstance(each, ast.Constant) and each.value == 0 for each in ends)
            if not is_zero and all(isinstance(op, SIZES) for op in compare.ops):
                return mixture(module, test, Kind.MEAN, asked, "{} asks for one rank's mean").mixed
        return None

    def go_over(self, module: Module, target: ast.expr, iterated: ast.expr, names: Names) -> None:
        """Bind what a loop goes over: a number may pick one example, a row is that of one."""
        given = self.value(module, iterated, names)
        is_number = isinstance(iterated, ast.Call) and module.last_name(iterated.func) != "items"
        is_plain = given.kind is Kind.FREE and not is_number
        bind(target, FREE if is_plain else Value(Kind.VAGUE, given.mixed), names)

    def assign(self, module: Module, targets: list[ast.expr], node: ast.expr, names: Names) -> None:
        value = self.value(module, node, names)
        for target in targets:
            bind(target, value, names)

    def value(self, module: Module, node: ast.expr, names: Names) -> Value:
        """What an expression is to the examples of the batch."""

        def of(part: ast.expr) -> Value:
            return self.value(module, part, names)

        match node:
            case ast.Name() | ast.Attribute() if key(node) in names:
                return names[key(node)]
            case ast.Attribute(value=owner, attr=attr):
                given = FREE if attr in ALIKE else of(owner)
                if attr == "T" and given.kind is Kind.ROWS:
                    return as_kind(given, Kind.TURNED)
                return as_kind(given, Kind.VAGUE) if attr == "loss" and given != FREE else given
            case ast.BinOp(left=left, op=op, right=right):
                return self.operated(module, node, of(left), op, of(right))
            case ast.Compare(left=left, comparators=others):
                return self.compared(module, node, [of(left), *map(of, others)])
            case ast.BoolOp(values=values):
                return bent(joined(*map(of, values)))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                both = joined(of(body), of(orelse))
                mixed = both.mixed or self.decided(module, test, of(test))
                return Value(both.kind, mixed, both.shifted)
            case ast.Subscript(value=owner, slice=index):
                return self.picked(of(owner), index, of)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                each = tuple(map(of, parts))
                made = joined(*each)
                return Value(made.kind, made.mixed, made.shifted, is_bundle=True, parts=each)
            case ast.Dict(values=parts):
                made = joined(*map(of, parts))
                return Value(made.kind, made.mixed, made.shifted, is_bundle=True)
            case ast.ListComp(elt=element) | ast.GeneratorExp(elt=element):
                inner = dict(names)
                for part in node.generators:
                    self.go_over(module, part.target, part.iter, inner)
                made = self.value(module, element, inner)
                is_known = made.kind in (Kind.FREE, Kind.MEAN)
                return as_kind(made, made.kind if is_known else Kind.VAGUE)
            case ast.UnaryOp(operand=inner) | ast.Starred(value=inner) | ast.NamedExpr(value=inner):
                return of(inner)
            case ast.Call():
                return self.call(module, node, names)
        return FREE

    def operated(
        self, module: Module, node: ast.expr, left: Value, op: ast.operator, right: Value
    ) -> Value:
        """``left + right`` and other operators."""
        whole = joined(left, right)
        match op:
            case ast.Add() | ast.Sub():
                shifted = whole.shifted
                is_shift = {left.kind, right.kind} == {Kind.ROWS, Kind.MEAN}
                if is_shift and shifted is None and not (left.is_extreme or right.is_extreme):
                    shifted = mixture(module, node, Kind.ROWS, FREE, MEETS).mixed
                is_flat = left.is_flat and (right.is_flat or right.kind is not Kind.ROWS)
                return pairs(module, node, left, right) or Value(
                    whole.kind, whole.mixed, shifted, is_flat, is_sum=whole.is_sum
                )
            case ast.Mult() | ast.Div():
                return product(module, node, left, right, isinstance(op, ast.Div))
            case ast.MatMult():
                return multiplied(left, right)
            case ast.Pow() if left.kind is Kind.MEAN and right.kind is Kind.FREE:
                return mixture(module, node, Kind.MEAN, whole, BENDS)
        return bent(whole)

    def compared(self, module: Module, node: ast.expr, values: list[Value]) -> Value:
        """``left < right``: one truth for each example, or one of the whole batch."""
        whole, kinds = bent(joined(*values)), {each.kind for each in values}
        if {Kind.ROWS, Kind.MEAN} <= kinds:
            whole = mixture(module, node, Kind.ROWS, whole, MEETS)
        elif kinds == {Kind.ROWS, Kind.AHEAD}:
            whole = mixture(module, node, Kind.ROWS, whole, COMPARES)
        is_sum = whole.is_sum or whole.kind is Kind.ROWS
        return Value(whole.kind, whole.mixed, is_flat=values[0].is_flat, is_sum=is_sum)

    def picked(self, value: Value, index: ast.expr, of: Callable[[ast.expr], Value]) -> Value:
        """``value[index]``."""
        is_rows = value.kind is Kind.ROWS
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
            return Value(value.kind, value.mixed or by.mixed, value.shifted, is_rows and is_column)
        if isinstance(first, ast.Constant):
            if first.value is Ellipsis:
                return value
            kind = Kind.AHEAD if first.value is None else Kind.VAGUE
            return as_kind(value, kind) if is_rows else value
        by = of(index)
        mixed = value.mixed or by.mixed
        match value.kind, by.kind:
            case Kind.FREE, kind:
                return Value(kind if kind in (Kind.ROWS, Kind.FREE) else Kind.VAGUE, mixed)
            case Kind.MEAN, Kind.ROWS:
                return Value(Kind.ROWS, mixed)
            case Kind.ROWS, (Kind.VAGUE | Kind.MEAN | Kind.AHEAD):
                return Value(Kind.VAGUE, mixed)
        if is_rows and others:
            return Value(Kind.VAGUE, mixed)
        return Value(value.kind, mixed, value.shifted, value.is_flat)

    def call(self, module: Module, call: ast.Call, names: Names) -> Value:
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
        if any(each.kind is Kind.MEAN for each in args):
            made = mixture(module, call, Kind.MEAN, made, "{} is of means over the batch")
        if is_each:
            return Value(Kind.ROWS, made.mixed, is_flat=True)
        is_known = reduction_of(self.program, module, call) in (Reduction.MEAN, Reduction.SUM)
        return Value(Kind.MEAN if is_known else Kind.VAGUE, made.mixed)

    def result(
        self,
        module: Module,
        where: Module,
        function: Function,
        call: ast.Call,
        given: dict[ast.expr, Value],
        names: Names,
    ) -> Value:
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


def bind(target: ast.expr, value: Value, names: Names) -> None:
    """Give the names of a target a value; an element makes of its whole what is not followed."""
    match target:
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            given = value.parts if len(value.parts) == len(parts) else (value,) * len(parts)
            for part, each in zip(parts, given, strict=True):
                bind(part, each, names)
        case ast.Starred(value=inner):
            bind(inner, value, names)
        case ast.Subscript(value=owner) if key(owner):
            before = names.get(key(owner), FREE)
            names[key(owner)] = as_kind(joined(before, value), Kind.VAGUE)
        case ast.Name() | ast.Attribute() if key(target):
            names[key(target)] = value


def key(node: ast.AST) -> str:
    """``x`` or ``self.x``; the empty string for others."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}" if node.value.id == "self" else ""
    return ""
