"""Turn the data of state files into attrs classes, strictly: a wrong type or size is an error.

Not used where there are no such files, as cattrs takes a while to import.
"""

from __future__ import annotations

from typing import Any, TypeVar

import cattrs
from cattrs.v import format_exception

Kind = TypeVar("Kind")

LARGEST = 1 << 62
"""The limit of whole numbers: ours are bytes, steps and seconds."""


def structure(data: Any, kind: type[Kind]) -> Kind:
    """The data as `kind`; raises ValueError, whose message names the first field that is wrong."""
    try:
        return _CONVERTER.structure(data, kind)
    except (cattrs.BaseValidationError, ValueError, TypeError, RecursionError) as error:
        first = cattrs.transform_error(error, path="", format_exception=_text)[0]
        text, _, path = first.rpartition(" @ ")
        field = path.lstrip(".")
        raise ValueError(f"field {field}: {text}" if field else text) from None


def _text(error: BaseException, kind: type | None) -> str:
    return str(error) if type(error) in (ValueError, TypeError) else format_exception(error, kind)


def _whole(value: Any, _: Any) -> int:
    if type(value) is not int or abs(value) > LARGEST:
        raise TypeError(f"{_short(value)} is no whole number of ours")
    return value


def _number(value: Any, _: Any) -> float:
    if type(value) not in (int, float) or abs(value) > LARGEST:
        raise TypeError(f"{_short(value)} is no number of ours")
    return float(value)


def _string(value: Any, _: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{_short(value)} is no text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{_short(value)} is no Unicode") from None
    return value


def _switch(value: Any, _: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{_short(value)} is neither true nor false")
    return value


def _short(value: Any) -> str:
    if isinstance(value, int) and abs(value) > LARGEST:
        return "a number of many digits"  # which Python may refuse to write
    text = ascii(value)
    return text if len(text) < 40 else f"{text[:40]}…"


def _converter() -> cattrs.Converter:
    converter = cattrs.Converter()  # other fields may be there: a later version may have more
    hooks: dict[type, Any] = {int: _whole, float: _number, str: _string, bool: _switch}
    for kind, hook in hooks.items():
        converter.register_structure_hook(kind, hook)
    return converter


_CONVERTER = _converter()
