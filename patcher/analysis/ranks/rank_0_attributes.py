"""Attributes that only rank 0 binds, and the other ranks read: ``args.writer``, ``self.writer``."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import everywhere, mentions, parameters
from ..language.objects import is_self
from ..training.program import Program
from .rank_reach import Role, differs_by_role, roles_reaching

Holder = ast.ClassDef | None  # a class of the program for its ``self``, or the parsed arguments
Place = tuple[Module, ast.Attribute]
LOOKS_FOR_NAMES = ("hasattr", "getattr", "setattr", "delattr", "vars", "set_defaults")
PLAIN_BASES = ("object", "Module", "ABC")


def reads_on_other_ranks(program: Program) -> Iterator[tuple[Module, ast.Attribute, ast.stmt]]:
    """Reads by ranks behind 0 of an attribute that they never bind, each with its binding.

    Only of objects whose attributes are all in sight: the parsed arguments, and ``self`` in a
    class without bases of libraries.
    """
    names = [name for _, _, name in program.parse_sites]
    for (holder, attr), (stores, reads) in places_by_attribute(program, names).items():
        if is_bound_otherwise(program, holder, attr):
            continue
        binders = frozenset[Role]().union(*(roles_reaching(program, *each) for each in stores))
        if Role.OTHER in binders or Role.MAIN not in binders:
            continue
        binding = stores[0][0].statement(stores[0][1])
        for module, read in reads:
            if is_asked_for(module, read) or not program.is_live(module, read):
                continue
            if Role.OTHER in roles_reaching(program, module, read):
                yield module, read, binding


def places_by_attribute(
    program: Program, names: list[str]
) -> dict[tuple[Holder, str], tuple[list[Place], list[Place]]]:
    """Where attributes are bound and read, for those that are bound under a test of the rank."""
    gated: set[str] = set()
    for module in program.modules:
        for test in module.nodes(ast.If):
            if differs_by_role(module, test.test):
                for node in everywhere(test, ast.Attribute):
                    if isinstance(node.ctx, ast.Store):
                        gated.add(node.attr)
    found: dict[tuple[Holder, str], tuple[list[Place], list[Place]]] = defaultdict(lambda: ([], []))
    for module in program.modules:
        for node in module.attributes(*gated) if gated else ():
            if not isinstance(node.value, ast.Name):
                continue
            holder, is_known = holder_of(module, node.value, names)
            if is_known:
                found[holder, node.attr][not isinstance(node.ctx, ast.Store)].append((module, node))
    return {key: places for key, places in found.items() if places[0]}


def holder_of(module: Module, name: ast.Name, names: list[str]) -> tuple[Holder, bool]:
    """What a name stands for, and whether that is known."""
    function = module.function(name)
    owner = None if function is None else module.parents.get(function)
    if isinstance(owner, ast.ClassDef) and function is not None and is_self(function, name.id):
        bases = [module.last_name(base) for base in owner.bases]
        return owner, all(base in PLAIN_BASES for base in bases)
    if name.id not in names:
        return None, False
    return None, function is None or is_arguments(module, name)


def is_arguments(module: Module, name: ast.Name) -> bool:
    """Whether a name in a function is its parameter, or is bound nowhere else in it."""
    function = module.function(name)
    assert function is not None
    return name.id in parameters(function) or (len(module.stores.get((function, name.id), ())) <= 1)


def is_bound_otherwise(program: Program, holder: Holder, attr: str) -> bool:
    """Whether an object may have an attribute without an assignment to it in sight."""
    if holder is None and attr in program.options:
        return True
    if holder is not None and any(
        attr in {getattr(node, "id", ""), getattr(node, "name", "")}
        for stmt in holder.body
        for node in (stmt, *everywhere(stmt, ast.Name))
        if not isinstance(stmt, ast.FunctionDef) or node is stmt
    ):
        return True
    return any(
        any(isinstance(each, ast.Constant) and each.value == attr for each in call.args)
        or any(word.arg == attr for word in call.keywords)
        for _, call in program.calls_to(*LOOKS_FOR_NAMES)
    )


def is_asked_for(module: Module, read: ast.Attribute) -> bool:
    """Whether a test around a read, or the read itself in a test, asks for the attribute."""
    tests = [
        up.test
        for up in module.ancestors(read)
        if isinstance(up, ast.If | ast.While | ast.IfExp | ast.Assert)
    ]
    return any(mentions(test, read.attr) for test in tests)
