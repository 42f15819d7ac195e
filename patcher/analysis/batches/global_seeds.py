"""Seeds of the random numbers that a whole program draws, the same in each run."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ...source.module import Module
from ...source.tree import everywhere, mentions, parameters
from ..language.conditions import tests_that_hold
from ..language.names import answered_once
from ..settings.setting_values import is_reached
from ..training.program import Program
from .random_draws import library

GLOBAL_SEEDS = (
    *("torch.manual_seed", "torch.random.manual_seed", "torch.seed"),
    *("numpy.random.seed", "np.random.seed", "random.seed"),
)
OWN_SEEDS = ("seed", "manual_seed", "manual_seed_all")
DRAWN = ("rand", "randint", "random", "getrandbits")
MAX_CALLERS = 3
CLOCKS = ("time", "initial_seed")


def has_seed(program: Program, drawing: str) -> bool:
    """Whether the script sets a seed of a library in any case, and none that is drawn."""
    return is_seeded_by_launchers(program, drawing) or any(
        "seed" in module.last_name(call.func).lower()
        and (bool(call.args) or bool(call.keywords))
        and program.is_live(module, call)
        and seeds(program, module, call, drawing)
        and not any(
            isinstance(up, ast.If) and not mentions(up.test, "__name__")  # the guard of a script
            for up in module.ancestors(call)
        )
        and not any(is_drawn(module, value, (*DRAWN, *CLOCKS)) for value in call.args)
        and is_set_for_all(program, module, call)
        for module in program.modules
        for call in module.nodes(ast.Call)
        if module.spells("seed") or module.spells("manual_seed") or module.spells("set_seed")
    )


def is_seeded_by_launchers(program: Program, drawing: str) -> bool:
    """``random.seed(int(os.environ["MASTER_PORT"]))``: a number that all ranks of a run have."""
    return any(
        any(each.value == "MASTER_PORT" for each in everywhere(value, ast.Constant))
        and seeds(program, module, call, drawing)
        for module, call in program.calls_to(*OWN_SEEDS)
        for value in call.args
    )


def seeds(program: Program, module: Module, call: ast.Call, drawing: str) -> bool:
    """Whether a call seeds the random numbers of a library; not those of a generator, or a card."""
    dotted = module.dotted(call.func)
    if dotted in GLOBAL_SEEDS:
        return library(module, call) == drawing
    is_method = isinstance(call.func, ast.Attribute) and module.last_name(call.func) in OWN_SEEDS
    return not is_method and not program.callees(module, call)  # whose own calls count


def is_on_demand(program: Program, module: Module, seed: ast.Call) -> bool:
    """Whether a seed is set only where the user gives one: ``if args.seed is not None:``."""
    given = {name for value in seed.args for name in quantities(module, value)}
    asks_for_it = any(
        asked == name or asked.startswith(f"{name}.")  # set_seed(args)
        for test in tests_that_hold(module, seed)
        for asked in quantities(module, test)
        for name in given
    )
    return asks_for_it and is_reached(program, module, seed, {}) is not True


@answered_once
def is_set_for_all(program: Program, module: Module, seed: ast.Call, depth: int = 0) -> bool:
    """Whether ranks surely have one seed: not only if the user gives one, and none that is drawn.

    Of a helper that seeds, ``set_seed(args.seed)``, one of its calls has to.
    """
    if is_on_demand(program, module, seed) or any(
        is_drawn(module, value) and not mentions(value, "get_state") for value in seed.args
    ):
        return False
    function = module.function(seed)
    callers = [] if function is None or depth > MAX_CALLERS else program.callers(function)
    passed = {name.id for value in seed.args for name in everywhere(value, ast.Name)}
    if not callers or function is None or passed.isdisjoint(parameters(function)):
        return True
    return any(is_set_for_all(program, *caller, depth + 1) for caller in callers)


def quantities(module: Module, node: ast.expr) -> set[str]:
    """The names in an expression, and attributes with what they are of: ``args.seed``."""
    owned = [each.value for each in everywhere(node, ast.Attribute)]
    texts = {module.text(each) for each in everywhere(node, ast.Attribute)}
    return texts | {each.id for each in everywhere(node, ast.Name) if each not in owned}


def is_drawn(module: Module, seed: ast.expr, sources: Sequence[str] = DRAWN) -> bool:
    """Whether a seed is a random number, or from another of the sources, if the user gives none."""
    values = [seed, *module.alternatives(seed, seed)]
    values += [
        stmt.value
        for stmt in module.nodes(ast.Assign)
        if module.text(stmt.targets[0]) == module.text(seed)
    ]
    return any(mentions(value, name) for value in values for name in sources)
