"""Questions about one file's syntax tree: descendants, call arguments, names that are bound.

Every node is numbered in preorder once. A node's descendants are then a slice of the numbering, and
those of one type are found by bisection.
"""

from __future__ import annotations

import ast
import sys
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Set
from functools import cached_property
from operator import attrgetter, itemgetter
from typing import Any, TypeGuard, TypeVar

from .normal_form import FOUND_AS, AddedAssign

Node = TypeVar("Node", bound=ast.AST)

Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITIONS = (*FUNCTIONS, ast.ClassDef)
SCOPES = (*FUNCTIONS, ast.Lambda, ast.ClassDef)
# Field types that get no number: plain values, and contexts and operators, which all trees share.
UNNUMBERED = {"identifier", "string", "int", "constant"}
UNNUMBERED |= {"expr_context", "operator", "boolop", "unaryop", "cmpop"}


class NodeFields(dict[type[ast.AST], tuple[tuple[str, bool], ...]]):
    """The fields of each node type that hold child nodes, and whether they hold a list.

    Read from the type's docstring: ``Assign(expr* targets, expr value, string? type_comment)``.
    """

    def __missing__(self, kind: type[ast.AST]) -> tuple[tuple[str, bool], ...]:
        _, _, fields = (kind.__doc__ or "").rstrip(")").partition("(")
        pairs = [field.split() for field in fields.split(", ") if field]
        self[kind] = tuple(
            (name, type_name.endswith("*"))
            for type_name, name in pairs
            if type_name.rstrip("*?") not in UNNUMBERED
        )
        return self[kind]


CHILD_FIELDS = NodeFields()
RECURSION_LIMIT = 10_000  # deeper than any tree that ast.parse returns


class Preorder:
    """The nodes of a tree in preorder, with parent, end and scope of each by its number.

    ``above[i]`` is the number of node ``i``'s parent, ``ends[i]`` one past its last descendant and
    ``scopes[i]`` the number of the function, lambda or class around it (0 at module level).
    ``owners`` maps such a scope to the function that it is or stands in. ``numbers_by_type`` lists
    the numbers of each node type, ``numbers_by_spelling`` those of the names and attributes with a
    spelling, and ``name_stores`` the plain names that are bound or deleted.
    """

    def __init__(self, tree: ast.AST) -> None:
        self.nodes: list[ast.AST] = []
        self.parent_numbers: list[int] = []
        self.scopes: list[int] = []
        self.ends: list[int] = []
        self.numbers_by_type: dict[type[ast.AST], list[int]] = defaultdict(list)
        self.numbers_by_spelling: dict[str, list[int]] = defaultdict(list)
        self.name_stores: list[tuple[int, str]] = []
        self.owners: dict[int, Function | None] = {0: None}
        self.answers: dict[object, Any] = {}  # cached results of questions about the tree
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(max(limit, RECURSION_LIMIT))
        try:
            self._number(tree)
        finally:
            sys.setrecursionlimit(limit)
        self._scope()

    def _number(self, tree: ast.AST) -> None:
        nodes, above, ends, kinds = self.nodes, self.parent_numbers, self.ends, self.numbers_by_type
        spelled, stored = self.numbers_by_spelling, self.name_stores

        def visit(node: Any, parent: int) -> None:
            index = len(nodes)
            nodes.append(node)
            above.append(parent)
            ends.append(0)
            kind = type(node)
            kinds[kind].append(index)
            fields = vars(node)
            fields["_table"], fields["_number"] = self, index
            if kind is ast.Name:
                spelled[node.id].append(index)
                if type(node.ctx) is not ast.Load:
                    stored.append((index, node.id))
            elif kind is ast.Attribute:
                spelled[node.attr].append(index)
            for name, is_list in CHILD_FIELDS[kind]:
                value = fields[name]
                if is_list:
                    for item in value:
                        if item is not None:  # as in {**more}
                            visit(item, index)
                elif value is not None:
                    visit(value, index)
            ends[index] = len(nodes)

        visit(tree, 0)
        for kind, usual in FOUND_AS.items():
            if kind in kinds:
                numbers = kinds.pop(kind)
                kinds[usual] = sorted(kinds[usual] + numbers)
                for index in numbers:
                    stmt = nodes[index]
                    if isinstance(stmt, AddedAssign):
                        fields: dict[str, Any] = stmt.whole.__dict__
                        fields["_table"], fields["_number"] = self, index

    def _scope(self) -> None:
        scopes, ends = self.scopes, self.ends
        scopes += [0] * len(self.nodes)
        inner = [index for kind in SCOPES for index in self.numbers_by_type.get(kind, ())]
        for index in sorted(inner):  # inner scopes come later and overwrite outer ones
            node = self.nodes[index]
            around = self.owners[scopes[index]]
            self.owners[index] = node if isinstance(node, FUNCTIONS) else around
            scopes[index + 1 : ends[index]] = [index] * (ends[index] - index - 1)

    @cached_property
    def bindings(self) -> list[tuple[int, str]]:
        """Every (number of a node that binds a name in its scope, that name), in preorder."""
        nodes: list[Any] = self.nodes
        found = [*self.name_stores]
        for kind in (*DEFINITIONS, ast.ExceptHandler):
            indices = self.numbers_by_type.get(kind, ())
            found += [(index, name) for index in indices if (name := nodes[index].name)]
        for statement in (ast.Import, ast.ImportFrom):
            for index in self.numbers_by_type.get(statement, ()):
                for alias in nodes[index].names:
                    found.append((index, alias.asname or alias.name.partition(".")[0]))
        found.sort(key=itemgetter(0))
        return found

    @cached_property
    def _bound_at(self) -> list[int]:
        return [index for index, _ in self.bindings]

    def bindings_in(self, start: int, end: int) -> list[tuple[int, str]]:
        """The bindings by nodes with numbers from ``start`` up to ``end``."""
        numbers = self._bound_at
        return self.bindings[bisect_left(numbers, start) : bisect_left(numbers, end)]


