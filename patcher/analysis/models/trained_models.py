"""Which models a program trains, by their optimizers and the calls in training steps."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator

from ...source.branches import exclusive
from ...source.module import Module
from ...source.tree import (
    Function,
    argument,
    argument_values,
    everywhere,
    mentions,
    parameters,
    precedes,
    within,
)
from ..language.objects import RETURN_SELF, is_property
from ..language.passed_arguments import argument_for_parameter
from ..training.evaluations import is_gradless as is_gradless_function
from ..training.frameworks import OPTIMIZERS
from ..training.program import Program
from ..training.train_loops import TrainLoop
from .optimized_parameters import (
    is_element_of_parameter,
    models_in,
    optimized,
    parameter_calls,
)
from .stepped_alone import stepped_alone
from .wrapped_parts import is_model
from .wrapper_attributes import is_gradless
from .wrapping import functions_leading_to, loops_that_step

LOSS = re.compile("loss|criteri", re.IGNORECASE)


def trained_without(program: Program, wrapped: Collection[str]) -> str:
    """A model that an optimizer trains and a training step calls, and that is not ``wrapped``.

    The empty string where there is none. Models are compared by the last part of their names, and
    ``wrapped`` are all of them: each function may call them by another one.
    """
    names = {last_part(target) for target in wrapped}
    names |= {
        attribute
        for module in program.modules
        for attribute, values in module.attribute_values.items()
        if any(isinstance(value, ast.Name) and value.id in names for value in values)
    }
    trained = [*trained_models(program), *models_handed_over(program)]
    trained = [each for each in trained if not names & names_at_constructors(program, each)]
    stepped: set[str] = set()
    for loop in program.train_loops:
        if not program.is_live(loop.module, loop.steps):
            continue
        calls = [
            (module, call.func)
            for module, call in calls_of_steps(program, loop)
            if isinstance(call.func, ast.Name | ast.Attribute)
        ]
        called = {
            last_part(name)
            for module, func in calls
            for name in all_names(program, module, called_model(func))
        }
        for model in trained:
            if last_part(model) in called and last_part(model) not in names:
                return model
        stepped |= {
            last_part(name)
            for module, func in calls
            if isinstance(func, ast.Attribute) and func.attr == "step"
            for name in all_names(program, module, func.value)
        }

    def names_of(program: Program, module: Module, node: ast.expr) -> set[str]:
        return all_names(program, module, node) | names_at_constructors(program, module.text(node))

    return stepped_alone(program, names, stepped, names_of)


def calls_of_steps(program: Program, loop: TrainLoop) -> Iterator[tuple[Module, ast.Call]]:
    """The calls with gradients in a loop's steps and in functions that these surely run.

    Not those in models.
    """
    for module, body in bodies_of_steps(program, loop, is_gradless_function):
        for call in within(body, ast.Call):
            if not is_gradless(module, call):
                yield module, call


def bodies_of_steps(
    program: Program, loop: TrainLoop, leave: Callable[[Module, Function], bool] | None = None
) -> list[tuple[Module, list[ast.stmt]]]:
    """The bodies of a loop's steps and of the functions below, but models and those to leave."""
    bodies = [(loop.module, loop.steps.body)]
    seen: set[Function] = set()
    for module, body in bodies:
        for call in within(body, ast.Call):
            for where, function in program.callees(module, call):
                owner = where.parents[function]
                inside = isinstance(owner, ast.ClassDef) and is_model(program, (where, owner))
                if function in seen or inside or (leave and leave(where, function)):
                    continue
                seen.add(function)
                bodies.append((where, function.body))
    return bodies


