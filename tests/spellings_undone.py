"""One spelling of a program, whatever its own: what the kinds of spellings.py change is undone.

Four things more are one, as they are equally right where a patch adds them: an imported name and
its whole path (``timedelta``, ``datetime.timedelta``), neighbours in either order where neither
binds what the other reads, whatever name keeps a value that only the next statement reads, but more
than once, and a test inside of a test and both in one. Two programs that differ in anything else
differ here.
"""

from __future__ import annotations

import ast
import itertools
from collections import Counter
from typing import Any, TypeGuard

from spellings import SPELLED, Substitute, blocks, local_signatures, signature
from spellings_text import HELPERS, PACKAGE

NEXT = f"{SPELLED}next"  # what is bound for the next statement alone


def one_spelling(files: dict[str, str]) -> dict[str, str]:
    """The definitions of a program by name, and what its script runs, in one spelling."""
    parts: dict[str, str] = {}
    trees = {name: with_whole_paths(ast.parse(text)) for name, text in files.items()}
    own = {k: v for tree in trees.values() for k, v in local_signatures(tree).items()}
    for name, tree in trees.items():
        for stmt in undone(tree, own).body:
            if isinstance(stmt, ast.FunctionDef | ast.ClassDef):
                parts[stmt.name] = ast.unparse(stmt)
            elif not name and not isinstance(stmt, ast.Import | ast.ImportFrom):
                parts[""] = parts.get("", "") + ast.unparse(stmt) + "\n"
    return parts


def undone(tree: ast.Module, own: dict[str, tuple[str, ...]]) -> ast.Module:
    """The module in one spelling."""
    hoist_bindings(tree)
    tree = Plain(own).visit(tree)
    inline_names(tree)
    tree = Plain(own).visit(tree)
    for block in blocks(tree):
        block[:] = [s for s in block if not is_idle(s)] or [ast.Pass()]
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        name_what_is_read_next(function)
    for block in blocks(tree):
        sort_neighbours(block)
    return ast.fix_missing_locations(tree)


def with_whole_paths(tree: ast.Module) -> ast.Module:
    """The module with ``a.b`` for each ``b`` that ``from a import b`` binds in it."""
    nodes = list(ast.walk(tree))
    whole = {
        alias.asname or alias.name: f"{stmt.module}.{alias.name}"
        for stmt in nodes
        if isinstance(stmt, ast.ImportFrom) and not stmt.level and stmt.module
        if not stmt.module.startswith(SPELLED)
        for alias in stmt.names
    }
    names = [node for node in nodes if isinstance(node, ast.Name)]
    bound = {name.id for name in names if not isinstance(name.ctx, ast.Load)}
    bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    for name in names:
        if name.id in whole and name.id not in bound:
            name.id = whole[name.id]  # with its dots, which do for a comparison
    return tree


def uses(node: ast.AST) -> Counter[str]:
    """How often each name occurs."""
    return Counter(each.id for each in ast.walk(node) if isinstance(each, ast.Name))


def name_what_is_read_next(function: ast.FunctionDef) -> None:
    """One name for all values that a function binds for the next statement alone."""
    counts = uses(function)
    for block in blocks(function):
        for stmt, following in itertools.pairwise(block):
            if name := read_next(stmt, following, counts):
                assert isinstance(stmt, ast.Assign)
                stmt.targets = [ast.Name(NEXT, ast.Store())]
                Substitute(name, ast.Name(NEXT, ast.Load())).visit(following)


def read_next(stmt: Any, following: ast.stmt, counts: Counter[str]) -> str:
    """The name of a value that the next statement reads more than once, and no other one."""
    if isinstance(stmt, ast.Assign) and isinstance(stmt.targets[0], ast.Name):
        name = stmt.targets[0].id
        if counts[name] > 2 and counts[name] == uses(following)[name] + 1:
            return name
    return ""


