"""Questions about syntax alone: what stands below a node, what a call is given, what is bound.

Every node of a module is numbered in preorder once; what stands below a node is then a slice, and
the nodes of one type below it are found by bisection. Rules ask such things thousands of times.
"""

from __future__ import annotations

import ast
import sys
from ast import Attribute, Call, Constant, Load, Name
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Set
from functools import cached_property
from operator import attrgetter, itemgetter

TYPE_CHECKING = False  # typing takes long to import
if TYPE_CHECKING:
    from typing import Any, TypeVar

    Node = TypeVar("Node", bound=ast.AST)

Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)  # isinstance is slow with a union
DEFINITIONS = (*FUNCTIONS, ast.ClassDef)
SCOPES = (*FUNCTIONS, ast.Lambda, ast.ClassDef)
# Fields that hold texts and numbers, or objects that all trees share: contexts and operators.
PLAIN = {"ctx", "op", "ops", "arg", "level", "module", "asname"}


class Parts(dict[type, tuple[str, ...] | None]):
    """Fields of each type of node that may hold nodes of the tree; None for what is no node."""

    def __missing__(self, kind: type) -> tuple[str, ...] | None:
        if issubclass(kind, ast.AST):
            self[kind] = tuple(name for name in kind._fields if name not in PLAIN)
        else:
            self[kind] = None
        return self[kind]


PARTS = Parts()
DEEPEST = 10_000  # more than ast.parse takes; the frames of Python calls are no C stack


class Preorder:
    """The nodes of a tree in preorder: for each its number, parent, end and scope.

    ``ends[i]`` is one past the last node below node ``i``; ``scopes[i]`` the number of the
    function, lambda or class around it, 0 at module level; ``owners`` has the function that each of
    these is, or stands in. ``names`` and ``attributes`` have the numbers of those of a spelling;
    ``stored`` those of plain names that are bound or deleted.
    """

    def __init__(self, tree: ast.AST) -> None:
        self.nodes: list[ast.AST] = []
        self.above: list[int] = []
        self.scopes: list[int] = []
        self.ends: list[int] = []
        self.kinds: dict[type[ast.AST], list[int]] = defaultdict(list)
        self.names: dict[str, list[int]] = defaultdict(list)
        self.stored: list[int] = []
        self.attributes: dict[str, list[int]] = defaultdict(list)
        self.owners: dict[int, Function | None] = {0: None}
        self.answers: dict[object, Any] = {}  # to questions about the tree
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(max(limit, DEEPEST))
        try:
            self._number(tree)
        finally:
            sys.setrecursionlimit(limit)

    def _number(self, tree: ast.AST) -> None:
        nodes, above, scopes, ends = self.nodes, self.above, self.scopes, self.ends
        kinds, owners = self.kinds, self.owners
        all_names, names, stored = kinds[Name], self.names, self.stored
        all_attributes, attributes = kinds[Attribute], self.attributes
        constants, calls = kinds[Constant], kinds[Call]

        def visit(node: Any, parent: int, scope: int) -> None:
            index = len(nodes)
            nodes.append(node)
            above.append(parent)
            scopes.append(scope)
            fields = node.__dict__
            fields["_place"] = self, index
            kind = type(node)
            # Seven of ten nodes are one of these four.
            if kind is Name:
                all_names.append(index)
                names[fields["id"]].append(index)
                if type(fields["ctx"]) is not Load:
                    stored.append(index)
                ends.append(index + 1)
                return
            if kind is Constant:
                constants.append(index)
                ends.append(index + 1)
                return
            ends.append(0)
            if kind is Attribute:
                all_attributes.append(index)
                attributes[fields["attr"]].append(index)
                visit(fields["value"], index, scope)
                ends[index] = len(nodes)
                return
            if kind is Call:
                calls.append(index)
                visit(fields["func"], index, scope)
                for item in fields["args"]:
                    visit(item, index, scope)
                for item in fields["keywords"]:
                    visit(item, index, scope)
                ends[index] = len(nodes)
                return
            kinds[kind].append(index)
            if kind in SCOPES:
                owners[index] = node if kind in FUNCTIONS else owners[scope]
                scope = index
            for name in PARTS[kind] or ():
                value = fields[name]
                if type(value) is list:
                    for item in value:
                        if PARTS[type(item)] is not None:
                            visit(item, index, scope)
                elif PARTS[type(value)] is not None:
                    visit(value, index, scope)
            ends[index] = len(nodes)

        visit(tree, 0, 0)

    @cached_property
    def spelled(self) -> dict[str, list[int]]:
        """Numbers of the names and attributes that are spelled so, in preorder."""
        names, attributes = self.names, self.attributes
        both = names.keys() & attributes.keys()
        return {
            **names,
            **attributes,
            **{name: sorted(names[name] + attributes[name]) for name in both},
        }

    @cached_property
    def bindings(self) -> list[tuple[int, str]]:
        """Number of a node that binds a name in its scope, and the name, in preorder."""
        nodes: list[Any] = self.nodes
        found: list[tuple[int, str]] = [(index, nodes[index].id) for index in self.stored]
        for kind in (*DEFINITIONS, ast.ExceptHandler):
            named = self.kinds.get(kind, ())
            found += [(index, name) for index in named if (name := nodes[index].name)]
        for statement in (ast.Import, ast.ImportFrom):
            for index in self.kinds.get(statement, ()):
                for alias in nodes[index].names:
                    found.append((index, alias.asname or alias.name.partition(".")[0]))
        found.sort(key=itemgetter(0))
        return found


