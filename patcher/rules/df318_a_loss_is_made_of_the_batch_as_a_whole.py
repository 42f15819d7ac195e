"""A loss is made of the batch as a whole.

What         A loss is no mean over examples: it takes the logarithm of a mean prediction, the
             variance or covariance of features, the distances of all pairs of examples, also in two
             loops over their numbers, or the root of a mean. Or it is of the examples with the
             largest losses, or the smallest, or goes through a step within the step, as those do
             that learn weights of examples. Or what examples give is joined with a mean of them all
             on the way to the loss: taken off and bent, compared, or a weight; or two such means
             are multiplied.
At run time  Each rank computes it of its own part of the batch, and the mean of the ranks' losses
             is another number than the loss of them all: N ranks train otherwise than one process
             does with the global batch. So does accumulation. Nothing crashes.
Example      mean = logits.softmax(1).mean(0); loss = loss - (mean * mean.log()).sum()
Fix          None: gather what it is computed of from all ranks, with gradients
             (`ddpfix explain DF307` has the code), or leave the part of each rank as large as the
             batch of one process was.
Fix safety   Report only: whether the part of a rank is large enough is for you to say.
Source       torch.nn.parallel.DistributedDataParallel (gradients are averaged)
"""

import ast
from collections.abc import Iterator, Set
from itertools import chain, islice

from ..analysis.batches.batch_scales import scales_of_batch
from ..analysis.batches.batch_values import Mixture
from ..analysis.batches.bent_means import CHOSEN, bent_means
from ..analysis.batches.mixed_examples import mixed_examples
from ..analysis.batches.whole_batch_losses import (
    evidences_in_steps,
    losses_of_whole_batches,
    steps_within,
)
from ..analysis.models.wrapping import loops_that_step
from ..analysis.settings.in_batch_negatives import masked_products, masks_of_batches, whole_scores
from ..analysis.training.program import Program, runs_in_training_step, trains_on_several_devices
from ..analysis.training.train_loops import TrainLoop
from ..findings import Finding, Safety, Severity
from ..source.tree import Function, within

CODE, SEVERITY, SAFETY = "DF318", Severity.NOTE, Safety.REPORT

NUMBERED = ("arange", "eye", "diag", "diagonal", "fill_diagonal_")  # DF307


def findings(program: Program) -> Iterator[Finding]:
    if not trains_on_several_devices(program):
        return
    told: set[Function | None] = set()
    for module in program.modules:
        found = list(losses_of_whole_batches(module))
        if not found:
            continue
        told |= {function for function, _ in masks_of_batches(module)}  # DF307
        told |= {module.function(product.node) for product, _ in masked_products(module)}
        told |= {module.function(node) for node, _ in whole_scores(module)}
        for function, (node, because) in found:
            trains = function is None or runs_in_training_step(program, module, function)
            if function not in told and trains and program.is_live(module, node):
                yield Finding(module, node, because)
        told |= {function for function, _ in found}
    for loop in loops_that_step(program):
        by_text = list(of_loop(program, loop, told))
        yield from by_text
        mixed = (each for each in mixed_examples(program, loop) if not is_told(each, told))
        for each in islice(mixed, 0 if by_text else 1):
            yield Finding(each.module, each.node, each.text)


def of_loop(program: Program, loop: TrainLoop, told: Set[Function | None]) -> Iterator[Finding]:
    """What the text of a loop's losses tells by itself."""
    for module, node in bent_means(program, loop):
        is_choice = isinstance(node, ast.Call) and module.last_name(node.func) in CHOSEN
        does = "chooses in the batch of one rank" if is_choice else "bends a mean over the batch"
        yield Finding(module, node, f"{module.text(node)[:60]} {does}")
    for step in steps_within(loop):
        yield Finding(loop.module, *step)
    evidence = next(chain(evidences_in_steps(loop), scales_of_batch(loop)), None)
    if evidence is not None and loop.module.function(loop.steps) not in told - {None}:
        yield Finding(loop.module, *evidence)


def is_told(place: Mixture, told: Set[Function | None]) -> bool:
    """Whether the function around such a place has a finding already, also one of DF307."""
    function = place.module.function(place.node)
    if function is None:
        return False
    calls = within(function.body, ast.Call)
    by_number = any(place.module.last_name(call.func) in NUMBERED for call in calls)
    compares = by_number or any(function is other for other, _ in masks_of_batches(place.module))
    return function in told or (compares and "compares" in place.text)
