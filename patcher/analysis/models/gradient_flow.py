"""Which parts of a model its forward pass surely makes its result of.

A forward is followed statement by statement, for each value the parts that it is made of on every
path. What is not followed adds nothing, so that too few parts are named and never too many.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from ...source.module import Module
from ...source.tree import Function, bound_names, is_none, within
from ..language.conditions import plain_test
from ..language.objects import method_of
from ..training.program import Program
from .gradient_values import (
    FIRST_IS_RESULT,
    NOTHING,
    OUTPUTS,
    UNMADE,
    VIEWS,
    WITHOUT_GRADIENT,
    FlowValue,
    NotFollowedError,
    common,
    element,
    meet,
    union,
)
from .model_builder import HIDES_PARTS, model_part
from .model_parts import ModelPart, UnknownPartError

MOST_STATEMENTS = 1500  # followed for one model
MOST_CALLS = 12  # within each other
LEAVES: tuple[type[ast.stmt], ...] = (ast.Break, ast.Continue)
PASSES_THROUGH = ("autocast", "profile", "record_function", "checkpoint")


def step_reaches_all(
    program: Program, module: Module, body: list[ast.stmt], modules: Mapping[str, ModelPart]
) -> bool:
    """Whether each backward pass of a training step starts at a loss that is made of all parts.

    `modules` are the models that it trains, by the names that it calls them.
    """
    flow = _Flow(program)
    scope = _Scope(flow, module, module.function(body[0]), None, {}, 0, modules)
    try:
        scope.run(body, {})
    except NotFollowedError:
        return False
    needed = frozenset().union(*(part.weights for part in modules.values()))
    return bool(scope.losses) and all(loss >= needed for loss in scope.losses)


def known_parameters(flow: _Flow, model: ModelPart, call: ast.Call) -> dict[str, bool]:
    """For each parameter of a model's forward, whether a call passes anything but None."""
    if model.owner is None or any(word.arg is None for word in call.keywords):
        return {}
    method = method_of(flow.program, model.owner, "forward")
    if method is None or any(isinstance(each, ast.Starred) for each in call.args):
        return {}
    spec = method[1].args
    names = [each.arg for each in (*spec.posonlyargs, *spec.args)][1:]
    defaults = dict(zip(reversed(names), reversed(spec.defaults), strict=False))
    known = {name: False for name, value in defaults.items() if is_none(value)}
    passed = dict(zip(names, call.args, strict=False))
    passed |= {word.arg: word.value for word in call.keywords if word.arg}
    known |= {name: not is_none(value) for name, value in passed.items()}
    return {name: truth for name, truth in known.items() if not is_choice(passed.get(name))}


def is_choice(value: ast.expr | None) -> bool:
    """Whether an expression is one of two values: ``None if distilled else batch[2]``."""
    return isinstance(value, ast.IfExp | ast.BoolOp)