# The numbering that a node belongs to, and the node's number in it.
locate: Callable[[ast.AST], tuple[Preorder, int]] = attrgetter("_table", "_number")
number_of: Callable[[ast.AST], int] = attrgetter("_number")


class Parents:
    """A read-only mapping from each node except the root to its parent."""

    def __init__(self, table: Preorder) -> None:
        self.table = table

    def __contains__(self, node: ast.AST) -> bool:
        table, index = locate(node)
        return table is self.table and index > 0

    def __getitem__(self, node: ast.AST) -> ast.AST:
        table, index = locate(node)
        if not index:
            raise KeyError(node)
        return table.nodes[table.parent_numbers[index]]

    def get(self, node: ast.AST) -> ast.AST | None:
        """The parent, or None for the root."""
        table, index = locate(node)
        return table.nodes[table.parent_numbers[index]] if index else None


def ancestors(node: ast.AST) -> list[ast.AST]:
    """The nodes around ``node``, innermost first."""
    table, index = locate(node)
    nodes, above = table.nodes, table.parent_numbers
    found = []
    while index:
        index = above[index]
        found.append(nodes[index])
    return found


def is_inside(node: ast.AST, other: ast.AST) -> bool:
    """Whether ``node`` is a descendant of ``other``."""
    (table, index), (home, start) = locate(node), locate(other)
    return table is home and start < index < table.ends[start]


def function_of(node: ast.AST) -> Function | None:
    """The function around ``node``; None at module level."""
    table, index = locate(node)
    return table.owners[table.scopes[index]]


