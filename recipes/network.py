"""The model that a family of scripts trains, in numbers: enough to build it without any hub.

The table ``[model]`` of a recipe. Its sizes are those of the Hugging Face configuration, where
`architecture` is the model type; `head` says what the family puts behind the encoder:

========== =====================================================================================
pair       one encoder reads both functions of a pair, a small classifier compares them
graph-pair the same with data-flow nodes: a mask of length x length, nodes averaged from tokens
anchor     two texts are pooled, projected and held against all others of the batch
detector   one text is classified, and its projection held against all others of the batch
========== =====================================================================================

A network of a script without a recipe is that of a config.json instead: `config` is its text,
`model_class` the class of transformers that the script makes from it, and `head` one of
GENERIC_HEADS:

============== =================================================================================
own            that of the class itself, with its loss: BertForSequenceClassification
none           no weights; the loss is of the encoder's states
classification one vector of each sequence is classified
tokens         every token is classified
language       every token is a choice from the vocabulary
read           what the script's own class does, by its source
============== =================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..record import fields_of, record

ARCHITECTURES = ("gpt2", "roberta", "xlm-roberta", "xlm-roberta-xl")
HEADS = ("pair", "graph-pair", "anchor", "detector")
GENERIC_HEADS = ("own", "none", "classification", "tokens", "language", "read")
OPTIMIZERS = ("adamw", "momentum", "sgd")
"""By what is kept for each weight: two numbers, one, or none."""
PRECISIONS = ("fp32", "bf16", "fp16")

Figure = str | int
"""A number, or the flag that has it as its value."""


@record
class Network:
    """The model's sizes, which with the batch determine a step's memory.

    `length` adds up to the tokens of one sequence; an example of all heads but the last has two.
    `weights` is the precision that weights are stored in; `precision`, where not empty, the one
    that the script always computes in. `checkpointing` and `lora` name the flags for these, or
    are true and the LoRA rank where the script always uses them. `projection` is the width of a
    projection. With a `config` the sizes are those in it, and `layers` is 0 unless fewer layers
    need nothing but a smaller number there; an example is one row of `sequences` of that length,
    and a decoder of its own learns `targets` tokens. `source` is JSON of
    `patcher.analysis.settings.model_source`; `lora_targets` are the names of the modules that
    LoRA adapts, between spaces, where the script says which.
    """

    architecture: str
    head: str
    vocabulary: int
    hidden: int
    layers: int
    heads: int
    intermediate: int
    positions: int
    length: tuple[Figure, ...]
    token_types: int = 1
    weights: str = "fp32"
    precision: str = ""
    projection: Figure = 0
    checkpointing: str | bool = "--gradient_checkpointing"
    lora: Figure = "--lora_r"
    config: str = ""
    model_class: str = ""
    optimizer: str = "adamw"
    sequences: int = 1
    targets: int = 0
    source: str = ""
    lora_targets: str = ""
    lora_dropout: float = 0.0


def figure_value(figure: Figure, arguments: Mapping[str, Any]) -> int:
    """The number of a figure, or the value of its flag, 0 where that is not passed."""
    return int(arguments.get(figure) or 0) if isinstance(figure, str) else figure


def numbers_of(network: Network) -> list[str]:
    """The fields that hold a number other than their default."""
    return [
        name
        for name in fields_of(Network)
        if type(value := getattr(network, name)) is int and value != getattr(Network, name, None)
    ]
