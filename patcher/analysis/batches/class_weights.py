"""Cross entropies of training steps that weigh classes, or leave targets out: no plain means."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator

from ....record import record
from ...source.module import Module
from ...source.tree import Function, argument, is_none, keyword, parameters, within
from ..language.objects import ClassOf, attribute_values, classes_above
from ..language.passed_arguments import argument_for_parameter, default_value
from ..models.wrapper_attributes import is_gradless
from ..training.evaluations import is_gradless as is_decorated_gradless
from ..training.possible_values import Place, values_of
from ..training.program import Program
from .batch_origins import bound_value
from .loss_reduction import SAME_VALUE, Reduction, asked_for, maker_of

PLACES = {
    **dict.fromkeys(("CrossEntropyLoss", "NLLLoss", "NLLLoss2d"), 0),
    **dict.fromkeys(("cross_entropy", "nll_loss"), 2),
}
"""At which place torch's losses take class weights; at the next one an old name of a reduction."""
MAX_DEPTH = 8


@record
class WeightedLoss:
    """A loss of torch that is passed class weights; they may be None where they are not `sure`."""

    module: Module
    call: ast.Call
    weights: ast.expr
    sure: bool


def class_weighted_losses(program: Program) -> list[WeightedLoss]:
    """The losses of training steps that weigh classes, as far as calls are followed."""
    found: dict[ast.expr, WeightedLoss] = {}
    for module, call in program.calls_to(*PLACES):
        weights = weights_of_mean(module, call)
        given = None if weights is None else is_given(program, module, weights)
        if weights is not None and given is not False:
            found[call] = WeightedLoss(module, call, weights, given is True)
    used = used_in_training(program, found)
    return [each for call, each in found.items() if call in used]


def losses_with_ignored_targets(program: Program) -> list[tuple[Module, ast.Call]]:
    """The losses of training steps that are told which targets to leave out, with their module.

    Torch leaves out -100 where they are told nothing: all of them, where a batch is filled with it.
    """
    by_default = any(map(fills_with_ignored, program.modules))
    found: dict[ast.expr, tuple[Module, ast.Call]] = {
        call: (module, call)
        for module, call in program.calls_to(*PLACES)
        if (keyword(call, "ignore_index") or (by_default and not is_of_part(call)))
        and is_mean(module, call)
    }
    used = used_in_training(program, found)
    return [
        (module, call)
        for module, call in found.values()
        if call in used or is_in_listed_function(program, module, call)
    ]


def is_in_listed_function(program: Program, module: Module, call: ast.expr) -> bool:
    """Whether a call stands in a function that a table holds, as losses by their names.

    Which of them a training uses is then a setting: ``LOSSES = {"ce": cross_entropy2d}``.
    """
    function = module.function(call)
    return function is not None and any(
        isinstance(where.parents[use], ast.Dict)
        for where, use in program.possible_callers(function)
    )


def fills_with_ignored(module: Module) -> bool:
    """Whether a module puts -100 into something: ``padding_value=-100``, ``y[mask] = -100``."""
    for node in module.nodes(ast.UnaryOp):
        if not isinstance(node.op, ast.USub) or not is_ignored(node.operand):
            continue
        up = module.parents[node]
        if isinstance(up, ast.keyword) and up.arg != "ignore_index":
            return True
        if isinstance(up, ast.Call | ast.List | ast.Assign | ast.IfExp):
            return True
    return False


def is_of_part(call: ast.Call) -> bool:
    """Whether a loss's targets are a part that is picked: ``labels[k, :length]``."""
    return isinstance(argument(call, 1, "target"), ast.Subscript)


def is_ignored(node: ast.expr) -> bool:
    """The 100 of -100, which torch's losses leave out."""
    return isinstance(node, ast.Constant) and node.value == 100


def used_in_training(program: Program, found: Container[ast.expr]) -> set[ast.expr]:
    """Calls of losses in training steps, and those that make what is called there."""
    used = set[ast.expr]()
    for module, call in calls_in_training(program) if found else ():
        func = call.func
        if isinstance(func, ast.Attribute) and func.attr == "forward":
            func = func.value
        is_function = module.last_name(func).islower()
        used.update([call] if is_function and call in found else makers(program, module, func))
    return used


def weights_of_mean(module: Module, call: ast.Call) -> ast.expr | None:
    """The class weights that a loss of torch is passed; None where it is known to be no mean."""
    place = PLACES[module.last_name(call.func)]
    return argument(call, place, "weight") if is_mean(module, call) else None


def is_mean(module: Module, call: ast.Call) -> bool:
    """Whether a loss of torch is known to be a mean."""
    if not module.dotted(call.func).startswith("torch."):
        return False
    old = argument(call, PLACES[module.last_name(call.func)] + 1, "size_average")
    if old is not None and keyword(call, "reduction") is None:
        return module.text(old) != "False" and keyword(call, "reduce") is None
    return asked_for(call) is Reduction.MEAN


