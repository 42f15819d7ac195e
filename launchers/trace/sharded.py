"""Read tensors of which each rank holds a part, as torch's FSDP2 and ZeRO leave them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def whole(tensor: Any) -> Any:
    """All of a tensor, gathered from the ranks where it is dealt among them: a collective."""
    gather = getattr(tensor, "full_tensor", None)
    return tensor if gather is None else gather()


def any_sharded(tensors: Iterable[Any]) -> bool:
    """Whether one of the tensors is dealt among the ranks."""
    return any(hasattr(tensor, "full_tensor") for tensor in tensors)
