"""Follow the expressions of a model's source through tensors."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig
from transformers.utils import ModelOutput

from .read_values import (
    PLAIN,
    SEQUENCES,
    Options,
    Part,
    Unread,
    UnreadValue,
    first_line,
    known_value,
    method_of,
)
from .vocabulary import ATTRIBUTES, BUILTINS, METHODS, SAME, function_of

BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.MatMult: operator.matmul,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}
UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
    ast.Not: operator.not_,
}
COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}


class Expressions:
    """Evaluates expressions with the classes and functions of a text.

    `make_encoder` makes a model of transformers from the name of its class and keywords. `inputs`
    are the tensors of the batch, whose rows are one example each.
    """

    def __init__(self, text: str, make_encoder: Callable[[str, dict[str, Any]], nn.Module]) -> None:
        body = ast.parse(text).body
        self.definitions = {
            each.name: each for each in body if isinstance(each, ast.ClassDef | ast.FunctionDef)
        }
        self.make_encoder = make_encoder
        self.inputs: list[Tensor] = []
        self.turns = 0

    def value(self, text: str, names: dict[str, Any]) -> Any:
        """The value of an expression with these names."""
        return self.evaluate(ast.parse(text, mode="eval").body, names)

    def call_method(
        self, part: Part, name: str, arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> Any:
        """Follow a method of an object."""
        raise NotImplementedError

    def call(
        self, function: ast.FunctionDef, arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> Any:
        """Follow a function."""
        raise NotImplementedError

    def bind(self, target: ast.expr, value: Any, scope: dict[str, Any]) -> None:
        """Give a value to what stands left of ``=``."""
        raise NotImplementedError

    def known(self, node: ast.expr, scope: dict[str, Any]) -> Any:
        return known_value(self.evaluate(node, scope))

    def truth(self, node: ast.expr, scope: dict[str, Any]) -> bool:
        value = self.known(node, scope)
        if isinstance(value, Tensor):
            raise Unread(f"`{ast.unparse(node)}` asks a tensor for its value")
        return bool(value)

    def sequence(self, node: ast.expr, scope: dict[str, Any]) -> Sequence[Any]:
        value = self.known(node, scope)
        if isinstance(value, enumerate | zip | reversed | nn.ModuleList | nn.Sequential):
            return [*value]
        if not isinstance(value, SEQUENCES):
            raise Unread(f"a loop over `{ast.unparse(node)}` is not followed")
        return value

    def evaluate(self, node: ast.expr, scope: dict[str, Any]) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self.name(name, scope)
            case ast.Attribute():
                return self.attribute(node, scope)
            case ast.Call():
                return self.called(node, scope)
            case ast.Subscript(value=value, slice=index):
                return self.item(self.known(value, scope), self.index(index, scope), node)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY:
                return BINARY[type(op)](self.known(left, scope), self.known(right, scope))
            case ast.UnaryOp(op=ast.Not(), operand=value):
                return not self.truth(value, scope)
            case ast.UnaryOp(op=op, operand=value):
                return UNARY[type(op)](self.known(value, scope))
            case ast.BoolOp(op=op, values=values):
                return self.either(values, scope, until=isinstance(op, ast.Or))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return COMPARISONS[type(op)](self.known(left, scope), self.known(right, scope))
            case ast.IfExp(test=test, body=then, orelse=otherwise):
                return self.evaluate(then if self.truth(test, scope) else otherwise, scope)
            case ast.Tuple(elts=parts):
                return tuple(self.evaluate(part, scope) for part in parts)
            case ast.List(elts=parts):
                return [self.evaluate(part, scope) for part in parts]
            case ast.ListComp(elt=elt, generators=[only]) if not only.ifs:
                return self.comprehension(elt, only, scope)
            case ast.GeneratorExp(elt=elt, generators=[only]) if not only.ifs:
                return self.comprehension(elt, only, scope)
            case _:
                raise Unread(f"`{first_line(node)}` is not followed")

    def comprehension(
        self, elt: ast.expr, only: ast.comprehension, scope: dict[str, Any]
    ) -> list[Any]:
        found = []
        for value in self.sequence(only.iter, scope):
            inner = dict(scope)
            self.bind(only.target, value, inner)
            found.append(self.evaluate(elt, inner))
        return found

    def either(self, values: Sequence[ast.expr], scope: dict[str, Any], *, until: bool) -> Any:
        found: Any = None
        for value in values:
            found = self.known(value, scope)
            if isinstance(found, Tensor):
                raise Unread(f"`{ast.unparse(value)}` asks a tensor for its value")
            if bool(found) is until:
                return found
        return found

    def name(self, name: str, scope: dict[str, Any]) -> Any:
        if name in scope:
            return scope[name]
        if name in self.definitions:
            return self.definitions[name]
        if name in ("torch", "transformers"):
            return (name,)
        return BUILTINS[name] if name in BUILTINS else UnreadValue(name)

    def attribute(self, node: ast.Attribute, scope: dict[str, Any]) -> Any:
        owner, name = self.evaluate(node.value, scope), node.attr
        match owner:
            case (str(dotted),):
                found = getattr(torch, name, None) if dotted == "torch" else None
                return found if isinstance(found, torch.dtype) else (f"{dotted}.{name}",)
            case Options():
                return owner.values.get(name, UnreadValue(ast.unparse(node)))
            case UnreadValue():
                return UnreadValue(ast.unparse(node))
            case Tensor() if name in ATTRIBUTES:
                return getattr(owner, name)
            case Tensor() if name in ("device", "is_cuda"):
                return name == "is_cuda" or UnreadValue(ast.unparse(node))
            case nn.Module() if name == "training" or isinstance(
                getattr(owner, name, None),
                (nn.Module, Tensor, PretrainedConfig, *PLAIN, *SEQUENCES),
            ):
                return getattr(owner, name)
            case Part() if isinstance(owner.__dict__.get(name), Options | UnreadValue):
                return owner.__dict__[name]
            case PretrainedConfig() if isinstance(getattr(owner, name, ast), PLAIN):
                return getattr(owner, name)
            case ModelOutput() if name in owner:
                return owner[name]
        raise Unread(f"`{ast.unparse(node)}` is not followed")

    def index(self, node: ast.expr, scope: dict[str, Any]) -> Any:
        match node:
            case ast.Slice(lower=lower, upper=upper, step=step):
                ends = (None if e is None else self.known(e, scope) for e in (lower, upper, step))
                return slice(*ends)
            case ast.Tuple(elts=parts):
                return tuple(self.index(part, scope) for part in parts)
        return self.known(node, scope)

    def item(self, owner: Any, index: Any, node: ast.expr) -> Any:
        if isinstance(owner, Tensor):
            parts = index if isinstance(index, tuple) else (index,)
            if not any(isinstance(p, Tensor) and p.dtype == torch.bool for p in parts):
                return owner[index]
        elif isinstance(owner, ModelOutput | nn.ModuleList | nn.Sequential | list | tuple):
            return owner[index]
        raise Unread(f"`{ast.unparse(node)}` is not followed")

    def called(self, node: ast.Call, scope: dict[str, Any]) -> Any:
        match node:
            case ast.Call(
                func=ast.Name(id="getattr"), args=[value, ast.Constant(value=str(name)), *default]
            ):
                owner = self.evaluate(value, scope)
                if default and isinstance(owner, PretrainedConfig) and not hasattr(owner, name):
                    return self.evaluate(default[0], scope)
                return self.attribute(ast.Attribute(value, name, ast.Load()), scope)
        arguments: list[Any] = []
        for each in node.args:
            if isinstance(each, ast.Starred):
                arguments += self.sequence(each.value, scope)
            else:
                arguments.append(self.evaluate(each, scope))
        if any(word.arg is None for word in node.keywords):
            raise Unread(f"`{ast.unparse(node)}` spreads its arguments")
        named = {str(word.arg): self.evaluate(word.value, scope) for word in node.keywords}
        func = node.func
        if isinstance(func, ast.Attribute):
            owner = self.evaluate(func.value, scope)
            if isinstance(owner, Tensor):
                return self.tensor_method(owner, func.attr, arguments, named, node)
            if isinstance(owner, Part) and method_of(owner.class_read, func.attr) is not None:
                return self.call_method(owner, func.attr, arguments, named)
            if isinstance(owner, Part) and func.attr == "register_buffer":
                return owner.register_buffer(*arguments, **named)
            if isinstance(owner, list) and func.attr in ("append", "extend"):
                return getattr(owner, func.attr)(*arguments)
            if isinstance(owner, nn.Module) and func.attr == "get_input_embeddings":
                embeddings: Any = owner.get_input_embeddings
                return embeddings()
        target = self.evaluate(func, scope)
        if isinstance(target, ast.ClassDef):
            part = Part(self, target)
            if method_of(target, "__init__") is not None:
                self.call_method(part, "__init__", arguments, named)
            return part
        if isinstance(target, ast.FunctionDef):
            return self.call(target, arguments, named)
        if isinstance(target, tuple) and len(target) == 1:
            return self.library(target[0], arguments, named)
        named = {name: known_value(value) for name, value in named.items()}
        arguments = [known_value(value) for value in arguments]
        if isinstance(target, Part):
            return self.call_method(target, "forward", arguments, named)
        if isinstance(target, nn.Module):
            return self.module(target, arguments, named)
        if target in BUILTINS.values():
            return target(*arguments, **named)
        raise Unread(f"`{ast.unparse(node)}` is not followed")

    def library(self, dotted: str, arguments: list[Any], named: dict[str, Any]) -> Any:
        package, _, name = dotted.rpartition(".")
        if dotted.startswith("transformers."):
            if name in ("from_pretrained", "from_config"):
                name = package.rpartition(".")[2]
            elif not any(isinstance(value, PretrainedConfig) for value in arguments):
                raise Unread(f"{dotted} is not followed")
            plain = {k: v for k, v in named.items() if isinstance(v, bool)}
            return self.make_encoder(name, plain)
        function = function_of(dotted)
        if function is None:
            raise Unread(f"{dotted} is not followed")
        named.pop("device", None)
        return function(
            *map(known_value, arguments), **{k: known_value(v) for k, v in named.items()}
        )

    def tensor_method(
        self, owner: Tensor, name: str, arguments: list[Any], named: dict[str, Any], node: ast.Call
    ) -> Any:
        if name in SAME:
            kinds = [v for v in (*arguments, *named.values()) if isinstance(v, torch.dtype)]
            return owner.to(kinds[0]) if kinds else owner
        if name not in METHODS:
            raise Unread(f"`{ast.unparse(node)}` is not followed")
        named.pop("device", None)
        arguments = [known_value(value) for value in arguments]
        if name in ("view", "reshape", "flatten") and any(owner is each for each in self.inputs):
            first = arguments[0] if arguments else None
            if name == "flatten" or (isinstance(first, int) and first < 0):
                raise Unread("how many sequences an example has is not known")
        return getattr(owner, name)(*arguments, **{k: known_value(v) for k, v in named.items()})

    def module(self, target: nn.Module, arguments: list[Any], named: dict[str, Any]) -> Any:
        """Call a module of torch or transformers."""
        return target(*arguments, **named)