def is_annotation(node: ast.AST) -> bool:
    """Whether a node is, or is part of, what says the type of a name, a parameter or a result."""
    for up in ancestors(node):
        if isinstance(up, ast.AnnAssign | ast.arg | ast.Assign):
            return node is getattr(up, "annotation", None)
        if isinstance(up, FUNCTIONS):
            return node is up.returns
        if isinstance(up, ast.stmt | ast.Call):
            return False
        node = up
    return False


def below(node: ast.AST) -> list[ast.AST]:
    """``node`` and all its descendants, in source order."""
    table, index = locate(node)
    return table.nodes[index : table.ends[index]]


def children(node: ast.AST) -> Iterator[ast.AST]:
    """The direct children of ``node``, in source order."""
    table, index = locate(node)
    end = table.ends[index]
    index += 1
    while index < end:
        yield table.nodes[index]
        index = table.ends[index]


def _range(nodes: list[ast.stmt] | ast.AST) -> tuple[Preorder, int, int, int] | None:
    """The numbering, its slice (start, end) for ``nodes``, and the scope that a walk stays in."""
    if isinstance(nodes, list):
        if not nodes:
            return None
        table, start = locate(nodes[0])
        return table, start, table.ends[number_of(nodes[-1])], table.scopes[start]
    table, start = locate(nodes)
    scope = start if isinstance(nodes, SCOPES) else table.scopes[start]
    return table, start, table.ends[start], scope


def walk(nodes: list[ast.stmt] | ast.AST) -> list[ast.AST]:
    """Every node below ``nodes`` in source order, without entering nested functions or classes."""
    extent = _range(nodes)
    if extent is None:
        return []
    table, start, end, scope = extent
    scopes = table.scopes
    return [
        node
        for index, node in enumerate(table.nodes[start:end], start)
        if scopes[index] == scope or index == start
    ]


def within(nodes: list[ast.stmt] | ast.AST, kind: type[Node]) -> list[Node]:
    """Nodes of one type below ``nodes``, without entering nested functions or classes."""
    extent = _range(nodes)
    if extent is None:
        return []
    table, start, end, scope = extent
    numbers, scopes = table.numbers_by_type.get(kind, []), table.scopes
    indices = numbers[bisect_left(numbers, start) : bisect_left(numbers, end)]
    all_nodes: list[Any] = table.nodes
    # A function node's own scope is the one around it: hence ``index == start``.
    return [all_nodes[index] for index in indices if scopes[index] == scope or index == start]


def is_within(node: ast.AST, nodes: list[ast.stmt] | ast.AST) -> bool:
    """Whether ``within`` finds ``node`` below ``nodes``."""
    extent = _range(nodes)
    if extent is None:
        return False
    table, start, end, scope = extent
    home, index = locate(node)
    if home is not table:
        return False  # of another module
    return start <= index < end and (table.scopes[index] == scope or index == start)


def names_within(nodes: list[ast.stmt] | ast.AST, names: Set[str]) -> list[ast.Name]:
    """The plain names among ``names`` that ``within`` would find below ``nodes``."""
    extent = _range(nodes)
    if extent is None:
        return []
    table, start, end, scope = extent
    numbers: list[int] = []
    for name in names & table.numbers_by_spelling.keys():
        indices = table.numbers_by_spelling[name]
        numbers += indices[bisect_left(indices, start) : bisect_left(indices, end)]
    all_nodes: list[Any] = table.nodes
    scopes = table.scopes
    return [
        node
        for index in sorted(numbers)
        if scopes[index] == scope and type(node := all_nodes[index]) is ast.Name
    ]


def filter_within(nodes: list[ast.stmt] | ast.AST, candidates: Iterable[Node]) -> list[Node]:
    """The candidates that stand below ``nodes`` and in no nested function or class."""
    extent = _range(nodes)
    if extent is None:
        return []
    table, start, end, scope = extent
    return [
        node
        for node in candidates
        if start <= (number := number_of(node)) < end and table.scopes[number] == scope
    ]


