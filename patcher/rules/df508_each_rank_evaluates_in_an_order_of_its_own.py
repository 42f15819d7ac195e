"""Each rank evaluates in an order of its own.

What         An evaluation that all ranks go through in full, whose loader shuffles.
At run time  Each rank has other batches, and with drop_last other examples: their scores differ,
             if only by rounding. A rank that stops early on its own score leaves its peers
             waiting, and which epoch is the best depends on who asks.
Example      valid_loader = DataLoader(valid_set, batch_size=8, shuffle=True, drop_last=True)
Fix          Go through the examples in order on ranks.
Fix safety   Safe: a lone process keeps its shuffled order.
Source       torch.utils.data.DataLoader (shuffle), torch.utils.data.RandomSampler
"""

import ast
from collections.abc import Iterator

from ..analysis.ranks.rank_reach import RANKS, roles_reaching, roles_reaching_in_function
from ..analysis.training.constructed_loaders import Loader
from ..analysis.training.program import Program
from ..editing.edits import Edit, Import, Rewrite
from ..findings import Finding, Safety, Severity
from ..fixes.process_group import lone_process_test
from ..source.tree import argument, is_true, keyword, only_argument

CODE, SEVERITY, SAFETY = "DF508", Severity.DEGRADED, Safety.SAFE


def findings(program: Program) -> Iterator[Finding]:
    if not program.calls_to("init_process_group"):
        return
    seen: set[ast.Call] = set()  # two loops may go over one loader
    for evaluation in program.evaluations:
        loader = evaluation.loader
        if loader.call in seen or program.is_used_for_training(loader):
            continue
        by_all_ranks = roles_reaching(program, evaluation.module, evaluation.loop) >= RANKS
        drawn = what_shuffles(loader) if by_all_ranks else None
        if drawn is not None:
            seen.add(loader.call)
            because = f"{evaluation.name} goes through it on each rank, by that rank's own draw"
            if is_setting(drawn):
                because += f", where {loader.module.text(drawn)} is true"
            yield Finding(loader.module, drawn, because, in_order(program, loader, drawn))


def what_shuffles(loader: Loader) -> ast.expr | None:
    """``True`` of ``shuffle=True``, or a setting for it; or the RandomSampler of ranks."""
    if keyword(loader.call, "generator"):
        return None  # it may be seeded alike
    shuffle = argument(loader.call, 2, "shuffle")
    if shuffle is not None and (is_true(shuffle) or is_setting(shuffle)):
        return shuffle
    for sampler in loader.samplers:
        if (
            isinstance(sampler, ast.Call)
            and loader.module.last_name(sampler.func) == "RandomSampler"
            and roles_reaching_in_function(loader.module, sampler) & RANKS
            and only_argument(sampler, "data_source") is not None
        ):
            return sampler
    return None


def is_setting(value: ast.expr) -> bool:
    """``config["shuffle"]`` or ``args.shuffle``, whose value a run decides."""
    if isinstance(value, ast.Attribute):
        return not (isinstance(value.value, ast.Name) and value.value.id == "self")
    return isinstance(value, ast.Subscript)


def in_order(program: Program, loader: Loader, drawn: ast.expr) -> tuple[Edit, ...]:
    """Edits that leave the draw to a lone process."""
    module = loader.module
    alone = lone_process_test(program, module, loader.call)
    imports = (Import("torch"),) if "torch.distributed" in alone else ()
    if is_setting(drawn):
        return (Rewrite(drawn, f" and {alone}", after=True), *imports)
    if not isinstance(drawn, ast.Call):
        return (Rewrite(drawn, alone), *imports)
    data = only_argument(drawn, "data_source")
    assert data is not None
    ordered = f"torch.utils.data.SequentialSampler({module.text(data)})"
    return (Rewrite(drawn, f" if {alone} else {ordered}", after=True), Import("torch"))
