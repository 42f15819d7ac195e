"""The batch flag counts what one process takes.

What         The batch size of the training loader comes from a flag, and nothing divides it by the
             number of processes. Before a launcher the same flag may have meant all cards of the
             machine (divided by n_gpu, then multiplied by it), or a whole optimizer step (divided
             by the accumulation).
At run time  Four ranks train with four times the global batch of one process, in a quarter of the
             steps, at the same learning rate: 20 steps become 5.
Example      args.per_gpu_train_batch_size = args.train_batch_size // args.n_gpu
Fix          None: pass the per-device batch that gives the global batch you mean. `ddpfix plan`
             and `ddpfix launch` do the arithmetic.
Fix safety   Report only: per process is what accelerate and the Trainer mean, and dividing the
             flag would change what every command line of the script means.
Source       counted in 120 of 134 public scripts; accelerate's guide to batch sizes
"""

import ast
from collections.abc import Iterator

from ...recipes.script_flags import Option
from ..analysis.settings.loader_batches import batch_size_sources, involves, names_in
from ..analysis.training.program import Program
from ..findings import Finding, Safety, Severity
from ..source.module import Module
from ..source.tree import everywhere

CODE, SEVERITY, SAFETY = "DF701", Severity.NOTE, Safety.REPORT

EXAMPLE_RANKS = 4


def findings(program: Program) -> Iterator[Finding]:
    seen: set[ast.expr] = set()
    for loop in program.train_loops:
        loader = loop.loader
        if loader is None or loader.batch_size is None or loader.batch_size in seen:
            continue
        seen.add(loader.batch_size)
        values = batch_size_sources(program, loader)
        names = names_in(values)
        flags = [option for name, option in program.options.items() if name in names]
        flags = [option for option in flags if "batch" in option.dest]
        if not flags or any(word in name for name in names for word in ("world", "num_processes")):
            continue
        if is_divided_by_cards(loader.module, values):
            continue  # what the flag counts is what all ranks take
        yield Finding(loader.module, loader.batch_size, flag_meaning(flags[0], values))


def is_divided_by_cards(module: Module, values: list[ast.expr]) -> bool:
    """Whether a batch is divided by what torch counts, cards or ranks, each of which has one."""
    counted = [
        module.last_name(call.func) in ("device_count", "get_world_size")
        for value in values
        for call in everywhere(value, ast.Call)
    ]
    divided = any(
        isinstance(node.op, ast.Div | ast.FloorDiv)
        for value in values
        for node in everywhere(value, ast.BinOp)
    )
    return divided and any(counted) and "n_gpu" not in names_in(values)


def flag_meaning(flag: Option, values: list[ast.expr]) -> str:
    """What the flag counts, with its default value as an example."""
    what = "examples of one process"
    if involves(values, "n_gpu", ast.Mult):
        what = "examples of each card that one process sees"
    if involves(values, "n_gpu", ast.FloorDiv, ast.Div):
        what = "examples of one process, whatever cards it sees"
    if involves(values, "accumulation", ast.FloorDiv, ast.Div):
        what = "examples of one process and one whole optimizer step"
    size = flag.default
    example = f"; {EXAMPLE_RANKS} ranks take {EXAMPLE_RANKS} times as many"
    if isinstance(size, int):
        example = f": {size} by default, {EXAMPLE_RANKS * size} on {EXAMPLE_RANKS} ranks"
    return f"{flag.spellings[0]} counts {what}{example}"
