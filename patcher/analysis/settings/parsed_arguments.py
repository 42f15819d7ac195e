"""Where a program binds its parsed arguments, and by which expression a place reaches them."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import Function, bound_names, parameters, within
from ..language.passed_arguments import argument_for_parameter
from ..language.results import name_of_result, spelled_name
from ..training.program import Program


def argument_sites(program: Program) -> list[tuple[Module, ast.stmt, str]]:
    """The statements after which the arguments are known, and their name there.

    Where a function parses and returns them, that is the statement that calls it.
    """
    sites: list[tuple[Module, ast.stmt, str]] = []
    for module, stmt, args in program.parse_sites:
        function = module.function(stmt)
        if function is None or not _returns_arguments(program, function):
            sites.append((module, stmt, args))
            continue
        for where, call in program.callers(function):
            if name := name_of_result(where, call):
                sites.append((where, where.statement(call), name))
    return sites


def arguments_at(program: Program, module: Module, node: ast.AST) -> str:
    """The expression for the parsed arguments at ``node``, or the empty string without one."""
    function = module.function(node)
    if function is None:
        return next(iter(sorted(_argument_names(program, module, None))), "")
    own = bound_names(function.body)
    for name in sorted(_argument_names(program, module, function)):
        return name
    if name := parameter_with_arguments(program, module, node):
        return name
    if "self" in parameters(function):
        owner = module.enclosing_class(function)
        attributes = _attributes_with_arguments(program, module, owner) if owner else []
        for text in attributes:
            return text
    for name in sorted(_argument_names(program, module, None) - own - parameters(function)):
        return name
    return ""


def parameter_with_arguments(program: Program, module: Module, node: ast.AST) -> str:
    """The parameter of the function around ``node`` that gets the parsed arguments in each call."""
    function = module.function(node)
    if function is None:
        return ""
    names = sorted(parameters(function) - bound_names(function.body))
    return next((name for name in names if _gets_arguments(program, module, function, name)), "")


def _argument_names(program: Program, module: Module, function: Function | None) -> set[str]:
    """Names that a function (or the module's top level) binds to the parsed arguments.

    By ``args = parser.parse_args()``, or ``args = get_args()`` of a function that parses.
    """
    names = {
        args
        for where, stmt, args in program.parse_sites
        if where is module and where.function(stmt) is function
    }
    parsers = {where.function(stmt) for where, stmt, _ in program.parse_sites} - {None}
    for parser in parsers:
        assert parser is not None
        for where, call in program.callers(parser):
            is_here = where is module and where.function(call) is function
            if is_here and _returns_arguments(program, parser):
                names |= {*filter(None, [name_of_result(where, call)])}
    return names


def _returns_arguments(program: Program, parser: Function) -> bool:
    """Whether a function returns the arguments that it parses."""
    sites = [site for site in program.parse_sites if site[0].function(site[1]) is parser]
    values = [out.value for out in within(parser.body, ast.Return) if out.value is not None]
    return any(spelled_name(module, value) == name for module, _, name in sites for value in values)


def _gets_arguments(
    program: Program,
    module: Module,
    function: Function,
    name: str,
    seen: frozenset[Function] = frozenset(),
) -> bool:
    """Whether every call of a function passes the parsed arguments as parameter ``name``."""
    callers = [(w, call) for w, call in program.callers(function) if program.is_live(w, call)]
    if not callers or function in seen:
        return False
    for where, call in callers:
        value = argument_for_parameter(module, function, call, name)
        if value is None:
            return False
        text, caller = where.text(value), where.function(call)
        if text in _argument_names(program, where, caller) | _argument_names(program, where, None):
            continue
        if text.startswith("self."):
            owner = where.enclosing_class(call)
            around = seen | {function}
            if owner is not None and text in _attributes_with_arguments(
                program, where, owner, around
            ):
                continue
            return False
        if caller is None or text not in parameters(caller):
            return False
        if not _gets_arguments(program, where, caller, text, seen | {function}):
            return False
    return True


def _attributes_with_arguments(
    program: Program,
    module: Module,
    owner: ast.ClassDef,
    seen: frozenset[Function] = frozenset(),
) -> list[str]:
    """Attributes such as ``self.args`` in which a class keeps the parsed arguments."""
    return [
        module.text(target)
        for constructor in owner.body
        if isinstance(constructor, ast.FunctionDef) and constructor.name == "__init__"
        for stmt in within(constructor.body, ast.Assign)
        if isinstance(stmt.value, ast.Name)
        and stmt.value.id in parameters(constructor)
        and _gets_arguments(program, module, constructor, stmt.value.id, seen)
        for target in stmt.targets
        if module.text(target).startswith("self.")
    ]
