"""Noise that steps and data sets draw from NumPy, or from generators with a seed of their own."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from ...source.module import Module
from ...source.tree import Function, argument_values, everywhere, is_inside, keyword
from ..language.objects import class_of, method_of
from ..models.wrapper_attributes import is_gradless
from ..training.evaluations import is_gradless as is_gradless_function
from ..training.possible_values import values_of
from ..training.program import Program, runs_in_training_step
from .drawn_examples import data_sets, ranks_draw_alike, tells_ranks_apart
from .random_draws import is_of_gradients, is_of_helper, is_of_network

GENERATORS = {
    *("numpy.random.RandomState", "np.random.RandomState", "random.Random"),
    *("numpy.random.default_rng", "np.random.default_rng", "torch.Generator"),
}
TENSORS = {  # what draws as many numbers as it is told to, and the place of that argument
    **dict.fromkeys(("rand", "randn", "standard_normal", "random_sample", "random"), 0),
    **dict.fromkeys(("normal", "uniform", "laplace", "randint", "integers", "binomial"), 2),
    **dict.fromkeys(("poisson", "exponential", "standard_gamma", "gumbel"), 1),
}
NUMBERS = {"random", "gauss", "randint", "uniform", "normal", "integers", "rand", "randn", "beta"}
SPELLED = ("RandomState", "default_rng", "Random", "Generator", "numpy", "np")
SIZES = ("shape", "size", "len", "numel")
MAX_STEPS = 3

Draw = tuple[Module, ast.Call]


def noise_of_generators(program: Program) -> Iterator[Draw]:
    """Draws of steps that compute gradients, or for each example, which all ranks have alike.

    Of dealt examples: ranks that draw their batches themselves may have to draw these alike.
    """
    loops = [loop for loop in program.train_loops if program.is_live(loop.module, loop.steps)]
    if not loops or any(loop.loader is None for loop in loops):
        return
    if not any(module.spells(name) for module in program.modules for name in SPELLED):
        return
    examples = dict.fromkeys(examples_of_trainings(program))
    own = {function for _, function in examples}
    for module, function in examples:
        for call in everywhere(function, ast.Call):
            owner = generator_of(module, call, NUMBERS | TENSORS.keys())
            if owner is not None and is_seeded_alike(program, module, owner, own):
                yield module, call
    is_alike = ranks_draw_alike(program)
    for module, call in program.calls_to(*TENSORS):
        if (
            is_sized(module, call)
            and program.is_live(module, call)
            and not is_of_helper(module, call)
            and not is_of_network(module, call)
            and not is_of_gradients(module, call)
            and is_of_training(program, module, call)
        ):
            owner = generator_of(module, call, TENSORS.keys())
            is_global = module.dotted(call.func).startswith(("numpy.random.", "np.random."))
            is_own = owner is not None and is_seeded_alike(program, module, owner, own)
            if is_own or (is_global and is_alike):
                yield module, call


def examples_of_trainings(program: Program) -> Iterator[tuple[Module, Function]]:
    """The functions that make an example of a data set that is dealt to the ranks, by its class."""
    for loader in program.training_loaders:
        if not loader.distributed_samplers:
            continue
        for module, data in data_sets(program, loader):
            owner = class_of(program, module, data)
            method = owner and method_of(program, owner, "__getitem__")
            if method:
                yield method
                yield from program.functions_below(method[0], method[1])


def generator_of(module: Module, call: ast.Call, names: Collection[str]) -> ast.expr | None:
    """What a call draws by: ``rng`` of ``rng.normal(…)`` and of ``torch.randn(n, generator=rng)``.

    None for what is no draw of a generator that has a name.
    """
    if module.last_name(call.func) not in names:
        return None
    word = keyword(call, "generator")
    if word is not None:
        owner = word.value
    elif isinstance(call.func, ast.Attribute):
        owner = call.func.value
    else:
        return None
    if isinstance(owner, ast.Name) and owner.id not in module.aliases:
        return owner
    return owner if isinstance(owner, ast.Attribute) and is_of_object(owner) else None


def is_of_object(node: ast.Attribute) -> bool:
    """``self.rng``."""
    return isinstance(node.value, ast.Name) and node.value.id == "self"


def is_seeded_alike(
    program: Program, module: Module, owner: ast.expr, examples: set[Function]
) -> bool:
    """Whether a generator begins with one number on all ranks, wherever it is made.

    Not one that a function makes for an example: ``RandomState(index)`` has another for each.
    """
    made = [*generators_behind(program, module, owner)]
    return bool(made) and all(
        where.function(call) not in examples and has_one_seed(program, where, call)
        for where, call in made
    )


def generators_behind(
    program: Program, module: Module, node: ast.expr, steps: int = MAX_STEPS
) -> Iterator[Draw]:
    """The calls that make the generators that a name or an attribute may stand for."""
    for where, value in values_of(program, module, node):
        made = value
        if isinstance(made, ast.Call) and where.last_name(made.func) == "manual_seed":
            made = made.func.value if isinstance(made.func, ast.Attribute) else made
        if isinstance(made, ast.Call) and where.dotted(made.func) in GENERATORS:
            yield where, made
        elif isinstance(value, ast.Name | ast.Attribute) and steps > 0:
            yield from generators_behind(program, where, value, steps - 1)


def has_one_seed(program: Program, module: Module, made: ast.Call) -> bool:
    """Whether a generator gets a seed, and one that neither names a rank nor is drawn.

    Those of torch have one by themselves.
    """
    seeds = argument_values(made)
    if module.dotted(made.func) == "torch.Generator":
        seeds = seeds_behind(module, module.statement(made))
    elif not seeds:
        return False
    return not any(
        everywhere(seed, ast.Call) or tells_ranks_apart(program, module, seed) for seed in seeds
    )


def seeds_behind(module: Module, stmt: ast.stmt) -> list[ast.expr]:
    """What ``g.seed()`` and ``g.manual_seed(number)`` seed in the block of a generator."""
    found: list[ast.expr] = []
    for each in module.body(stmt):
        for call in everywhere(each, ast.Call):
            last = module.last_name(call.func)
            if last == "seed" and not call.args:
                found.append(call)
            elif last == "manual_seed" and isinstance(call.func, ast.Attribute):
                found += call.args
    return found


def is_sized(module: Module, call: ast.Call) -> bool:
    """Whether a call draws as many numbers as a batch has: ``normal(0, 1, x.shape)``."""
    place = TENSORS[module.last_name(call.func)]
    size = keyword(call, "size")
    parts = call.args[place:] if size is None else [size.value]
    return any(
        module.last_name(node) in SIZES
        for part in parts
        for node in (*everywhere(part, ast.Attribute), *everywhere(part, ast.Name))
    )


def is_of_training(program: Program, module: Module, call: ast.Call) -> bool:
    """Whether a training step runs a call, and not for an evaluation."""
    function = module.function(call)
    is_decorated = function is not None and is_gradless_function(module, function)
    return not (is_decorated or is_gradless(module, call)) and is_of_step(program, module, call)


def is_of_step(program: Program, module: Module, call: ast.Call) -> bool:
    """Whether a training step runs a call, in its loop or in a function below it."""
    function = module.function(call)
    around = [loop for loop in program.train_loops if module.function(loop.steps) is function]
    if around or function is None:
        return any(is_inside(call, loop.steps) for loop in around if loop.module is module)
    return runs_in_training_step(program, module, function)