def trained_beside_wrapped(program: Program) -> str:
    """A model that an optimizer and a step train, where one function wraps others, and not it.

    The empty string where there is none, or where wrapping, optimizer and loop are not in one
    function, in which each model has one name.
    """
    wraps = program.calls_to("DistributedDataParallel")
    places = {(module, module.function(call)) for module, call in wraps}
    if len(places) != 1:
        return ""
    ((module, place),) = places
    wrapped = set()
    for _, call in wraps:
        stmt, model = module.statement(call), argument(call, 0, "module")
        if not isinstance(stmt, ast.Assign) or stmt.value is not call or model is None:
            return ""
        if any(map(is_one_of_list, stmt.targets)):
            return ""
        wrapped |= {module.text(node) for node in (*stmt.targets, model)}
    trained = [
        module.text(owner)
        for where, optimizer in program.calls_to(*OPTIMIZERS)
        if where is module and module.function(optimizer) is place
        for value in argument_values(optimizer)
        for home, method in parameter_calls(program, module, value)
        if home is module and module.function(method) is place
        for owner in models_in(module, method.value)
    ]
    for loop in program.train_loops:
        if loop.module is module and module.function(loop.steps) is place:
            called = {
                module.text(call.func).removesuffix(".forward")
                for call in within(loop.steps.body, ast.Call)
                if isinstance(call.func, ast.Name | ast.Attribute)
            }
            alone = [model for model in trained if model in called - wrapped]
            if alone:
                return alone[0]
    return ""


def is_one_of_list(node: ast.expr) -> bool:
    """``nets[i]``, which other code may call by a name of its own."""
    return isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant)


def made_anew(program: Program, module: Module, wrap: ast.stmt, name: str) -> ast.stmt | None:
    """Where a wrapped model's name gets another model behind the wrapper, which is then trained.

    ``net = DDP(net); train(net)``, and below it ``net = Net(); train(net)``.
    """
    leading = {
        each for loop in loops_that_step(program) for each in functions_leading_to(program, loop)
    }
    function = module.function(wrap)
    stmts = [module.statement(store) for store in module.stores.get((function, name), ())]
    for stmt in stmts:
        value = stmt.value if isinstance(stmt, ast.Assign) else None
        if not isinstance(value, ast.Call) or mentions(value, name) or not precedes(wrap, stmt):
            continue
        for call in within(module.scope_statements(stmt), ast.Call):
            if (
                precedes(stmt, call)
                and any(module.text(each) == name for each in argument_values(call))
                and any(callee in leading for _, callee in program.callees(module, call))
                and not exclusive(stmt, call)
                and not exclusive(wrap, stmt)
                and not any(
                    precedes(stmt, other) and precedes(other, call) and wraps(module, other, name)
                    for other in stmts
                )
            ):
                return stmt
    return None


def wraps(module: Module, stmt: ast.stmt, name: str) -> bool:
    """``net = DistributedDataParallel(net)``."""
    value = stmt.value if isinstance(stmt, ast.Assign) else None
    return (
        isinstance(value, ast.Call)
        and module.last_name(value.func) in ("DataParallel", "DistributedDataParallel")
        and mentions(value, name)
    )


def left_bare(program: Program) -> str:
    """A model that is trained beside one in DistributedDataParallel, and is in none itself.

    The empty string where there is none, or where a wrapper is not plainly given a name.
    """
    if alone := trained_beside_wrapped(program):
        return alone
    names: list[str] = []
    for module, call in program.calls_to("DistributedDataParallel"):
        stmt, inner = module.statement(call), argument(call, 0, "module")
        if not isinstance(stmt, ast.Assign) or stmt.value is not call or inner is None:
            return ""
        for node in (*stmt.targets, inner):
            if is_one_of_list(node):
                return ""
            names += all_names(program, module, node)
        names += [each for target in stmt.targets for each in properties_for(module, target)]
    return trained_without(program, names) if names else ""


def properties_for(module: Module, attribute: ast.expr) -> Iterator[str]:
    """The properties of a module that return an attribute, ``return self._wrapped``."""
    for method in module.all_functions if isinstance(attribute, ast.Attribute) else ():
        if is_property(method) and any(
            made.value is not None and module.text(made.value) == module.text(attribute)
            for made in within(method.body, ast.Return)
        ):
            yield method.name


def trained_models(program: Program) -> list[str]:
    """What the models are called whose parameters go to an optimizer."""
    return [
        model
        for where, value in optimized(program)
        for place, method in parameter_calls(program, where, value)
        for owner in models_in(place, method.value)
        if not is_element_of_parameter(place, owner)
        for model in names_given(program, place, owner)
    ]


