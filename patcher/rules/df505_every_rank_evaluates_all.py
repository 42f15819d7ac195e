"""Every rank evaluates the whole set.

What         A process group is made, and an evaluation that all ranks reach goes through all
             examples on each of them.
At run time  The right numbers, N times over: evaluation does not get faster with more cards.
Example      eval_sampler = SequentialSampler(eval_dataset)   # on every rank
Fix          Deal whole batches in order, gather lists and sums on every rank behind the loop.
             Only where the loop keeps nothing else; otherwise it stays as it is, slower but right.
Fix safety   Safe: a lone process keeps its sampler and gathers nothing.
Source       torch.distributed.all_gather_object
"""

import ast
from collections.abc import Iterator

from ..distributed import arguments_name, is_in_scope, share_of
from ..edits import Edit, Rewrite
from ..facts import Evaluation, Unit
from ..findings import Finding, Safety, Severity
from ..roles import RANKS, reached

CODE, SEVERITY, SAFETY = "DF505", Severity.NOTE, Safety.SAFE


def findings(unit: Unit) -> Iterator[Finding]:
    if not any(module.calls_to("init_process_group") for module in unit.modules):
        return
    for evaluation in unit.evaluations:
        loader = evaluation.loader
        if loader is None or len(loader.samplers) != 1:
            continue
        call = loader.samplers[0]
        module = evaluation.module
        if (
            isinstance(call, ast.Call)
            and module.dotted(call.func).endswith("SequentialSampler")
            and reached(unit, module, evaluation.loop) >= RANKS
        ):
            yield Finding(
                module,
                call,
                f"{evaluation.function.name}() runs in full on every rank",
                shared(unit, evaluation, call),
            )


def shared(unit: Unit, evaluation: Evaluation, call: ast.Call) -> tuple[Edit, ...]:
    """Edits for a share per rank; none where the accumulators are not proven."""
    args, share = arguments_name(unit), share_of(evaluation)
    if share is None or not args or not is_in_scope(evaluation.module, call, args):
        return ()
    deal, gather = share
    return (Rewrite(call, f" if {args}.local_rank == -1 else {deal}", after=True), *gather)
