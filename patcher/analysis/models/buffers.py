"""Whether forward passes of DistributedDataParallel meet, to take over the buffers of rank 0.

They do in evaluation mode as well, unless the model has no buffers or the wrapper is told not to.
"""

from __future__ import annotations

import ast
import re

from ...source.module import Module
from ...source.tree import (
    Function,
    argument,
    bound_names,
    everywhere,
    keyword,
    names_within,
    parameters,
)
from ..language.objects import RETURN_SELF, ClassOf, class_of, classes_above, named_definition
from ..language.passed_arguments import argument_for_parameter
from ..training.evaluations import Evaluation
from ..training.possible_values import values_of
from ..training.program import Program

WRAPPERS = ("DistributedDataParallel", "DataParallel")
MAKES_BUFFERS = re.compile(r"BatchNorm|InstanceNorm|spectral_norm|buffer|parametriz|getattr", re.I)
MODEL_LIBRARIES = ("torchvision.models.", "timm.", "transformers.", "torch.hub.")
MAX_DEPTH = 6  # names and calls that a model passes through
# What is made of these has no buffers, but for what the expression above names.
PLAIN = re.compile(r"(torch|math|numpy|typing|abc|functools|copy|random|einops|collections)(\.|$)")


def forward_meets(program: Program, evaluation: Evaluation) -> bool:
    """Whether the model that is evaluated may send buffers with each forward pass."""
    if not sends_buffers(program, evaluation):
        return False
    models = evaluated_models(program, evaluation)
    return not models or any(
        may_have_buffers(program, *model) and not is_bare(program, *model) for model in models
    )


def sends_buffers(program: Program, evaluation: Evaluation) -> bool:
    """Whether a wrapper sends buffers: those of torch do, if not told otherwise.

    Where the evaluating function wraps its model itself, that wrapper alone counts.
    """
    module, function = evaluation.module, evaluation.function
    wraps = program.calls_to("DistributedDataParallel")
    own = [
        (where, call)
        for where, call in wraps
        if where is module
        and function is not None
        and module.function(call) is function
        and evaluation.model in bound_names(module.statement(call))
    ]
    return not wraps or any(_sends(*wrap) for wrap in own or wraps)


def may_send(program: Program) -> bool:
    """Whether a wrapper of the program sends buffers with each forward pass."""
    return any(_sends(*wrap) for wrap in program.calls_to("DistributedDataParallel"))


def _sends(module: Module, wrap: ast.Call) -> bool:
    """Whether a wrapper is torch's and not told otherwise, as far as can be read."""
    word = keyword(wrap, "broadcast_buffers")
    is_off = word is not None and isinstance(word.value, ast.Constant) and not word.value.value
    may_be_off = word is None and any(each.arg is None for each in wrap.keywords)
    return not (is_off or may_be_off or module.dotted(wrap.func).startswith("apex."))


def is_bare(program: Program, module: Module, node: ast.expr, depth: int = 0) -> bool:
    """Whether a model is in no wrapper: made of a class, or by a library of models.

    So is an attribute of which all that it is given anywhere is bare.
    """
    if depth > MAX_DEPTH:
        return False
    match node:
        case ast.Name() | ast.Attribute():
            function = module.function(node)
            passed = isinstance(node, ast.Name) and function and node.id in parameters(function)
            if passed and function and program.possible_callers(function):
                return False
            if isinstance(node, ast.Attribute) and is_unpacked(program, node.attr):
                return False
            places = [*values_of(program, module, node)]
            return bool(places) and all(is_bare(program, *each, depth + 1) for each in places)
        case ast.Call(func=ast.Attribute(value=inner, attr=name)) if name in RETURN_SELF:
            return is_bare(program, module, inner, depth + 1)
        case ast.Call():
            found = named_definition(program, module, node.func)
            is_class = found is not None and isinstance(found[1], ast.ClassDef)
            name = module.dotted(node.func)
            is_layer = name.startswith("torch.nn.") and module.last_name(node.func) not in WRAPPERS
            return is_class or is_layer or name.startswith(MODEL_LIBRARIES)
    return False


def is_unpacked(program: Program, name: str) -> bool:
    """``self.net, self.optimizer = accelerator.prepare(net, optimizer)``."""
    return any(
        isinstance(node.ctx, ast.Store) and isinstance(module.parents[node], ast.Tuple | ast.List)
        for module in program.modules
        for node in module.attributes(name)
    )


def evaluated_models(program: Program, evaluation: Evaluation) -> list[tuple[Module, ast.expr]]:
    """Expressions of the model: what callers pass for it, or where the loop reads it."""
    module, function = evaluation.module, evaluation.function
    if function is None or evaluation.model not in parameters(function):
        names = names_within(evaluation.loop.body, {evaluation.model})
        return [(module, names[0])] if names else []
    passed = [
        (where, argument_for_parameter(module, function, entry, evaluation.model))
        for where, entry in program.entries(evaluation)
        if isinstance(entry, ast.Call)
    ]
    known = [(where, value) for where, value in passed if value is not None]
    return known if len(known) == len(passed) else []


def may_have_buffers(program: Program, module: Module, model: ast.expr) -> bool:
    """Whether a model has buffers, or is not of a class of which all is read."""
    owners = model_classes(program, module, model)
    return not owners or any(owner is None or _names_buffers(program, owner) for owner in owners)


def model_classes(
    program: Program, module: Module, node: ast.expr, depth: int = 0
) -> list[ClassOf | None]:
    """The classes that a model may be of, in its wrapper or not; None for an unknown one."""
    if depth > MAX_DEPTH:
        return [None]
    values: list[ast.expr] = []
    match node:
        case ast.Name():
            values = module.alternatives(node, node)
        case ast.Call() if module.last_name(node.func) in WRAPPERS:
            inside = argument(node, 0, "module")
            values = [] if inside is None else [inside]
        case ast.Call(func=ast.Attribute(value=inner, attr=name)) if name in RETURN_SELF:
            values = [inner]
    if values:
        return [c for each in values for c in model_classes(program, module, each, depth + 1)]
    return [class_of(program, module, node)]


def _names_buffers(program: Program, owner: ClassOf) -> bool:
    """Whether a class, or anything of the program that it names, names what makes buffers."""
    seen: set[ast.AST] = set()
    unseen: list[tuple[Module, ast.AST]] = [owner, *classes_above(program, owner)]
    while unseen:
        module, node = unseen.pop()
        if node in seen:
            continue
        seen.add(node)
        uses: list[ast.Name | ast.Attribute] = [*everywhere(node, ast.Name)]
        uses += everywhere(node, ast.Attribute)
        for use in uses:
            if not isinstance(use.ctx, ast.Load):
                continue
            found = named_definition(program, module, use)
            if found is not None and isinstance(found[1], (ast.ClassDef, Function)):
                unseen.append(found)
            elif MAKES_BUFFERS.search(module.last_name(use)) or _is_of_library(module, use):
                return True
    return False


def _is_of_library(module: Module, use: ast.Name | ast.Attribute) -> bool:
    """Whether a name is imported from a library whose modules may have buffers."""
    is_imported = isinstance(use, ast.Name) and use.id in module.aliases
    return is_imported and not PLAIN.match(module.dotted(use))
