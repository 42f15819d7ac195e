"""Where a script makes up its data at random, as homework does, of which all ranks need one."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import Function, is_inside, is_within
from ..language.process_exits import exit_call
from ..training.program import Program
from .random_draws import (
    OF_TORCH,
    OWN_GENERATOR,
    is_apart,
    is_draw,
    is_of_gradients,
    is_of_helper,
    is_of_network,
)

OF_NUMPY = {
    *("rand", "randn", "randint", "random", "normal", "uniform", "choice", "permutation"),
    *("standard_normal", "random_sample", "multivariate_normal", "binomial", "poisson"),
    *("exponential", "gauss", "gamma", "beta", "randrange", "random_integers"),
}
OF_SKLEARN = {
    f"make_{name}"
    for name in ("classification", "regression", "blobs", "moons", "circles", "friedman1")
}
BY_METHODS = ("shuffle", "sample")
LIBRARIES = ("random.", "numpy.random.", "torch.", "sklearn.")
WEIGHTS = ("Parameter", "requires_grad_")


def draws_of_data(program: Program, of_batches: set[Function]) -> Iterator[tuple[Module, ast.Call]]:
    """The draws outside training steps, evaluations and networks, from states of the process.

    And those of noise that steps add to gradients or weights, which all ranks need, too.
    """
    loops = [loop for loop in program.train_loops if program.is_live(loop.module, loop.steps)]
    training = {loop.module.function(loop.steps) for loop in loops}  # they may evaluate, too
    for module, call in program.calls_to(*OF_TORCH, *OF_NUMPY, *OF_SKLEARN, *BY_METHODS):
        function = module.function(call)
        is_of_library = module.dotted(call.func).startswith(LIBRARIES)
        if (
            (is_of_library or draws_by_method(program, module, call))
            and (not is_of_library or is_draw(program, module, call))
            and not any(word.arg in OWN_GENERATOR for word in call.keywords)
            and program.is_live(module, call)
            and not is_of_helper(module, call)
            and not is_of_network(module, call)
            and function not in of_batches
            and (function is None or function in training or not is_apart(module, function))
            and (
                not any(is_inside(call, loop.epochs or loop.steps) for loop in loops)
                or is_of_gradients(module, call)
            )
            and not is_of_weights(module, call)
            and not is_of_dry_run(module, call)
            and not (function is not None and lies_in_table(program, function))
        ):
            yield module, call


def draws_by_method(program: Program, module: Module, call: ast.Call) -> bool:
    """``data = data.shuffle()`` of graphs and texts, and ``table.sample(frac=1)`` of pandas.

    Their result is used, as they leave their object as it was; and nothing seeds the call.
    """
    if not isinstance(call.func, ast.Attribute) or isinstance(module.parents[call], ast.Expr):
        return False
    if call.args or program.callees(module, call):
        return False
    words = {word.arg for word in call.keywords}
    if words & {*OWN_GENERATOR, "seed"}:
        return False
    return not words if call.func.attr == "shuffle" else is_of_table(call)


def is_of_table(call: ast.Call) -> bool:
    """``table.sample(frac=0.5)``, which draws from NumPy's random numbers."""
    is_sample = isinstance(call.func, ast.Attribute) and call.func.attr == "sample"
    return is_sample and any(word.arg in ("frac", "n") for word in call.keywords)


def lies_in_table(program: Program, function: Function) -> bool:
    """Whether nothing is seen to call a function that a list holds, as one of transforms does."""
    uses = [] if program.callers(function) else program.possible_callers(function)
    return any(isinstance(module.parents[use], ast.List | ast.Tuple) for module, use in uses)


def is_of_dry_run(module: Module, call: ast.Call) -> bool:
    """Whether the script ends behind a draw, ``if args.summary: count(model, randn()); exit()``."""
    return any(
        exit_call(module, up.body[-1]) is not None
        for up in module.ancestors(call)
        if isinstance(up, ast.If) and is_within(call, up.body)
    )


def is_of_weights(module: Module, call: ast.Call) -> bool:
    """Whether what is drawn is trained: the ranks' weights become rank 0's."""
    stmt = module.statement(call)
    return any(
        isinstance(up, ast.Call) and module.last_name(up.func) in WEIGHTS
        for up in module.ancestors(call)
        if is_inside(up, stmt)
    ) or any(word.arg == "requires_grad" for word in call.keywords)
