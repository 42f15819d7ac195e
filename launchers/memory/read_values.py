"""What the source of a model is followed with: its objects, options, and values not known."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import nn

PLAIN = (int, float, str, bool, type(None), torch.dtype)
SEQUENCES = (list, tuple, range, torch.Size)


class Unread(ValueError):  # noqa: N818 - it says what the source holds
    """Source that is not followed."""

    is_placed = False  # the method that it stands in is named


class Misfit(Unread):
    """Arguments of a shape that the class cannot work with."""


class UnreadValue:
    """A value that is not known; whatever needs it is Unread."""

    def __init__(self, name: str) -> None:
        self.name = name


class Options:
    """The parsed arguments: those whose values are known."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values


class Caller(Protocol):
    """What follows a method of an object."""

    def call_method(
        self, part: Part, name: str, arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> Any:
        """The value that the method returns."""


class Part(nn.Module):
    """An object of one of the program's classes."""

    def __init__(self, reader: Caller, source: ast.ClassDef) -> None:
        super().__init__()
        self.read_by, self.class_read = reader, source

    def forward(self, *arguments: Any, **named: Any) -> Any:
        return self.read_by.call_method(self, "forward", arguments, named)


def known_value(value: Any) -> Any:
    if isinstance(value, UnreadValue):
        raise Unread(f"`{value.name}` is not known")
    return value


def method_of(source: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next((x for x in source.body if isinstance(x, ast.FunctionDef) and x.name == name), None)


def first_line(node: ast.AST) -> str:
    return ast.unparse(node).partition("\n")[0]
