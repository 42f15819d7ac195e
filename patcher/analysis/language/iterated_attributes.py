"""Objects of the program's classes that go over one of their attributes.

``for batch in OnDevice(loader, device):`` goes over the loader, as its ``__iter__`` does.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import below, bound_names, everywhere, is_inside, within
from .call_graph import CallGraph
from .name_flow import names_in, spread
from .objects import attribute_values, is_self, named_definition

ITERATES = {"__iter__", "__next__", "next"}  # a class with one of these is gone over
ITERATING = {"iter", "next", "enumerate", "tqdm", "zip"}  # calls that go over what they get

AttributeValue = tuple[str, Module, ast.expr]  # its name, and where it is bound to what


def iterated_attributes(graph: CallGraph, module: Module, call: ast.Call) -> list[AttributeValue]:
    """What ``OnDevice(…)`` binds to the attributes that its object goes over.

    Empty where ``call`` makes no object of a class of the program that can be gone over.
    """
    where, owner = named_definition(graph, module, call.func) or (module, None)
    if not isinstance(owner, ast.ClassDef):
        return []
    methods = [each for each in owner.body if isinstance(each, ast.FunctionDef)]
    if ITERATES.isdisjoint(each.name for each in methods):
        return []
    names = {
        source.attr
        for method in methods
        for source in iterated_in(where, method)
        if isinstance(source.value, ast.Name) and is_self(method, source.value.id)
    }
    return [
        (name, place, value)
        for name in sorted(names)
        for place, value in attribute_values(graph, (where, owner), name)
    ]


def iterated_in(module: Module, method: ast.FunctionDef) -> Iterator[ast.Attribute]:
    """The attributes that a method goes over, and yields as many elements as they have."""
    loops = within(method.body, ast.For)
    sources: list[ast.expr] = [each.iter for each in loops]
    sources += [each.iter for each in everywhere(method, ast.comprehension)]
    sources += [each.value for each in within(method.body, ast.YieldFrom)]
    for call in within(method.body, ast.Call):
        if module.last_name(call.func) in ITERATING:
            sources += call.args
    for source in sources:
        if isinstance(source, ast.Attribute) and not any(
            source in below(loop.iter) and puts_together_anew(module, method, loop)
            for loop in loops
        ):
            yield source


def puts_together_anew(module: Module, method: ast.FunctionDef, loop: ast.For) -> bool:
    """Whether it hangs on an element how often a generator yields for it.

    Such as one that cuts what it has collected into batches: ranks would take steps of their own.
    """
    target = loop.target
    if isinstance(loop.iter, ast.Call) and module.last_name(loop.iter.func) == "enumerate":
        target = target.elts[-1] if isinstance(target, ast.Tuple) else target
    names = spread(method.body, bound_names(target)).names
    inner = [*within(loop.body, ast.For), *within(loop.body, ast.While)]
    jumps = [*within(loop.body, ast.Continue), *within(loop.body, ast.Break)]
    own = [jump for jump in jumps if not any(is_inside(jump, each) for each in inner)]
    return any(
        hangs_on_element(up, loop, names)
        for node in (*within(method.body, ast.Yield), *own)
        for up in module.ancestors(node)
        if is_inside(up, method)
    )


def hangs_on_element(node: ast.AST, loop: ast.For, names: frozenset[str]) -> bool:
    """Whether it hangs on these names how often a statement's code runs and yields."""
    match node:
        case ast.For() if node is not loop:
            return not names.isdisjoint(names_in(node.iter))
        case ast.If() | ast.While() if names_in(node.test) & names:
            if holds_one_back(node, loop):
                return False
            return not all(within(branch, ast.Yield) for branch in (node.body, node.orelse))
    return False


def holds_one_back(node: ast.If | ast.While, loop: ast.For) -> bool:
    """``if ahead is not None:``, of a name that an element is kept in until the next one comes."""
    match node.test:
        case ast.Compare(ast.Name(name), [ast.IsNot()], [ast.Constant(None)]):
            return isinstance(node, ast.If) and any(
                isinstance(stmt, ast.Assign)
                and isinstance(stmt.value, ast.Name)
                and stmt.value.id in bound_names(loop.target)
                and [each.id for each in stmt.targets if isinstance(each, ast.Name)] == [name]
                for stmt in loop.body
            )
    return False
