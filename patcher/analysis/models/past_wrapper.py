"""Calls of a wrapped model's own methods, which go past its wrapper.

DistributedDataParallel averages the gradients of what its own call has computed.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from ...source.module import Module
from ...source.tree import (
    Function,
    bound_names,
    everywhere,
    is_inside,
    keyword,
    parameters,
    within,
)
from ..language.call_graph import Callee
from ..language.name_flow import names_in, spread
from ..language.objects import ClassOf, attribute_values, method_of
from ..language.passed_arguments import argument_for_parameter
from ..training.evaluations import is_eval_mode
from ..training.evaluations import is_gradless as is_gradless_function
from ..training.program import Program
from ..training.train_loops import TrainLoop
from .loaded_models import places_of
from .saved_wrappers import MOVES
from .trained_models import bodies_of_steps, last_part, names_given, trained_models
from .wrapped_parts import has_parameters, is_model
from .wrapper_attributes import WRAPPER_HAS, WRAPPERS, call_of, is_gradless
from .wrapping import takes_steps

LOOKS_AT = ("isinstance", "hasattr", "getattr", "type", "print", "len", "id")
WEIGHTS = ("Parameter", "from_pretrained", "from_config")
GRADLESS_METHODS = ("generate", "sample", "no_sync")


def steps_past_wrapper(program: Program) -> Iterator[tuple[Module, ast.Call, str]]:
    """Calls in training steps of methods of the model inside a wrapper, each with what is wrong."""
    wraps = {
        last_part(module.text(target)): call
        for module, call in program.calls_to(*WRAPPERS)
        for stmt in [module.statement(call)]
        if isinstance(stmt, ast.Assign)
        for target in stmt.targets
    }
    trained = set(map(last_part, trained_models(program)))
    for loop in program.train_loops if wraps else ():
        if not takes_steps(loop) or not program.is_live(loop.module, loop.steps):
            continue
        for module, call, name in calls_past_wrapper(program, loop, wraps):
            if name not in trained and (trained or not makes_loss_of(loop, module, call)):
                continue  # where nothing tells what is trained, the loss does
            because = f"{module.text(call.func)}() goes past the wrapper"
            if not may_call_wrapper(program, loop, name):
                because += ", and no step calls that: ranks do not average their gradients"
            elif is_set(wraps[name], "find_unused_parameters") and (
                alone := weights_used_past(program, module, call)
            ):
                because += (
                    f" for {alone[0]}, which DistributedDataParallel takes for unused in the"
                    " forward pass: torch raises in the backward pass"
                )
            else:
                continue
            yield module, call, because


def makes_loss_of(loop: TrainLoop, module: Module, call: ast.Call) -> bool:
    """Whether what goes back in a step gets something of a call in it."""
    if module is not loop.module or not is_inside(call, loop.steps):
        return False
    losses = set().union(*map(names_in, loop.backwards))
    results = bound_names(module.statement(call))
    return bool(spread(loop.steps.body, results).names & losses)


def is_set(call: ast.Call, option: str) -> bool:
    """Whether a call passes True for an option."""
    word = keyword(call, option)
    return word is not None and isinstance(word.value, ast.Constant) and word.value.value is True


def calls_past_wrapper(
    program: Program, loop: TrainLoop, wrapped: Collection[str]
) -> Iterator[tuple[Module, ast.Call, str]]:
    """Calls in a step that may compute its loss past a wrapper, each with the model's name."""
    for module, body in bodies_of_steps(program, loop, evaluates):
        used: list[tuple[ast.expr, ast.Call]] = [
            (use.value, call)
            for use in within(body, ast.Attribute)
            if use.attr not in WRAPPER_HAS - {"forward"} and use.attr not in GRADLESS_METHODS
            for call in [call_of(module, use)]
            if call is not None
        ]
        used += [(part, call) for call in within(body, ast.Call) for part in called_itself(call)]
        for part, call in used:
            model = inner_model(program, module, part)
            if model is None or is_gradless(module, call):
                continue
            names = {last_part(name) for name in names_given(program, module, model)}
            for name in sorted(names & {*wrapped}):
                yield module, call, name


