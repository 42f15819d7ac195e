"""The name that a statement gives to the result of a call, or to a part of it."""

from __future__ import annotations

import ast

from ...source.module import Module, Resolver
from ...source.tree import is_elif, is_inside, parameters, within


def spelled_name(module: Module, node: ast.expr) -> str:
    """``a`` or ``a.b`` as it is spelled; empty for any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    inner = node
    while isinstance(inner, ast.Attribute):
        inner = inner.value
    return module.text(node) if isinstance(inner, ast.Name) else ""


def name_of_result(module: Module, call: ast.Call) -> str:
    """The name, or attribute of an object in a name, that gets a call's result; empty if none does.

    In ``x = f()`` and ``obj.x = f()``, and in ``if (x := f()) > 1:``. An object's own attribute is
    none, as ``self`` is another object in each class. Of ``x, rest = parser.parse_known_args()`` it
    is the first.
    """
    holder = module.parents[call]
    if module.last_name(call.func) == "parse_known_args":
        match holder:
            case ast.Assign(targets=[ast.Tuple(elts=[target, _])]):
                return spelled_name(module, target)
            case ast.Subscript(slice=ast.Constant(value=0)):
                around = module.parents[holder]
                if isinstance(around, ast.Assign) and around.value is holder:
                    return spelled_name(module, around.targets[0])
        return ""
    match holder:
        case ast.Assign(targets=[target, *_], value=value) if value is call:
            name = spelled_name(module, target)
            return "" if name.startswith("self.") else name
        case ast.NamedExpr(target=ast.Name(id=name)):
            return name if binds_first(module, module.statement(call), holder) else ""
    return ""


def binds_first(module: Module, stmt: ast.stmt, binding: ast.NamedExpr) -> bool:
    """Whether a binding is what the head of a statement does first, whatever the head finds out.

    So that it can as well be a statement above.
    """
    head: ast.expr | None
    match stmt:
        case ast.If(test=head) if not is_elif(module.parents[stmt], stmt):
            pass
        case ast.For(iter=head) | ast.With(items=[ast.withitem(context_expr=head), *_]):
            pass
        case _:
            return False
    while head is not binding:
        match head:
            case ast.Attribute(value=part) | ast.Subscript(value=part) | ast.Call(func=part):
                head = part
            case ast.BoolOp(values=[part, *_]) | ast.Compare(left=part) | ast.BinOp(left=part):
                head = part
            case ast.UnaryOp(operand=part) | ast.IfExp(test=part):
                head = part
            case _:
                return False
    return True


def binding_in_head(stmt: ast.stmt, name: str) -> ast.NamedExpr | None:
    """Where the head of a compound statement binds a name."""
    head = getattr(stmt, "test", None) or getattr(stmt, "iter", None)
    if head is None and isinstance(stmt, ast.With):
        head = stmt.items[0].context_expr
    if head is None:
        return None
    found = (node for node in ast.walk(head) if isinstance(node, ast.NamedExpr))
    return next((node for node in found if node.target.id == name), None)


def unpacked_result(module: Module, name: ast.Name) -> tuple[ast.expr, int] | None:
    """In ``loss, logits = model(batch)`` the call and the place of ``loss``."""
    function = module.function(name)
    stores = module.stores.get((function, name.id), ())
    above = [
        each
        for each in stores
        if each.lineno <= name.lineno and not is_inside(name, module.statement(each))
    ]
    holder = module.parents[above[-1]] if above else None
    if not isinstance(holder, ast.Tuple) or not isinstance(module.parents[holder], ast.Assign):
        return None
    stmt = module.parents[holder]
    assert isinstance(stmt, ast.Assign)
    if any(isinstance(each, ast.Starred) for each in holder.elts):
        return None
    return stmt.value, holder.elts.index(above[-1])


def parts_of(value: ast.expr | None) -> list[ast.expr]:
    """The elements of a tuple, or the value alone."""
    if value is None:
        return []
    return value.elts if isinstance(value, ast.Tuple) else [value]


def handed_back(graph: Resolver, module: Module, call: ast.Call) -> set[str]:
    """The names that a call binds to its own arguments: ``loss, optimizer = train(optimizer)``."""
    stmt = module.statement(call)
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) and stmt.value is call else None
    names = parts_of(target)
    returned = [
        (where, function, parts_of(result.value))
        for where, function in graph.callees(module, call)
        for result in within(function.body, ast.Return)
        if len(parts_of(result.value)) == len(names)
    ]
    return {
        name.id
        for place, name in enumerate(names)
        if isinstance(name, ast.Name)
        and returned
        and all(
            isinstance(part := parts[place], ast.Name)
            and part.id in parameters(function)
            and (function, part.id) not in where.stores
            for where, function, parts in returned
        )
    }
