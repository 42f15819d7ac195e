"""Questions about syntax alone: what stands below a node, what a call is given, what is bound.

Every node of a module is numbered in preorder once; what stands below a node is then a slice, and
the nodes of one type below it are found by bisection. Rules ask such things thousands of times.
"""

from __future__ import annotations

import ast
import sys
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Set
from functools import cached_property
from operator import attrgetter, itemgetter
from typing import Any, TypeVar

Node = TypeVar("Node", bound=ast.AST)

Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)  # isinstance is slow with a union
DEFINITIONS = (*FUNCTIONS, ast.ClassDef)
SCOPES = (*FUNCTIONS, ast.Lambda, ast.ClassDef)
# What fields hold that is no node, or an object that all trees share: contexts and operators.
PLAIN = {"identifier", "string", "int", "constant"}
PLAIN |= {"expr_context", "operator", "boolop", "unaryop", "cmpop"}


class NodeFields(dict[type[ast.AST], tuple[tuple[str, bool], ...]]):
    """Fields of each type of node that hold nodes of the tree, and whether they hold several.

    As the type's own text has its grammar: ``Assign(expr* targets, expr value, string? ...)``.
    """

    def __missing__(self, kind: type[ast.AST]) -> tuple[tuple[str, bool], ...]:
        _, _, fields = (kind.__doc__ or "").rstrip(")").partition("(")
        pairs = [field.split() for field in fields.split(", ") if field]
        self[kind] = tuple(
            [(name, what[-1] == "*") for what, name in pairs if what.rstrip("*?") not in PLAIN]
        )
        return self[kind]


PARTS = NodeFields()
# By names of their own: two look-ups for each node are a tenth of the numbering.
NAME, CONSTANT, ATTRIBUTE, CALL, LOAD = ast.Name, ast.Constant, ast.Attribute, ast.Call, ast.Load
KEYWORD, EXPR = ast.keyword, ast.Expr
DEEPEST = 10_000  # more than ast.parse takes; the frames of Python calls are no C stack


class Preorder:
    """The nodes of a tree in preorder: for each its number, parent, end and scope.

    ``ends[i]`` is one past the last node below node ``i``; ``scopes[i]`` the number of the
    function, lambda or class around it, 0 at module level; ``owners`` has the function that each of
    these is, or stands in. ``spelled`` has the numbers of names and attributes of a spelling;
    ``stored`` those of plain names that are bound or deleted, each with its name.
    """

    def __init__(self, tree: ast.AST) -> None:
        self.nodes: list[ast.AST] = []
        self.above: list[int] = []
        self.scopes: list[int] = []
        self.ends: list[int] = []
        self.kinds: dict[type[ast.AST], list[int]] = defaultdict(list)
        self.spelled: dict[str, list[int]] = defaultdict(list)
        self.stored: list[tuple[int, str]] = []
        self.owners: dict[int, Function | None] = {0: None}
        self.answers: dict[object, Any] = {}  # to questions about the tree
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(max(limit, DEEPEST))
        try:
            self._number(tree)
        finally:
            sys.setrecursionlimit(limit)
        self._scope()

    def _number(self, tree: ast.AST) -> None:
        nodes, above, ends, kinds = self.nodes, self.above, self.ends, self.kinds
        spelled, stored = self.spelled, self.stored
        names, attributes = kinds[NAME], kinds[ATTRIBUTE]
        constants, calls = kinds[CONSTANT], kinds[CALL]
        count = 0

        def visit(node: Any, parent: int) -> None:
            nonlocal count
            index = count
            count += 1
            nodes.append(node)
            above.append(parent)
            fields = node.__dict__
            fields["_table"] = self
            fields["_number"] = index
            kind = type(node)
            # Three of four nodes are one of these six.
            if kind is NAME:
                names.append(index)
                name = fields["id"]
                spelled[name].append(index)
                if type(fields["ctx"]) is not LOAD:
                    stored.append((index, name))
                ends.append(count)
                return
            if kind is CONSTANT:
                constants.append(index)
                ends.append(count)
                return
            ends.append(0)
            if kind is ATTRIBUTE:
                attributes.append(index)
                spelled[fields["attr"]].append(index)
                visit(fields["value"], index)
            elif kind is CALL:
                calls.append(index)
                visit(fields["func"], index)
                for item in fields["args"]:
                    visit(item, index)
                for item in fields["keywords"]:
                    visit(item, index)
            elif kind is KEYWORD or kind is EXPR:
                kinds[kind].append(index)
                visit(fields["value"], index)
            else:
                kinds[kind].append(index)
                for name, several in PARTS[kind]:
                    value = fields[name]
                    if several:
                        for item in value:
                            if item is not None:  # as in {**more}
                                visit(item, index)
                    elif value is not None:
                        visit(value, index)
            ends[index] = count

        visit(tree, 0)

    def _scope(self) -> None:
        scopes, ends = self.scopes, self.ends
        scopes += [0] * len(self.nodes)
        inner = [index for kind in SCOPES for index in self.kinds.get(kind, ())]
        for index in sorted(inner):  # what is nested comes behind what is around it
            node = self.nodes[index]
            around = self.owners[scopes[index]]
            self.owners[index] = node if isinstance(node, FUNCTIONS) else around
            scopes[index + 1 : ends[index]] = [index] * (ends[index] - index - 1)

    @cached_property
    def bindings(self) -> list[tuple[int, str]]:
        """Number of a node that binds a name in its scope, and the name, in preorder."""
        nodes: list[Any] = self.nodes
        found = [*self.stored]
        for kind in (*DEFINITIONS, ast.ExceptHandler):
            named = self.kinds.get(kind, ())
            found += [(index, name) for index in named if (name := nodes[index].name)]
        for statement in (ast.Import, ast.ImportFrom):
            for index in self.kinds.get(statement, ()):
                for alias in nodes[index].names:
                    found.append((index, alias.asname or alias.name.partition(".")[0]))
        found.sort(key=itemgetter(0))
        return found

    @cached_property
    def _bound_at(self) -> list[int]:
        return [index for index, _ in self.bindings]

    def bindings_in(self, start: int, end: int) -> list[tuple[int, str]]:
        """Those of the nodes from ``start`` to ``end``."""
        numbers = self._bound_at
        return self.bindings[bisect_left(numbers, start) : bisect_left(numbers, end)]


