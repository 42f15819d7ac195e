"""The loop that counts the epochs of some steps, in their function or in one that calls it."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import Function, argument, everywhere, is_inside, parameters
from ..language.literal_arguments import CallPlace
from ..language.passed_arguments import argument_for_parameter, keyword_of
from ..language.training_calls import calls_that_train
from .counting_loops import CountingLoop, counting_loop, counting_loops, endless_loop
from .loaders import AROUND
from .program import Program
from .train_loops import TrainLoop

MAX_CALLERS = 4
"""Functions through which a loader is handed on."""
EpochLoop = tuple[Module, CountingLoop, str, ast.stmt]
"""The module, the loop, the loader's name there, and the statement of the loop with the steps."""


def epoch_loop(program: Program, loop: TrainLoop) -> EpochLoop | None:
    """The loop that counts epochs, its module, and the name that the loader has there.

    The loop stands around the steps, or around the only call that trains of their function, or of
    the function around that. Last comes the statement that it holds of these. A loop that counts
    in no name, ``while not done:``, has an empty one.
    """
    module, loader = loop.module, loop.loader
    if loader is None:
        return None
    name = loader.name or loader.listed_in
    use: ast.stmt = loop.steps
    place: ast.AST = use
    for _ in range(MAX_CALLERS):
        epochs = counting_loop(module, place) or endless_loop(module, place)
        if epochs is not None:
            return module, epochs, name, use
        function = module.function(place)
        if function is None:
            return None
        calls = calls_that_train(program, module, function, program.callers(function))
        if len(calls) != 1:
            return None
        caller, call = calls[0]
        name = name_at_call(module, function, calls[0], name or parameter_in_bar(loop))
        if not name:
            return None
        module, place, use = caller, call, caller.statement(call)
    return None


def number_passed(program: Program, loop: TrainLoop) -> str:
    """The parameter by which all calls that train pass the number of their epoch; or empty."""
    module = loop.module
    function = module.function(loop.steps)
    if function is None or loop.loader is None or not loop.loader.name:
        return ""
    calls = calls_that_train(program, module, function, program.callers(function))
    numbers = [next((n for _, n in counting_loops(where, call)), "") for where, call in calls]
    for name in parameters(function) if calls and all(numbers) else ():
        passed = [
            (where, argument_for_parameter(module, function, call, name)) for where, call in calls
        ]
        texts = ["" if value is None else where.text(value) for where, value in passed]
        if texts == numbers and (function, name) not in module.stores:
            return name
    return ""


def has_several_epochs(program: Program, loop: TrainLoop) -> bool:
    """Whether loops of several callers count the epochs of steps, as in trainings one by one."""
    module, function = loop.module, loop.module.function(loop.steps)
    name = "" if loop.loader is None else loop.loader.name
    if function is None or name.partition(".")[0] not in parameters(function):
        return False
    calls = calls_that_train(program, module, function, program.callers(function))
    return len(calls) > 1 and all(
        counting_loop(where, call) or endless_loop(where, call) for where, call in calls
    )


def parameter_in_bar(loop: TrainLoop) -> str:
    """The parameter whose name a bar around it has taken, ``loader = tqdm(loader)``; or empty."""
    module, steps = loop.module, loop.steps
    function = module.function(steps)
    for name in everywhere(steps.iter, ast.Name) if isinstance(steps, ast.For) else ():
        bar = module.definition(name, name)
        inside = argument(bar, 0, "iterable") if isinstance(bar, ast.Call) else None
        is_around = isinstance(bar, ast.Call) and module.last_name(bar.func) in AROUND
        if function is not None and is_around and isinstance(inside, ast.Name):
            return inside.id if inside.id in parameters(function) else ""
    return ""


def name_at_call(module: Module, function: Function, place: CallPlace, name: str) -> str:
    """What a name of a function is called where the function is; empty where it has no name."""
    caller, call = place
    first, dot, rest = name.partition(".")
    value = argument_for_parameter(module, function, call, first)
    if value is not None and first in parameters(function):
        return caller.text(value) + dot + rest
    if first == "self" and isinstance(call.func, ast.Attribute):
        return caller.text(call.func.value) + dot + rest
    match module.stores.get((function, first), []):
        case [store]:  # loader = kwargs["loader"]
            stmt = module.statement(store)
            keyword = keyword_of(module, stmt.value) if isinstance(stmt, ast.Assign) else None
            value = keyword and argument_for_parameter(module, function, call, keyword[1])
            if value:
                return caller.text(value) + dot + rest
    if caller is not module or (function, first) in module.stores:
        return ""
    scope = module.function(call)  # which a function inside of it shares its names with
    is_shared = (
        scope is not None and is_inside(function, scope) and first not in parameters(function)
    )
    return name if is_shared or (None, first) in module.stores else ""


def is_one_pass(program: Program, loop: TrainLoop) -> bool:
    """Whether the program goes over the batches once: no loop is around, nor around the calls."""
    module: Module = loop.module
    place: ast.AST = loop.steps
    for _ in range(MAX_CALLERS):
        if any(isinstance(up, ast.For | ast.While) for up in module.ancestors(place)):
            return False
        function = module.function(place)
        if function is None:
            return isinstance(loop.steps, ast.For)
        callers = program.callers(function)
        if len(callers) != 1:
            return False
        module, place = callers[0]
    return False
