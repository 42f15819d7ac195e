"""Gradient checkpointing: activations are computed again in the backward pass, not kept.

What         The transformers model that is trained, or that the trained module keeps as an encoder
             or decoder, gets its own gradient_checkpointing_enable().
Flags        --gradient_checkpointing
Without      Activations of all layers stay in memory from the forward to the backward pass: the
             batch that fits is several times smaller.
Fix safety   Safe: without the flag the call is not reached. With it the losses are the same and a
             step takes about a third longer. use_reentrant is off, because DDP counts gradients
             with hooks that a reentrant backward pass runs twice.
Source       https://docs.pytorch.org/docs/stable/checkpoint.html;
             transformers.PreTrainedModel.gradient_checkpointing_enable
"""

import ast
from collections.abc import Iterator

from ..analysis.training.program import Program
from ..findings import Finding
from .flags import Flag
from .transformers_models import ModelEdit, ModelSite, add_after_models

ORDER = 20
FLAGS = (
    Flag(
        "--gradient_checkpointing",
        "bool",
        "False",
        "Compute activations again in the backward pass: less memory, slower steps.",
    ),
)
METHOD = "gradient_checkpointing_enable"


def findings(program: Program) -> Iterator[Finding]:
    yield from add_after_models(program, FLAGS, missing)


def missing(place: ModelSite) -> ModelEdit | None:
    """The call for the models of a construction that do not have it yet."""
    module = place.construction.module
    enabled = {
        module.text(call.func.value)
        for call in place.calls_after(METHOD)
        if isinstance(call.func, ast.Attribute)
    }
    names = [name for name in place.names if name not in enabled]
    if not names:
        return None
    calls = (
        f"    {name}.{METHOD}(gradient_checkpointing_kwargs={{'use_reentrant': False}})"
        for name in names
    )
    code = "\n".join((f"if {place.args}.{FLAGS[0].name}:", *calls))
    return ModelEdit(f"{names[0]} keeps all activations", code)
