"""The sampler deals the same order in every epoch.

What         A DistributedSampler serves several epochs and nobody calls set_epoch.
At run time  Epoch 2 repeats the order of epoch 1; nothing warns.
Example      for epoch in range(epochs): for batch in train_dataloader: …
Fix          Call set_epoch at the head of the epoch loop.
Fix safety   Safe: only a distributed run has a DistributedSampler.
Source       torch.utils.data.distributed.DistributedSampler
"""

import ast
from collections.abc import Iterator

from ..edits import Insert
from ..facts import Unit
from ..findings import Finding, Safety, Severity
from ..syntax import within

CODE, SEVERITY, SAFETY = "DF402", Severity.DEGRADED, Safety.SAFE


def findings(unit: Unit) -> Iterator[Finding]:
    for loop in unit.train_loops:
        if any(node.attr == "set_epoch" for node in within(loop.scope, ast.Attribute)):
            continue
        if loop.loader is not None and loop.loader.cycle is not None:
            yield Finding(
                loop.module,
                loop.loader.cycle,
                "cycle() keeps the first epoch's batches and deals them again, alone too",
                severity=Severity.NOTE,
            )
            continue
        if loop.loader is None or loop.epochs is None:
            if loop.module.calls_to("DistributedSampler"):
                yield Finding(loop.module, loop.steps, "there is no epoch loop to call it from")
            continue
        epoch = loop.epochs.target
        if not loop.loader.distributed or not isinstance(epoch, ast.Name):
            continue
        kind = loop.module.text(loop.loader.distributed[0].func)
        sampler = f"{loop.loader.name}.sampler"
        code = f"if isinstance({sampler}, {kind}):\n    {sampler}.set_epoch({epoch.id})"
        yield Finding(
            loop.module,
            loop.epochs,
            f"{loop.loader.name} is shuffled by a {kind} that never learns the epoch",
            (Insert(loop.epochs, code, "first"),),
        )
