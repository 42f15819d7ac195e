"""One process trains, on one card.

What         The script trains a model and knows of no other process and no second card: no process
             group, no DataParallel, no library that runs the training.
At run time  It is right alone. Under a launcher, N processes train N models of their own on the
             same data, each as long as one alone, and rank 0 saves one of them.
Example      model = Net().cuda()   # and no DistributedDataParallel anywhere
Fix          By hand: init_process_group() where the program starts, DistributedDataParallel around
             the model once it is on its device and before the optimizer is made. `patch` then deals
             the data, shares the evaluation out and repairs the rest.
Fix safety   Report only: nothing in such a script shows where its model is complete.
Source       https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html
"""

from collections.abc import Iterator

from ..analysis.program import Program
from ..analysis.wrapping import averages_otherwise, takes_steps
from ..findings import Finding, Safety, Severity

CODE, SEVERITY, SAFETY = "DF204", Severity.NOTE, Safety.REPORT

GROUP_MAKERS = ("init_process_group", "init_device_mesh", "init_distributed", "initialize")
SPREADS = ("DataParallel", "DistributedDataParallel", *GROUP_MAKERS)


def findings(program: Program) -> Iterator[Finding]:
    if not program.script.is_program or program.calls_to(*SPREADS):
        return
    if averages_otherwise(program):
        return
    for loop in program.train_loops:
        if takes_steps(loop) and program.is_live(loop.module, loop.steps):
            yield Finding(
                loop.module, loop.steps, "under a launcher each rank trains a model alone"
            )
            return  # one is enough
