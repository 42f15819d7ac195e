"""Steps go on with what each rank has seen.

What         Training steps keep something of their batches in a tensor, a list or an object outside
             of the model, and later losses are made of it: prototypes of classes, a bank of
             features, each example's last loss or soft label, a threshold that follows the scores.
             Or a table that steps fill by the numbers of their examples is saved behind them, or a
             list of what they have seen of each.
At run time  Each rank keeps what comes of its own part of the batches: ranks have other prototypes,
             know of an example what it was when they last had it, and fill a queue N times more
             slowly. Where the next epoch's examples are chosen by it, ranks choose others. A table
             that rank 0 saves lacks the examples of the others. The weights stay equal, and are
             others than one process trains. Nothing crashes.
Example      prototypes[c] = 0.9 * prototypes[c] + 0.1 * features[y == c].mean(0).detach()
Fix          None: gather what goes in from all ranks before (torch.distributed.all_gather), with
             the numbers of the examples; a number becomes the ranks' mean (all_reduce).
Fix safety   Report only: how what all ranks have seen is put together is a matter of the method.
Source       torch.nn.parallel.DistributedDataParallel (shares gradients, and buffers of the model)
"""

from collections.abc import Iterator

from ..analysis.batches.saved_collections import saved_collections
from ..analysis.batches.saved_tables import saved_tables
from ..analysis.batches.seen_by_ranks import kept_of_batches
from ..analysis.models.wrapping import loops_that_step
from ..analysis.training.program import Program, trains_on_several_devices
from ..findings import Finding, Safety, Severity

CODE, SEVERITY, SAFETY = "DF319", Severity.DEGRADED, Safety.REPORT


def findings(program: Program) -> Iterator[Finding]:
    if not trains_on_several_devices(program):
        return
    for loop in loops_that_step(program):
        for stmt, name in kept_of_batches(program, loop):
            because = f"each rank puts its own batches into {name}, which losses are made of"
            yield Finding(loop.module, stmt, because)
        for stmt, name in (*saved_tables(loop), *saved_collections(program, loop)):
            because = f"each rank puts its own batches into {name}, and rank 0's is saved"
            yield Finding(loop.module, stmt, because)
