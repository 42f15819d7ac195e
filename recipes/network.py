"""The model that a family of scripts trains, in numbers: enough to build it without any hub.

The table ``[model]`` of a recipe. Its sizes are those of the Hugging Face configuration, where
`architecture` is the model type; `head` says what the family puts behind the encoder:

========== =====================================================================================
pair       one encoder reads both functions of a pair, a small classifier compares them
graph-pair the same with data-flow nodes: a mask of length x length, nodes averaged from tokens
anchor     two texts are pooled, projected and held against all others of the batch
detector   one text is classified, and its projection held against all others of the batch
========== =====================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from attrs import validators

ARCHITECTURES = ("gpt2", "roberta", "xlm-roberta", "xlm-roberta-xl")
HEADS = ("pair", "graph-pair", "anchor", "detector")
PRECISIONS = ("fp32", "bf16", "fp16")

Figure = str | int
"""A number, or the flag whose number counts."""


def _figures(instance: object, attribute: attrs.Attribute[Any], value: tuple[Figure, ...]) -> None:
    for figure in value:
        _figure(instance, attribute, figure)


def _figure(instance: object, attribute: attrs.Attribute[Any], value: Figure) -> None:
    if isinstance(value, str) and not value.startswith("--"):
        raise ValueError(f"{attribute.name} holds {value!r}, which is no flag and no number")
    if isinstance(value, int) and value < 0:
        raise ValueError(f"{attribute.name} holds {value}, but has to be 0 or more")


def _at_least_one(instance: object, attribute: attrs.Attribute[Any], value: int) -> None:
    if value < 1:
        raise ValueError(f"{attribute.name} is {value}, but has to be 1 or more")


@attrs.frozen
class Network:
    """What a step's memory depends on, beside the batch.

    `length` adds up to the tokens of one sequence; an example of all heads but the last has two.
    `weights` is the precision they are kept in; `precision`, where given, is what the script
    computes in whatever it is told. `checkpointing` and `lora` name the flags for it, or are true
    and the rank where the script always does it. `projection` is the width of a projection.
    """

    architecture: str = attrs.field(validator=validators.in_(ARCHITECTURES))
    head: str = attrs.field(validator=validators.in_(HEADS))
    vocabulary: int = attrs.field(validator=_at_least_one)
    hidden: int = attrs.field(validator=_at_least_one)
    layers: int = attrs.field(validator=_at_least_one)
    heads: int = attrs.field(validator=_at_least_one)
    intermediate: int = attrs.field(validator=_at_least_one)
    positions: int = attrs.field(validator=_at_least_one)
    length: tuple[Figure, ...] = attrs.field(validator=_figures)
    token_types: int = attrs.field(default=1, validator=_at_least_one)
    weights: str = attrs.field(default="fp32", validator=validators.in_(PRECISIONS))
    precision: str = attrs.field(default="", validator=validators.in_(("", *PRECISIONS)))
    projection: Figure = attrs.field(default=0, validator=_figure)
    checkpointing: str | bool = "--gradient_checkpointing"
    lora: Figure = attrs.field(default="--lora_r", validator=_figure)

    def __attrs_post_init__(self) -> None:
        if self.hidden % self.heads:
            raise ValueError(f"hidden is {self.hidden}, which {self.heads} heads cannot share")
        if self.head in ("anchor", "detector") and not self.projection:
            raise ValueError(f"projection is missing, which head = {self.head!r} needs")


def number(figure: Figure, arguments: Mapping[str, Any]) -> int:
    """A figure's number: its own, or that of its flag, which is 0 where it is not given."""
    return int(arguments.get(figure) or 0) if isinstance(figure, str) else figure


def numbers_of(network: Network) -> list[str]:
    """The fields that hold a number other than their default."""
    return [
        field.name
        for field in attrs.fields(Network)
        if type(value := getattr(network, field.name)) is int and value != field.default
    ]