def sort_neighbours(block: list[ast.stmt]) -> None:
    """Neighbours of which neither binds what the other reads, in alphabetical order."""
    plain = [only_binds(stmt) for stmt in block]
    start = 0
    while start < len(block):
        end = start
        while end < len(block) and plain[end]:
            end += 1
        if end - start > 1:
            block[start:end] = sorted_bindings(block[start:end])
        start = end + 1


def sorted_bindings(block: list[ast.stmt]) -> list[ast.stmt]:
    """Statements that only bind, in alphabetical order as far as none reads what one binds."""
    told = [(ast.unparse(stmt), *bound_and_mentioned(stmt), stmt) for stmt in block]
    for last in range(len(told) - 1, 0, -1):
        for index in range(last):
            one, two = told[index : index + 2]
            if two[0] < one[0] and not (one[1] & two[2] or two[1] & one[2]):
                told[index : index + 2] = [two, one]
    return [stmt for _, _, _, stmt in told]


def only_binds(stmt: ast.stmt) -> bool:
    """Whether a statement does nothing but to bind names and attributes, also under a test."""
    if not isinstance(stmt, ast.Assign | ast.If):
        return False
    return not any(
        (isinstance(node, ast.stmt) and not isinstance(node, ast.Assign | ast.If))
        or (isinstance(node, ast.Call) and ast.unparse(node.func) != "int")
        for node in ast.walk(stmt)
    )


def bound_and_mentioned(stmt: ast.stmt) -> tuple[set[str], set[str]]:
    """The names and attributes that a statement binds, and all that it mentions."""
    found: list[ast.Name | ast.Attribute] = [
        node for node in ast.walk(stmt) if isinstance(node, ast.Name | ast.Attribute)
    ]
    stores = {
        ast.unparse(node)
        for node in found
        if isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)
    }
    return stores, {ast.unparse(node) for node in found}


def is_idle(stmt: ast.stmt) -> bool:
    """A ``pass``, or a string that stands for itself."""
    return isinstance(stmt, ast.Pass) or (
        isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant)
    )


def hoist_bindings(tree: ast.Module) -> None:
    """``if (x := v): …`` as ``x = v; if x: …``; the same for loops and for a whole statement."""
    for block in blocks(tree):
        for stmt in list(block):
            head: Any = getattr(stmt, "test", None) or getattr(stmt, "iter", None)
            if isinstance(stmt, ast.Expr):
                head = stmt.value
            if head is None or isinstance(stmt, ast.While | ast.Assert):
                continue
            found = [node for node in ast.walk(head) if isinstance(node, ast.NamedExpr)]
            if len(found) != 1:
                continue
            bound = ast.Assign([found[0].target], found[0].value, lineno=0)
            index = next(i for i, each in enumerate(block) if each is stmt)
            if head is found[0] and isinstance(stmt, ast.Expr):
                block[index] = bound
                continue
            name = ast.Name(found[0].target.id)
            take = PutName(found[0], name)
            if isinstance(stmt, ast.If):
                stmt.test = take.visit(stmt.test)
            elif isinstance(stmt, ast.For):
                stmt.iter = take.visit(stmt.iter)
            else:
                continue
            block.insert(index, bound)


class PutName(ast.NodeTransformer):
    """Puts a name in the place of the expression that binds it."""

    def __init__(self, place: ast.NamedExpr, name: ast.Name) -> None:
        self.place, self.name = place, name

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.expr:
        """The name, in the place of its binding."""
        return self.name if node is self.place else node


def inline_names(tree: ast.Module) -> None:
    """Values of names that a kind made, in the place of these names."""
    changed, counts = True, uses(tree)
    while changed:
        changed = False
        for block in blocks(tree):
            for index, stmt in enumerate(block):
                target = stmt.targets[0] if isinstance(stmt, ast.Assign) else None
                if isinstance(target, ast.Name) and target.id.startswith(SPELLED):
                    assert isinstance(stmt, ast.Assign)
                    if block[index + 1 :] and read_next(stmt, block[index + 1], counts):
                        continue
                    rest = [Substitute(target.id, stmt.value).visit(s) for s in block[index + 1 :]]
                    block[index:] = rest or [ast.Pass()]
                    changed = True
                    break


