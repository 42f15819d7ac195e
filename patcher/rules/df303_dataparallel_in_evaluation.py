"""DataParallel wraps a model for evaluation, or where a process group may exist.

What         torch.nn.DataParallel inside an evaluation function, or not kept to a lone process.
At run time  Wrappers nest at every evaluation (DataParallel of DistributedDataParallel does not
             run), and state_dict keys gain another "module." each time.
Example      if args.n_gpu > 1: model = torch.nn.DataParallel(model)   # in evaluate()
Fix          No wrapper in evaluation; elsewhere only under the single-process test, which a test
             of n_gpu is where the set-up gives each rank one card.
Fix safety   Safe: the values computed are the same; a lone process with several cards evaluates
             on one of them.
Source       torch.nn.DataParallel
"""

import ast
from collections.abc import Iterator

from ..edits import Replace
from ..facts import Unit
from ..findings import Finding, Safety, Severity
from ..roles import RANKS, reached_in_function

CODE, SEVERITY, SAFETY = "DF303", Severity.DEGRADED, Safety.SAFE


def findings(unit: Unit) -> Iterator[Finding]:
    for module in unit.modules:
        for call in module.calls_to("DataParallel"):
            stmt = module.statement(call)
            if unit.evaluation_of(module, call) is not None:
                gate = module.parents[stmt]
                alone = isinstance(gate, ast.If) and gate.body == [stmt] and not gate.orelse
                target = gate if alone else stmt
                assert isinstance(target, ast.stmt)
                yield Finding(
                    module, call, "an evaluation function wraps its model", (Replace(target, ""),)
                )
            elif reached_in_function(module, call) & RANKS:
                yield Finding(module, call, "nothing keeps a rank of a process group away from it")