def everywhere(node: ast.AST, kind: type[Node]) -> list[Node]:
    """The nodes of one type among ``node`` and its descendants, also in nested functions."""
    table, start = locate(node)
    numbers = table.numbers_by_type.get(kind, [])
    indices = numbers[bisect_left(numbers, start) : bisect_left(numbers, table.ends[start])]
    nodes: list[Any] = table.nodes
    return [nodes[index] for index in indices]


def bound_names(nodes: list[ast.stmt] | ast.AST) -> set[str]:
    """Names that the statements bind: assignments, loops, imports, definitions, ``with … as``."""
    extent = _range(nodes)
    if extent is None:
        return set()
    table, start, end, scope = extent
    bindings, scopes = table.bindings_in(start, end), table.scopes
    return {name for index, name in bindings if scopes[index] == scope or index == start}


def binders(function: Function) -> list[tuple[ast.AST, str]]:
    """The nodes of a function's own scope that bind a name, each with the name."""
    table, scope = locate(function)
    return [
        (table.nodes[index], name)
        for index, name in table.bindings_in(scope, table.ends[scope])
        if table.scopes[index] == scope
    ]


def name_uses(tree: ast.Module, names: Set[str]) -> Iterator[tuple[ast.AST, str]]:
    """Pairs of a function (or the module) and one of ``names`` that its body uses.

    Names in a lambda count for the function around it, names in a class body for nobody. A class
    that is defined in a function counts as a use of its name.
    """
    table, _ = locate(tree)
    nodes, scopes = table.nodes, table.scopes
    for name in names & table.numbers_by_spelling.keys():
        for index in table.numbers_by_spelling[name]:
            scope = scopes[index]
            while isinstance(nodes[scope], ast.Lambda) and isinstance(nodes[index], ast.Name):
                scope = scopes[scope]
            owner = nodes[scope]
            if isinstance(owner, FUNCTIONS):
                first, last = number_of(owner.body[0]), number_of(owner.body[-1])
                if first <= index < table.ends[last]:
                    yield owner, name
            elif owner is tree:
                yield tree, name
    for index in table.numbers_by_type.get(ast.ClassDef, ()):
        local, owner = nodes[index], nodes[scopes[index]]
        if isinstance(local, ast.ClassDef) and isinstance(owner, FUNCTIONS) and local.name in names:
            yield owner, local.name


def parameters(function: Function) -> set[str]:
    """The names of a function's parameters."""
    of, rest = function.args, (function.args.vararg, function.args.kwarg)
    found = {arg.arg for arg in (*of.posonlyargs, *of.args, *of.kwonlyargs)}
    return found | {arg.arg for arg in rest if arg is not None}


def first_parameter(function: Function) -> str:
    """The name of a function's first parameter by position; "" without one."""
    return next((each.arg for each in (*function.args.posonlyargs, *function.args.args)), "")


def without_calls_of(node: ast.expr, methods: Collection[str]) -> ast.expr:
    """``x`` of ``x.to(device).train()``, without the calls of some methods behind it."""
    while (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in methods
    ):
        node = node.func.value
    return node


def position(node: ast.AST) -> tuple[int, int]:
    """Line and column of a node: a sort key for source order."""
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def precedes(node: ast.AST, other: ast.AST) -> bool:
    """Whether ``node`` stands above ``other``, or before it on its line, and does not hold it."""
    return position(node) < position(other) and not is_inside(other, node)


def keyword(call: ast.Call, name: str) -> ast.keyword | None:
    """The keyword argument ``name`` of a call."""
    for word in call.keywords:
        if word.arg == name:
            return word
    return None


def argument(call: ast.Call, index: int, *names: str) -> ast.expr | None:
    """The argument at position ``index``, or with one of the keywords ``names``.

    None also where ``*more`` stands before it, as its position is unknown then.
    """
    for word in call.keywords:
        if word.arg in names:
            return word.value
    if len(call.args) <= index or any(isinstance(a, ast.Starred) for a in call.args[: index + 1]):
        return None
    return call.args[index]