def called_itself(call: ast.Call) -> Iterator[ast.expr]:
    """``inner`` of ``inner(x)`` and of ``getattr(inner, method)(x)``."""
    match call.func:
        case ast.Call(func=ast.Name(id="getattr"), args=[inner, method, *_]):
            if not (isinstance(method, ast.Constant) and method.value in GRADLESS_METHODS):
                yield inner
        case ast.Name() | ast.Attribute(attr="module"):
            yield call.func


def evaluates(module: Module, function: Function) -> bool:
    """Whether a function computes no gradients, or puts a model into eval mode."""
    return is_gradless_function(module, function) or any(
        map(is_eval_mode, within(function.body, ast.Call))
    )


def inner_model(program: Program, module: Module, node: ast.expr) -> ast.expr | None:
    """``model`` of ``model.module``, of a name for that, or of ``unwrap(model)``."""
    if isinstance(node, ast.Name):
        node = module.definition(node, node) or node
    if isinstance(node, ast.IfExp):
        node = node.body if isinstance(node.body, ast.Attribute) else node.orelse
    match node:
        case ast.Attribute(value=ast.Name() | ast.Attribute() as model, attr="module"):
            return model
        case ast.Call(func=ast.Name(id="getattr"), args=[model, ast.Constant("module"), *_]):
            return model
        case ast.Call():
            return taken_out(program, module, node)
    return None


def taken_out(program: Program, module: Module, call: ast.Call) -> ast.expr | None:
    """``model`` of ``unwrap(model)``, a function that returns what is in a wrapper."""
    for where, function in program.callees(module, call):
        for result in within(function.body, ast.Return):
            inner = None if result.value is None else inner_model(program, where, result.value)
            if isinstance(inner, ast.Name) and inner.id in parameters(function):
                return argument_for_parameter(where, function, call, inner.id)
    return None


def may_call_wrapper(program: Program, loop: TrainLoop, name: str) -> bool:
    """Whether a step calls the wrapper of a model, or hands it to what is not read."""
    for module, body in bodies_of_steps(program, loop, evaluates):
        uses: list[ast.Name | ast.Attribute] = [*within(body, ast.Name)]
        uses += [use for use in within(body, ast.Attribute) if use.attr != "module"]
        for use in uses:
            names = {last_part(each) for each in names_given(program, module, use)}
            is_read = name in names and isinstance(use.ctx, ast.Load)
            if is_read and may_be_called(program, module, use):
                return True
    return False


def may_be_called(program: Program, module: Module, use: ast.AST) -> bool:
    """Whether a read of a wrapper may come to a call of it other than in a function looked at."""
    up = module.parents[use]
    while isinstance(up, ast.Attribute) and up.attr in MOVES:  # model.train() is the model
        use = module.parents[up]
        up = module.parents[use]
    if isinstance(up, ast.Attribute):
        return up.attr == "forward"
    if isinstance(up, ast.Compare | ast.FormattedValue) or getattr(up, "test", None) is use:
        return False  # such as of an option, args.model
    if isinstance(up, ast.IfExp):
        return inner_model(program, module, up) is None
    call = module.parents[up] if isinstance(up, ast.keyword) else up
    if not isinstance(call, ast.Call) or call.func is use:
        return True
    return module.last_name(call.func) not in LOOKS_AT and not program.callees(module, call)


