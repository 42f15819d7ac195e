"""The sampler deals the same order in every epoch.

What         A DistributedSampler serves several epochs, and nothing calls set_epoch.
At run time  Epoch 2 repeats the order of epoch 1; nothing warns.
Example      for epoch in range(epochs): for batch in train_dataloader: …
Fix          Call set_epoch at the head of the epoch loop.
Fix safety   Safe: only a distributed run has a DistributedSampler.
Source       torch.utils.data.distributed.DistributedSampler
"""

import ast
from collections.abc import Iterator

from ..analysis.loaders import argument_for_parameter
from ..analysis.program import Program
from ..analysis.train_loops import TrainLoop, calls_around
from ..editing.edits import Import, Insert
from ..findings import Finding, Safety, Severity
from ..source.module import Module
from ..source.tree import Function, bound_names, within

CODE, SEVERITY, SAFETY = "DF402", Severity.DEGRADED, Safety.SAFE


CountingLoop = tuple[ast.For, str]


def findings(program: Program) -> Iterator[Finding]:
    for loop in program.train_loops:
        if calls_set_epoch(loop.module, loop.scope):
            continue
        if loop.loader is not None and loop.loader.cycle is not None:
            yield Finding(
                loop.module,
                loop.loader.cycle,
                "cycle() keeps the first epoch's batches and deals them again, alone too",
                severity=Severity.NOTE,
            )
            continue
        loader, place = loop.loader, epoch_loop(program, loop)
        if loader is None or place is None:
            if (loader and loader.distributed) or loop.module.calls_to("DistributedSampler"):
                yield Finding(loop.module, loop.steps, "there is no epoch loop to call it from")
            continue
        module, (epochs, number), name = place
        if not loader.distributed or calls_set_epoch(module, epochs.body):
            continue
        kind = loader.module.text(loader.distributed[0].func)
        deal = f"{name}.sampler"
        code = f"if isinstance({deal}, {kind}):\n    {deal}.set_epoch({number})"
        inside = module is loop.module and name in map(str, bound_names(epochs))
        at = Insert(loop.steps, code) if inside else Insert(epochs, code, "first")
        imports = (
            ()
            if kind in module.aliases
            else (Import("torch.utils.data.distributed", "DistributedSampler"),)
        )
        yield Finding(
            module,
            epochs,
            f"{name} is shuffled by a {kind} that never learns the epoch",
            (at, *imports),
        )


def calls_set_epoch(module: Module, body: list[ast.stmt]) -> bool:
    if not module.attributes("set_epoch"):
        return False
    return any(node.attr == "set_epoch" for node in within(body, ast.Attribute))


def epoch_loop(program: Program, loop: TrainLoop) -> tuple[Module, CountingLoop, str] | None:
    """The loop that counts epochs, around the steps or around the one call of their function.

    With its module, and the name that the loader has there.
    """
    module, loader = loop.module, loop.loader
    if loader is None:
        return None
    here = counting_loop(module, loop.steps)
    function = module.function(loop.steps)
    if here is not None:
        return module, here, loader.name
    if function is None:
        return None
    callers = program.callers(function)
    if len(callers) != 1:
        return None
    where, call = callers[0]
    around = counting_loop(where, call)
    value = argument_for_parameter(module, function, call, loader.name)
    if around is None or not (value is not None or loader.name.startswith("self.")):
        return None
    return where, around, loader.name if value is None else where.text(value)


def counting_loop(module: Module, node: ast.AST) -> CountingLoop | None:
    """The innermost loop around ``node``, in its function, that counts, and the name it counts in.

    That name is plain, or the first that enumerate gives.
    """
    for up in module.ancestors(node):
        if isinstance(up, Function):
            return None
        if not isinstance(up, ast.For) or not is_counting(module, up.iter):
            continue
        target = up.target.elts[0] if isinstance(up.target, ast.Tuple) else up.target
        if isinstance(target, ast.Name):
            return up, target.id
    return None


def is_counting(module: Module, source: ast.expr | None) -> bool:
    """``range(n)``, ``trange(n)``, or that in ``tqdm`` or ``enumerate``, or under a name."""
    return any(name in ("range", "trange", "count") for name, _ in calls_around(module, source))