def only_argument(call: ast.Call, *names: str) -> ast.expr | None:
    """The argument of a call that has no other, passed by position or by one of the names."""
    return argument(call, 0, *names) if len(call.args) + len(call.keywords) == 1 else None


def argument_values(call: ast.Call) -> list[ast.expr]:
    """The values of all arguments, by position and by keyword."""
    return [*call.args, *(word.value for word in call.keywords)]


def last_argument(call: ast.Call) -> ast.expr | ast.keyword | None:
    """The argument that comes last in the source; a new one can go behind it."""
    arguments: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    return max(arguments, key=position, default=None)


def mentions(node: ast.AST, text: str) -> bool:
    """Whether a name or attribute spelled ``text`` occurs in ``node``."""
    table, start = locate(node)
    numbers = table.numbers_by_spelling.get(text, ())
    first = bisect_left(numbers, start)
    return first < len(numbers) and numbers[first] < table.ends[start]


def same_code(first: object, second: object) -> bool:
    """Whether two expressions are the same code, apart from white space."""
    if type(first) is not type(second):
        return False
    if isinstance(first, list):
        assert isinstance(second, list)
        return len(first) == len(second) and all(map(same_code, first, second))
    if isinstance(first, ast.AST):
        fields = vars(second)
        return all(same_code(vars(first)[name], fields[name]) for name in first._fields)
    return repr(first) == repr(second)  # unlike ==, tells True from 1


def assigned_pairs(stmt: ast.Assign) -> Iterator[tuple[str, ast.expr]]:
    """Each name and its value in ``a = v``, ``a = b = v`` and ``a, b = v, w``."""
    for target in stmt.targets:
        if isinstance(target, ast.Name):
            yield target.id, stmt.value
        elif isinstance(target, ast.Tuple) and isinstance(stmt.value, ast.Tuple):
            for item, value in zip(target.elts, stmt.value.elts, strict=False):
                if isinstance(item, ast.Name):
                    yield item.id, value


def is_empty_list(value: ast.expr) -> bool:
    """Whether an expression is ``[]``."""
    return isinstance(value, ast.List) and not value.elts


def is_elif(above: ast.AST, stmt: ast.stmt) -> bool:
    """Whether a statement is an ``elif`` of the one above."""
    return (
        isinstance(above, ast.If) and above.orelse == [stmt] and above.col_offset == stmt.col_offset
    )


def is_false(value: ast.expr) -> bool:
    """Whether an expression is False, 0, None or an empty text as it stands."""
    return isinstance(value, ast.Constant) and not value.value


def is_true(value: ast.expr) -> bool:
    """Whether an expression is True, or a number other than 0, as it stands."""
    return isinstance(value, ast.Constant) and isinstance(value.value, int) and bool(value.value)


def is_none(value: ast.expr) -> bool:
    """Whether an expression is the word None."""
    return isinstance(value, ast.Constant) and value.value is None


def is_number(value: ast.expr) -> bool:
    """Whether an expression is a literal int or float."""
    return isinstance(value, ast.Constant) and type(value.value) in (int, float)


def is_plain_call(node: ast.AST, name: str) -> TypeGuard[ast.Call]:
    """Whether code is a call of a plain name: ``int(ids[0])``, and no method of that name."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def is_run_by_decorator(stmt: ast.stmt) -> bool:
    """Whether a decorator runs a function at once, as sacred's ``@ex.automain`` does."""
    return isinstance(stmt, ast.FunctionDef) and any(
        isinstance(each, ast.Attribute) and each.attr == "automain" for each in stmt.decorator_list
    )


def has_forward(definition: ast.ClassDef) -> bool:
    """Whether a class has a forward pass of its own, as layers and models have."""
    return any(getattr(each, "name", "") == "forward" for each in definition.body)
