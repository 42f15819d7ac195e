"""Edits that average gradients over the ranks before each step of an optimizer.

They are right whatever a step does to get its gradients: several models, several forward or
backward passes, gradients of gradients. An average of averages is the same average, so that a step
of two optimizers, or of several micro-batches, may ask for it more than once. What is not linear in
the gradients, such as clipping, must come behind; so must an attack on weights, which reads them
ahead of another backward pass.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..analysis.batches.batch_taint import NotDealtError
from ..analysis.batches.steps_apart import refuse_steps_apart
from ..analysis.language.passed_arguments import argument_for_parameter
from ..analysis.models.wrapping import AVERAGE
from ..analysis.training.chosen_optimizers import is_own_optimizer
from ..analysis.training.frameworks import OPTIMIZERS
from ..analysis.training.program import Program
from ..analysis.training.train_loops import (
    CLIPPING,
    TrainLoop,
    is_backward,
    is_of_inputs,
    is_optimizer_step,
    is_step_of_inputs,
)
from ..analysis.training.unused_methods import is_unused_method
from ..editing.edits import Define, Edit, Import, Insert
from ..source.module import Module
from ..source.tree import Function, everywhere, mentions, parameters, within
from .chosen_cards import NotShareableError
from .read_gradients import read_between_passes

ALIKE = "same_weights"  # of helper_code.py
MAX_CALLS = 3  # through which an optimizer is given back
CHANGES_GRADIENTS = (*CLIPPING, "unscale_")

Place = tuple[Module, ast.Call]


def average_before_steps(program: Program, loops: list[TrainLoop]) -> list[tuple[Module, Edit]]:
    """Edits of all steps that training loops run. Raises NotShareableError.

    Every optimizer's step of the program must be among them: one that is not would step by the
    gradients of one rank.
    """
    for module, call in program.calls_to("scale_loss"):
        if program.is_live(module, call):
            raise NotShareableError("apex judges its gradients before they are averaged")
    steps: list[Place] = []
    for loop in loops:
        calls = [
            each for stmt in loop.steps.body for each in calls_below(program, loop.module, stmt)
        ]
        try:
            refuse_steps_apart(program, loop)
        except NotDealtError as error:
            raise NotShareableError(str(error)) from None
        own = [place for place in calls if is_step_of_optimizer(program, *place)]
        for where, call in calls:
            is_made = makes_torchs(program, where, call)
            if is_made and not is_of_inputs(call):
                raise NotShareableError(f"line {call.lineno} makes an optimizer in each step")
        for where, call in own:
            if is_in_optimizer(where, call):
                raise NotShareableError(
                    f"an optimizer of the script's own steps in line {call.lineno}, not in step()"
                )
        if not own:
            raise NotShareableError(f"where line {loop.steps.lineno} steps cannot be told")
        steps += [place for place in own if place not in steps]
    found = {call for _, call in steps}
    for module, call in program.calls_to("step"):
        if (
            call not in found
            and program.is_live(module, call)
            and is_step_of_optimizer(program, module, call)
            and not is_unused_method(program, module, module.function(call))
        ):
            raise NotShareableError(f"line {call.lineno} steps an optimizer elsewhere")
    edits: dict[tuple[Module, Edit], None] = {}
    for module, call in steps:
        code = f"{AVERAGE}({module.text(stepped(module, call))})"
        edits[module, Insert(behind_backward(program, module, call), code)] = None
    for module, stmt in read_between_passes(program, loops):
        for optimizer in optimizers_beside(steps, module, stmt):
            edits[module, Insert(stmt, f"{AVERAGE}({optimizer})")] = None
    for module, made in program.calls_to(*OPTIMIZERS):
        stmt = module.statement(made)
        if is_of_inputs(made) and is_made_for_step(program, module, made):
            continue
        if (
            program.is_live(module, made)
            and isinstance(stmt, ast.Assign)
            and len(stmt.targets) == 1
            and (code := alike(module, stmt, made))
        ):
            edits[module, Insert(stmt, code, "after")] = None
    needed: list[Edit] = [Define(AVERAGE), Import("torch")]
    modules = dict.fromkeys(module for module, _ in edits)
    return [*edits, *((module, edit) for module in modules for edit in needed)]


def is_in_optimizer(module: Module, call: ast.Call) -> bool:
    """Whether an optimizer of the script's own steps another one, not in its ``step()``.

    As one that looks for sharp minima does in its ``second_step()``, behind a change of the
    weights by the gradients of a first one.
    """
    owner, function = module.enclosing_class(call), module.function(call)
    return (
        owner is not None
        and function is not None
        and function.name != "step"
        and any(module.last_name(base) == "Optimizer" for base in owner.bases)
    )


def optimizers_beside(steps: list[Place], module: Module, stmt: ast.stmt) -> list[str]:
    """The optimizers that step in the function of a statement, which reads their gradients."""
    function = module.function(stmt)
    own = [
        module.text(stepped(where, call))
        for where, call in steps
        if where is module and module.function(call) is function
    ]
    if not own:
        raise NotShareableError(
            f"line {stmt.lineno} reads gradients between two backward passes, before they are"
            " averaged"
        )
    return [*dict.fromkeys(own)]


def alike(module: Module, stmt: ast.Assign, made: ast.Call) -> str:
    """A call for the optimizer that an assignment binds, or for a list or dict of some; or ""."""
    name, value = module.text(stmt.targets[0]), stmt.value
    if value is made:
        return f"{ALIKE}({name})"
    if isinstance(value, ast.ListComp) and value.elt is made:
        return f"[{ALIKE}(each) for each in {name}]"
    if isinstance(value, ast.Dict):
        items, many = value.values, f"{name}.values()"
    elif isinstance(value, ast.List | ast.Tuple):
        items, many = value.elts, f"({name})" if isinstance(stmt.targets[0], ast.Tuple) else name
    else:
        return ""
    makers = [module.last_name(each.func) for each in items if isinstance(each, ast.Call)]
    is_first = bool(items) and items[0] is made  # once for all of them
    if not is_first or len(makers) < len(items) or not set(makers) <= set(OPTIMIZERS):
        return ""
    return f"[{ALIKE}(each) for each in {many}]"


def is_step_of_optimizer(program: Program, module: Module, call: ast.Call) -> bool:
    """Whether a call steps an optimizer of torch's, and no schedule; one by a scaler as well."""
    if not is_optimizer_step(module, call):
        return False
    if any(not is_of_optimizer(*called) for called in program.callees(module, call)):
        return False
    owner = stepped(module, call)
    if is_step_of_inputs(module, call) and is_made_for_step(program, module, owner):
        return False
    made = [each for each in made_by(program, module, owner) if isinstance(each, ast.Call)]
    return not made or any(makes_optimizer(program, module, each) for each in made)