# The numbering that a node belongs to, and its number. (A pair for each node would be an eighth of
# a tree's memory, and the time goes with the memory.)
place: Callable[[ast.AST], tuple[Preorder, int]] = attrgetter("_table", "_number")
number_of: Callable[[ast.AST], int] = attrgetter("_number")


class Parents:
    """The parent of each node but the first, found by its number when it is asked for."""

    def __init__(self, table: Preorder) -> None:
        self.table = table

    def __contains__(self, node: ast.AST) -> bool:
        table, index = place(node)
        return table is self.table and index > 0

    def __getitem__(self, node: ast.AST) -> ast.AST:
        table, index = place(node)
        if not index:
            raise KeyError(node)
        return table.nodes[table.above[index]]

    def get(self, node: ast.AST) -> ast.AST | None:
        """The parent; None for the first node."""
        table, index = place(node)
        return table.nodes[table.above[index]] if index else None


def ancestors(node: ast.AST) -> list[ast.AST]:
    """Parents of ``node``, innermost first."""
    table, index = place(node)
    nodes, above = table.nodes, table.above
    found = []
    while index:
        index = above[index]
        found.append(nodes[index])
    return found


def is_inside(node: ast.AST, other: ast.AST) -> bool:
    """Whether ``node`` stands below ``other``."""
    (table, index), (home, start) = place(node), place(other)
    return table is home and start < index < table.ends[start]


def function_of(node: ast.AST) -> Function | None:
    """The function around ``node``; None at module level."""
    table, index = place(node)
    return table.owners[table.scopes[index]]


def below(node: ast.AST) -> list[ast.AST]:
    """``node`` and every node below it, in source order."""
    table, index = place(node)
    return table.nodes[index : table.ends[index]]


