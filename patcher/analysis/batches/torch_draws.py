"""What draws random numbers: torch in training steps and networks, anything in evaluations."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import FUNCTIONS, Function, argument, is_inside, mentions, within
from ..language.objects import class_of, method_of
from ..training.evaluations import Evaluation
from ..training.program import Program
from .random_draws import ALIKE, IN_PLACE, OF_TORCH, is_draw, is_of_helper, is_of_network

SEEDING = ("set_seed", "seed_everything", "fix_seed")
OF_FUNCTIONAL = {"dropout": 2, "gumbel_softmax": None}  # the place of `training`, if it has one
SETTING_UP = ("init", "reset", "build", "setup", "create", "make")
GENERATORS = ("random", "numpy", "np", "torch")
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
    for module, call in (*torch_draws(program), *draws_of_functional(program)):
        if is_for_training(module, call):
            continue
        if evaluation.module is module and is_inside(call, evaluation.loop):
            return module, call
        function = module.function(call)
        if function is not None and is_of_forward(program, module, function):
            return module, call
    return None


def drawn_by_data(program: Program, evaluation: Evaluation) -> tuple[Module, ast.Call] | None:
    """A call that draws for each example that an evaluation gets: negatives, the place of a crop.

    In the data set's __getitem__, or in what that calls, but for training.
    """
    loader = evaluation.loader
    owner = loader.dataset and class_of(program, loader.module, loader.dataset)
    method = owner and method_of(program, owner, "__getitem__")
    pending = [method] if method else []
    for module, function in pending:  # grows
        for call in within(function.body, ast.Call):
            if is_in_train_branch(module, call):
                continue
            root = module.dotted(call.func).partition(".")[0]
            if root in GENERATORS and is_draw(program, module, call):
                return module, call
            pending += [each for each in program.callees(module, call) if each not in pending]
    return None


def is_in_train_branch(module: Module, node: ast.AST) -> bool:
    """Whether a test for training lets a piece of code run: ``if self.split == "train":``."""
    below = node
    for up in module.ancestors(node):
        if isinstance(up, ast.If | ast.IfExp) and below is not up.test:
            body = up.body if isinstance(up.body, list) else [up.body]
            if mentions_training(module, up.test) is (below in body):
                return True
        if isinstance(up, FUNCTIONS):
            block = up.body
            above = block[: block.index(below)] if below in block else []
            return any(
                isinstance(stmt, ast.If)
                and isinstance(stmt.body[-1], ast.Return)
                and mentions_training(module, stmt.test) is False
                for stmt in above
            )
        below = up
    return False


def mentions_training(module: Module, test: ast.expr) -> bool | None:
    """Whether a test holds in training; None where it does not ask for it."""
    text = module.text(test)
    if not re.search(r"train|aug", text, re.IGNORECASE):
        return None
    return not re.search(r"\bnot\b|!=", text)


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
