"""What draws from torch's own random numbers: in training steps, in networks, in evaluations."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import Function, argument, is_inside, mentions
from ..training.evaluations import Evaluation
from ..training.program import Program
from .random_draws import ALIKE, IN_PLACE, OF_TORCH, is_of_helper, is_of_network

SEEDING = ("set_seed", "seed_everything", "fix_seed")
OF_FUNCTIONAL = {"dropout": 2, "gumbel_softmax": None}  # the place of `training`, if it has one
SETTING_UP = ("init", "reset", "build", "setup", "create", "make")
MAX_CALLERS = 4


def seeds_torch(program: Program) -> bool:
    """Whether a call seeds the random numbers that torch draws on all ranks."""
    return any(
        program.is_live(module, call)
        and not is_of_helper(module, call)
        and (
            module.dotted(call.func) in ("torch.manual_seed", "torch.random.manual_seed", ALIKE)
            or (module.last_name(call.func) in SEEDING and not program.callees(module, call))
        )
        for module, call in program.calls_to("manual_seed", ALIKE, *SEEDING)
    )


def torch_draws(program: Program) -> Iterator[tuple[Module, ast.Call]]:
    """The calls that draw from torch's own random numbers, where the program may come to them."""
    for module, call in program.calls_to(*OF_TORCH, *IN_PLACE, "random_split"):
        is_method = isinstance(call.func, ast.Attribute) and call.func.attr in IN_PLACE
        if not is_method and not module.dotted(call.func).startswith("torch."):
            continue
        if any(word.arg == "generator" for word in call.keywords):
            continue
        if program.is_live(module, call) and not is_of_helper(module, call):
            yield module, call


def drawn_in_evaluation(program: Program, evaluation: Evaluation) -> tuple[Module, ast.Call] | None:
    """A call that draws while an evaluation goes on: in its loop, or in a network's forward pass.

    Not under a test of ``self.training``. Of which network a forward pass is, is not asked.
    """
    draws = [*torch_draws(program), *draws_of_functional(program)]
    for module, call in draws:
        if is_for_training(module, call):
            continue
        if evaluation.module is module and is_inside(call, evaluation.loop):
            return module, call
        function = module.function(call)
        if function is not None and is_of_forward(program, module, function):
            return module, call
    return None


def draws_of_functional(program: Program) -> Iterator[tuple[Module, ast.Call]]:
    """``F.dropout(x)``, which drops in evaluations too, and ``normal.rsample()``."""
    for module, call in program.calls_to(*OF_FUNCTIONAL, "rsample"):
        name = module.last_name(call.func)
        if name in OF_FUNCTIONAL:
            if not module.dotted(call.func).startswith("torch.nn.functional."):
                continue
            place = OF_FUNCTIONAL[name]
            if place is not None and argument(call, place, "training") is not None:
                continue
        if program.is_live(module, call):
            yield module, call


def is_for_training(module: Module, call: ast.Call) -> bool:
    """Whether a test of ``self.training`` is around a call, or leaves its function above it."""
    tests: list[ast.expr] = [
        up.test for up in module.ancestors(call) if isinstance(up, ast.If | ast.IfExp)
    ]
    function = module.function(call)
    if function is not None:
        tests += [
            stmt.test
            for stmt in function.body
            if isinstance(stmt, ast.If) and isinstance(stmt.body[-1], ast.Return | ast.Raise)
        ]
    return any(mentions(test, "training") for test in tests)


def is_of_forward(program: Program, module: Module, function: Function, depth: int = 0) -> bool:
    """Whether a network's forward pass runs a function: itself, or through some that it calls."""
    if function.name == "forward":
        return True
    if depth >= MAX_CALLERS or function.name.strip("_").startswith(SETTING_UP):
        return False
    if not is_of_network(module, function) and module.enclosing_class(function) is not None:
        return False
    return any(
        (caller := where.function(call)) is not None
        and not is_for_training(where, call)
        and is_of_forward(program, where, caller, depth + 1)
        for where, call in program.callers(function)
        if isinstance(call, ast.Call)
    )
