"""Ranks decide by an evaluation that draws.

What         Each rank goes through a whole evaluation in which something is drawn at random: a
             variational encoder's noise, attention's samples, F.dropout(x) without training=, the
             negatives of a data set, a random crop. A schedule steps by the score, or the training
             is left by it.
At run time  Ranks draw other numbers and have other scores. They lower their learning rate in
             different epochs, and their weights part; one that leaves alone makes its peers wait
             until the time-out.
Example      std = mu + torch.randn_like(std)   # in forward(); stopper(evaluate(model, loader))
Fix          All ranks take the score of rank 0 (what_rank_0_has). Only reported where the
             evaluation is part of the function that trains.
Fix safety   Safe: in a lone process what_rank_0_has gives back what it gets.
Source       torch.distributed.broadcast_object_list
"""

import ast
from collections.abc import Iterator

from ..analysis.batches.drawing_transforms import drawn_by_transforms
from ..analysis.batches.drawn_examples import ranks_draw_alike
from ..analysis.batches.torch_draws import drawn_by_data, drawn_in_evaluation, seeds_torch
from ..analysis.effects.deciding_scores import (
    GATHERING,
    JOINED,
    what_hangs_on_it,
    what_is_decided_by,
)
from ..analysis.language.name_flow import flows, names_in, reached, taking
from ..analysis.ranks.rank_divergence import conditional_exits
from ..analysis.ranks.rank_reach import RANKS, roles_reaching
from ..analysis.training.evaluations import Evaluation
from ..analysis.training.program import Program
from ..editing.edits import Define, Edit, Rewrite
from ..findings import Finding, Safety, Severity
from ..source.module import Module
from ..source.tree import within

CODE, SEVERITY, SAFETY = "DF515", Severity.ERROR, Safety.SAFE

ADDING = ("append", "extend", "update")
APART, HELPER = "draw_apart", "what_rank_0_has"  # of helper_code.py


def findings(program: Program) -> Iterator[Finding]:
    if not program.calls_to("init_process_group", "DistributedDataParallel"):
        return
    is_alike = seeds_torch(program) and ranks_draw_alike(program)
    is_alike &= not program.calls_to(APART)
    seen: set[ast.AST] = set()
    for evaluation in program.evaluations:
        if evaluation.loader.distributed_samplers:
            continue
        hangs = what_hangs_on_it(program, evaluation)
        if hangs in ("", JOINED):
            continue
        drawn = None
        if not is_alike:
            drawn = drawn_in_evaluation(program, evaluation)
            drawn = drawn or drawn_by_transforms(program, evaluation)
        if drawn is None:  # ranks draw unequally often for training, and go on from there
            drawn = drawn_by_data(program, evaluation)
        if drawn is None:
            continue
        where, call = drawn
        draws = (
            f"{where.text(call.func)}() in line {call.lineno} draws in {evaluation.name} on each"
            " rank, and "
        )
        entries = [
            (module, entry)
            for module, entry in program.entries(evaluation)
            if isinstance(entry, ast.Call)
        ]
        for module, entry in entries:
            decides = what_is_decided_by(program, module, entry)
            if not decides or entry in seen or is_of_rank_0(module, entry):
                continue
            seen.add(entry)
            yield Finding(module, entry, draws + decides, of_rank_0(program, module, entry))
        if not entries and program.is_live(evaluation.module, evaluation.loop):
            line = exit_by_score(program, evaluation)
            if line:
                because = f"{draws}line {line} may leave the training by its score"
                at = evaluation.module, evaluation.loop
                yield Finding(*at, because, severity=Severity.DEGRADED)


def exit_by_score(program: Program, evaluation: Evaluation) -> int:
    """The line where the function around an evaluation leaves a training by what that adds up."""
    module = evaluation.module
    scope = module.scope_statements(evaluation.loop)
    added = taking(each.target for each in within(evaluation.loop.body, ast.AugAssign))
    for call in within(evaluation.loop.body, ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr in (
            "append",
            "extend",
            "update",
        ):
            added |= names_in(call.func.value)
    known = reached(((names_in(value), taking(targets)) for targets, value in flows(scope)), added)
    for loop in program.train_loops:
        for leaving in conditional_exits(loop) if loop.module is module else ():
            test = module.parents[leaving]
            if isinstance(test, ast.If) and names_in(test.test) & known:
                return leaving.lineno
    return 0


def is_of_rank_0(module: Module, entry: ast.Call) -> bool:
    """Whether all ranks take what rank 0 has of a call, or their mean, already."""
    user = module.parents[entry]
    return isinstance(user, ast.Call) and module.last_name(user.func) in (HELPER, *GATHERING)


def of_rank_0(program: Program, module: Module, entry: ast.expr) -> tuple[Edit, ...]:
    """Edits that give all ranks what rank 0 has evaluated; none where some ranks may not come."""
    if not roles_reaching(program, module, entry) >= RANKS:
        return ()
    text = f"{HELPER}({module.text(entry)})"
    return (Rewrite(entry, text), Define(HELPER), Define("onto_own_card"))
