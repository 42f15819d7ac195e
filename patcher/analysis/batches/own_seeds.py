"""Seeds that each rank has of its own: of no value, of the clock, or of the process."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import argument_values, everywhere, parameters
from ..language.passed_arguments import argument_for_parameter
from ..training.program import Program
from .random_draws import SEED_FUNCTIONS, is_of_helper

LIBRARIES = ("random.seed", "numpy.random.seed", "np.random.seed", "torch.seed")
OF_PROCESS = {
    *("time.time", "time.time_ns", "time.perf_counter", "time.monotonic", "os.getpid"),
    *("datetime.datetime.now", "datetime.now", "os.urandom", "uuid.uuid4", "secrets.randbits"),
    *("random.SystemRandom", "secrets.randbelow", "datetime.datetime.utcnow", "torch.seed"),
}
MAX_CALLERS = 3


def own_seeds(program: Program) -> list[tuple[Module, ast.Call]]:
    """The calls that seed the random numbers of the process by another value on each rank."""
    return [
        (module, call)
        for module, call in program.calls_to(*SEED_FUNCTIONS)
        if program.is_live(module, call)
        and not is_of_helper(module, call)
        and is_own_seed(program, module, call)
    ]


def is_own_seed(program: Program, module: Module, call: ast.Call) -> bool:
    """``random.seed()``, ``torch.manual_seed(int(time.time()))``, and what is passed such a one."""
    values = argument_values(call)
    if not values:
        return module.dotted(call.func) in LIBRARIES
    return any(is_of_process(program, module, value) for value in values)


def is_of_process(program: Program, module: Module, value: ast.expr, depth: int = 0) -> bool:
    """Whether a value is made of the clock or of the process, and not of a number of the user's."""
    for each in (value, *module.alternatives(value, value)):
        if isinstance(each, ast.Constant) and each.value is None:
            continue
        if any(module.dotted(call.func) in OF_PROCESS for call in everywhere(each, ast.Call)):
            return True
    function = module.function(value)
    names = {name.id for name in everywhere(value, ast.Name)}
    if function is None or depth > MAX_CALLERS or names.isdisjoint(parameters(function)):
        return False
    return any(
        passed is not None and is_of_process(program, where, passed, depth + 1)
        for where, call in program.callers(function)
        for name in names.intersection(parameters(function))
        for passed in [argument_for_parameter(module, function, call, name)]
    )
