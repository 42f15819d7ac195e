"""All ranks draw the same noise in their steps.

What         All ranks have one seed, and training steps draw a tensor from torch: the noise of a
             diffusion model, the codes of a GAN or a VAE, the start of an attack, a mask. Or they
             draw an array from NumPy, or steps or a data set draw by a generator of their own,
             np.random.default_rng(0).
At run time  The n-th example of each rank gets the same noise. N ranks at batch B try B draws a
             step and not N times B: gradients are as noisy as those of one rank. Nothing warns.
Example      torch.manual_seed(1); noise = torch.randn_like(images)
Fix          All ranks but rank 0 seed torch anew ahead of the training, by a number that they draw
             and their rank (draw_apart). Only reported where torch draws an order or decides by a
             number that it draws, or adds noise to gradients, on which ranks have to agree, in a
             script that had ranks, and for NumPy and generators: add the rank to their seed.
Fix safety   Safe: one process, and rank 0, draw what they drew.
Source       facebookresearch/detr, main.py (seed = args.seed + utils.get_rank())
"""

import ast
from collections.abc import Iterator
from itertools import islice

from ..analysis.batches.drawn_examples import ranks_draw_alike
from ..analysis.batches.noise_of_generators import is_of_step, noise_of_generators
from ..analysis.batches.random_draws import (
    IN_PLACE,
    is_of_gradients,
    is_of_network,
    repeated_blocks,
)
from ..analysis.batches.torch_draws import seeds_torch, torch_draws
from ..analysis.models.wrapper_attributes import is_gradless
from ..analysis.ranks.dealing import SHARE_OF_DRAWN
from ..analysis.training.evaluations import is_gradless as is_gradless_function
from ..analysis.training.program import (
    Program,
    trains_on_several_devices,
)
from ..editing.edits import Define, Edit, Insert
from ..findings import Finding, Safety, Severity
from ..fixes.drawn_apart import knew_no_ranks
from ..source.module import Module
from ..source.tree import everywhere, is_inside, keyword

CODE, SEVERITY, SAFETY = "DF410", Severity.NOTE, Safety.SAFE

APART = "draw_apart"  # of helper_code.py
AGREED = ("randperm", "multinomial", "random_split")  # orders and splits
NUMBERS = ("item", "tolist", "float", "int", "bool")


def findings(program: Program) -> Iterator[Finding]:
    if not trains_on_several_devices(program):
        return
    yield from of_torch(program)
    for module, call in islice(noise_of_generators(program), 1):
        because = f"{module.text(call.func)}() draws by a seed that all ranks have"
        yield Finding(module, call, because)


def of_torch(program: Program) -> Iterator[Finding]:
    """The finding for noise that steps draw from torch's own random numbers."""
    if not seeds_torch(program):
        return
    if program.calls_to(APART) or not ranks_draw_alike(program):
        return
    drawn = next(noise_of_steps(program), None)
    if drawn is None:
        return
    module, call = drawn
    because = f"{module.text(call.func)}() draws by a seed that all ranks have"
    edits = apart(program)
    severity = Severity.DEGRADED if edits else Severity.NOTE
    yield Finding(module, call, because, edits, severity=severity)


def noise_of_steps(program: Program) -> Iterator[tuple[Module, ast.Call]]:
    """Draws of tensors, one number for each example or more, in steps that compute gradients."""
    for module, call in torch_draws(program):
        if module.last_name(call.func) in AGREED or is_for_all(module, call):
            continue
        if any(
            isinstance(up, ast.Call) and module.last_name(up.func) == SHARE_OF_DRAWN
            for up in module.ancestors(call)
        ):
            continue
        function = module.function(call)
        is_decorated = function is not None and is_gradless_function(module, function)
        if is_decorated or is_gradless(module, call) or not is_of_step(program, module, call):
            continue
        yield module, call


def is_for_all(module: Module, call: ast.Call) -> bool:
    """Whether a draw is not of the batch's size: ``torch.rand(1)``, or it decides something."""
    is_method = isinstance(call.func, ast.Attribute) and call.func.attr in IN_PLACE
    is_like = module.last_name(call.func).endswith("_like")
    sizes = [*call.args, *(word.value for word in call.keywords if word.arg == "size")]
    sized = is_method or is_like or any(not isinstance(each, ast.Constant) for each in sizes)
    return (
        not sized
        or is_of_weights(module, call)
        or is_of_gradients(module, call)
        or decides(module, call)
    )


def is_of_weights(module: Module, call: ast.Call) -> bool:
    """Whether a network draws for its own parts, once for all examples: ``rand(self.mask.shape)``.

    Ranks that draw such noise alike do as one process does.
    """
    names = {name.id for name in everywhere(call, ast.Name)} - {"torch"}
    if names == {"self"} and is_of_network(module, call):
        return True
    stmt = module.statement(call)
    return any(  # Variable(torch.randn(k), requires_grad=True), of a model that a step makes
        isinstance(up, ast.Call)
        and is_inside(up, stmt)
        and (module.last_name(up.func) == "Parameter" or keyword(up, "requires_grad") is not None)
        for up in module.ancestors(call)
    )


def decides(module: Module, call: ast.Call) -> bool:
    """Whether a program goes on by a number that is drawn: ``if torch.rand(1) < 0.5:``."""
    below: ast.AST = call
    for up in module.ancestors(call):
        if isinstance(up, ast.If | ast.While | ast.IfExp) and below is up.test:
            return True
        if isinstance(up, ast.Call) and module.last_name(up.func) in NUMBERS:
            return True
        if isinstance(up, ast.stmt):
            return False
        below = up
    return False


def apart(program: Program) -> tuple[Edit, ...]:
    """Edits that let ranks draw apart; none where they may have to agree on what is drawn."""
    loops = [loop for loop in program.train_loops if program.is_live(loop.module, loop.steps)]
    if not knew_no_ranks(program) or any(loop.loader is None for loop in loops):
        return ()
    if not program.calls_to("init_process_group") or any(
        is_agreed(program, module, call) for module, call in torch_draws(program)
    ):
        return ()
    trainings = {loop.epochs or loop.steps: loop.module for loop in loops}
    edits: list[Edit] = []
    for training, module in trainings.items():
        if not any(up in trainings for up in module.ancestors(training)):
            edits += [Insert(training, f"{APART}()"), Define(APART, training)]
    return tuple(edits)


def is_agreed(program: Program, module: Module, call: ast.Call) -> bool:
    """Whether ranks may have to draw the same: an order of the data, a number that decides."""
    if is_of_step(program, module, call):
        return is_for_all(module, call)
    if module.last_name(call.func) not in AGREED:
        return False
    function = module.function(call)
    is_once = function is None or bool(program.callers(function))
    return not is_once or bool(repeated_blocks(program, module, call))
