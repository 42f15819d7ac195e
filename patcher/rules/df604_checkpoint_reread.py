"""A checkpoint is read before it is complete, or onto one card by all.

What         torch.load without map_location; a checkpoint read back by every rank behind the
             training that writes it, with no barrier between.
At run time  Every rank loads onto cuda:0, which runs out of memory; ranks other than 0 read the
             file of an earlier run, or half of this one's.
Example      model.load_state_dict(torch.load(output_dir))
Fix          map_location="cpu" (load_state_dict copies to the right card); a barrier before.
Fix safety   Safe: a lone process loads the same values and passes no barrier.
Source       torch.load
"""

import ast
from collections.abc import Iterator

from ..distributed import WAIT
from ..edits import Insert, Rewrite
from ..facts import Unit
from ..findings import Finding, Safety, Severity
from ..module import Module
from ..roles import RANKS, reached
from ..syntax import Function, keyword, last_argument

CODE, SEVERITY, SAFETY = "DF604", Severity.DEGRADED, Safety.SAFE


def findings(unit: Unit) -> Iterator[Finding]:
    savers = saving_functions(unit)
    for module in unit.modules:
        for call in module.calls_to("load"):
            if module.dotted(call.func) != "torch.load":
                continue
            last = last_argument(call)
            if last is not None and len(call.args) < 2 and not keyword(call, "map_location"):
                yield Finding(
                    module,
                    call,
                    "every rank loads onto the card that rank 0 saved from",
                    (Rewrite(last, ", map_location='cpu'", after=True),),
                )
            stmt = module.statement(call)
            if (
                reached(unit, module, call) >= RANKS
                and written_before(module, stmt, savers)
                and not waits_before(module, stmt)
            ):
                yield Finding(
                    module,
                    call,
                    "rank 0 may still be writing it when another rank reads",
                    (Insert(stmt, WAIT),),
                    severity=Severity.ERROR,
                )


def saving_functions(unit: Unit) -> set[str]:
    """Functions that write a checkpoint."""
    return {
        function.name
        for module in unit.modules
        for call in module.calls_to("save", "save_on_main", "save_pretrained")
        for function in [module.function(call)]
        if function is not None and function.name != "save_on_main"
    }


def written_before(module: Module, stmt: ast.stmt, savers: set[str]) -> bool:
    """Whether a saving function is called above ``stmt`` in the same function."""
    function: Function | None = module.function(stmt)
    return any(
        call.lineno < stmt.lineno and module.function(call) is function
        for call in module.calls_to(*savers)
    )


def waits_before(module: Module, stmt: ast.stmt) -> bool:
    """Whether a barrier stands above ``stmt`` in the block it belongs to."""
    body = module.body(stmt)
    above = body[: body.index(stmt)]
    return any(
        any(parent in above for parent in module.ancestors(call))
        for call in module.calls_to("barrier")
    )
