"""Code that tells a sampler the epoch, or needs not to."""

from __future__ import annotations

import ast
from textwrap import indent

from ..analysis.training.constructed_loaders import Loader
from ..analysis.training.frameworks import DEALT_BATCHES, RANK_SAMPLERS
from ..analysis.training.train_loops import TrainLoop
from ..editing.edits import Define, Edit, Import, Insert, Rewrite
from ..source.branches import is_in
from ..source.module import Module
from ..source.tree import is_within, only_argument

LOADER_NAMES = ("train_loader", "epoch_loader")
"""For a loader without a name."""


def tell_epoch(sampler: str, kind: str, number: str = "") -> str:
    """The code that tells one sampler the epoch: ``number``, or the one behind its last."""
    return (
        f"if isinstance({sampler}, {kind}):\n"
        f"    {sampler}.set_epoch({number or f'{sampler}.epoch + 1'})"
    )


def kind_of_sampler(loader: Loader) -> str:
    """The name of the class that deals a loader's examples to ranks, as its module spells it."""
    if not loader.distributed_samplers:
        return "DistributedSampler"
    kind = loader.module.text(loader.distributed_samplers[0].func)
    if kind == "DealtSampler" or kind.rpartition(".")[2] not in RANK_SAMPLERS:
        return "DistributedSampler"
    return kind


def import_of(module: Module, kind: str) -> tuple[Edit, ...]:
    """The import that a test for a sampler's class needs."""
    if kind in module.aliases:
        return ()
    return (Import("torch.utils.data.distributed", "DistributedSampler"),)


def tell_each(loaders: str, kind: str, number: str = "") -> str:
    """The code that tells the samplers of all loaders of a list the epoch."""
    code = tell_epoch("each_loader.sampler", kind, number)
    return f"for each_loader in {loaders}:\n" + indent(code, "    ")


def drawn_anew(loop: TrainLoop) -> tuple[Edit, ...]:
    """Edits by which rank 0 draws the order where a function makes a loader in each call.

    As rank 0 draws on from call to call, no number is needed.
    """
    module, loader = loop.module, loop.loader
    if loader is None or len(loader.distributed_samplers) != 1 or loader.batch_size is None:
        return ()
    (sampler,) = loader.distributed_samplers
    is_made_again = is_within(loader.call, loop.steps.body)
    is_made_here = loader.module is module and module.function(loader.call) is module.function(
        loop.steps
    )
    is_made_here &= is_made_again or module.function(loader.call) is not None
    data = only_argument(sampler, "dataset")
    if not is_made_here or data is None or module.last_name(sampler.func) != "DistributedSampler":
        return ()
    drawn = f"torch.utils.data.RandomSampler({module.text(data)})"
    dealt = f"{DEALT_BATCHES}({drawn}, {module.text(loader.batch_size)})"
    return (Rewrite(sampler, dealt), Define(DEALT_BATCHES), Import("torch"))


def name_loader(loop: TrainLoop, kind: str, number: str) -> tuple[Edit, ...]:
    """Edits of ``for batch in DataLoader(…)`` that give the loader a name to set its epoch by.

    So are those of ``bar = tqdm(DataLoader(…))`` above the loop, and of a function that makes one.
    """
    module, loader = loop.module, loop.loader
    if loader is None or not isinstance(loop.steps, ast.For):
        return ()
    where, call = loader.made_by[-1] if loader.made_by else (loader.module, loader.call)
    if where is not module:
        return ()
    place = module.statement(call)
    is_above = isinstance(place, ast.Assign) and place in module.body(loop.steps)
    free = [name for name in LOADER_NAMES if name not in names_of(module)]
    if not (is_in(call, loop.steps.iter) or is_above) or not free:
        return ()
    name = free[0]
    code = f"{name} = {module.text(call)}\n" + tell_epoch(f"{name}.sampler", kind, number)
    return (Insert(place, code), Rewrite(call, name), *import_of(module, kind))


def names_of(module: Module) -> set[str]:
    """All names that a module binds or reads."""
    return {name.id for name in module.nodes(ast.Name)}