def lone_tensors(program: Program) -> Iterator[tuple[Module, ast.Name | ast.Attribute]]:
    """Tensors with gradients that an optimizer gets in a list, that steps use and no model has.

    Not those of an optimizer that a step or a forward pass makes, as for an attack on its batch.
    """
    bodies = [
        (where, stmt)
        for loop in program.train_loops
        if program.is_live(loop.module, loop.steps)
        for where, body in bodies_of_steps(program, loop)
        for stmt in body
    ]
    used = {name.id for _, stmt in bodies for name in everywhere(stmt, ast.Name)}
    used |= {where.text(each) for where, stmt in bodies for each in everywhere(stmt, ast.Attribute)}
    steps = {stmt for _, stmt in bodies}
    for module, optimizer in program.calls_to(*OPTIMIZERS, "add_param_group"):
        if program.is_live(module, optimizer) and not set(module.ancestors(optimizer)) & steps:
            for value in argument_values(optimizer):
                for tensor in listed_names(module, value):
                    is_alone = (
                        is_leaf(program, module, tensor)
                        if isinstance(tensor, ast.Name)
                        else is_leaf_of_object(program, module, tensor)
                    )
                    is_used = module.text(tensor) in used
                    if is_alone and is_used and not is_of_forward_pass(program, module, tensor):
                        yield module, tensor


def is_of_forward_pass(program: Program, module: Module, tensor: ast.Name | ast.Attribute) -> bool:
    """Whether a method of a model makes a tensor of what it gets, and trains it for this batch.

    As prototypes that are adapted to the few examples of a task: each rank has its own.
    """
    function, owner = module.function(tensor), module.enclosing_class(tensor)
    if function is None or owner is None or not isinstance(tensor, ast.Name):
        return False
    passed = {*parameters(function)} - {"self"}
    made, seen = [*module.alternatives(tensor, tensor)], set[ast.expr]()
    while made:
        value = made.pop()
        if value not in seen:
            seen.add(value)
            for name in everywhere(value, ast.Name):
                made += module.alternatives(name, value)
    names = {name.id for value in seen for name in everywhere(value, ast.Name)}
    return not passed.isdisjoint(names) and is_model(program, (module, owner))


def listed_names(
    module: Module, value: ast.expr, seen: frozenset[ast.expr] = frozenset()
) -> Iterator[ast.Name | ast.Attribute]:
    """The names that are elements of lists in a value, also through local names.

    And that of a group, ``{"params": scale}``.
    """
    lists: list[ast.List | ast.Tuple] = [*everywhere(value, ast.List)]
    for shown in [*lists, *everywhere(value, ast.Tuple)]:
        yield from (each for each in shown.elts if isinstance(each, ast.Name | ast.Attribute))
    for group in everywhere(value, ast.Dict):
        for key, item in zip(group.keys, group.values, strict=True):
            is_params = isinstance(key, ast.Constant) and key.value == "params"
            if is_params and isinstance(item, ast.Name | ast.Attribute):
                yield item
    for name in everywhere(value, ast.Name):
        for source in module.alternatives(name, name):
            if source not in seen:
                yield from listed_names(module, source, seen | {source})


def is_leaf_of_object(program: Program, module: Module, tensor: ast.Attribute) -> bool:
    """Whether ``self.scale`` is a tensor that was made to have gradients, of no model."""
    owner = module.enclosing_class(tensor)
    if owner is None or module.text(tensor.value) != "self" or is_model(program, (module, owner)):
        return False
    values = [
        value
        for value in module.attribute_values.get(tensor.attr, ())
        if module.enclosing_class(value) is owner
    ]
    return any(isinstance(value, ast.Call) and makes_leaf(module, value) for value in values)


def is_leaf(
    program: Program, module: Module, name: ast.Name, seen: frozenset[Function] = frozenset()
) -> bool:
    """Whether a name is that of a tensor which was made to have gradients, outside of any model."""
    function = module.function(name)
    uses = [
        module.parents[each]
        for each in module.occurrences(name.id)
        if isinstance(each, ast.Name) and module.function(each) is function
    ]
    if any(isinstance(use, ast.Assign) and is_kept(use) for use in uses):
        return False
    if any(isinstance(use, ast.Attribute) and asks_for_gradients(module, use) for use in uses):
        return True
    values = module.alternatives(name, name)
    if values:
        return any(isinstance(value, ast.Call) and makes_leaf(module, value) for value in values)
    if function is None or function in seen or name.id not in parameters(function):
        return False
    passed = [
        (where, argument_for_parameter(module, function, call, name.id))
        for where, call in program.callers(function)
    ]
    return any(
        isinstance(value, ast.Name) and is_leaf(program, where, value, seen | {function})
        for where, value in passed
    )


