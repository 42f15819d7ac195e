"""LoRA: small adapters are trained inside a frozen transformers model.

What         The transformers model that is trained, or that the trained module keeps as an encoder
             or decoder, gets low-rank adapters where it is constructed, before optimizer and DDP.
             Layers outside it, and its own head, are trained as before. Rank 0 prints the number
             of trainable parameters.
Flags        --lora_r: the rank of the adapters, 0 for none
             --lora_alpha: their outputs are scaled by lora_alpha / lora_r
             --lora_targets: the layers that get them; by default those that peft knows for the
             type of the model (query and value in RoBERTa, c_attn in GPT-2, q and v in T5), and
             all linear layers of a type that it does not know
Without      Every parameter has a gradient, two moments and its part in the all-reduce.
Fix safety   Safe: without the flag the call is not reached and peft is not imported. The script's
             own checkpoints hold the adapters along with all other weights, which keep their names:
             training can start from a checkpoint written without LoRA. A run that reads a
             checkpoint with adapters needs --lora_r; a folder that from_pretrained reads is
             searched for them. Rows that resize_token_embeddings adds are frozen, too.
Source       https://arxiv.org/abs/2106.09685;
             https://huggingface.co/docs/peft/developer_guides/low_level_api
"""

from collections.abc import Iterator

from ..analysis.training.program import Program
from ..editing.edits import Define
from ..findings import Finding
from ..source.tree import argument
from .flags import Flag
from .transformers_models import ModelEdit, ModelSite, add_after_models

ORDER = 15
FLAGS = (
    Flag("--lora_r", "int", "0", "Train adapters of this rank (LoRA), the model is frozen."),
    Flag("--lora_alpha", "int", "16", "Their outputs are scaled by lora_alpha / lora_r."),
    Flag("--lora_targets", "str", "None", "Layers that get them, comma separated, or all-linear."),
)
HELPER = "add_lora"


def findings(program: Program) -> Iterator[Finding]:
    yield from add_after_models(program, FLAGS, missing)


def missing(place: ModelSite) -> ModelEdit | None:
    """The call of the helper after a construction, unless it is already there."""
    module, model = place.construction.module, place.construction.name
    for call in place.calls_after(HELPER):
        passed = argument(call, 0, "model")
        if passed is not None and module.text(passed) == model:
            return None
    parts = ", ".join(place.names)
    code = f"if {place.args}.{FLAGS[0].name}:\n    {HELPER}({model}, [{parts}], {place.args})"
    return ModelEdit(f"all parameters of {place.names[0]} are trained", code, (Define(HELPER),))
