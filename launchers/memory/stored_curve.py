"""A predicted curve as it is stored, with validation: another program may have written the file."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import attrs

from ..state_validators import not_negative
from .peak import PREDICTED


def _peaks(curve: Any, attribute: attrs.Attribute[Any], value: list[list[int]]) -> None:
    """Validate that each peak has the numbers of a prediction, and there is one a batch or none."""
    for peak in value:
        if len(peak) != PREDICTED or min(peak) < 0:
            raise ValueError(f"{peak} are no sizes of a peak")
    if len(value) != len(curve.batches) and (value or attribute.name == "peaks"):
        raise ValueError("the batches have not a peak each")
    if value and sum(value[-1]) <= sum(value[-2]):
        raise ValueError("it does not grow with the batch")


def _ascending(curve: Any, attribute: attrs.Attribute[Any], value: list[int]) -> None:
    if len(value) < 2 or value[0] < 1 or any(a >= b for a, b in pairwise(value)):
        raise ValueError(f"{value} are no batches")


@attrs.frozen
class StoredCurve:
    """The fields of `Curve`, each with its limits; each of the peaks is a list of numbers."""

    batches: list[int] = attrs.field(validator=_ascending)
    peaks: list[list[int]] = attrs.field(validator=_peaks)
    trainable: int = attrs.field(validator=not_negative)
    flops: int = attrs.field(validator=not_negative)
    moved: int = attrs.field(validator=not_negative)
    moved_once: int = attrs.field(validator=not_negative)
    accumulated: list[list[int]] = attrs.field(factory=list, validator=_peaks)

    @property
    def plain(self) -> dict[str, Any]:
        """The data that `Curve.from_json` takes."""
        return attrs.asdict(self)
