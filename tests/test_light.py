"""What a check has in place of functools does as functools does."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from ddpfix.patcher import light

Made = Callable[[Callable[..., Any]], Any]


@pytest.mark.parametrize("made", [light.cached_property, functools.cached_property])
def test_a_property_is_computed_once_for_each_object(made: Made) -> None:
    class Item:
        """Has a property that counts."""

        def __init__(self, number: int) -> None:
            self.number, self.asked = number, 0

        @made
        def double(self) -> int:
            """Twice the number."""
            self.asked += 1
            if self.number < 0:
                raise ValueError(self.number)
            return 2 * self.number

    first, second = Item(1), Item(2)
    assert [first.double, first.double, second.double] == [2, 2, 4]
    assert [first.asked, second.asked] == [1, 1]
    assert vars(first)["double"] == 2
    assert type(Item.double) is made
    assert Item.double.__doc__ == "Twice the number."
    bad = Item(-1)
    for asked in (1, 2):  # a failure is not kept
        with pytest.raises(ValueError, match="-1"):
            bad.double  # noqa: B018 - it is computed
        assert bad.asked == asked


@pytest.mark.parametrize("made", [light.cache, functools.cache])
def test_a_function_is_asked_once_for_the_same_arguments(made: Made) -> None:
    asked: list[tuple[object, ...]] = []

    @made
    def total(*numbers: int) -> int:
        asked.append(numbers)
        if not numbers:
            raise ValueError("none")
        return sum(numbers)

    assert [total(1, 2), total(2, 1), total(1, 2), total(3)] == [3, 3, 3, 3]
    assert asked == [(1, 2), (2, 1), (3,)]
    for _ in range(2):
        with pytest.raises(ValueError, match="none"):
            total()
    assert asked[3:] == [(), ()]
