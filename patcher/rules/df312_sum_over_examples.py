"""The loss is a sum over the examples of a batch, and ranks average.

What         A training step goes back through a sum: reduction="sum", size_average=False, .sum().
             Or through a mean times the number of the examples in a batch.
At run time  DistributedDataParallel divides the sum of the ranks' gradients by their number. For
             means that is the mean over all; a sum comes out divided by the number of ranks: N of
             them train with an N-th of the learning rate, and clip an N-th of the norm. Adam hides
             it in part. Nothing warns.
Example      loss = F.binary_cross_entropy(output, data, reduction="sum")
Fix          The loss that goes back is multiplied by the number of ranks. Where a sum and a mean
             are added, it is only reported: multiply the sum. So is a mean that is multiplied by
             what may be the number of a batch's examples, and a loop that adds up the losses of
             examples, if that is what it goes over.
Fix safety   Safe: a lone process computes what it did before.
Source       torch.nn.parallel.DistributedDataParallel (gradients are averaged)
"""

import ast
from collections.abc import Iterator

from ..analysis.batches.looped_sums import summed_by_example
from ..analysis.batches.loss_reduction import Reduction, reduction_of
from ..analysis.models.wrapping import SHARED, takes_steps
from ..analysis.training.program import Program
from ..analysis.training.train_loops import TrainLoop, backward_calls
from ..editing.edits import Define, Edit, Rewrite
from ..findings import Finding, Safety, Severity
from ..fixes.averaged_by_hand import ALIKE

CODE, SEVERITY, SAFETY = "DF312", Severity.DEGRADED, Safety.SAFE

HELPER = "sum_of_ranks"
TOLD = {
    Reduction.SUM: "a sum",
    Reduction.MIXED: "a sum and a mean, added",
    Reduction.PARTLY: "a sum and more, added: multiply the sum, and what else is one",
    Reduction.TIMES: "a mean times the number of a batch's examples: a sum",
}


def findings(program: Program) -> Iterator[Finding]:
    if not program.calls_to("DataParallel", SHARED, ALIKE):
        return  # who wraps in DistributedDataParallel has chosen what the ranks' mean is to be
    for loop in program.train_loops:
        if takes_steps(loop) and program.is_live(loop.module, loop.steps):
            yield from sums(program, loop)


def sums(program: Program, loop: TrainLoop) -> Iterator[Finding]:
    """The backward passes of a loop that go through a sum."""
    per_step = "" if loop.accumulation is None else loop.module.text(loop.accumulation)
    for module, call in backward_calls(program, loop):
        assert isinstance(call.func, ast.Attribute)
        loss = call.func.value
        if isinstance(loss, ast.Call) and loss.args and module.last_name(loss.func) == "scale":
            loss = loss.args[0]
        kind = reduction_of(program, module, loss, per_step)
        edits: tuple[Edit, ...] = ()
        if kind is Reduction.SUM:
            edits = (Rewrite(loss, f"{HELPER}({module.text(loss)})"), Define(HELPER))
        elif kind not in TOLD:
            over = summed_by_example(loop, module, loss)
            if over is not None:
                because = f"{module.text(loss)} adds up what each of {module.text(over)} gives"
                yield Finding(module, call, because, severity=Severity.NOTE)
            continue
        severity = Severity.NOTE if kind in (Reduction.PARTLY, Reduction.TIMES) else None
        because = f"{module.text(loss)} is {TOLD[kind]}"
        yield Finding(module, call, because, edits, severity=severity)
