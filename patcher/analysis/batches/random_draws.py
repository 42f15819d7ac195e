"""Random numbers that a program draws, and where all ranks have to draw the same ones."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ....record import record
from ...editing.helpers import helper_names
from ...source.branches import heads
from ...source.module import Module
from ...source.tree import FUNCTIONS, Function, everywhere, mentions, precedes, within
from ..language.conditions import may_differ_by_rank
from ..language.training_calls import GRADLESS
from ..training.program import Program
from .batch_taint import NotDealtError

# Functions of random and numpy.random that draw nothing, and classes of generators.
DRAW_NOTHING = {
    *("seed", "getstate", "setstate", "get_state", "set_state", "manual_seed"),
    *("RandomState", "Random", "Generator", "SystemRandom", "default_rng", "SeedSequence"),
}
OF_TORCH = {
    *("rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "poisson"),
    *("rand_like", "randn_like", "randint_like"),
}
OF_LIBRARIES = {"random_split", "train_test_split", "BucketIterator", "Iterator", "splits"}
# Methods by which generators, tables and iterators of unknown classes draw.
METHODS = {"shuffle", "permutation", "sample", "choice", "choices", "integers", "randint"}
IN_PLACE = {"uniform_", "normal_", "random_", "bernoulli_", "exponential_"}
PARAMETERS = ("parameters", "named_parameters", "param_groups")
OWN_GENERATOR = ("generator", "device", "random_state", "rng")
SEEDS = ("seed", "manual_seed")
# Also those of libraries, and as scripts call their own.
SEED_FUNCTIONS = (*SEEDS, "set_seed", "seed_everything", "fix_seed")
ALIKE = "draw_alike"  # of helper_code.py
MAX_CALLERS = 4

Block = tuple[Module, list[ast.stmt], ast.stmt]


@record
class Draws:
    """Where ranks have to draw alike: early, before any epoch, and ahead of statements in one."""

    early: tuple[tuple[Module, ast.Call], ...]
    ahead_of: tuple[tuple[Module, ast.stmt], ...]


def is_draw(program: Program, module: Module, call: ast.Call) -> bool:
    """Whether a call draws random numbers, as far as its name tells."""
    dotted, last = module.dotted(call.func), module.last_name(call.func)
    root = dotted.partition(".")[0]
    if dotted.startswith(("random.", "numpy.random.", "np.random.")):
        return last not in DRAW_NOTHING
    if root == "torch":
        return last in OF_TORCH or last == "random_split"
    if root == "sklearn":
        return last in ("shuffle", "resample") or "split" in last or last.startswith("make_")
    if root == "torchtext":
        return last in OF_LIBRARIES
    is_method = isinstance(call.func, ast.Attribute) and not program.callees(module, call)
    return is_method and last in METHODS


def refuse_own_generator(module: Module, call: ast.Call) -> None:
    """Raise where a draw is not by the states that ranks can take from rank 0."""
    dotted = module.dotted(call.func)
    is_global = dotted.partition(".")[0] in ("random", "numpy", "np", "torch", "sklearn")
    is_global = is_global or dotted.startswith("torchtext.")
    words = () if library(module, call) == "random" else OWN_GENERATOR
    if not is_global or any(word.arg in words for word in call.keywords):
        text = module.text(call.func)
        raise NotDealtError(f"line {call.lineno} draws by a generator of its own, in {text}()")


def draws_below(
    program: Program, module: Module, node: ast.AST, seen: set[Function] | None = None
) -> Iterator[tuple[Module, ast.Call]]:
    """The draws in a piece of code and in the functions that it calls.

    Not those of networks, whose weights are rank 0's, and not those of evaluations.
    """
    seen = set() if seen is None else seen
    for call in everywhere(node, ast.Call):
        if is_draw(program, module, call):
            yield module, call
        for where, function in program.callees(module, call):
            if function in seen or is_apart(where, function):
                continue
            seen.add(function)
            yield from draws_below(program, where, function, seen)


def is_apart(module: Module, function: Function) -> bool:
    """Whether a function is of a network, an evaluation or a helper of ours."""
    return (
        function.name in helper_names()
        or is_of_network(module, function)
        or any(
            isinstance(node, ast.Attribute | ast.Name)
            and (node.attr if isinstance(node, ast.Attribute) else node.id) in GRADLESS
            for node in ast.walk(function)
        )
        or any(
            isinstance(call.func, ast.Attribute) and call.func.attr == "eval" and not call.args
            for call in within(function.body, ast.Call)
        )
    )


def is_of_network(module: Module, node: ast.AST) -> bool:
    """Whether code is a method of a class that has a forward pass."""
    owner = module.enclosing_class(node)
    return owner is not None and any(
        isinstance(each, ast.FunctionDef) and each.name == "forward" for each in owner.body
    )


def repeated_blocks(program: Program, module: Module, node: ast.AST, depth: int = 0) -> list[Block]:
    """The blocks around code that run once per epoch, each with its statement that leads there.

    Empty where nothing repeats the code.
    """
    found: list[Block] = []
    passed: list[Block] = []
    child: ast.AST = node
    for up in module.ancestors(node):
        for block in (getattr(up, name, None) for name in ("body", "orelse", "finalbody")):
            if isinstance(block, list) and child in block and isinstance(child, ast.stmt):
                passed.append((module, block, child))
        if isinstance(up, ast.For | ast.While):
            found += passed
            passed = []
        if isinstance(up, FUNCTIONS):
            outer = [
                each
                for where, call in (program.callers(up) if depth < MAX_CALLERS else [])
                for each in repeated_blocks(program, where, call, depth + 1)
            ]
            return [*found, *passed, *outer] if outer else found
        child = up
    return found


def draws_of(program: Program, module: Module, steps: ast.For) -> Draws:
    """Where ranks have to draw alike for the batches of a loop to be the same on all of them.

    Raises NotDealtError where that is no repair.
    """
    refuse_seeds_of_their_own(program)
    refuse_draws_on_the_way(program)
    blocks = repeated_blocks(program, module, steps)
    ahead: dict[ast.stmt, Module] = {}
    within_epochs: set[ast.AST] = set()
    for where, block, leading in blocks:
        for stmt in block:
            within_epochs.add(stmt)
            parts: list[ast.AST] = [stmt]
            if stmt is leading:
                parts = heads(stmt)
            drawn = [each for part in parts for each in draws_below(program, where, part)]
            for home, call in drawn:
                refuse_own_generator(home, call)
            if drawn:
                refuse_apart(where, stmt)
                ahead[stmt] = where
    if steps not in ahead and steps not in within_epochs:
        drawn = [*draws_below(program, module, steps.iter)]
        for home, call in drawn:
            refuse_own_generator(home, call)
        if drawn:
            refuse_apart(module, steps)
            ahead[steps] = module
    early = list(early_draws(program, blocks, steps))
    for home, call in early:
        if any(word.arg in ("generator", "random_state") for word in call.keywords):
            continue  # a seed of its own
        refuse_own_generator(home, call)
    return Draws(tuple(early), tuple((where, stmt) for stmt, where in ahead.items()))


def refuse_seeds_of_their_own(program: Program) -> None:
    """Raise where each process may seed its random numbers by another value, such as the time."""
    for module, call in program.calls_to(*SEEDS):
        if not program.is_live(module, call) or is_of_helper(module, call):
            continue
        if module.dotted(call.func) == "torch.seed" or not call.args:
            raise NotDealtError(f"line {call.lineno} seeds each rank by a value of its own")
        seed = call.args[0]
        values = [seed, *module.alternatives(seed, seed)]
        for inner in (each for value in values for each in everywhere(value, ast.Call)):
            if not is_draw(program, module, inner) and module.last_name(inner.func) != "int":
                raise NotDealtError(f"line {call.lineno} may seed each rank by a value of its own")


def refuse_draws_on_the_way(program: Program) -> None:
    """Raise where batches are drawn one after another, between steps that may draw as well."""
    for module in program.modules:
        for function in module.all_functions:
            if is_apart(module, function) or not program.is_live(module, function.body[0]):
                continue
            on_the_way: list[ast.stmt] = []
            for kind in (ast.For, ast.While):
                for loop in within(function.body, kind):
                    if isinstance(loop, ast.For | ast.While) and within(loop.body, ast.Yield):
                        on_the_way += loop.body
            if function.name == "__next__":
                on_the_way = function.body
            for stmt in on_the_way:
                for _, call in draws_below(program, module, stmt):
                    raise NotDealtError(f"line {call.lineno} draws for each batch when it comes")
        for lazy in module.nodes(ast.GeneratorExp):
            for _, call in draws_below(program, module, lazy):
                if program.is_live(module, lazy):
                    raise NotDealtError(f"line {call.lineno} draws for each batch when it comes")


def is_of_helper(module: Module, node: ast.AST) -> bool:
    function = module.function(node)
    return function is not None and function.name in helper_names()


def is_of_gradients(module: Module, call: ast.Call) -> bool:
    """Whether a draw changes gradients or weights, which are to be the same on all ranks."""
    return mentions(module.statement(call), "grad") or any(
        mentions(up.iter, name)
        for up in module.ancestors(call)
        if isinstance(up, ast.For)
        for name in PARAMETERS
    )


def refuse_apart(module: Module, stmt: ast.stmt) -> None:
    """Raise where ranks may not all come to a statement."""
    for up in module.ancestors(stmt):
        if isinstance(up, FUNCTIONS):
            return
        if isinstance(up, ast.If) and may_differ_by_rank(module, up.test):
            raise NotDealtError(f"whether all ranks draw in line {stmt.lineno} cannot be told")


def early_draws(
    program: Program, blocks: list[Block], steps: ast.For
) -> Iterator[tuple[Module, ast.Call]]:
    """Draws outside of what runs once per epoch."""
    inside = {stmt for _, block, _ in blocks for stmt in block} | {steps}
    called = {
        function
        for module, block, _ in blocks
        for _, function in program.functions_below(module, *block)
    }
    for module in program.modules:
        for call in module.nodes(ast.Call):
            function = module.function(call)
            if not is_draw(program, module, call) or not program.is_live(module, call):
                continue
            if any(up in inside for up in module.ancestors(call)):
                continue
            if function is not None and (function in called or is_apart(module, function)):
                continue
            yield module, call


def is_seeded(module: Module, draw: ast.Call) -> bool:
    """Whether a draw follows a seed of its library, the same on all ranks, in any case."""
    kind = library(module, draw)
    for call in module.calls_to(*SEEDS):
        fixed = bool(call.args) and not everywhere(call.args[0], ast.Call)
        is_sure = not any(isinstance(up, ast.If) for up in module.ancestors(call))
        same_place = module.function(call) in (None, module.function(draw))
        is_same = library(module, call) == kind and fixed and is_sure and same_place
        if is_same and precedes(call, draw):
            return True
    return False


def library(module: Module, call: ast.Call) -> str:
    """The library whose random numbers a call draws or seeds."""
    root = module.dotted(call.func).partition(".")[0]
    return {"np": "numpy", "sklearn": "numpy", "torchtext": "random"}.get(root, root)