def is_of_optimizer(module: Module, function: Function) -> bool:
    """Whether a function is a method of an optimizer of the script's own."""
    owner = module.parents[function]
    return isinstance(owner, ast.ClassDef) and is_own_optimizer(module, owner)


def is_made_for_step(program: Program, module: Module, optimizer: ast.expr) -> bool:
    """Whether a step makes an optimizer anew, as an attack does; not above the training's loop."""
    function = module.function(optimizer)
    made = module.definition(optimizer, optimizer) or optimizer
    loops = [each for each in program.train_loops if each.module is module]
    if any(loop.steps in module.ancestors(made) for loop in loops):
        return True
    return function is not None and all(
        module.function(loop.steps) is not function for loop in loops
    )


def makes_optimizer(program: Program, module: Module, made: ast.Call, depth: int = 0) -> bool:
    """Whether a call makes an optimizer, or gives back one that it gets: ``copied(optimizer)``."""
    if makes_torchs(program, module, made) or "optim" in module.dotted(made.func).lower():
        return True
    return depth < MAX_CALLS and any(
        isinstance(each, ast.Call) and makes_optimizer(program, home, each, depth + 1)
        for home, value in given_back(program, module, made)
        for each in (value, *home.alternatives(value, value))
    )


def makes_torchs(program: Program, module: Module, made: ast.Call) -> bool:
    """Whether a call makes an optimizer of a class that is known, or chosen among such."""
    return module.last_name(made.func) in OPTIMIZERS or any(
        call is made for _, call in program.chosen_optimizers
    )


def given_back(
    program: Program, module: Module, call: ast.Call
) -> Iterator[tuple[Module, ast.expr]]:
    """What the function of a call returns, or the argument that is returned."""
    for where, function in program.callees(module, call):
        for result in within(function.body, ast.Return):
            value = result.value
            if isinstance(value, ast.Name) and value.id in parameters(function):
                passed = argument_for_parameter(where, function, call, value.id)
                if passed is not None:
                    yield module, passed
            elif value is not None:
                yield where, value


def made_by(program: Program, module: Module, node: ast.expr) -> list[ast.expr]:
    """What an optimizer's name or attribute may be bound to."""
    found = program.resolve(module, node)
    if found is not None and isinstance(found[1], ast.expr):
        return [found[1]]
    return module.alternatives(node, node)


