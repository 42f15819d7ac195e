"""Tables of functions and classes: what ``TABLE[key](…)`` may call."""

from __future__ import annotations

import ast

from ...source.module import Module, Resolver, cached_per_module


def table_bases(module: Module, func: ast.expr) -> list[ast.Name]:
    """``TABLE`` of ``TABLE[key](…)`` and ``TABLE.get(key)(…)``, also of ``made = TABLE[key]``."""
    if isinstance(func, ast.Name):
        value = module.definition(func, func)
        return [] if value is None or isinstance(value, ast.Name) else table_bases(module, value)
    match func:
        case ast.Subscript(value=ast.Name() as base):
            return [base]
        case ast.Call(func=ast.Attribute(value=ast.Name() as base, attr="get")):
            return [base]
    return []


@cached_per_module
def calls_by_table(module: Module) -> dict[str, list[tuple[ast.Call, ast.Name]]]:
    """The calls ``TABLE[key](…)`` of a module by the name of their table, and that name in each."""
    found: dict[str, list[tuple[ast.Call, ast.Name]]] = {}
    for call in module.nodes(ast.Call):
        for base in table_bases(module, call.func):
            found.setdefault(base.id, []).append((call, base))
    return found


def table_of(graph: Resolver, module: Module, base: ast.Name) -> tuple[Module, ast.AST] | None:
    """What a table's name stands for: of the function, of the module, or of another module."""
    value = module.single_assignment(module.function(base), base.id)
    value = value or module.single_assignment(None, base.id)
    return graph.resolve(module, base) if value is None else (module, value)


def is_table(graph: Resolver, module: Module, base: ast.Name, table: ast.AST) -> bool:
    """Whether a name stands for this table."""
    found = table_of(graph, module, base)
    return found is not None and found[1] is table


def items_of(table: ast.AST) -> list[ast.expr]:
    """The values of a dict, or the elements of a list or tuple, that is written out."""
    match table:
        case ast.Dict(values=items) | ast.List(elts=items) | ast.Tuple(elts=items):
            return items
    return []


def items_of_call(graph: Resolver, module: Module, func: ast.expr) -> list[tuple[Module, ast.expr]]:
    """What ``TABLE[key](…)`` picks one of, each with the module that has the table."""
    found = [table_of(graph, module, base) for base in table_bases(module, func)]
    return [(each[0], item) for each in found if each for item in items_of(each[1])]


def modules_of_table(graph: Resolver, module: Module, picked: ast.expr) -> set[Module]:
    """The modules that a table holds: ``TABLE[key]`` of ``TABLE[key].Model(…)``, ``self.table``."""
    tables = [table_of(graph, module, base) for base in table_bases(module, picked)]
    if isinstance(picked, ast.Subscript) and isinstance(picked.value, ast.Attribute):
        values = module.attribute_values.get(picked.value.attr, ())
        tables += [(module, value) for value in values]
    found = [
        graph.resolve(each[0], item)
        for each in tables
        if each is not None
        for item in items_of(each[1])
        if isinstance(item, ast.Name | ast.Attribute)
    ]
    return {each[0] for each in found if each is not None and each[1] is each[0].tree}
