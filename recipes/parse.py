"""Parse and validate the text of a user's recipe."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from functools import partial
from operator import eq
from typing import Any, cast

import attrs
import cattrs
from cattrs.v import format_exception as cattrs_text

from ..errors import InputError
from ..record import replace
from .model import Recipe, Value
from .network import Figure
from .validation import VALIDATED_CLASSES


def parse(text: str, *, source: str, name: str) -> Recipe:
    """Turn the text of a TOML file into a recipe; error messages begin with `source`.

    Raises:
        InputError: as for `load`.

    """
    try:
        document = tomllib.loads(text)
    except ValueError as error:  # also of integers with thousands of digits
        raise InputError(f"{source}: no valid TOML: {error}") from None
    except RecursionError:
        raise InputError(f"{source}: nested too deeply for a recipe: tables hold values") from None
    if "name" in document:
        raise InputError(f"{source}: field name: a recipe is named by its file, leave this out")
    try:
        recipe = _CONVERTER.structure(document, Recipe)
    except RecursionError:
        raise InputError(f"{source}: nested too deeply for a recipe: tables hold values") from None
    except (cattrs.BaseValidationError, ValueError, TypeError) as error:
        # The message is one line: only the first error.
        message = cattrs.transform_error(error, path="", format_exception=_error_text)[0]
        raise InputError(f"{source}: {_field_first(message)}") from None
    return replace(recipe, name=name)


def _error_text(error: BaseException, kind: type | None) -> str:
    """The text of an error of our own hooks and validators, else cattrs' text."""
    return str(error) if type(error) in (ValueError, TypeError) else cattrs_text(error, kind)


def _field_first(message: str) -> str:
    """'text @ .batch.cap' as 'field batch.cap: text'."""
    text, _, path = message.rpartition(" @ ")
    return f"field {path.lstrip('.')}: {text}" if path.lstrip(".") else text


_KINDS: dict[type, str] = {
    str: "a string",
    int: "a whole number",
    float: "a number with a point",
    bool: "true or false",
}


def _strict(kind: type) -> Callable[[Any, Any], Any]:
    # cattrs would convert 16.5 to 16 and 16 to "16".
    def structure(value: Any, _: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(f"{value!r} is not {_KINDS[kind]}")
        _refuse_above_64_bits(value)
        return value

    return structure


def _refuse_above_64_bits(value: Any) -> None:
    """Raise ValueError for integers that TOML does not promise; thousands of digits print badly."""
    if isinstance(value, int) and abs(value) >= 1 << 63:
        raise ValueError("the number is too large: TOML's integers have 64 bits")


def _value(value: Any, _: Any) -> Value:
    if not isinstance(value, (str, int, float)) or value is False:
        raise TypeError(f"{value!r} is neither text nor a number nor true: leave it out")
    _refuse_above_64_bits(value)
    return value


def _figure(value: Any, _: Any) -> Figure:
    if type(value) not in (str, int):
        raise TypeError(f"{value!r} is neither a flag nor a whole number")
    _refuse_above_64_bits(value)
    return cast(Figure, value)


def _figures(value: Any, _: Any) -> tuple[Figure, ...]:
    if not isinstance(value, list) or not value:
        raise TypeError(f"{value!r} is not a list of flags and whole numbers")
    return tuple(_figure(figure, _) for figure in value)


def _switch(value: Any, _: Any) -> str | bool:
    if type(value) not in (str, bool):
        raise TypeError(f"{value!r} is neither a flag nor true nor false")
    return cast(str | bool, value)


def _names(value: Any, _: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise TypeError(f"{value!r} is not a list of strings")
    return tuple(value)


def _as_record(converter: cattrs.Converter, read: type) -> Callable[[Any, Any], Any]:
    def structure(value: Any, kind: Any) -> Any:
        return kind(**attrs.asdict(converter.structure(value, read), recurse=False))

    return structure


def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True)
    for kind in _KINDS:
        converter.register_structure_hook(kind, _strict(kind))
    # These are no classes, which cattrs could dispatch on, and so are found by comparison.
    others: dict[Any, Callable[[Any, Any], Any]] = {
        tuple[str, ...]: _names,
        tuple[Figure, ...]: _figures,
        Value: _value,
        Figure: _figure,
        str | bool: _switch,
    }
    for other, structure in others.items():
        converter.register_structure_hook_func(partial(eq, other), structure)
    for kind, read in VALIDATED_CLASSES.items():
        converter.register_structure_hook(kind, _as_record(converter, read))
    return converter


_CONVERTER = _converter()
