"""The one value of ``Config.batch_size``, ``self.lr`` or ``config["epochs"]``."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ....record import record
from ...source.module import Module, cached_per_module
from ..training.program import Program

CHANGES = ("update", "pop", "setdefault", "clear", "popitem")


@record
class Member:
    """The value of an attribute or a key; `name` is how its module may bind it again, or ""."""

    module: Module
    value: ast.expr
    name: str = ""


def member(program: Program, module: Module, expr: ast.expr) -> Member | None:
    """The only value that an attribute or a dict's key ever gets; None where that is unknown."""
    if isinstance(expr, ast.Attribute) and expr.attr not in program.options:
        return _attribute(program, module, expr)
    if isinstance(expr, ast.Subscript) and isinstance(expr.slice, ast.Constant):
        key = expr.slice.value
        return _key(program, module, expr, key) if isinstance(key, str) else None
    return None


def members(program: Program, module: Module, expr: ast.AST) -> Iterator[tuple[Module, ast.expr]]:
    """All values in bodies of classes, and of dicts, that an expression may stand for."""
    if isinstance(expr, ast.Attribute) and expr.attr not in program.options:
        for each in program.modules:
            yield from ((each, value) for _, value in _class_values(each).get(expr.attr, ()))
    elif isinstance(expr, ast.Subscript) and isinstance(expr.slice, ast.Constant):
        key = expr.slice.value
        for one in _dicts(module, expr.value):
            yield from ((module, value) for value in _values(one, key))


def _attribute(program: Program, module: Module, expr: ast.Attribute) -> Member | None:
    in_classes = [
        (each, owner, value)
        for each in program.modules
        for owner, value in _class_values(each).get(expr.attr, ())
    ]
    stores = [
        (each, target)
        for each in program.modules
        for target in each.attributes(expr.attr)
        if not isinstance(target.ctx, ast.Load)
    ]
    if "setattr" in (name for each in program.modules for name in each.called_names):
        return None
    found = program.resolve(module, expr.value)
    if found is not None and isinstance(found[1], ast.ClassDef):
        # self.x of another class is another thing
        in_classes = [one for one in in_classes if one[1] is found[1]]
        stores = [
            (each, target)
            for each, target in stores
            if not (isinstance(target.value, ast.Name) and target.value.id == "self")
            or each.enclosing_class(target) is found[1]
        ]
    if len(in_classes) == 1 and not stores:
        where, owner, value = in_classes[0]
        is_plain = not owner.decorator_list and not owner.keywords and not owner.bases
        is_top = where.parents[owner] is where.tree
        return Member(where, value, f"{owner.name}.{expr.attr}") if is_plain and is_top else None
    if len(stores) == 1 and not in_classes:
        where, target = stores[0]
        stmt = where.parents[target]
        if isinstance(stmt, ast.Assign) and stmt.targets == [target]:
            return Member(where, stmt.value)
    return None


@cached_per_module
def _class_values(module: Module) -> dict[str, list[tuple[ast.ClassDef, ast.expr]]]:
    """The values that bodies of classes give each name, with their classes."""
    found: dict[str, list[tuple[ast.ClassDef, ast.expr]]] = {}
    for owner in module.nodes(ast.ClassDef):
        for stmt in owner.body:
            targets = stmt.targets if isinstance(stmt, ast.Assign) else []
            if isinstance(stmt, ast.AnnAssign) and stmt.value is not None:
                targets = [stmt.target]
            for name in {each.id for each in targets if isinstance(each, ast.Name)}:
                assert isinstance(stmt, ast.Assign | ast.AnnAssign)
                assert stmt.value is not None
                found.setdefault(name, []).append((owner, stmt.value))
    return found


def _key(program: Program, module: Module, expr: ast.Subscript, key: str) -> Member | None:
    if not isinstance(expr.value, ast.Name):
        return None
    for each in program.modules:
        for other in each.nodes(ast.Subscript):
            is_key = isinstance(other.slice, ast.Constant) and other.slice.value == key
            of_dict = isinstance(other.value, ast.Name) and other.value.id == expr.value.id
            if not isinstance(other.ctx, ast.Load) and (is_key or of_dict):
                return None
        for call in each.calls_to(*CHANGES):
            if each.text(call.func).partition(".")[0] == expr.value.id:
                return None
    dicts = list(_dicts(module, expr.value))
    values = [value for one in dicts for value in _values(one, key)]
    if len(dicts) != 1 or len(values) != 1 or None in dicts[0].keys:
        return None
    is_top = module.function(dicts[0]) is None
    return Member(module, values[0], f'{expr.value.id}["{key}"]' if is_top else "")


def _dicts(module: Module, name: ast.expr) -> Iterator[ast.Dict]:
    """The dicts that a name is bound to, if it is bound once."""
    if not isinstance(name, ast.Name):
        return
    function = module.function(name)
    scope = function if (function, name.id) in module.stores else None
    value = module.single_assignment(scope, name.id)
    if isinstance(value, ast.Dict):
        yield value


def _values(one: ast.Dict, key: object) -> Iterator[ast.expr]:
    for each, value in zip(one.keys, one.values, strict=True):
        if isinstance(each, ast.Constant) and each.value == key:
            yield value
