"""FSDP2: weights, gradients and optimizer states are dealt among the ranks, not copied to each.

What         With the flag, fully_shard of torch takes the place of DistributedDataParallel: the
             members of the model's lists of layers are gathered one at a time, and the rest of the
             model once a step. Losses, norms and weights are those of DistributedDataParallel but
             for rounding. With accumulation, gradients are scattered once per optimizer step.
Flags        --fsdp; without a launcher, or alone, it changes nothing
Without      Each rank holds all weights, gradients and, for AdamW, two moments: 16 bytes of float32
             per parameter, however many ranks there are.
Fix safety   Safe: without the flag the call is not reached. Checkpoints have the names and values
             of a model that is not dealt, gathered from all ranks and written by rank 0; those of
             either kind can be read with and without the flag, on any number of ranks. In eval mode
             each rank holds all weights, so that ranks may evaluate different numbers of batches;
             between micro-batches that are accumulated, all gradients. A run ends with one line
             where FSDP would not train the same: torch below 2.6, batch norm, an optimizer that is
             not element by element, ranks that use different weights; so does one with --compile.
Source       torch.distributed.fsdp.fully_shard; https://arxiv.org/abs/2304.11277
"""

import ast
from collections.abc import Iterator

from ..analysis.settings.parsed_arguments import arguments_at
from ..analysis.training.program import Program
from ..editing.edits import Define, Edit, Guard, Insert, Rewrite
from ..findings import Finding
from ..source.tree import argument, within
from .errors import CannotError
from .flags import Flag, missing_flag_findings
from .fsdp_obstacles import check_script
from .fsdp_saving import GATHER, saving_edits
from .models import DdpWrap, ddp_wraps
from .optimizers import StepOptimizer, step_optimizer
from .with_compile import is_for_training

ORDER = 50
FLAGS = (
    Flag(
        "--fsdp",
        "bool",
        "False",
        "Deal weights, gradients and optimizer states among the ranks (FSDP2).",
    ),
)
HELPER, STATE, NORM = "shard_over_ranks", "deal_optimizer_state", "summed_norm"
HELPERS = (
    *("whole_tensor", "sharded_like", "sharding_blocks", "check_sharding", "watch_gradients"),
    *("ShardedModel", "gather_saved_weights", "deal_loaded_weights", "take_from_rank_0"),
    *(NORM, STATE, HELPER, GATHER),
)


def findings(program: Program) -> Iterator[Finding]:
    where, first = program.script, program.script.tree.body[0]
    wraps = [one for one in ddp_wraps(program) if is_for_training(program, one)]
    if not wraps:
        raise CannotError(where, first, "no assignment wraps the trained model")
    if len(wraps) > 1:
        raise CannotError(wraps[1].module, wraps[1].stmt, "several models are wrapped")
    (wrap,) = wraps
    check_script(program, wrap)
    optimizer = step_optimizer(program, wrap)
    flags = missing_flag_findings(program, FLAGS)
    if flags is None or not arguments_at(program, wrap.module, wrap.stmt):
        raise CannotError(where, first, "no command line whose arguments reach the wrapping")
    yield from flags
    saving = tuple(saving_edits(program, wrap, optimizer))
    if wrap.module.calls_to(HELPER):
        if saving:
            yield Finding(wrap.module, wrap.stmt, "rank 0 would gather alone", saving)
        return
    if taken := sorted(wrap.module.module_names & {*HELPERS}):
        raise CannotError(where, first, f"{taken[0]} is another thing here")
    yield Finding(
        wrap.module,
        wrap.stmt,
        f"every rank holds all of {wrap.name} and of its optimizer's states",
        (
            *sharding_edits(program, wrap, optimizer),
            *saving,
            *(Define(helper) for helper in HELPERS),
        ),
    )


def sharding_edits(program: Program, wrap: DdpWrap, optimizer: StepOptimizer) -> Iterator[Edit]:
    """Edits that shard the model where it is wrapped, and its optimizer's states with it."""
    args = arguments_at(program, wrap.module, wrap.stmt)
    model = argument(wrap.call, 0, "module")
    assert model is not None
    arguments = [wrap.module.text(model)]
    if optimizer.made_after is None:
        arguments.append(optimizer.name)
    else:
        there = arguments_at(program, optimizer.module, optimizer.made_after)
        if not there:
            because = "the arguments do not reach the making of the optimizer"
            raise CannotError(optimizer.module, optimizer.made_after, because)
        code = f"if {there}.{FLAGS[0].name}:\n    {STATE}({optimizer.name})"
        yield Insert(optimizer.made_after, code, "after")
    yield from summed_norms(program)
    code = f"{wrap.name} = {HELPER}({', '.join(arguments)})"
    yield Guard(wrap.stmt, f"not {args}.{FLAGS[0].name}", code)


def summed_norms(program: Program) -> Iterator[Rewrite]:
    """Edits that make norms whole which clipping returns and the script keeps."""
    for loop in program.train_loops:
        for call in within(loop.steps.body, ast.Call):
            is_used = not isinstance(loop.module.parents[call], ast.Expr)
            if is_used and loop.module.last_name(call.func) in (
                "clip_grad_norm_",
                "clip_grad_norm",
            ):
                yield Rewrite(call, f"{NORM}({loop.module.text(call)})")
