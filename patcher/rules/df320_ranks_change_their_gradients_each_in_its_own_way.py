"""Ranks change their gradients each in its own way.

What         Behind the backward pass a step multiplies or divides the gradients by a number that it
             takes of its batch, such as its examples or tokens. Or a hook on a weight clips its
             gradient, or a step that averages by hand clips all, before ranks average. Steps that
             reduce anything are left: the number may be that of all ranks.
At run time  All ranks have the same gradients, the average; then each divides them by a number of
             its own, and their weights part for good. The gradients of a sum come out too large by
             the number of ranks. What is clipped first are the gradients of one rank: the mean of
             such is not what one process clips, but the same on all ranks. Nothing crashes.
Example      for p in model.parameters(): p.grad /= n_tokens
Fix          None: divide by the number of all ranks (all_reduce), and by the mean over ranks where
             the loss is a mean. Clip behind the backward pass, not in a hook, and behind the
             average.
Fix safety   Report only. What is clipped first is only noted.
Source       torch.nn.parallel.DistributedDataParallel (averages in the backward pass)
"""

from collections.abc import Iterator

from ..analysis.batches.changed_gradients import bent_before_average, scaled_by_own
from ..analysis.batches.clipped_gradients import clipped_before_average
from ..analysis.models.wrapping import loops_that_step
from ..analysis.training.program import Program, trains_on_several_devices
from ..findings import Finding, Safety, Severity

CODE, SEVERITY, SAFETY = "DF320", Severity.ERROR, Safety.REPORT


def findings(program: Program) -> Iterator[Finding]:
    if not trains_on_several_devices(program):
        return
    told = set()
    for loop in loops_that_step(program):
        for module, node, number in scaled_by_own(program, loop):
            if node not in told:
                told.add(node)
                because = f"{number} is of a rank's own batch, by which it changes all gradients"
                yield Finding(module, node, because)
    for module, clip, average in clipped_before_average(program):
        because = f"it clips a rank's own gradients, before line {average.lineno} averages them"
        yield Finding(module, clip, because, severity=Severity.NOTE)
    for module in program.modules:
        for call, bend in bent_before_average(module):
            because = f"{module.text(bend)[:60]} is of a rank's own gradient, before the average"
            if program.is_live(module, call):
                yield Finding(module, call, because, severity=Severity.NOTE)