def children(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes right below ``node``, in source order."""
    table, index = place(node)
    end = table.ends[index]
    index += 1
    while index < end:
        yield table.nodes[index]
        index = table.ends[index]


def _range(nodes: list[ast.stmt] | ast.AST) -> tuple[Preorder, int, int, int] | None:
    """The numbering, the slice of it, and the scope that a walk of ``nodes`` keeps to."""
    if isinstance(nodes, list):
        if not nodes:
            return None
        table, start = place(nodes[0])
        return table, start, table.ends[number_of(nodes[-1])], table.scopes[start]
    table, start = place(nodes)
    scope = start if isinstance(nodes, SCOPES) else table.scopes[start]
    return table, start, table.ends[start], scope


def walk(nodes: list[ast.stmt] | ast.AST) -> list[ast.AST]:
    """Every node below ``nodes`` in source order, without entering nested functions or classes."""
    found = _range(nodes)
    if found is None:
        return []
    table, start, end, scope = found
    scopes = table.scopes
    return [
        node
        for index, node in enumerate(table.nodes[start:end], start)
        if scopes[index] == scope or index == start
    ]


def within(nodes: list[ast.stmt] | ast.AST, kind: type[Node]) -> list[Node]:
    """Nodes of one type below ``nodes``, without entering nested functions or classes."""
    found = _range(nodes)
    if found is None:
        return []
    table, start, end, scope = found
    numbers, scopes = table.kinds.get(kind, []), table.scopes
    some = numbers[bisect_left(numbers, start) : bisect_left(numbers, end)]
    all_nodes: list[Any] = table.nodes
    # A function's own scope is the one around it.
    return [all_nodes[index] for index in some if scopes[index] == scope or index == start]


def stands_in(node: ast.AST, nodes: list[ast.stmt] | ast.AST) -> bool:
    """Whether ``within`` finds ``node`` below ``nodes``."""
    found = _range(nodes)
    if found is None:
        return False
    table, start, end, scope = found
    index = number_of(node)
    return start <= index < end and (table.scopes[index] == scope or index == start)


def names_within(nodes: list[ast.stmt] | ast.AST, names: Set[str]) -> list[ast.Name]:
    """Plain names that are spelled so, below ``nodes`` as ``within`` has them, in source order."""
    found = _range(nodes)
    if found is None:
        return []
    table, start, end, scope = found
    numbers: list[int] = []
    for name in names & table.spelled.keys():
        some = table.spelled[name]
        numbers += some[bisect_left(some, start) : bisect_left(some, end)]
    all_nodes: list[Any] = table.nodes
    scopes = table.scopes
    return [
        node
        for index in sorted(numbers)
        if scopes[index] == scope and type(node := all_nodes[index]) is ast.Name
    ]


def inside(nodes: list[ast.stmt] | ast.AST, some: Iterable[Node]) -> list[Node]:
    """Those that stand below ``nodes``, without entering nested functions or classes."""
    found = _range(nodes)
    if found is None:
        return []
    table, start, end, scope = found
    return [
        node
        for node in some
        if start <= (number := number_of(node)) < end and table.scopes[number] == scope
    ]


def everywhere(node: ast.AST, kind: type[Node]) -> list[Node]:
    """``node`` and the nodes of one type below it, nested functions and classes included."""
    table, start = place(node)
    numbers = table.kinds.get(kind, [])
    slice_ = numbers[bisect_left(numbers, start) : bisect_left(numbers, table.ends[start])]
    nodes: list[Any] = table.nodes
    return [nodes[index] for index in slice_]


def bound_names(nodes: list[ast.stmt] | ast.AST) -> set[str]:
    """Names that the statements bind: assignments, loops, imports, definitions, ``with … as``."""
    found = _range(nodes)
    if found is None:
        return set()
    table, start, end, scope = found
    bindings, scopes = table.bindings_in(start, end), table.scopes
    return {name for index, name in bindings if scopes[index] == scope or index == start}


def binders(function: Function) -> list[tuple[ast.AST, str]]:
    """Nodes in the function's body that bind a name, and the name, in source order."""
    table, scope = place(function)
    return [
        (table.nodes[index], name)
        for index, name in table.bindings_in(scope, table.ends[scope])
        if table.scopes[index] == scope
    ]


def uses(tree: ast.Module, names: Set[str]) -> Iterator[tuple[ast.AST, str]]:
    """Which functions, or the module itself, have which of ``names`` in their body.

    A lambda's names are its function's; those in a class are not, but a local class is.
    """
    table, _ = place(tree)
    nodes, scopes = table.nodes, table.scopes
    for name in names & table.spelled.keys():
        for index in table.spelled[name]:
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
    for index in table.kinds.get(ast.ClassDef, ()):
        local, owner = nodes[index], nodes[scopes[index]]
        if isinstance(local, ast.ClassDef) and isinstance(owner, FUNCTIONS) and local.name in names:
            yield owner, local.name


def parameters(function: Function) -> set[str]:
    """Names of a function's parameters."""
    return {arg.arg for arg in everywhere(function.args, ast.arg)}


def position(node: ast.AST) -> tuple[int, int]:
    """Source order."""
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def keyword(call: ast.Call, name: str) -> ast.keyword | None:
    """The keyword argument ``name`` of a call."""
    for word in call.keywords:
        if word.arg == name:
            return word
    return None


def argument(call: ast.Call, index: int, name: str) -> ast.expr | None:
    """An argument given by position or by name."""
    word = keyword(call, name)
    if word is not None:
        return word.value
    return call.args[index] if len(call.args) > index else None


def last_argument(call: ast.Call) -> ast.expr | ast.keyword | None:
    """The argument that stands last in the source, behind which another one may follow."""
    everything: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    return max(everything, key=position, default=None)


def mentions(node: ast.AST, text: str) -> bool:
    """Whether an attribute or name spelled ``text`` occurs below ``node``."""
    table, start = place(node)
    numbers = table.spelled.get(text, ())
    first = bisect_left(numbers, start)
    return first < len(numbers) and numbers[first] < table.ends[start]


def same(first: object, second: object) -> bool:
    """Whether two expressions are spelled alike, whatever their white space."""
    if type(first) is not type(second):
        return False
    if isinstance(first, list):
        assert isinstance(second, list)
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, ast.AST):
        fields = vars(second)
        return all(same(vars(first)[name], fields[name]) for name in first._fields)
    return repr(first) == repr(second)  # True is no 1


def assigned_pairs(stmt: ast.Assign) -> Iterator[tuple[str, ast.expr]]:
    """Name and value of ``a = v``, ``a = b = v`` and ``a, b = v, w``."""
    for target in stmt.targets:
        if isinstance(target, ast.Name):
            yield target.id, stmt.value
        elif isinstance(target, ast.Tuple) and isinstance(stmt.value, ast.Tuple):
            for item, value in zip(target.elts, stmt.value.elts, strict=False):
                if isinstance(item, ast.Name):
                    yield item.id, value


def is_empty_list(value: ast.expr) -> bool:
    """``[]``."""
    return isinstance(value, ast.List) and not value.elts


def is_number(value: ast.expr) -> bool:
    """A literal int or float."""
    return isinstance(value, ast.Constant) and type(value.value) in (int, float)
