"""The script knows DataParallel only.

What         A model is trained, and no process group is ever made.
At run time  Under a launcher every process trains the whole set on its own, on the same card, and
             the last one to save wins. Alone, one process drives all cards: the slow way, and
             torch advises against it.
Example      if args.n_gpu > 1: model = torch.nn.DataParallel(model)
Fix          A process group, DistributedDataParallel and a DistributedSampler have to be put in.
Fix safety   Report only, for now: set-up code is not written into scripts that have none.
Source       torch.nn.DataParallel; hazards counted in 13 of 134 public scripts
"""

from collections.abc import Iterator

from ..facts import Unit
from ..findings import Finding, Safety, Severity

CODE, SEVERITY, SAFETY = "DF201", Severity.ERROR, Safety.REPORT


def findings(unit: Unit) -> Iterator[Finding]:
    if not unit.train_loops or any(m.calls_to("init_process_group") for m in unit.modules):
        return
    for module in unit.modules:
        for call in module.calls_to("DataParallel"):
            yield Finding(module, call, "this script never makes a process group")