# The numbering that a node belongs to, and its number.
place: Callable[[ast.AST], tuple[Preorder, int]] = attrgetter("_place")


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
        return table, start, table.ends[place(nodes[-1])[1]], table.scopes[start]
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
    index = place(node)[1]
    return start <= index < end and (table.scopes[index] == scope or index == start)


def names_within(nodes: list[ast.stmt] | ast.AST, names: Set[str]) -> list[ast.Name]:
    """Plain names that are spelled so, below ``nodes`` as ``within`` has them, in source order."""
    found = _range(nodes)
    if found is None:
        return []
    table, start, end, scope = found
    numbers: list[int] = []
    for name in names & table.names.keys():
        some = table.names[name]
        numbers += some[bisect_left(some, start) : bisect_left(some, end)]
    all_nodes: list[Any] = table.nodes
    scopes = table.scopes
    return [all_nodes[index] for index in sorted(numbers) if scopes[index] == scope]


def inside(nodes: list[ast.stmt] | ast.AST, some: Iterable[Node]) -> list[Node]:
    """Those that stand below ``nodes``, without entering nested functions or classes."""
    found = _range(nodes)
    if found is None:
        return []
    table, start, end, scope = found
    return [
        node
        for node in some
        if start <= (number := place(node)[1]) < end and table.scopes[number] == scope
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
    bindings, scopes = table.bindings, table.scopes
    first, last = bisect_left(bindings, (start,)), bisect_left(bindings, (end,))
    return {
        name for index, name in bindings[first:last] if scopes[index] == scope or index == start
    }


def binders(function: Function) -> list[tuple[ast.AST, str]]:
    """Nodes in the function's body that bind a name, and the name, in source order."""
    table, scope = place(function)
    first, last = (bisect_left(table.bindings, (number,)) for number in (scope, table.ends[scope]))
    return [
        (table.nodes[index], name)
        for index, name in table.bindings[first:last]
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
                first, last = place(owner.body[0])[1], place(owner.body[-1])[1]
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


def same(first: ast.AST, second: ast.AST) -> bool:
    """Whether two expressions are spelled alike, whatever their white space."""
    if type(first) is not type(second):
        return False
    # To write a tree down takes long, and most that are asked for differ in their first word.
    for word in ("id", "attr"):
        if getattr(first, word, "") != getattr(second, word, ""):
            return False
    return ast.dump(first) == ast.dump(second)


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
