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

from ..distributed import is_alone, share_of
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
        if len(loader.samplers) != 1 or unit.is_trained_on(loader.samplers[0]):
            continue
        call, module = loader.samplers[0], loader.module
        if (
            isinstance(call, ast.Call)
            and module.dotted(call.func).endswith("SequentialSampler")
            and reached(unit, evaluation.module, evaluation.loop) >= RANKS
        ):
            yield Finding(
                module,
                call,
                f"{evaluation.name} runs in full on every rank",
                shared(unit, evaluation, call),
            )


def shared(unit: Unit, evaluation: Evaluation, call: ast.Call) -> tuple[Edit, ...]:
    """Edits for a share per rank; none where the accumulators are not proven."""
    share = share_of(unit, evaluation)
    if share is None:
        return ()
    deal, gather = share
    alone = is_alone(unit, evaluation.module, call)
    return (Rewrite(call, f" if {alone} else {deal}", after=True), *gather)
