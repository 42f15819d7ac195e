"""Reads of names that no way to the read can have bound, for one kind of process.

A may-be-bound analysis in source order. Tests that a kind of process answers in one way are
followed in that way only. Names that a loop binds count as bound in its whole body, as that may be
a later pass.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from ...record import record
from ..analysis.ranks.rank_reach import UNKNOWN, Role, value_for_role
from ..analysis.ranks.rank_values import values_by_role
from ..source.module import MODULE_NAMES, Module
from ..source.tree import (
    FUNCTIONS,
    Function,
    binders,
    bound_names,
    everywhere,
    is_annotation,
    is_inside,
    parameters,
    within,
)

# With these a name may be bound where no statement shows it.
DYNAMIC = {"globals", "locals", "vars", "exec", "execfile", "eval"}
LATER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
Bound = set[str] | None  # names that may be bound; None where nothing runs on


def never_bound(module: Module, function: Function | None, role: Role) -> list[ast.Name]:
    """Reads of the function's own names (of the module's, for None) that fail in such a process."""
    body = module.tree.body if function is None else function.body
    # exec() and the like bind no names of a function's own.
    if (function is None and binds_dynamically(module)) or within(body, ast.Match):
        return []
    names = own_names(module, function)
    if not names:
        return []
    walk = _BindingWalk(module, role, names, [])
    before = set(dir(builtins)) | MODULE_NAMES if function is None else parameters(function)
    walk.block(body, before)
    return walk.failing


def is_decided_by_role(module: Module, function: Function | None) -> bool:
    """Whether one kind of process follows other ways through a scope than another kind does."""
    body = module.tree.body if function is None else function.body
    tests = [each.test for each in within(body, ast.If)]
    tests += [each.test for each in within(body, ast.IfExp)]
    tests += [part for each in within(body, ast.BoolOp) for part in each.values]
    values = (values_by_role(module, test) for test in tests)
    return any(first != other for first, *others in values for other in others)


def binds_dynamically(module: Module) -> bool:
    """Whether names may be bound by exec, globals() and the like."""
    return any(isinstance(name, ast.Name) for name in module.occurrences(*DYNAMIC))


def own_names(module: Module, function: Function | None) -> set[str]:
    """Names that are bound in this scope itself, and not in comprehensions alone."""
    if function is None:
        names = module.module_names
        stores = [
            (node, name)
            for (owner, name), all_ in module.stores.items()
            for node in all_
            if owner is None
        ]
        for inner in module.nodes(ast.Global):  # a function may bind it first
            names = names - set(inner.names)
        if any(alias.name == "*" for node in module.nodes(ast.ImportFrom) for alias in node.names):
            # It may bind any name, but hardly a function that the file defines itself.
            names = names & {each.name for each in module.tree.body if isinstance(each, Function)}
    else:
        names = {name for _, name in binders(function)}
        stores = [(node, name) for node, name in binders(function) if isinstance(node, ast.Name)]
        names -= {name for each in within(function.body, ast.Global) for name in each.names}
        names -= {name for each in within(function.body, ast.Nonlocal) for name in each.names}
    in_comprehensions = {name for node, name in stores if is_comprehension_target(module, node)}
    elsewhere = {name for node, name in stores if not is_comprehension_target(module, node)}
    return names - (in_comprehensions - elsewhere)


def invisible_names(module: Module) -> Iterator[ast.Name]:
    """Reads of names that no scope around them binds, though another function may."""
    everyone = module.module_names | set(dir(builtins)) | MODULE_NAMES
    everyone |= {"__class__"}  # of a method, which has it from its class
    everyone |= {name for _, name in module.stores if (None, name) in module.stores}
    everyone |= {name for each in module.nodes(ast.Global) for name in each.names}
    for name in module.nodes(ast.Name):
        if not isinstance(name.ctx, ast.Load) or name.id in everyone:
            continue
        if is_never_evaluated(module, name):
            continue
        if not any(name.id in names_of_scope(up) for up in module.ancestors(name)):
            yield name


def is_never_evaluated(module: Module, name: ast.Name) -> bool:
    """Whether a name is in the annotation of an assignment in a function: ``self.x: Kind = x``."""
    scope = next((up for up in module.ancestors(name) if isinstance(up, LATER)), None)
    return (
        isinstance(scope, FUNCTIONS)
        and isinstance(module.statement(name), ast.AnnAssign | ast.Assign)  # as normalized
        and is_annotation(name)
    )


def names_of_scope(node: ast.AST) -> set[str]:
    """Names that a node binds for what stands in it; empty for one that is no scope."""
    if getattr(node, "type_params", None):
        return bound_names(node) | {each.name for each in node.type_params}  # type: ignore[attr-defined]
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return parameters(node) | {name for _, name in binders(node)}
        case ast.Lambda():
            return {arg.arg for arg in everywhere(node.args, ast.arg)} | bound_names(node.body)
        case ast.ClassDef():
            return bound_names(node.body)
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            return {name for part in node.generators for name in bound_names(part.target)}
    return set()


def is_comprehension_target(module: Module, node: ast.AST) -> bool:
    """Whether a name is bound by a comprehension."""
    for up in module.ancestors(node):
        if isinstance(up, ast.comprehension):
            return node is up.target or is_inside(node, up.target)
        if isinstance(up, ast.stmt):
            return False
    return False


@record
class _BindingWalk:
    """One role's walk through a scope; sets are passed along and never changed."""

    module: Module
    role: Role
    names: set[str]
    failing: list[ast.Name]  # the result

    def block(self, body: list[ast.stmt], bound: Bound) -> Bound:
        for stmt in body:
            if bound is None:
                return None
            bound = self.statement(stmt, bound)
        return bound

    def statement(self, stmt: ast.stmt, bound: set[str]) -> Bound:
        match stmt:
            case ast.If():
                self.expression(stmt.test, bound)
                after = bound | bound_names(stmt.test)
                branches = [self.block(body, after) for body in self.branches(stmt)]
                return merge(branches)
            case ast.For() | ast.AsyncFor() | ast.While():
                head = stmt.test if isinstance(stmt, ast.While) else stmt.iter
                self.expression(head, bound)
                inside = bound | self.carried(stmt)
                self.block(stmt.body, inside)
                return self.block(stmt.orelse, inside)
            case ast.Try():
                during = bound | bound_names(stmt.body)
                self.block(stmt.body, bound)
                ends = [self.block(stmt.orelse, during)]
                for handler in stmt.handlers:
                    ends.append(self.block(handler.body, during | bound_names(handler)))
                end = merge(ends)
                final = self.block(stmt.finalbody, bound | bound_names(stmt))
                return None if end is None or final is None else end | final
            case ast.With() | ast.AsyncWith():
                for item in stmt.items:
                    self.expression(item.context_expr, bound)
                    bound = bound | bound_names(item)
                # A context manager may swallow what its body raises.
                return (self.block(stmt.body, bound) or set()) | bound | bound_names(stmt)
            case ast.Delete():
                return bound - {name.id for name in stmt.targets if isinstance(name, ast.Name)}
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return bound | {stmt.name}
            case ast.Return() | ast.Raise() | ast.Break() | ast.Continue():
                self.expression(stmt, bound)
                return None
        self.expression(stmt, bound)
        if isinstance(stmt, ast.AugAssign) and isinstance(stmt.target, ast.Name):
            self.read(stmt.target, bound)
        return bound | bound_names(stmt)

    def carried(self, loop: ast.stmt) -> set[str]:
        """Names that a pass through a loop may have bound, which ``x += 1`` alone does not."""
        added = [node.target for node in within(loop, ast.AugAssign)]
        only_added = {name.id for name in added if isinstance(name, ast.Name)}
        stores = {
            name.id
            for name in within(loop, ast.Name)
            if not isinstance(name.ctx, ast.Load) and name not in added
        }
        return bound_names(loop) - (only_added - stores)

    def branches(self, test: ast.If) -> Iterator[list[ast.stmt]]:
        value = value_for_role(self.module, test.test, self.role)
        if value is UNKNOWN or value:
            yield test.body
        if value is UNKNOWN or not value:
            yield test.orelse

    def expression(self, node: ast.AST, bound: set[str]) -> None:
        inner = bound_names(node) if within(node, ast.NamedExpr) else set()
        for name in within(node, ast.Name):
            if isinstance(name.ctx, ast.Load) and self.is_evaluated(name, node):
                self.read(name, bound | inner)

    def read(self, name: ast.Name, bound: set[str]) -> None:
        if name.id not in self.names or name.id in bound or name in self.failing:
            return
        for up in self.module.ancestors(name):
            if isinstance(up, LATER):
                break
            if isinstance(up, ast.AnnAssign) and (
                name is up.annotation or is_inside(name, up.annotation)
            ):
                return
            if isinstance(up, ast.Try) and up.handlers:
                return  # it may ask whether the name is bound
            if any(
                name.id in bound_names(part.target) for part in everywhere(up, ast.comprehension)
            ) and isinstance(up, ast.expr):
                return
        self.failing.append(name)

    def is_evaluated(self, name: ast.Name, top: ast.AST) -> bool:
        """Whether this kind of process may come to a name inside an expression."""
        child: ast.AST = name
        for up in self.module.ancestors(name):
            if isinstance(up, ast.IfExp) and child is not up.test:
                value = value_for_role(self.module, up.test, self.role)
                if value is not UNKNOWN and bool(value) is not (child is up.body):
                    return False
            if isinstance(up, ast.BoolOp) and child in up.values:
                stops = isinstance(up.op, ast.Or)
                for earlier in up.values[: up.values.index(child)]:
                    value = value_for_role(self.module, earlier, self.role)
                    if value is not UNKNOWN and bool(value) is stops:
                        return False
            if up is top:
                break
            child = up
        return True


def merge(ends: list[Bound]) -> Bound:
    """Names that may be bound where several ways meet; None if none gets there."""
    reaching = [end for end in ends if end is not None]
    return set().union(*reaching) if reaching else None
