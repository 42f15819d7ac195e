"""The kinds of process that a rank test tells apart, and values for each of them."""

from __future__ import annotations

from enum import Enum
from typing import Any


class Role(Enum):
    """A kind of process."""

    SINGLE = "the only process"
    MAIN = "rank 0"
    OTHER = "the other ranks"


ROLES = tuple(Role)
UNKNOWN: Any = type("Unknown", (), {"__repr__": lambda _: "UNKNOWN"})()
Values = tuple[object, ...]  # one for each role, in the order of ROLES
ALL_UNKNOWN: Values = (UNKNOWN, UNKNOWN, UNKNOWN)
