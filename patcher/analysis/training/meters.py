"""Classes of a script that average what they are told: AverageMeter and its kin."""

from __future__ import annotations

import ast

from ....record import record
from ...source.module import Module
from ...source.tree import Function, everywhere, parameters
from ..language.call_graph import CallGraph


@record
class Meter:
    """What update() of a class does to its attributes.

    ``sums`` are added to, ``means`` are made of sums, each with its text where ``{0}`` is the
    meter, and ``last`` hold what the last call was passed.
    """

    sums: tuple[str, ...]
    means: tuple[tuple[str, str], ...]
    last: tuple[str, ...]


def meter_of(graph: CallGraph, module: Module, value: ast.expr) -> Meter | None:
    """The meter that an expression constructs; None where it is none that can be added up."""
    if not isinstance(value, ast.Call):
        return None
    for where, function in graph.callees(module, value):
        owner = where.parents[function]
        if function.name == "__init__" and isinstance(owner, ast.ClassDef) and not owner.bases:
            return read_meter(where, owner)
    return None


def read_meter(module: Module, owner: ast.ClassDef) -> Meter | None:
    """What update() of a class does, where it does nothing but count."""
    update = next((f for f in owner.body if isinstance(f, Function) and f.name == "update"), None)
    if update is None:
        return None
    sums: list[str] = []
    means: list[tuple[str, str]] = []
    last: list[str] = []
    for stmt in update.body:
        match stmt:
            case ast.Expr(value=ast.Constant()):
                pass
            case ast.AugAssign(target=ast.Attribute() as target, op=ast.Add()):
                if reads_self(stmt.value):
                    return None
                sums.append(target.attr)
            case ast.Assign(targets=[ast.Attribute() as target]):
                names = attributes_of_self(stmt.value)
                if not names and not reads_self(stmt.value):
                    last.append(target.attr)
                elif names <= {*sums} and not reads_others(update, stmt.value):
                    text = " ".join(module.text(stmt.value).replace("self.", "{0}.").split())
                    means.append((target.attr, text))
                else:
                    return None
            case _:
                return None
    return Meter(tuple(sums), tuple(means), tuple(last)) if sums else None


def attributes_of_self(node: ast.expr) -> set[str]:
    """``sum`` and ``count`` of ``self.sum / self.count``."""
    return {
        each.attr
        for each in everywhere(node, ast.Attribute)
        if isinstance(each.value, ast.Name) and each.value.id == "self"
    }


def reads_self(node: ast.expr) -> bool:
    """Whether an expression reads the object."""
    return any(name.id == "self" for name in everywhere(node, ast.Name))


def reads_others(update: Function, node: ast.expr) -> bool:
    """Whether an expression reads what update() is passed, or calls anything."""
    passed = parameters(update) - {"self"}
    return any(name.id in passed for name in everywhere(node, ast.Name)) or any(
        everywhere(node, ast.Call)
    )