def is_given(program: Program, module: Module, weights: ast.expr, depth: int = 0) -> bool | None:
    """Whether class weights are not None; None where it is unknown, or differs from run to run."""
    values: list[Place] = []
    match weights:
        case ast.Constant() | ast.List():
            return not is_none(weights)
        case ast.Call(func=ast.Attribute(value=inner, attr=name)) if name in SAME_VALUE:
            return is_given(program, module, inner, depth)
        case ast.Call():
            return True if module.dotted(weights.func).startswith("torch.") else None
        case ast.IfExp():
            values = [(module, weights.body), (module, weights.orelse)]
        case ast.Name() if depth < MAX_DEPTH:
            values = bound_anywhere(program, module, weights)
        case ast.Attribute() if depth < MAX_DEPTH:
            values = bound_to(program, module, weights)
    found = {is_given(program, where, value, depth + 1) for where, value in values}
    return found.pop() if len(found) == 1 else None


def makers(program: Program, module: Module, loss: ast.expr, depth: int = 0) -> Iterator[ast.Call]:
    """The calls of classes of torch's losses that may have made the loss that is called."""
    loss = maker_of(loss)
    values: list[Place] = []
    match loss:
        case ast.Call() if module.last_name(loss.func) in PLACES:
            yield loss
        case ast.IfExp():
            values = [(module, loss.body), (module, loss.orelse)]
        case ast.Name() | ast.Attribute() | ast.Call() if depth < MAX_DEPTH:
            values = bound_to(program, module, loss)
    for where, value in values:
        yield from makers(program, where, value, depth + 1)


def bound_to(program: Program, module: Module, node: ast.expr) -> list[Place]:
    """What a name, an attribute of self or a call of an own function may be; [] where unknown."""
    owner = module.enclosing_class(node)
    match node:
        case ast.Attribute(value=ast.Name(id="self"), attr=name) if owner is not None:
            return [*attributes_of(program, (module, owner), name)]
        case ast.Attribute():
            return []
        case ast.Name() if not module.alternatives(node, node):
            function = module.function(node)
            if function is not None and node.id in parameters(function):
                return passed(program, module, function, node.id)
    return [*values_of(program, module, node)]


def bound_anywhere(program: Program, module: Module, name: ast.Name) -> list[Place]:
    """All that a name is bound to in its scope, whatever comes last; [] where one is unknown."""
    function = module.function(name)
    is_passed = function is not None and name.id in parameters(function)
    if not is_passed and (function, name.id) not in module.stores:
        function = None
    stores = module.stores.get((function, name.id), [])
    values = [bound_value(module, store) for store in stores]
    known = [(module, value) for value in values if value is not None]
    if len(known) < len(values):
        return []
    known = [(where, value) for where, value in known if not is_moved(value, name.id)]
    if function is not None and is_passed:
        arguments = passed(program, module, function, name.id)
        return known + arguments if arguments else []
    return known or [*values_of(program, module, name)]


def is_moved(value: ast.expr, name: str) -> bool:
    """``name.to(device)``."""
    match value:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=same), attr=method)):
            return same == name and method in SAME_VALUE
    return False


def attributes_of(program: Program, owner: ClassOf, name: str) -> Iterator[Place]:
    """What a class assigns to ``self.name`` or registers as its buffer, and what others assign."""
    yield from attribute_values(program, owner, name)
    for module, definition in classes_above(program, owner):
        for call in module.calls_to("register_buffer"):
            value = argument(call, 1, "tensor")
            named = argument(call, 0, "name")
            is_this = isinstance(named, ast.Constant) and named.value == name
            if is_this and value is not None and module.enclosing_class(call) is definition:
                yield module, value
    for module in program.modules:
        for value in module.attribute_values.get(name, ()):
            if module.enclosing_class(value) is None:
                yield module, value


def passed(program: Program, module: Module, function: Function, name: str) -> list[Place]:
    """What all calls of a function pass for a parameter, or leave at its default."""
    found: list[Place] = []
    default = default_value(function, name)
    for where, call in program.callers(function):
        value = argument_for_parameter(module, function, call, name)
        if value is not None:
            found.append((where, value))
        elif default is None or any(each.arg is None for each in call.keywords):
            return []  # by ** or *
        else:
            found.append((module, default))
    return found


def calls_in_training(program: Program) -> Iterator[tuple[Module, ast.Call]]:
    """Calls in training steps, in what they call, and in the forward passes of models."""
    scored = {each.function for each in program.evaluations}
    loops = {each.loop for each in program.evaluations}
    pending = [(loop.module, loop.steps.body) for loop in program.train_loops]
    seen: set[Function] = set()
    forwards = [
        (module, function)
        for module in program.modules
        for function in module.all_functions
        if function.name == "forward" and program.is_live(module, function)
    ]
    pending += [(module, function.body) for module, function in forwards]
    while pending:
        module, body = pending.pop()
        for call in within(body, ast.Call):
            if is_gradless(module, call) or not loops.isdisjoint(module.ancestors(call)):
                continue
            yield module, call
            for where, function in program.callees(module, call):
                if function not in seen | scored and not is_decorated_gradless(where, function):
                    seen.add(function)
                    pending.append((where, function.body))
