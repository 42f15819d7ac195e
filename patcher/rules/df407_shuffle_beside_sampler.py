"""A loader is told to shuffle beside its sampler.

What         DataLoader(…, sampler=DistributedSampler(…), shuffle=True).
At run time  ValueError as soon as the loader is made: sampler option is mutually exclusive with
             shuffle.
Example      DataLoader(data, sampler=train_sampler, batch_size=32, shuffle=True)
Fix          The sampler shuffles; the loader does not.
Fix safety   Safe: no process came past this line.
Source       torch.utils.data.DataLoader (shuffle)
"""

import ast
from collections.abc import Iterator

from ..analysis.training.constructed_loaders import loader_calls
from ..analysis.training.program import Program
from ..editing.edits import Rewrite
from ..findings import Finding, Safety, Severity
from ..source.tree import argument, is_true, keyword

CODE, SEVERITY, SAFETY = "DF407", Severity.ERROR, Safety.SAFE


def findings(program: Program) -> Iterator[Finding]:
    for module, call in loader_calls(program):
        shuffle, sampler = keyword(call, "shuffle"), argument(call, 3, "sampler")
        if shuffle is None or sampler is None or not is_true(shuffle.value):
            continue
        values = module.alternatives(sampler, sampler) or [sampler]
        if all(isinstance(value, ast.Call) for value in values):  # and never None
            because = f"its sampler is {module.text(values[-1])}"
            yield Finding(module, call, because, (Rewrite(shuffle.value, "False"),))
