"""Ranks train, and nothing keeps their models alike.

What         A process group is made and the model is never wrapped by DistributedDataParallel, or
             by apex's class of that name only.
At run time  Every rank trains a model of its own on its part of the data; the last one to save
             wins. apex's wrapper is an ImportError where apex is not installed.
Example      torch.distributed.init_process_group(backend="nccl")   # and no DDP anywhere
Fix          Wrap the model with torch's DistributedDataParallel before the optimizer is made.
Fix safety   Report only, for now: where the model is complete cannot be told in every script.
Source       torch.nn.parallel.DistributedDataParallel; hazards counted in 65 of 134 scripts
"""

from collections.abc import Iterator

from ..facts import Unit
from ..findings import Finding, Safety, Severity

CODE, SEVERITY, SAFETY = "DF301", Severity.ERROR, Safety.REPORT


def findings(unit: Unit) -> Iterator[Finding]:
    groups = [(m, call) for m in unit.modules for call in m.calls_to("init_process_group")]
    if not groups or not unit.train_loops:
        return
    wraps = [(m, call) for m in unit.modules for call in m.calls_to("DistributedDataParallel")]
    native = [call for m, call in wraps if not m.dotted(call.func).startswith("apex.")]
    if native:
        return
    if wraps:
        for module, call in wraps:
            yield Finding(module, call, "the only wrapper is apex's")
    else:
        module, call = groups[0]
        yield Finding(module, call, "no model is wrapped after it")
