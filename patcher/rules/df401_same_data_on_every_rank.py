"""Every rank draws the same training data.

What         A process group is made and the training loader has no DistributedSampler.
At run time  N ranks with one seed compute the same gradients N times: no speed-up, and N times
             the work for the same result.
Example      train_sampler = RandomSampler(train_dataset)
Fix          DistributedSampler for a rank, RandomSampler for a lone process.
Fix safety   Safe: a lone process keeps its sampler. Reported only where something else in the
             script shares data out by world size, as that must not be done twice.
Source       torch.utils.data.distributed.DistributedSampler
"""

import ast
from collections.abc import Iterator

from ..distributed import arguments_name, is_in_scope, is_shared
from ..edits import Edit, Import, Rewrite
from ..facts import TrainLoop, Unit
from ..findings import Finding, Safety, Severity
from ..syntax import below, within

CODE, SEVERITY, SAFETY = "DF401", Severity.ERROR, Safety.SAFE


def findings(unit: Unit) -> Iterator[Finding]:
    if not any(module.calls_to("init_process_group") for module in unit.modules):
        return
    for loop in unit.train_loops:
        if loop.loader is None:
            if not any(module.calls_to("DistributedSampler") for module in unit.modules):
                yield Finding(loop.module, loop.steps, "nothing in the script deals by rank")
        elif not loop.loader.distributed and not is_shared(loop.loader):
            because = "no branch deals by rank" if loop.loader.samplers else "it has no sampler"
            yield Finding(loop.module, loop.loader.call, because, dealt(unit, loop))


def dealt(unit: Unit, loop: TrainLoop) -> tuple[Edit, ...]:
    """A DistributedSampler beside the RandomSampler."""
    assert loop.loader is not None
    module, args = loop.module, arguments_name(unit)
    samplers = loop.loader.samplers
    if len(samplers) != 1 or not args or shares_out(unit) or loop.epochs is None:
        return ()
    (call,) = samplers
    if not (
        isinstance(call, ast.Call)
        and module.dotted(call.func).endswith("RandomSampler")
        and len(call.args) == 1
        and not call.keywords
        and is_in_scope(module, call, args)
    ):
        return ()
    by_rank = f"DistributedSampler({module.text(call.args[0])})"
    edits: list[Edit] = [Rewrite(call, f" if {args}.local_rank == -1 else {by_rank}", after=True)]
    if "DistributedSampler" not in module.aliases:
        edits.append(Import("torch.utils.data.distributed", "DistributedSampler"))
    return tuple(edits)


def shares_out(unit: Unit) -> bool:
    """Whether a loop, slice or class of the script goes by the world size."""
    for module in unit.modules:
        for node in [*module.nodes(ast.ClassDef), *module.nodes(ast.Subscript)]:
            if any(
                isinstance(item, ast.Name | ast.Attribute)
                and (item.id if isinstance(item, ast.Name) else item.attr)
                in ("world_size", "get_world_size", "local_rank")
                for item in below(node)
            ):
                return True
    return bool(
        [f for m in unit.modules for f in m.functions.values() if is_loader_of_shares(f.body)]
    )


def is_loader_of_shares(body: list[ast.stmt]) -> bool:
    """``for i in range(rank, n, world_size)``."""
    return any(
        isinstance(item, ast.Name | ast.Attribute)
        and (item.id if isinstance(item, ast.Name) else item.attr) == "world_size"
        for loop in within(body, ast.For)
        for item in below(loop.iter)
    )
