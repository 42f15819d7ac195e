"""Validate the values of a user's recipe.

The records of recipes.model validate nothing, so that ddpfix's own recipes load quickly. For each
of them there is an attrs class here with the same fields and validators, into which a user's recipe
is read first.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import attrs
from attrs import validators

from ..record import fields_of
from .model import OPTIONAL_TABLES, Batch, Data, Flags, Output, Recipe, figures_of
from .network import ARCHITECTURES, HEADS, PRECISIONS, Network

Check = Callable[[Any, Any, Any], Any]


def _flag(instance: Any, attribute: attrs.Attribute[Any], value: str) -> None:
    if not value.startswith("--") or "=" in value or len(value.split()) != 1:
        raise ValueError(
            f"{attribute.name} holds {value!r}, which is no flag: write it as '--name'"
        )


def _flags(instance: Any, attribute: attrs.Attribute[Any], value: dict[str, Any]) -> None:
    for flag in value:
        _flag(instance, attribute, flag)


def _positive(instance: Any, attribute: attrs.Attribute[Any], value: int) -> None:
    if value < 1:
        raise ValueError(f"{attribute.name} is {value}, but has to be 1 or more")


def _relative(instance: Any, attribute: attrs.Attribute[Any], value: str) -> None:
    if not value or Path(value).is_absolute():
        raise ValueError(f"{attribute.name} is {value!r}, but has to be a relative path")


def _share(instance: Any, attribute: attrs.Attribute[Any], value: float) -> None:
    if not 0 < value <= 1:
        raise ValueError(f"{attribute.name} is {value}, but has to be above 0 and at most 1")


def _flag_of_a_file(data: Any, attribute: attrs.Attribute[Any], value: str | None) -> None:
    if value is not None and value not in data.files:
        raise ValueError(f"{attribute.name} is {value!r}, which is none of files")


def _sources(recipe: Any, attribute: attrs.Attribute[Any], value: dict[str, Any]) -> None:
    figures = {*figures_of(recipe)}
    for figure in value:
        if figure not in figures:
            raise ValueError(f"sources names {figure!r}, which is no figure of this recipe")


def _figure(instance: Any, attribute: attrs.Attribute[Any], value: str | int) -> None:
    if isinstance(value, str) and not value.startswith("--"):
        raise ValueError(f"{attribute.name} holds {value!r}, which is no flag and no number")
    if isinstance(value, int) and value < 0:
        raise ValueError(f"{attribute.name} holds {value}, but has to be 0 or more")


def _figures(instance: Any, attribute: attrs.Attribute[Any], value: tuple[str | int, ...]) -> None:
    for figure in value:
        _figure(instance, attribute, figure)


def _head_count(network: Any, attribute: attrs.Attribute[Any], value: int) -> None:
    _positive(network, attribute, value)
    if network.hidden % value:
        raise ValueError(f"hidden is {network.hidden}, which {value} heads cannot share")


def _projection(network: Any, attribute: attrs.Attribute[Any], value: str | int) -> None:
    _figure(network, attribute, value)
    if network.head in ("anchor", "detector") and not value:
        raise ValueError(f"projection is missing, which head = {network.head!r} needs")


CHECKS: dict[type, dict[str, Check]] = {
    Flags: dict.fromkeys(fields_of(Flags), validators.optional(_flag)),
    Batch: dict.fromkeys(fields_of(Batch), _positive),
    Data: {
        "folder": _relative,
        "files": _flags,
        "train": _flag_of_a_file,
        "train_share": _share,
    },
    Output: {"folder": _relative},
    Network: {
        "architecture": validators.in_(ARCHITECTURES),
        "head": validators.in_(HEADS),
        "vocabulary": _positive,
        "hidden": _positive,
        "layers": _positive,
        "heads": _head_count,
        "intermediate": _positive,
        "positions": _positive,
        "length": _figures,
        "token_types": _positive,
        "weights": validators.in_(PRECISIONS),
        "precision": validators.in_(("", *PRECISIONS)),
        "projection": _projection,
        "lora": _figure,
    },
    Recipe: {
        "arguments": _flags,
        "if_declared": _flags,
        "out_of_memory": _flags,
        "sources": _sources,
    },
}


def _validated_class(record: type, checks: dict[str, Check]) -> type:
    kinds = get_type_hints(record)
    fields: dict[str, Any] = {}
    for name in fields_of(record):
        missing: Any = attrs.Factory(dict) if name in OPTIONAL_TABLES else attrs.NOTHING
        default = getattr(record, name, missing)
        fields[name] = attrs.field(type=kinds[name], default=default, validator=checks.get(name))
    return attrs.make_class(record.__name__, fields, frozen=True)


VALIDATED_CLASSES = {record: _validated_class(record, checks) for record, checks in CHECKS.items()}
"""The attrs class for each record."""
