"""Evaluation deals its examples with a DistributedSampler and gathers nothing.

What         An evaluation loader with a DistributedSampler, or an evaluation whose per-rank lists
             and sums are used as if they were the whole set's.
At run time  Each rank scores 1/N of the set, padded with repeats and shuffled: metrics of a part,
             and predictions zipped with the wrong examples, at exit status 0.
Example      eval_sampler = SequentialSampler(d) if args.local_rank == -1 else DistributedSampler(d)
Fix          Deal whole batches in order, and gather lists and sums on every rank behind the loop.
             Where the loop keeps anything else, or one function makes the loader of the training as
             well, every rank evaluates the whole set. Only reported
             where the evaluation brings the ranks' parts together itself: the sampler's padding
             then counts some examples twice. A note where each rank writes its part to a file.
Fix safety   Safe: a lone process takes the sequential branch and gathers nothing.
Source       torch.utils.data.distributed.DistributedSampler (shuffle, drop_last)
"""

import ast
from collections.abc import Iterator

from ...record import replace
from ..analysis.effects.file_effects import file_uses
from ..analysis.effects.written_paths import names_rank
from ..analysis.language.name_flow import names_in
from ..analysis.ranks.evaluating_ranks import combined_in_loop, combines_parts
from ..analysis.ranks.rank_reach import Role, roles_reaching_in_function
from ..analysis.training.evaluations import Evaluation
from ..analysis.training.program import Program
from ..editing.edits import Edit, Rewrite
from ..findings import Finding, Safety, Severity
from ..fixes.loader_factories import UntoldError, training_test
from ..fixes.process_group import evaluation_share
from ..source.tree import argument, bound_names, everywhere, precedes, within

CODE, SEVERITY, SAFETY = "DF503", Severity.ERROR, Safety.SAFE


def findings(program: Program) -> Iterator[Finding]:
    for evaluation in evaluations_by_loader(program):
        loader = evaluation.loader
        if not loader.distributed_samplers:
            continue
        trained = [each for each in program.training_loaders if each.shares_with(loader)]
        if any(each.is_same(loader) for each in trained):
            continue
        if combines_parts(program, evaluation):
            because = (
                f"{evaluation.name} combines the ranks' parts, of which padding repeats examples"
            )
            sampler = loader.distributed_samplers[0]
            yield Finding(loader.module, sampler, because, severity=Severity.DEGRADED)
            continue
        keeps = "gathers nothing" if evaluation.accumulators else "what it keeps cannot be added up"
        because = f"{evaluation.name} scores this rank's part and {keeps}"
        sampler = loader.distributed_samplers[0]
        if (left := way_out(evaluation)) is not None:
            because += f"; line {left.lineno} may leave the loop after the batches of a part"
            yield Finding(loader.module, sampler, because, severity=Severity.DEGRADED)
            continue
        if writes_its_part(program, evaluation):
            because = f"{evaluation.name} writes each rank's part to a file of its own, of which"
            because += " padding repeats examples for whoever reads them"
            yield Finding(loader.module, sampler, because, severity=Severity.NOTE)
            continue
        if whole := combined_in_loop(program, evaluation):
            rest = sorted(set(evaluation.accumulators or ()) - whole)
            because = f"{evaluation.name} gathers {', '.join(sorted(whole))}, of which padding"
            because += f" repeats examples, and keeps this rank's {', '.join(rest)}"
            yield Finding(loader.module, sampler, because, severity=Severity.DEGRADED)
            continue
        if (
            not trained
            and loader.made_by
            and any(each.loader is None for each in program.train_loops)
        ):
            because += "; a training whose loader is not found may have it from the same function"
            yield Finding(loader.module, sampler, because, severity=Severity.DEGRADED)
            continue
        edits = (
            deal_training_alone(program, evaluation)
            if trained
            else evaluate_share(program, evaluation) or evaluate_whole(evaluation)
        )
        yield Finding(loader.module, sampler, because, edits)


def writes_its_part(program: Program, evaluation: Evaluation) -> bool:
    """Whether what the loop has used goes to a file behind it that is named by the rank."""
    module, loop = evaluation.module, evaluation.loop
    function = module.function(loop)
    used = {name.id for name in within(loop.body, ast.Name) if (function, name.id) in module.stores}
    return any(
        use.what == "write"
        and use.path is not None
        and module.function(use.call) is function
        and precedes(loop, use.call)
        and not used.isdisjoint(names_in(module.statement(use.call)))
        and names_rank(program, module, use.path, unique=False)
        for use in file_uses(module)
    )


def way_out(evaluation: Evaluation) -> ast.Break | None:
    """Where a number of batches that may be a rank's share ends the loop: ``if i >= n: break``.

    A number by a plain name; an option or a constant means the same for the whole set.
    """
    module, loop = evaluation.module, evaluation.loop
    own = bound_names(loop.target) if isinstance(loop, ast.For) else set()
    for each in within(loop.body, ast.Break):
        test = module.parents[each]
        if isinstance(test, ast.If) and module.parents[test] is loop:
            names = [
                name
                for name in everywhere(test.test, ast.Name)
                if name.id not in own and not isinstance(module.parents[name], ast.Attribute)
            ]
            values = [module.definition(name, name) for name in names]
            if any(not isinstance(value, ast.Constant) for value in values):
                return each
    return None


def evaluations_by_loader(program: Program) -> Iterator[Evaluation]:
    """Each evaluation, once more for each loader that another branch constructs for it."""
    for evaluation in program.evaluations:
        yield evaluation
        for loader in evaluation.loader.others:
            yield replace(evaluation, loader=loader)


def deal_training_alone(program: Program, evaluation: Evaluation) -> tuple[Edit, ...]:
    """Edits by which a function that makes the loader of a training, too, deals that one alone."""
    loader, module = evaluation.loader, evaluation.loader.module
    try:
        trains, told = training_test(program, loader)
    except UntoldError:
        return ()
    if not trains or len(loader.distributed_samplers) > 1:
        return ()
    return (
        *told,
        *(
            Rewrite(
                call,
                f" if {trains} else torch.utils.data.SequentialSampler({module.text(data)})",
                after=True,
            )
            for call in loader.distributed_samplers
            if (data := argument(call, 0, "dataset")) is not None
        ),
    )


def evaluate_share(program: Program, evaluation: Evaluation) -> tuple[Edit, ...]:
    """Edits for a share per rank; none where the results cannot provably be gathered."""
    loader, share = evaluation.loader, evaluation_share(program, evaluation)
    if share is None:
        return ()
    if any(
        Role.SINGLE in roles_reaching_in_function(loader.module, call)
        for call in loader.distributed_samplers
    ):
        return ()  # a lone process has no group to ask for its share
    sampler, gather = share
    return (*(Rewrite(call, sampler) for call in loader.distributed_samplers), *gather)


def evaluate_whole(evaluation: Evaluation) -> tuple[Edit, ...]:
    """Edits that let every rank evaluate the whole set, in order."""
    loader, module = evaluation.loader, evaluation.loader.module
    return tuple(
        Rewrite(call, f"torch.utils.data.SequentialSampler({module.text(data)})")
        for call in loader.distributed_samplers
        if (data := argument(call, 0, "dataset")) is not None
    )