class _Flow:
    """Follows calls of a model's parts; counts what it follows."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.left = MOST_STATEMENTS

    def called(
        self,
        part: ModelPart,
        passed: list[FlowValue],
        named: Mapping[str, FlowValue],
        known: Mapping[str, bool] | None = None,
        depth: int = 0,
    ) -> FlowValue:
        """The result of a call of a part."""
        made = union([*passed, *named.values()])
        match part.kind:
            case "none":
                return UNMADE
            case "activation":
                return FlowValue(made)
            case "layer" | "chain":
                return FlowValue(self._chained(part, made, depth))
            case "first":
                return FlowValue(NOTHING, (made | part.weights,))
            case "second":
                return FlowValue(NOTHING, (NOTHING, made | part.weights))
            case "head":
                both = made | part.weights
                return FlowValue(NOTHING, (both, both) if "labels" in named else (both,))
            case "own":
                return self._forward(part, passed, named, known or {}, depth)
        raise NotFollowedError

    def _chained(self, part: ModelPart, made: frozenset[str], depth: int) -> frozenset[str]:
        for each in part.parts:
            if each.kind not in ("activation", "layer", "chain"):
                result = self.called(each, [FlowValue(made)], {}, None, depth + 1)
                if result.elements is not None or not result.parts >= made | each.weights:
                    raise NotFollowedError
            made |= each.weights
        return made | (part.weights if part.kind == "layer" else NOTHING)

    def _forward(
        self,
        part: ModelPart,
        passed: list[FlowValue],
        named: Mapping[str, FlowValue],
        known: Mapping[str, bool],
        depth: int,
    ) -> FlowValue:
        owner = part.owner
        method = None if owner is None else method_of(self.program, owner, "forward")
        if method is None:
            raise NotFollowedError
        return self.function(*method, part, [UNMADE, *passed], named, known, depth + 1)

    def function(
        self,
        module: Module,
        function: Function,
        owner: ModelPart | None,
        passed: list[FlowValue],
        named: Mapping[str, FlowValue],
        known: Mapping[str, bool],
        depth: int,
    ) -> FlowValue:
        """What a function returns on every path, of what it gets."""
        if depth > MOST_CALLS:
            raise NotFollowedError
        spec = function.args
        names = [each.arg for each in (*spec.posonlyargs, *spec.args)]
        if len(passed) > len(names):
            raise NotFollowedError
        bound = dict(zip(names, passed, strict=False)) | dict(named)
        if any("autocast" not in module.text(each) for each in function.decorator_list):
            raise NotFollowedError
        scope = _Scope(self, module, function, owner, known, depth)
        if not scope.run(function.body, bound) or not scope.results:
            raise NotFollowedError  # it may end without a result
        return common(scope.results)


class _Scope:
    """One pass through a function's body, and what it returns.

    `modules` are parts by the text of their names, beside those of the object that `self` is.
    """

    def __init__(
        self,
        flow: _Flow,
        module: Module,
        function: Function | None,
        owner: ModelPart | None,
        known: Mapping[str, bool],
        depth: int,
        modules: Mapping[str, ModelPart] = {},
    ) -> None:
        self.flow, self.module, self.function = flow, module, function
        self.owner, self.known, self.depth, self.modules = owner, known, depth, modules
        self.results: list[FlowValue] = []
        self.losses: list[frozenset[str]] = []  # at which backward passes start

    # Statements: each takes the values of names, and changes them. True: the end of the path.

    def run(self, body: Iterable[ast.stmt], values: dict[str, FlowValue]) -> bool:
        """Follow statements; whether none is reached behind them."""
        for stmt in body:
            self.flow.left -= 1
            if self.flow.left < 0:
                raise NotFollowedError
            if self._statement(stmt, values):
                return True
        return False

    def _statement(self, stmt: ast.stmt, values: dict[str, FlowValue]) -> bool:
        match stmt:
            case ast.Return():
                if stmt.value is None:
                    raise NotFollowedError
                self.results.append(self.value(stmt.value, values))
                return True
            case ast.Raise():
                return True
            case ast.Assign() | ast.AnnAssign():
                if stmt.value is not None:
                    value = self.value(stmt.value, values)
                    for target in stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]:
                        self._bind(target, value, values)
            case ast.AugAssign():
                if isinstance(stmt.target, ast.Name):
                    old = values.get(stmt.target.id, UNMADE)
                    new = self.value(stmt.value, values)
                    values[stmt.target.id] = FlowValue(union([old, new]))
            case ast.Expr():
                self._called_alone(stmt.value, values)
            case ast.If():
                return self._branch(stmt, values)
            case ast.For():
                self._loop(stmt, values)
            case ast.While():
                self._repeat(stmt.body, values)
            case ast.With():
                return self._with(stmt, values)
            case ast.Continue() | ast.Break():
                return True  # of the step loop: `_loop` and `_repeat` refuse others
            case ast.Pass() | ast.Assert() | ast.Import() | ast.ImportFrom() | ast.FunctionDef():
                pass
            case ast.Delete():
                pass
            case _:
                raise NotFollowedError
        return False

    def _bind(self, target: ast.expr, value: FlowValue, values: dict[str, FlowValue]) -> None:
        match target:
            case ast.Name():
                values[target.id] = value
            case ast.Tuple() | ast.List():
                for place, each in enumerate(target.elts):
                    self._bind(each, element(value, place), values)
            case ast.Subscript(value=ast.Name(id=name)):
                values[name] = FlowValue(union([values.get(name, UNMADE), value]))
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                known = {} if self.owner is None else self.owner.attributes
                if name in known and known[name].weights:
                    raise NotFollowedError
            case ast.Starred():
                raise NotFollowedError

    def _called_alone(self, node: ast.expr, values: dict[str, FlowValue]) -> None:
        """``results.append(x)`` and ``loss.backward()``."""
        match node:
            case ast.Call(func=ast.Attribute(attr="backward", value=loss)):
                if isinstance(loss, ast.Call) and self.module.last_name(loss.func) == "scale":
                    loss = loss.args[0]  # of a GradScaler
                self.losses.append(self.value(loss, values).parts)
            case ast.Call(
                func=ast.Attribute(attr="append" | "add_" | "extend", value=ast.Name(id=name)),
                args=[argument],
            ):
                more = self.value(argument, values)
                values[name] = FlowValue(union([values.get(name, UNMADE), more]))

    def _branch(self, stmt: ast.If, values: dict[str, FlowValue]) -> bool:
        truth = self._truth(stmt.test)
        if truth is not None:
            return self.run(stmt.body if truth else stmt.orelse, values)
        other = dict(values)
        ends, other_ends = self.run(stmt.body, values), self.run(stmt.orelse, other)
        if ends:
            values.clear()
            values.update(other)
        elif not other_ends:
            meet(values, other)
        return ends and other_ends

    def _truth(self, test: ast.expr) -> bool | None:
        """Whether a test of what the step passes holds; None where it is not known."""
        plain, holds, _ = plain_test(self.module, test)
        truth = self._truth_of_plain(plain)
        return truth if truth is None or holds else not truth

    def _truth_of_plain(self, test: ast.expr) -> bool | None:
        match test:
            case ast.Compare(left=ast.Name(id=name), ops=[operator], comparators=[other]) if (
                is_none(other) and self._is_unchanged(name)
            ):
                is_given = self.known.get(name)
                return (
                    is_given
                    if is_given is None or isinstance(operator, ast.IsNot)
                    else (not is_given if isinstance(operator, ast.Is) else None)
                )
            case ast.Attribute(value=ast.Name(id="self"), attr="training"):
                return True
            case ast.BoolOp():
                found = [self._truth(each) for each in test.values]
                decisive = isinstance(test.op, ast.Or)
                if decisive in found:
                    return decisive
                return None if None in found else not decisive
        return None

    def _is_unchanged(self, name: str) -> bool:
        return (self.function, name) not in self.module.stores

    def _with(self, stmt: ast.With, values: dict[str, FlowValue]) -> bool:
        texts = [self.module.text(item.context_expr) for item in stmt.items]
        ends = self.run(stmt.body, values)
        if not all(any(word in text for word in PASSES_THROUGH) for text in texts):
            if ends:
                raise NotFollowedError
            for name in bound_names(stmt.body):
                values[name] = UNMADE  # such as torch.no_grad()
        return ends

    def _loop(self, stmt: ast.For, values: dict[str, FlowValue]) -> None:
        """A loop over all layers of a list, or one that may have no turn."""
        layers = self._layers(stmt.iter)
        target = stmt.target
        if isinstance(target, ast.Tuple) and self._is_enumerated(stmt.iter):
            target = target.elts[-1]
        leaves = any(within(stmt.body, kind) for kind in LEAVES)
        if layers is None or not isinstance(target, ast.Name) or leaves or stmt.orelse:
            self._repeat(stmt.body, values)
            return
        for layer in layers.parts:
            values[target.id] = FlowValue(module=layer)
            if self.run(stmt.body, values):
                raise NotFollowedError

    def _layers(self, node: ast.expr) -> ModelPart | None:
        """The list of layers that a loop goes through."""
        if isinstance(node, ast.Call) and self._is_enumerated(node):
            node = node.args[0]
        part = self._part(node, {})
        return part if part is not None and part.kind in ("list", "chain") and part.parts else None

    def _is_enumerated(self, node: ast.expr) -> bool:
        """``enumerate(x)``."""
        if not isinstance(node, ast.Call) or len(node.args) != 1:
            return False
        return self.module.text(node.func) == "enumerate"

    def _repeat(self, body: list[ast.stmt], values: dict[str, FlowValue]) -> None:
        before = dict(values)
        if any(within(body, kind) for kind in (*LEAVES, ast.Return)):
            raise NotFollowedError
        self.run(body, values)
        meet(values, before)

    # Expressions.

    def value(self, node: ast.expr, values: Mapping[str, FlowValue]) -> FlowValue:
        """What the value of an expression is surely made of."""
        match node:
            case ast.Name():
                return values.get(node.id, UNMADE)
            case ast.Call():
                return self._call(node, values)
            case ast.Attribute():
                return self._attribute(node, values)
            case ast.Subscript():
                return self._item(node, values)
            case ast.BinOp():
                return FlowValue(
                    union([self.value(node.left, values), self.value(node.right, values)])
                )
            case ast.UnaryOp():
                made = self.value(node.operand, values)
                return UNMADE if isinstance(node.op, ast.Not) else FlowValue(made.parts)
            case ast.Tuple():
                found = [self.value(each, values) for each in node.elts]
                return FlowValue(union(found), tuple(each.parts for each in found))
            case ast.List():
                return FlowValue(union(self.value(each, values) for each in node.elts))
            case ast.IfExp():
                truth = self._truth(node.test)
                if truth is not None:
                    return self.value(node.body if truth else node.orelse, values)
                return common([self.value(node.body, values), self.value(node.orelse, values)])
        return UNMADE

    def _attribute(self, node: ast.Attribute, values: Mapping[str, FlowValue]) -> FlowValue:
        part = self._part(node, values)
        if part is not None:
            return FlowValue(part.weights) if part.kind == "weight" else UNMADE
        value = self.value(node.value, values)
        if node.attr in VIEWS:
            return value
        if node.attr in OUTPUTS and value.elements is not None:
            return element(value, OUTPUTS[node.attr])
        return UNMADE

    def _item(self, node: ast.Subscript, values: Mapping[str, FlowValue]) -> FlowValue:
        value = self.value(node.value, values)
        if value.elements is None:
            return FlowValue(value.parts)
        index = node.slice
        if isinstance(index, ast.Slice) and index.lower is None and index.step is None:
            return value  # outputs[:2]
        if isinstance(index, ast.Constant) and isinstance(index.value, int):
            return element(value, index.value)
        return UNMADE

    def _part(self, node: ast.expr, values: Mapping[str, FlowValue]) -> ModelPart | None:
        """The part of the model that an expression is: ``self.layer``, the layer of a loop."""
        if self.modules and isinstance(node, ast.Name | ast.Attribute):
            known = self.modules.get(self.module.text(node))
            if known is not None:
                return known
        match node:
            case ast.Name() if node.id in values:
                return values[node.id].module
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if self.owner is not None:
                return self.owner.attributes.get(name)
        return None

    def _call(self, call: ast.Call, values: Mapping[str, FlowValue]) -> FlowValue:
        func = call.func
        if any(isinstance(each, ast.Starred) for each in call.args):
            return UNMADE
        passed = [self.value(each, values) for each in call.args]
        named = {word.arg: self.value(word.value, values) for word in call.keywords if word.arg}
        if self.module.last_name(func) in HIDES_PARTS:
            raise NotFollowedError
        part = self._part(func, values)
        if part is not None:
            known = known_parameters(self.flow, part, call) if self.owner is None else {}
            return self.flow.called(part, passed, named, known, self.depth + 1)
        name = self.module.last_name(func)
        if name in WITHOUT_GRADIENT:
            return UNMADE
        dotted = self.module.dotted(func)
        if dotted.startswith("torch.") or self._is_library_module(func):
            made = union([*passed, *named.values()])
            return FlowValue(NOTHING, (made,)) if name in FIRST_IS_RESULT else FlowValue(made)
        found = self._followed(call, passed, named)
        if found is not None:
            return found
        if isinstance(func, ast.Attribute):
            made = self.value(func.value, values).parts  # x.view(…), x.max(1)
            made |= union([*passed, *named.values()]) if made else NOTHING
            is_tuple = name in FIRST_IS_RESULT and bool(call.args or call.keywords)
            return FlowValue(NOTHING, (made,)) if is_tuple else FlowValue(made)
        if dotted == "sum":
            return FlowValue(union(passed))
        return UNMADE

    def _is_library_module(self, func: ast.expr) -> bool:
        """Whether a function is an object of torch.nn without parameters, such as a loss."""
        is_held = isinstance(func, ast.Attribute) and self.module.text(func.value) == "self"
        if not isinstance(func, ast.Name | ast.Call) and not is_held:
            return False
        try:
            return model_part(self.flow.program, self.module, func).kind == "activation"
        except UnknownPartError:
            return False

    def _followed(
        self, call: ast.Call, passed: list[FlowValue], named: Mapping[str, FlowValue]
    ) -> FlowValue | None:
        """The result of a method of the model, or of a function of the program."""
        func, program = call.func, self.flow.program
        match func:
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if self.owner is not None:
                owner = self.owner.owner
                method = None if owner is None else method_of(program, owner, name)
                if method is None:
                    return UNMADE
                passed = [UNMADE, *passed]
                return self.flow.function(*method, self.owner, passed, named, {}, self.depth + 1)
        found = program.resolve(self.module, func)
        if found is None or not isinstance(found[1], ast.FunctionDef):
            return None
        where, function = found[0], found[1]
        return self.flow.function(where, function, None, passed, named, {}, self.depth + 1)
