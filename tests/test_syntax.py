"""The numbering of trees, and what is asked of it."""

from __future__ import annotations

import ast

import pytest
from checkout import ROOT
from ddpfix.patcher.source.tree import FUNCTIONS, SCOPES, Preorder, names_within, same_code

NO_NODES = (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop)
EVERYTHING = """
import os as o, sys
from a import b as c
global g
@decorated(1)
async def f(a: int, /, b=1, *args: str, c, d=2, **more) -> None:
    nonlocal_ = [x for x in y if x async for z in w]
    async with a as (b, c), d:
        await g(*a, k=1, **b)
    async for i in a: yield i
    else: return {**a, b: c}
class C(B, metaclass=M):
    x: int = 1
    y: str
    def m(self): return lambda p, q=1: (yield from p)
match a:
    case {'k': [1, *rest], **others} | C(1, k=None) if x: pass
    case (1 | -2) as n: ...
    case _: del a, b[1:2, ...]
try: assert a, 'b'
except (A, B) as e: raise C from e
except D: raise
else: a @= b
finally: a = b = {1, 2} if (n := c) else {k: v for k in v}
try: pass
except* E: continue_ = f'{a!r:>{w}}' 'b'
while not a < b <= c and d or -e ** f: break
with a, b as c: x.y.z = (*a, b'c', 1.0, None)
"""
SOURCES = sorted(
    [*(ROOT / "patcher" / "source").rglob("*.py"), *(ROOT / "fixtures").rglob("*.py")],
    key=lambda path: path.as_posix(),
)


def texts() -> list[str]:
    return [EVERYTHING, *(path.read_text() for path in SOURCES)]


def test_every_node_has_a_number_in_the_order_of_a_walk() -> None:
    for text in texts():
        tree = ast.parse(text)
        expected: list[ast.AST] = []

        def walk(node: ast.AST, into: list[ast.AST] = expected) -> None:
            into.append(node)
            for child in ast.iter_child_nodes(node):
                if not isinstance(child, NO_NODES):
                    walk(child)

        walk(tree)
        table = Preorder(tree)
        assert table.nodes == expected


def test_parents_ends_and_scopes_are_what_a_walk_of_each_node_finds() -> None:
    for text in texts():
        table = Preorder(ast.parse(text))
        numbers = {node: index for index, node in enumerate(table.nodes)}

        def check(node: ast.AST, parent: int, scope: int, owner: ast.AST | None) -> None:
            index = numbers[node]  # noqa: B023
            assert (table.parent_numbers[index], table.scopes[index]) == (parent, scope)  # noqa: B023
            assert table.owners[scope] is owner  # noqa: B023
            below = [node for node in ast.walk(node) if not isinstance(node, NO_NODES)]
            assert table.ends[index] == index + len(below)  # noqa: B023
            if isinstance(node, SCOPES):
                scope, owner = index, node if isinstance(node, FUNCTIONS) else owner
            for child in ast.iter_child_nodes(node):
                if not isinstance(child, NO_NODES):
                    check(child, index, scope, owner)

        check(table.nodes[0], 0, 0, None)


def test_names_within_are_no_attributes() -> None:
    tree = ast.parse("rank = args.rank\nrank.x = y.rank\n")
    Preorder(tree)
    assert [(name.lineno, name.col_offset) for name in names_within(tree, {"rank"})] == [
        (1, 0),
        (2, 0),
    ]


PAIRS = [
    pytest.param("a [ 0 ]", "a[0]", True, id="white space"),
    pytest.param("f(x, k=1)", "f(x,\n  k = 1)", True, id="over two lines"),
    pytest.param("f(x, k=1)", "f(x, j=1)", False, id="another keyword"),
    pytest.param("f(x)", "f(x, y)", False, id="one argument more"),
    pytest.param("1", "True", False, id="a number is no flag"),
    pytest.param("1", "1.0", False, id="an int is no float"),
    pytest.param("0x10", "16", True, id="one number written twice"),
    pytest.param("'a'", '"a"', True, id="one text quoted twice"),
    pytest.param("a + b", "a - b", False, id="another operator"),
    pytest.param("a.b", "a.c", False, id="another attribute"),
    pytest.param("{**a}", "{**b}", False, id="another unpacked"),
    pytest.param("x if y else z", "x if y else z", True, id="the same"),
]


@pytest.mark.parametrize(("first", "second", "expected"), PAIRS)
def test_expressions_are_the_same_whatever_their_spelling(
    first: str, second: str, *, expected: bool
) -> None:
    one, two = (ast.parse(f"({text})", mode="eval").body for text in (first, second))
    assert same_code(one, two) is expected
    assert (ast.dump(one) == ast.dump(two)) is expected
