"""Validators of what attrs classes hold of state files, apart from cattrs, which imports slowly."""

from __future__ import annotations

from typing import Any

import attrs


def positive(instance: Any, attribute: attrs.Attribute[Any], value: float | None) -> None:
    """Validate that a number is above 0, if there is one."""
    if value is not None and value <= 0:
        raise ValueError(f"{attribute.name} is {value!r}, but has to be above 0")


def not_negative(instance: Any, attribute: attrs.Attribute[Any], value: float | None) -> None:
    """Validate that a number is 0 or above, if there is one."""
    if value is not None and value < 0:
        raise ValueError(f"{attribute.name} is {value!r}, but has to be 0 or above")