def is_kept(stmt: ast.Assign) -> bool:
    """Whether something is made an attribute of an object: ``model.scale = scale``."""
    return any(isinstance(target, ast.Attribute) for target in stmt.targets)


def asks_for_gradients(module: Module, use: ast.Attribute) -> bool:
    """``x.requires_grad = True`` and ``x.requires_grad_()``."""
    above = module.parents[use]
    if use.attr == "requires_grad":
        return (
            isinstance(above, ast.Assign)
            and isinstance(above.value, ast.Constant)
            and above.value.value is True
        )
    return use.attr == "requires_grad_" and isinstance(above, ast.Call) and not above.args


def makes_leaf(module: Module, call: ast.Call) -> bool:
    """``nn.Parameter(…)``, ``torch.zeros(…, requires_grad=True)``, ``….requires_grad_()``."""
    if module.last_name(call.func) == "Parameter":
        return True
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("requires_grad_", "to"):
        return call.func.attr == "requires_grad_"
    given = argument(call, len(call.args), "requires_grad")
    return isinstance(given, ast.Constant) and given.value is True


def models_handed_over(program: Program) -> list[str]:
    """What goes to functions whose results an optimizer gets: ``weights, _ = split(head)``.

    A model among it is one that is trained, most likely; what else it is, no step calls.
    """
    return [
        where.text(value)
        for where, optimizer in program.calls_to(*OPTIMIZERS)
        if program.is_live(where, optimizer)
        for argument in argument_values(optimizer)
        for name in everywhere(argument, ast.Name)
        if not isinstance(where.parents[name], ast.Attribute)  # the model of model.parameters()
        for store in where.stores.get((where.function(name), name.id), ())
        for stmt in [where.statement(store)]
        if isinstance(stmt, ast.Assign) and isinstance(stmt.value, ast.Call)
        if precedes(stmt, optimizer) and not is_move_of(where, stmt)
        for value in argument_values(stmt.value)
        if isinstance(value, ast.Name | ast.Attribute)
        and where.text(value) not in map(where.text, stmt.targets)  # groups = by_rate(groups)
        and not LOSS.search(last_part(where.text(value)))
    ]


def is_move_of(module: Module, stmt: ast.Assign) -> bool:
    """``model = DataParallel(net)``, ``model = model.to(device)``: no list of parameters."""
    name = module.last_name(stmt.value.func) if isinstance(stmt.value, ast.Call) else ""
    return name in RETURN_SELF or name[:1].isupper()


def names_given(
    program: Program, module: Module, node: ast.expr, seen: frozenset[Function] = frozenset()
) -> set[str]:
    """What a model is called where it comes from: of a parameter, what callers pass for it."""
    function = module.function(node)
    name = module.text(node)
    if function is None or function in seen or name not in parameters(function):
        return {name}
    passed = [
        (caller, value)
        for caller, call in program.callers(function)
        if program.is_live(caller, call)
        for value in [argument_for_parameter(module, function, call, name)]
        if isinstance(value, ast.Name | ast.Attribute)
    ]
    found = [names_given(program, caller, value, seen | {function}) for caller, value in passed]
    return set().union(*found) or {name}


def all_names(program: Program, module: Module, node: ast.expr) -> set[str]:
    """What a model is called here, and where it comes from."""
    return {module.text(node), *names_given(program, module, node)}


def called_model(func: ast.Name | ast.Attribute) -> ast.expr:
    """``model`` of ``model(batch)`` and of ``model.forward(batch)``."""
    return func.value if isinstance(func, ast.Attribute) and func.attr == "forward" else func


def names_at_constructors(program: Program, model: str) -> set[str]:
    """What ``self.model`` is called by who makes the object: ``Trainer(net)``; by last parts."""
    owner, _, attribute = model.rpartition(".")
    if owner != "self":
        return set()
    return {
        last_part(name)
        for module in program.modules
        for value in module.attribute_values.get(attribute, [])
        if isinstance(value, ast.Name)
        for name in names_given(program, module, value)
    }


def last_part(name: str) -> str:
    """``model`` of ``self.model.module``."""
    return name.removesuffix(".module").rpartition(".")[2]
