"""Weights that a script draws behind the wrapper, which has given all ranks those of rank 0."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import Function, argument_values, everywhere, mentions, precedes, within
from ..language.passed_arguments import argument_for_parameter
from ..training.program import Program
from .wrapping import SHARED

INITIALIZERS = frozenset(["reset_parameters"]).union(
    f"{name}{end}"
    for name in (
        *("normal", "uniform", "trunc_normal", "orthogonal", "sparse", "xavier_normal"),
        *("xavier_uniform", "kaiming_normal", "kaiming_uniform"),
    )
    for end in ("_", "")  # as they were once called
)
NUMBERS = ("random.", "numpy.random.", "np.random.")
MODULE = ".module"
MAX_DEPTH = 3  # functions between the call and what draws


def draws_behind_wrapper(program: Program) -> Iterator[tuple[Module, ast.Call, str]]:
    """Calls that draw a wrapped model's weights in the function that wraps it, with its name."""
    for module, wrap, model in wrapped_steps(program):
        around = [up for up in module.ancestors(wrap) if isinstance(up, ast.For | ast.While)]
        name = module.text(model)
        for call in within(around[-1], ast.Call) if around else ():
            if draws_weights(program, module, call, name):
                yield module, call, name  # of a later epoch, behind the first step
    for module, wrap in program.calls_to("DistributedDataParallel"):
        stmt = module.statement(wrap)
        if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
            continue
        name = module.text(stmt.targets[0])
        names = [name, *names_of_module(module, wrap, name)]
        for call in within(module.scope_statements(wrap), ast.Call):
            drawn = [each for each in names if draws_weights(program, module, call, each)]
            if precedes(stmt, call) and drawn:
                yield module, call, drawn[0]


def names_of_module(module: Module, wrap: ast.Call, name: str) -> list[str]:
    """The names that what is in a wrapper has behind it: ``net = model.module``."""
    inner = {f"{name}{MODULE}", f"getattr({name}, 'module', {name})"}
    return [
        target.id
        for assign in within(module.scope_statements(wrap), ast.Assign)
        for value in [assign.value.body if isinstance(assign.value, ast.IfExp) else assign.value]
        if module.text(value).replace('"', "'") in inner
        for target in assign.targets
        if isinstance(target, ast.Name) and target.id != name
    ]


def wrapped_steps(program: Program) -> Iterator[tuple[Module, ast.Call, ast.expr]]:
    """Where steps wrap a model, and calls that pass it to them, with the model."""
    for module, wrap in program.calls_to(SHARED):
        if not wrap.args:
            continue
        model, function = wrap.args[0], module.function(wrap)
        yield module, wrap, model
        if function is not None and isinstance(model, ast.Name):
            for where, call in program.callers(function):
                passed = argument_for_parameter(module, function, call, model.id)
                if passed is not None:
                    yield where, call, passed


def draws_weights(program: Program, module: Module, call: ast.Call, name: str) -> bool:
    """``net.apply(f)``, ``net.module.reset()`` and ``f(net)``, where a function draws."""
    is_of_model = (
        isinstance(call.func, ast.Attribute)
        and module.text(call.func.value).removesuffix(MODULE) == name
    )
    passed = [module.text(value).removesuffix(MODULE) for value in argument_values(call)]
    parts = [*passed, module.text(call.func.value) if isinstance(call.func, ast.Attribute) else ""]
    if is_initializer(program, module, call) and any(p.startswith(f"{name}.") for p in parts):
        return True
    if not is_of_model and name not in passed:
        return False
    functions = [*program.callees(module, call), *functions_named(program, module, call)]
    return any(initializes(program, *function) for function in functions)


def initializes(program: Program, module: Module, function: Function, depth: int = 0) -> bool:
    """Whether a function draws by an initializer of torch, itself or through others.

    One that goes back trains, or attacks: ``noise.uniform_(-eps, eps)`` are no weights.
    """
    if mentions(function, "backward") or mentions(function, "autograd"):
        return False
    calls = everywhere(function, ast.Call)
    if any(is_initializer(program, module, each, depth) for each in calls):
        return True
    return depth < MAX_DEPTH and any(
        initializes(program, *each, depth + 1)
        for each in functions_named(program, module, function)
        if each[1] is not function
    )


def is_initializer(program: Program, module: Module, call: ast.Call, depth: int = 0) -> bool:
    """Whether a call is of an initializer of torch, or of a method named so that calls one.

    ``self.reset_parameters(ema, model)`` may also be of a class that copies weights.
    """
    if module.last_name(call.func) not in INITIALIZERS:
        return False
    if module.dotted(call.func).startswith(NUMBERS):
        return False  # random.uniform(0.4, 0.6)
    own = program.callees(module, call)
    return not own or (
        depth < MAX_DEPTH and any(initializes(program, *each, depth + 1) for each in own)
    )


def functions_named(
    program: Program, module: Module, node: ast.AST
) -> Iterator[tuple[Module, Function]]:
    """The functions of the program that code names: those that it calls, or hands to apply()."""
    for name in everywhere(node, ast.Name):
        found = program.resolve(module, name)
        if found is not None and isinstance(found[1], Function):
            yield found[0], found[1]