def stepped(module: Module, call: ast.Call) -> ast.expr:
    """The optimizer of ``optimizer.step()`` or of ``scaler.step(optimizer)``."""
    assert isinstance(call.func, ast.Attribute)
    owner = call.func.value
    if not call.args and not call.keywords:
        return owner
    if "scaler" in module.text(owner).lower() and isinstance(
        call.args[0], ast.Name | ast.Attribute
    ):
        return call.args[0]
    raise NotShareableError(
        f"line {call.lineno} hands its step a closure: where the"
        " optimizer does not need one, go back above the step"
    )


def behind_backward(program: Program, module: Module, call: ast.Call) -> ast.stmt:
    """The statement before which the gradients of a step are whole, and nothing has changed them.

    Raises NotShareableError where they are changed before a test of whether to step.
    """
    place: ast.AST = module.statement(call)
    own = module.text(stepped(module, call))
    above, goes_back = since_backward(program, module, module.statement(call), own)
    changing = [each for each in above if changes_gradients(program, module, each)]
    first = changing[0] if changing else module.statement(call)
    while not goes_back and isinstance(module.parents[place], ast.If | ast.With):
        place = module.parents[place]
        assert isinstance(place, ast.stmt)
        above, goes_back = since_backward(program, module, place, own)
        changing = [each for each in above if changes_gradients(program, module, each)]
        if changing and not steps_in_each_branch(program, module, place):
            raise NotShareableError(f"line {changing[0].lineno} changes gradients before a test")
        first = changing[0] if changing else first
    if not goes_back and isinstance(around := module.parents[place], Function):
        refuse_changes_in_callers(program, around, set())
    return first


def steps_in_each_branch(program: Program, module: Module, stmt: ast.stmt) -> bool:
    """Whether a test asks how to step: ``if fp16: scaler.step(optimizer)``, ``else`` without."""
    return isinstance(stmt, ast.With) or (
        isinstance(stmt, ast.If)
        and all(
            any(
                is_step_of_optimizer(program, module, call)
                for each in block
                for call in everywhere(each, ast.Call)
            )
            for block in (stmt.body, stmt.orelse)
        )
    )


def refuse_changes_in_callers(
    program: Program, function: Function | None, seen: set[Function]
) -> None:
    """Raise where gradients are changed above a call of the function that steps."""
    if function is None or function in seen:
        return
    seen.add(function)
    for module, call in program.callers(function):
        place: ast.AST = module.statement(call)
        while isinstance(place, ast.stmt):
            above, goes_back = since_backward(program, module, place)
            for each in above:
                if changes_gradients(program, module, each):
                    because = f"line {each.lineno} changes gradients before the function that steps"
                    raise NotShareableError(because)
            place = module.parents[place]
            if goes_back or not isinstance(place, ast.If | ast.With | ast.Try):
                break
        if not goes_back and isinstance(place, Function):
            refuse_changes_in_callers(program, place, seen)


def since_backward(
    program: Program, module: Module, stmt: ast.stmt, own: str = ""
) -> tuple[list[ast.stmt], bool]:
    """The statements above one in its block, back to the last that goes back or steps, if any.

    Not to a step of another optimizer than ``own``, ahead of which one pass may have given both
    their gradients, and one call clipped them.
    """
    block = module.body(stmt)
    above: list[ast.stmt] = []
    for each in reversed(block[: block.index(stmt)]):
        calls = calls_below(program, module, each)
        if any(
            is_backward(call)
            or (is_optimizer_step(where, call) and not steps_another(where, call, own))
            for where, call in calls
        ):
            return above, True
        above.insert(0, each)
    return above, False


def steps_another(module: Module, call: ast.Call, own: str) -> bool:
    """Whether a step is of an optimizer of another name."""
    try:
        return bool(own) and module.text(stepped(module, call)) != own
    except NotShareableError:
        return False


def changes_gradients(program: Program, module: Module, stmt: ast.stmt) -> bool:
    """Whether a statement clips gradients, or reads or writes ``parameter.grad``."""
    below = [function for _, function in program.functions_below(module, stmt)]
    return any(mentions(node, "grad") for node in (stmt, *below)) or any(
        where.last_name(call.func) in CHANGES_GRADIENTS
        for where, call in calls_below(program, module, stmt)
    )


def calls_below(program: Program, module: Module, stmt: ast.stmt) -> Iterator[Place]:
    """The calls in a statement, and in the functions of the program that it runs."""
    yield from ((module, call) for call in everywhere(stmt, ast.Call))
    for where, function in program.functions_below(module, stmt):
        yield from ((where, call) for call in everywhere(function, ast.Call))
