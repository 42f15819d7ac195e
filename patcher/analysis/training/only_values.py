"""The only value that a name, or an attribute of the program's own, may have."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import parameters, same_code, within
from ..language.passed_arguments import argument_for_parameter
from .program import Program

MAX_DEPTH = 8


def origin(program: Program, module: Module, node: ast.expr) -> tuple[Module, ast.expr]:
    """Where a value comes from: through names, own attributes and the only caller, to its making.

    What it cannot follow it gives back as it stands.
    """
    for _ in range(MAX_DEPTH):
        found = None
        if isinstance(node, ast.Name):
            found = value_of(program, module, node)
        elif isinstance(node, ast.Attribute):
            owner = module.enclosing_class(node)
            values = [
                value
                for value in module.attribute_values.get(node.attr, ())
                if owner is not None and module.enclosing_class(value) is owner
            ]
            found = (module, values[0]) if len(values) == 1 and values[0] is not node else None
        if found is None:
            break
        module, node = found
    return module, node


def have_one_origin(
    program: Program, first: tuple[Module, ast.expr], second: tuple[Module, ast.expr]
) -> bool:
    """Whether two expressions surely are one object, or one number of the settings."""
    (here, one), (there, other) = origin(program, *first), origin(program, *second)
    if one is other:
        return True
    if isinstance(one, ast.Name) and isinstance(other, ast.Name):
        return (
            one.id == other.id
            and here is there
            and here.function(one) is there.function(other)
            and here.alternatives(one, one) == there.alternatives(other, other)
        )
    if isinstance(one, ast.Constant):
        return same_code(one, other)
    return (
        isinstance(one, ast.Attribute)
        and isinstance(other, ast.Attribute)
        and setting(here, one) == setting(there, other)
        and (here is there or not setting(here, one).startswith("self."))
    )


def setting(module: Module, node: ast.Attribute) -> str:
    """The text of an attribute, where ``self.args.size`` is ``args.size``."""
    text = module.text(node)
    kept = text.removeprefix("self.")
    return kept if "." in kept else text


def value_of(program: Program, module: Module, name: ast.Name) -> tuple[Module, ast.expr] | None:
    """The only value of a name: of its function, of the module, or of the only caller."""
    function = module.function(name)
    if (function, name.id) in module.stores:
        value = module.single_assignment(function, name.id) or value_before(module, name)
        return unpacked(program, module, name) if value is None else (module, value)
    if function is not None and name.id in parameters(function):
        callers = [place for place in program.callers(function) if program.is_live(*place)]
        if len(callers) != 1:
            return None
        where, call = callers[0]
        passed = argument_for_parameter(module, function, call, name.id)
        return None if passed is None else (where, passed)
    value = module.single_assignment(None, name.id)
    return None if value is None else (module, value)


def value_before(module: Module, name: ast.Name) -> ast.expr | None:
    """What ``steps`` is in ``steps = steps // ranks``, if lines above bind it in one way."""
    stmt = module.statement(name)
    stores = module.stores.get((module.function(name), name.id), ())
    holders = [module.parents[store] for store in stores]
    values = module.alternatives(name, name)
    is_bound_anew = stmt in holders and all(isinstance(each, ast.Assign) for each in holders)
    return values[0] if is_bound_anew and len(values) == 1 else None


def unpacked(program: Program, module: Module, name: ast.Name) -> tuple[Module, ast.expr] | None:
    """What ``total`` stands for by ``loader, total = load(data)``, if that alone binds it.

    A None that it is before does not count.
    """
    found: list[tuple[Module, ast.expr]] = []
    for store in module.stores.get((module.function(name), name.id), ()):
        holder, stmt = module.parents[store], module.statement(store)
        if not isinstance(holder, ast.Tuple) or not isinstance(stmt, ast.Assign):
            return None
        place = holder.elts.index(store)
        if isinstance(stmt.value, ast.Tuple) and len(stmt.value.elts) == len(holder.elts):
            value = stmt.value.elts[place]
            if not (isinstance(value, ast.Constant) and value.value is None):
                return None
        elif isinstance(stmt.value, ast.Call):
            found += returned(program, module, stmt.value, place, len(holder.elts))
        else:
            return None
    return found[0] if len(found) == 1 else None


def returned(
    program: Program, module: Module, call: ast.Call, place: int, count: int
) -> list[tuple[Module, ast.expr]]:
    """What a call returns at a place of a tuple."""
    return [
        (where, result.value.elts[place])
        for where, function in program.callees(module, call)
        for result in within(function.body, ast.Return)
        if isinstance(result.value, ast.Tuple) and len(result.value.elts) == count
    ]
