"""Frozen records like ``dataclass(frozen=True)``, without generating code for each class.

Generating the code of many dataclasses or attrs classes would slow down every start. Classes that
are read from a user's file use attrs, which validates their values.
"""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar, dataclass_transform

Class = TypeVar("Class", bound=type)
Instance = TypeVar("Instance")


@dataclass_transform(frozen_default=True)
def record(cls: Class) -> Class:
    """Give a class a constructor, equality, a hash and a text from its annotated fields.

    Fields may have defaults. Assigning to a field raises AttributeError.
    """
    names = tuple(cls.__annotations__)
    fields = set(names)
    defaults = {name: cls.__dict__[name] for name in names if name in cls.__dict__}
    default_values = tuple(defaults.values())  # of the last fields
    most = len(names)
    fewest = most - len(default_values)

    def construct(self: Any, *args: Any, **named: Any) -> None:
        if not named and fewest <= len(args) <= most:
            if len(args) < most:
                args += default_values[len(args) - fewest :]
            self.__dict__.update(zip(names, args, strict=True))
            return
        positional = dict(zip(names, args, strict=False))
        if len(args) > most or not positional.keys().isdisjoint(named):
            raise TypeError(f"{cls.__name__}: a field is given twice, or too many are")
        state = {**defaults, **positional, **named}
        if state.keys() != fields:
            wrong = ", ".join(sorted(state.keys() ^ fields))
            raise TypeError(f"{cls.__name__}: fields missing or unknown: {wrong}")
        self.__dict__.update(state)

    def equal(self: Any, other: object) -> bool:
        return values(self) == values(other) if type(other) is cls else NotImplemented

    def digest(self: Any) -> int:
        return hash((cls, *values(self)))

    def text(self: Any) -> str:
        pairs = ", ".join(f"{name}={self.__dict__[name]!r}" for name in names)
        return f"{cls.__name__}({pairs})"

    def refuse(self: Any, name: str, *value: object) -> NoReturn:
        raise AttributeError(f"{cls.__name__}.{name}: records do not change")

    methods: dict[str, object] = {"init": construct, "eq": equal, "hash": digest, "repr": text}
    methods |= {"setattr": refuse, "delattr": refuse, "match_args": names}
    for name, value in methods.items():
        setattr(cls, f"__{name}__", value)
    return cls


def values(item: Any) -> tuple[Any, ...]:
    """The values of a record's fields, in order."""
    return tuple([item.__dict__[name] for name in item.__match_args__])


def fields_of(cls: type) -> tuple[str, ...]:
    """The names of a record's fields, in order."""
    names: tuple[str, ...] = cls.__match_args__  # type: ignore[attr-defined]
    return names


def is_record(value: object) -> bool:
    """Whether a value is a record, as opposed to a tuple or to data of JSON or TOML."""
    return hasattr(value, "__match_args__")


def as_dict(item: Any) -> dict[str, Any]:
    """A record as a dictionary, nested records too, and tuples as lists."""
    return {name: _plain(item.__dict__[name]) for name in item.__match_args__}


def _plain(value: Any) -> Any:
    if is_record(value):
        return as_dict(value)
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return value


def replace(item: Instance, **fields: Any) -> Instance:
    """A copy of a record with other values in some fields."""
    cls = type(item)
    args = [fields.pop(name, item.__dict__[name]) for name in cls.__annotations__]
    return cls(*args, **fields)  # unknown names raise TypeError
