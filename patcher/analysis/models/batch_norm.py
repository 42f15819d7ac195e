"""Whether a program's models have batch norm, with averages of each rank's own batches."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ...source.module import Module
from ..language.liveness import looks_up_modules
from ..training.program import Program

LAYERS = ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d")
# Of torchvision's models, by their names: those that have batch norm.
MODELS = re.compile(
    r"(wide_)?resne[xt]|densenet|mobilenet|efficientnet|shufflenet|mnasnet|googlenet|inception"
    r"|regnet|xception|vgg\d+_bn"
)

# Layers of other libraries, or of the script, that share statistics among DataParallel's cards.
OF_CARDS = (
    *("SynchronizedBatchNorm1d", "SynchronizedBatchNorm2d", "SynchronizedBatchNorm3d"),
    *("SynchronizedBatchNorm", "InPlaceABNSync", "BatchNorm2dSync"),
)


def norms_by_batch(program: Program) -> bool:
    """Whether some model has batch norm that is not made one over all ranks."""
    if program.calls_to("convert_sync_batchnorm", "SyncBatchNorm"):
        return False
    return any(batch_norm_layers(program)) or any(known_models(program))


def batch_norm_layers(program: Program) -> Iterator[tuple[Module, ast.Call]]:
    """Constructions of BatchNorm layers that the program may run, also by computed names."""
    by_name = looks_up_modules(program)
    for module, call in program.calls_to(*LAYERS):
        if module.function(call) is None or by_name or program.is_live(module, call):
            yield module, call


def known_models(program: Program) -> Iterator[ast.Call]:
    """Constructions of torchvision's models that have batch norm."""
    for module in program.modules:
        for name in filter(MODELS.match, module.called_names):
            for call in module.calls_to(name):
                if module.dotted(call.func).startswith("torchvision.models."):
                    yield call


def norms_of_cards(program: Program) -> Iterator[tuple[Module, ast.Name | ast.Attribute]]:
    """Reads of a batch norm that is one over the cards of a DataParallel, where a model has it."""
    for module in program.modules:
        for use in module.occurrences(*OF_CARDS):
            up = module.parents[use]
            asked = isinstance(up, ast.Call) and module.last_name(up.func) in (
                "isinstance",
                "super",
            )
            if isinstance(use.ctx, ast.Load) and not isinstance(up, ast.ClassDef) and not asked:
                yield module, use
