"""Records: what dataclass(frozen=True) promises, without its cost."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import pytest
from ddpfix.record import as_dict, fields_of, is_record, record, replace


@record
class Point:
    x: int
    y: int = 0

    @cached_property
    def sum(self) -> int:
        return self.x + self.y


@record
class Other:
    x: int
    y: int = 0


def test_fields_by_place_name_and_default() -> None:
    assert (Point(1).y, Point(1, 2).y, Point(y=3, x=1).y) == (0, 2, 3)
    assert Point(1, 2).sum == 3
    assert repr(Point(1, y=2)) == "Point(x=1, y=2)"


@pytest.mark.parametrize(
    ("args", "named"),
    [((), {}), ((1, 2, 3), {}), ((1,), {"x": 2}), ((1,), {"z": 2}), ((), {"y": 1})],
)
def test_wrong_fields_are_refused(args: tuple[int, ...], named: dict[str, int]) -> None:
    with pytest.raises(TypeError, match="Point"):
        Point(*args, **named)


def test_equality_is_of_class_and_fields() -> None:
    assert Point(1, 2) == Point(1, 2)
    assert Point(1, 2) != Point(1, 3)
    other: object = Other(1, 2)
    assert Point(1, 2) != other
    assert len({Point(1, 2), Point(1, 2), Other(1, 2)}) == 2


def test_records_do_not_change() -> None:
    point: Any = Point(1)
    with pytest.raises(AttributeError, match=r"Point\.x"):
        point.x = 2
    with pytest.raises(AttributeError, match=r"Point\.x"):
        del point.x
    assert replace(point, y=5) == Point(1, 5)
    assert point == Point(1)


def test_records_match_patterns() -> None:
    match Point(1, 2):
        case Point(1, y=two):
            assert two == 2
        case _:
            pytest.fail("no match")


@record
class Line:
    ends: tuple[Point, ...]
    names: dict[str, Point]


def test_records_are_told_from_other_data_and_taken_apart() -> None:
    line = Line((Point(1), Point(2)), {"a": Point(3, 4)})
    assert is_record(line)
    assert not any(map(is_record, (1, "x", None, True, [line], (line,), {"a": line})))
    assert fields_of(Point) == ("x", "y")
    assert as_dict(line) == {
        "ends": [{"x": 1, "y": 0}, {"x": 2, "y": 0}],
        "names": {"a": {"x": 3, "y": 4}},
    }