def with_test_inside(stmt: ast.If) -> ast.If:
    """``if a:`` around ``if b:`` alone as ``if a and b:``, where neither has another branch."""
    inner = stmt.body[0]
    if stmt.orelse or len(stmt.body) > 1 or not isinstance(inner, ast.If):
        return stmt
    test = inner.test
    if all(map(is_idle, inner.body)):
        test, inner = ast.UnaryOp(ast.Not(), test), ast.If(test, inner.orelse, [])
    if inner.orelse:
        return stmt
    tests = stmt.test.values if is_and(stmt.test) else [stmt.test]
    stmt.test = ast.BoolOp(ast.And(), [*tests, *(test.values if is_and(test) else [test])])
    stmt.body = inner.body
    return stmt


def is_and(test: ast.expr) -> TypeGuard[ast.BoolOp]:
    """Whether a test is ``a and b``."""
    return isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And)


class Plain(ast.NodeTransformer):
    """Rewrites the nodes that are spelled another way."""

    def __init__(self, own: dict[str, tuple[str, ...]]) -> None:
        self.own = own

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """All arguments by keyword, where their names are known."""
        self.generic_visit(node)
        names = signature(node, self.own)
        if names and len(node.args) <= len(names):
            pairs = zip(names, node.args, strict=False)
            if not any(isinstance(arg, ast.Starred) for arg in node.args):
                node.keywords = [*(ast.keyword(n, v) for n, v in pairs), *node.keywords]
                node.args = []
        node.keywords.sort(key=lambda word: word.arg or "")
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        """``x: object = v`` as ``x = v``."""
        self.generic_visit(node)
        if node.value is None or ast.unparse(node.annotation) != "object":
            return node
        return ast.Assign([node.target], node.value, lineno=0)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        """``x += v`` as ``x = x + v``."""
        self.generic_visit(node)
        if not isinstance(node.target, ast.Name):
            return node
        value = ast.BinOp(ast.Name(node.target.id), node.op, node.value)
        return ast.Assign([node.target], value, lineno=0)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """``settings.args`` as ``args``, ``helpers.function`` as ``function``."""
        self.generic_visit(node)
        base = node.value
        if isinstance(base, ast.Name) and base.id in (f"{SPELLED}settings", HELPERS, PACKAGE):
            return ast.Name(node.attr, node.ctx)
        if node.attr == "args" and isinstance(base, ast.Name) and base.id == "self":
            return ast.Name("args", node.ctx)
        return node

    def visit_If(self, node: ast.If) -> ast.stmt:
        """The branch of a test that is negated first."""
        self.generic_visit(node)
        node.body = [s for s in node.body if not is_idle(s)] or [ast.Pass()]
        node.orelse = [s for s in node.orelse if not is_idle(s)]
        while isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not):
            if not node.orelse and not all(map(is_idle, node.body)):
                node.body, node.orelse = [ast.Pass()], node.body
                node.test = node.test.operand
            else:
                node.test = node.test.operand
                node.body, node.orelse = node.orelse or [ast.Pass()], node.body
            node.orelse = [s for s in node.orelse if not is_idle(s)]
        return with_test_inside(node)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """Operands of a symmetric comparison in alphabetical order, tuples for lists."""
        self.generic_visit(node)
        if len(node.ops) != 1:
            return node
        turned: dict[type[ast.cmpop], type[ast.cmpop]] = {
            ast.Gt: ast.Lt,
            ast.GtE: ast.LtE,
        }
        operator, right = node.ops[0], node.comparators[0]
        swap = isinstance(operator, ast.Eq | ast.NotEq) and ast.unparse(node.left) > ast.unparse(
            right
        )
        if swap or type(operator) in turned:
            node.left, node.comparators = right, [node.left]
            node.ops = [turned.get(type(operator), type(operator))()]
        if isinstance(operator, ast.In | ast.NotIn) and isinstance(right, ast.List):
            node.comparators = [ast.Tuple(right.elts)]
        return node
