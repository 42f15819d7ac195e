"""Every rank evaluates the whole set.

What         A process group is created, and an evaluation that all ranks reach goes through all
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

from ..analysis.ranks.dealing import dealt_by_hand
from ..analysis.ranks.rank_reach import RANKS, roles_reaching
from ..analysis.training.constructed_loaders import Loader
from ..analysis.training.evaluations import Evaluation
from ..analysis.training.program import Program
from ..editing.edits import Edit, Rewrite
from ..findings import Finding, Safety, Severity
from ..fixes.loader_options import may_hold, may_shuffle, options_of, with_sampler
from ..fixes.process_group import evaluation_share, lone_process_test
from ..source.tree import argument, everywhere, keyword, last_argument

CODE, SEVERITY, SAFETY = "DF505", Severity.NOTE, Safety.SAFE


def findings(program: Program) -> Iterator[Finding]:
    if not program.calls_to("init_process_group") or dealt_by_hand(program):
        return  # a share of a share: DF403 tells of those that are dealt by hand
    loops = {each.loop: each for each in reversed(program.evaluations)}  # of one or several models
    for evaluation in [each for each in program.evaluations if loops[each.loop] is each]:
        loader = evaluation.loader
        by_all_ranks = roles_reaching(program, evaluation.module, evaluation.loop) >= RANKS
        if by_all_ranks and is_sequential(loader) and not program.is_used_for_training(loader):
            yield Finding(
                loader.module,
                loader.samplers[0] if loader.samplers else loader.call,
                f"{evaluation.name} runs in full on every rank",
                evaluate_share(program, evaluation),
            )


def is_sequential(loader: Loader) -> bool:
    """Whether the loader goes through all examples in their own order."""
    if loader.samplers:
        (sampler, *more) = loader.samplers
        return (
            not more
            and isinstance(sampler, ast.Call)
            and loader.module.dotted(sampler.func).endswith("SequentialSampler")
        )
    shuffle = argument(loader.call, 2, "shuffle")
    if shuffle is not None and not (isinstance(shuffle, ast.Constant) and not shuffle.value):
        return False
    if loader.batch_sampler is not None or keyword(loader.call, "sampler") is not None:
        return False
    options = [each for part in options_of(loader.call) for each in everywhere(part, ast.Dict)]
    keys = {key.value for each in options for key in each.keys if isinstance(key, ast.Constant)}
    return not keys & {"batch_sampler", "sampler"}


def evaluate_share(program: Program, evaluation: Evaluation) -> tuple[Edit, ...]:
    """Edits for a share per rank; none where the results cannot provably be gathered."""
    share, loader = evaluation_share(program, evaluation), evaluation.loader
    if share is None:
        return ()
    sampler, gather = share
    alone = lone_process_test(program, loader.module, loader.call)
    if loader.samplers:
        return (Rewrite(loader.samplers[0], f" if {alone} else {sampler}", after=True), *gather)
    last, options = last_argument(loader.call), options_of(loader.call)
    if last is None or (options and may_hold(loader.module, "sampler")):
        return ()
    is_told = argument(loader.call, 2, "shuffle") is not None
    if not is_told and any(may_shuffle(loader.module, each) for each in options):
        dealt = with_sampler(loader.module, options[0], sampler, alone)
        return (*dealt, *gather) if dealt and not options[1:] else ()
    return (Rewrite(last, f", sampler=None if {alone} else {sampler}", after=True), *gather)