def weights_used_past(program: Program, module: Module, call: ast.Call) -> list[str]:
    """Attributes with parameters that a model's method reads, and its forward pass does not."""
    name = module.last_name(call.func)
    methods = [
        ((where, owner), (where, method))
        for where, method in program.functions_by_name.get(name, ())
        for owner in [where.parents[method]]
        if isinstance(owner, ast.ClassDef) and is_model(program, (where, owner))
    ]
    if len(methods) != 1:
        return []  # which one is called is not known
    ((owner, method),) = methods
    forward = method_of(program, owner, "forward")
    if forward is None:
        return []
    alone = attributes_read(program, owner, method) - attributes_read(program, owner, forward)
    return sorted(each for each in alone if holds_weights(program, owner, each))


def attributes_read(program: Program, owner: ClassOf, method: Callee) -> set[str]:
    """The attributes of self that a method reads, and other methods that it names."""
    read: set[str] = set()
    pending, seen = [method], set[Function]()
    while pending:
        _, function = pending.pop()
        seen.add(function)
        for node in within(function.body, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id == "self":
                read.add(node.attr)
                other = method_of(program, owner, node.attr)
                pending += [] if other is None or other[1] in seen else [other]
    return read


def holds_weights(program: Program, owner: ClassOf, name: str) -> bool:
    """Whether an attribute of a model surely holds parameters."""
    return any(
        module.last_name(call.func) in WEIGHTS or has_parameters(program, module, call)
        for module, value in attribute_values(program, owner, name)
        for call in everywhere(value, ast.Call)
    )


def part_called_elsewhere(
    program: Program, models: set[str]
) -> tuple[Module, ast.Attribute] | None:
    """A part of a model that goes to other code of the program, which calls it by itself.

    ``Loss(model.generator, criterion)``: of what a wrapper's forward pass does, that is no part.
    """
    for module in program.modules:
        for owner in module.occurrences(*models):
            part = module.parents[owner]
            if isinstance(part, ast.Attribute) and part.attr == "module":
                part = module.parents[part]  # model.module.generator
            up = module.parents.get(part)
            call = module.parents[up] if isinstance(up, ast.keyword) else up
            if not isinstance(part, ast.Attribute) or not isinstance(call, ast.Call):
                continue
            if part is call.func or not program.callees(module, call):
                continue
            if program.is_live(module, part) and any(
                isinstance(user := where.parents[node], ast.Call)
                and user.func is node
                and not is_gradless(where, node)
                and not ((function := where.function(node)) and evaluates(where, function))
                for where, node in places_of(program, module, part)
            ):
                return module, part
    return None


def returned_weight(program: Program) -> tuple[Module, ast.Return] | None:
    """Where a model's forward pass returns a parameter as it is, for the loss to use.

    DistributedDataParallel takes one for unused that is in no result's graph, if it looks for
    such, and torch raises when a gradient comes for it after all.
    """
    for module, forward in program.functions_by_name.get("forward", ()):
        owner = module.enclosing_class(forward)
        if owner is None or not is_of_step(program, owner):
            continue
        for result in within(forward.body, ast.Return):
            value = result.value
            parts = value.elts if isinstance(value, ast.Tuple | ast.List) else [value]
            parts = value.values if isinstance(value, ast.Dict) else parts
            for part in parts:
                if (
                    isinstance(part, ast.Attribute)
                    and isinstance(part.value, ast.Name)
                    and part.value.id == "self"
                    and is_parameter(program, (module, owner), part.attr)
                ):
                    return module, result
    return None


def is_of_step(program: Program, owner: ast.ClassDef) -> bool:
    """Whether an object of a model's class is made elsewhere than in another model."""
    around = [
        (module, module.enclosing_class(call)) for module, call in program.calls_to(owner.name)
    ]
    return any(
        outer is None or method_of(program, (module, outer), "forward") is None
        for module, outer in around
    )


def is_parameter(program: Program, owner: ClassOf, name: str) -> bool:
    """Whether an attribute of a model is one parameter, and no layer."""
    return any(
        isinstance(value, ast.Call) and module.last_name(value.func) == "Parameter"
        for module, value in attribute_values(program, owner, name)
    )
