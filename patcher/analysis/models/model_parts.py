"""The parts of a model, and what constructors and calls say of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from ....record import record
from ...source.module import Module
from ...source.tree import Function, ancestors, everywhere, is_inside, precedes, within
from ..language.objects import ClassOf


class UnknownPartError(Exception):
    """A part of a model cannot be told."""


@record
class ModelPart:
    """A part of a model.

    `kind` is "none" (no module), "activation" (one of torch.nn without parameters), "weight" (a
    parameter), "layer" (it returns one tensor, made of all of its parameters), "first" or "second"
    (so is that output of several), "head" (a model of transformers with a head), "chain"
    (nn.Sequential) or "list" (nn.ModuleList) of `parts`, or "own": a class of the program, with its
    attributes. `path` is where it is kept: ``model.head.score``.
    """

    kind: str
    path: str = ""
    parts: tuple[ModelPart, ...] = ()
    owner: ClassOf | None = None
    attributes: Mapping[str, ModelPart] = {}

    @property
    def weights(self) -> frozenset[str]:
        """The paths of all parts below that have parameters."""
        if self.kind in ("none", "activation"):
            return frozenset()
        if self.kind in ("chain", "list", "own"):
            return frozenset().union(*(p.weights for p in (*self.parts, *self.attributes.values())))
        return frozenset([self.path])


NOTHING = ModelPart("none")
ACTIVATION = ModelPart("activation")


@record
class Frame:
    """The code that an expression stands in, and what its function's parameters are."""

    module: Module
    function: Function | None
    arguments: Mapping[str, tuple[Frame, ast.expr]] = {}
    attributes: Mapping[str, ModelPart] = {}  # of self, as far as they are known


def reaching_values(
    module: Module, function: Function | None, name: ast.Name
) -> tuple[list[ast.expr], bool]:
    """The values that assignments above give to a name, and whether one of them surely does.

    The nearest come first, up to one that stands under no test, loop or attempt of its own.
    """
    values: list[ast.expr] = []
    for store in reversed(module.stores.get((function, name.id), [])):
        stmt = module.parents[store]
        if not precedes(stmt, name):
            continue
        if isinstance(stmt, ast.AnnAssign) and stmt.value is None:
            continue
        if not isinstance(stmt, ast.Assign | ast.AnnAssign) or stmt.value is None:
            return [], False
        values.append(stmt.value)
        branches = (ast.If, ast.For, ast.While, ast.Try, ast.With)
        if all(is_inside(name, up) for up in ancestors(stmt) if isinstance(up, branches)):
            return values, True
    return values, False


def is_plain_module(module: Module, definition: ast.ClassDef, above: list[ClassOf]) -> bool:
    """Whether a class inherits from nn.Module, a model's base of transformers, or its own."""
    own = {each.name for _, each in above}
    return all(
        module.dotted(base) in ("torch.nn.Module", "torch.nn.modules.Module", "object")
        or module.last_name(base) in own
        or module.last_name(base).endswith("PreTrainedModel")
        for base in definition.bases
    )


def assignments_to_self(function: Function) -> Iterator[ast.Assign | ast.AnnAssign]:
    """The assignments in a method to attributes, of its object or of others."""
    found: list[ast.Assign | ast.AnnAssign] = [*within(function.body, ast.Assign)]
    for stmt in [*found, *within(function.body, ast.AnnAssign)]:
        targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
        if any(everywhere(target, ast.Attribute) for target in targets):
            yield stmt


def appended_to(call: ast.Call) -> str:
    """``layers`` of ``self.layers.append(…)``."""
    match call.func:
        case ast.Attribute(
            attr="append", value=ast.Attribute(attr=name, value=ast.Name(id="self"))
        ) if len(call.args) == 1:
            return name
    return ""


def passed_to(
    frame: Frame, home: Module, function: Function, call: ast.Call
) -> dict[str, tuple[Frame, ast.expr]]:
    """What a call passes for the parameters of a function, defaults among them.

    Raises UnknownPartError where it unpacks its arguments.
    """
    spec = function.args
    if any(isinstance(each, ast.Starred) for each in call.args) or any(
        word.arg is None for word in call.keywords
    ):
        raise UnknownPartError
    names = [each.arg for each in (*spec.posonlyargs, *spec.args)]
    names = names[1:] if names[:1] == ["self"] else names
    defaults = zip(reversed(names), reversed(spec.defaults), strict=False)
    passed = {name: (Frame(home, None), value) for name, value in defaults}
    passed |= {name: (frame, value) for name, value in zip(names, call.args, strict=False)}
    passed |= {word.arg: (frame, word.value) for word in call.keywords if word.arg}
    return passed


def arguments_of(
    module: Module, function: Function, where: Module, call: ast.Call, name: str
) -> tuple[Frame, ast.expr]:
    """What one call passes for a parameter."""
    frame = Frame(where, where.function(call))
    passed = passed_to(frame, module, function, call)
    if name not in passed or is_inside(call, function):
        raise UnknownPartError
    return passed[name]
