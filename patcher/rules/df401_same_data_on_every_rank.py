"""Every rank draws the same training data.

What         A process group is made and the training loader has no DistributedSampler.
At run time  N ranks with one seed compute the same gradients N times: no speed-up, and N times
             the work for the same result.
Example      train_sampler = RandomSampler(train_dataset)
Fix          DistributedSampler under the rank test, RandomSampler for a lone process.
Fix safety   Report only, for now: data that is sharded elsewhere must not be sharded twice.
Source       torch.utils.data.distributed.DistributedSampler
"""

from collections.abc import Iterator

from ..facts import Unit
from ..findings import Finding, Safety, Severity

CODE, SEVERITY, SAFETY = "DF401", Severity.ERROR, Safety.REPORT


def findings(unit: Unit) -> Iterator[Finding]:
    if not any(module.calls_to("init_process_group") for module in unit.modules):
        return
    for loop in unit.train_loops:
        if loop.loader is not None and not loop.loader.distributed:
            because = "no branch deals by rank" if loop.loader.samplers else "it has no sampler"
            yield Finding(loop.module, loop.loader.call, because)
