"""Follow the source of a model's class through tensors, without running it.

A small interpreter of the statements and expressions that models are made of. It calls nothing but
what `vocabulary` lists, and modules that are made of it; whatever else it comes to is Unread.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn
from transformers.utils import ModelOutput

from .read_expressions import Expressions
from .read_values import (
    SEQUENCES,
    Misfit,
    Part,
    Unread,
    UnreadValue,
    first_line,
    known_value,
    method_of,
)

IN_PLACE: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.iadd,
    ast.Sub: operator.isub,
    ast.Mult: operator.imul,
    ast.Div: operator.itruediv,
}
MOST_TURNS = 256  # of all loops around each other
IGNORED = ("print", "warn", "info", "debug", "warning", "init_weights", "post_init", "apply")
SET_UP = ("super(", "torch.nn.init.")
"""Calls that stand alone and make no tensor of the step."""


class Reader(Expressions):
    """Reads the classes and functions of a text."""

    def call_method(
        self, part: Part, name: str, arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> Any:
        found = method_of(part.class_read, name)
        if found is None:
            raise Unread(f"{part.class_read.name} has no {name}")
        try:
            return self.call(found, (part, *arguments), named)
        except Unread as error:
            if error.is_placed:
                raise
            placed = type(error)(f"{part.class_read.name}.{name}: {error}")
            placed.is_placed = True
            raise placed from None

    def call(
        self, function: ast.FunctionDef, arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> Any:
        spec = function.args
        if function.decorator_list or spec.posonlyargs:
            raise Unread(f"the arguments of {function.name} are not followed")
        names = [arg.arg for arg in spec.args]
        if len(arguments) > len(names):
            raise Unread(f"{function.name} gets {len(arguments)} arguments")
        scope: dict[str, Any] = {}
        for arg, default in zip(reversed(spec.args), reversed(spec.defaults), strict=False):
            scope[arg.arg] = self.evaluate(default, {})
        for arg, value in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
            if value is not None:
                scope[arg.arg] = self.evaluate(value, {})
        scope |= dict(zip(names, arguments, strict=False)) | dict(named)
        missing = {*names, *(arg.arg for arg in spec.kwonlyargs)} ^ {*scope}
        if missing:
            raise Unread(f"{function.name} and its call differ in {', '.join(sorted(missing))}")
        # More than those there are would differ: these stay empty.
        scope |= {more.arg: UnreadValue(more.arg) for more in (spec.vararg, spec.kwarg) if more}
        done = self.execute(function.body, scope)
        return done[0] if done else None

    def execute(self, body: Sequence[ast.stmt], scope: dict[str, Any]) -> tuple[Any] | None:
        """Follow statements; a tuple with the value where they return one."""
        for stmt in body:
            done = self.statement(stmt, scope)
            if done:
                return done
        return None

    def statement(self, stmt: ast.stmt, scope: dict[str, Any]) -> tuple[Any] | None:
        match stmt:
            case ast.Return(value=value):
                return (None if value is None else self.evaluate(value, scope),)
            case ast.Assign(targets=targets, value=value):
                found = self.evaluate(value, scope)
                for target in targets:
                    self.bind(target, found, scope)
            case ast.AnnAssign(target=target, value=value) if value is not None:
                self.bind(target, self.evaluate(value, scope), scope)
            case ast.AugAssign(target=ast.Name() as name, op=op, value=value):
                if type(op) not in IN_PLACE:
                    raise Unread(f"`{ast.unparse(stmt)}` is not followed")
                now = known_value(self.name(name.id, scope))
                scope[name.id] = IN_PLACE[type(op)](now, self.known(value, scope))
            case ast.If(test=test, body=then, orelse=otherwise):
                return self.execute(then if self.truth(test, scope) else otherwise, scope)
            case ast.For(target=target, iter=values, body=inner, orelse=[]):
                return self.loop(target, self.sequence(values, scope), inner, scope)
            case ast.Expr(value=ast.Constant()) | ast.Pass() | ast.Assert():
                pass
            case ast.Expr(value=ast.Call(func=func) as call):
                called = func.attr if isinstance(func, ast.Attribute) else ast.unparse(func)
                if called not in IGNORED and not ast.unparse(func).startswith(SET_UP):
                    self.evaluate(call, scope)
            case ast.Delete(targets=removed) if all(isinstance(each, ast.Name) for each in removed):
                for each in removed:
                    scope.pop(ast.unparse(each), None)
            case _:
                raise Unread(f"`{first_line(stmt)}` is not followed")
        return None

    def loop(
        self, target: ast.expr, values: Sequence[Any], body: list[ast.stmt], scope: dict[str, Any]
    ) -> tuple[Any] | None:
        for value in values:
            self.turns += 1
            if self.turns > MOST_TURNS:
                raise Unread(f"more than {MOST_TURNS} turns of its loops")
            self.bind(target, value, scope)
            done = self.execute(body, scope)
            if done:
                return done
        return None

    def bind(self, target: ast.expr, value: Any, scope: dict[str, Any]) -> None:
        match target:
            case ast.Name(id=name):
                scope[name] = value
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                if isinstance(value, ModelOutput):
                    value = value.to_tuple()
                if not isinstance(value, SEQUENCES) or len(value) != len(targets):
                    raise Misfit(f"`{ast.unparse(target)}` gets another number of values")
                for each, one in zip(targets, value, strict=True):
                    self.bind(each, one, scope)
            case ast.Attribute(value=owner, attr=name):
                found = self.evaluate(owner, scope)
                shares = isinstance(found, nn.Linear) and isinstance(value, nn.Parameter)
                if not isinstance(found, Part) and not shares:
                    raise Unread(f"`{ast.unparse(target)}` is set")
                setattr(found, name, value)
            case _:
                raise Unread(f"`{ast.unparse(target)}` is set")
