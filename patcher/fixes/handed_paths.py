"""Files that a function writes where its caller says, who looks for them first: caches."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..analysis.language.passed_arguments import argument_for_parameter
from ..analysis.training.program import Program
from ..source.branches import exclusive
from ..source.module import Module
from ..source.tree import (
    argument_values,
    everywhere,
    is_inside,
    parameters,
    precedes,
    same_code,
    within,
)
from .written_by_one import LOOKS

MAX_CALLERS = 3  # through which a path is handed on
Handed = tuple[Module, ast.Call, ast.expr]  # a call, and the path that it passes


def handed_paths(
    program: Program, module: Module, call: ast.Call, path: ast.expr, depth: int = 0
) -> Iterator[Handed]:
    """The calls that pass a path to the function that writes there, also through others.

    Of a method that writes to ``self.path``, the calls of it in other methods of the class, and
    those of an object that is made with the path in the function that calls.
    """
    function = module.function(call)
    if function is not None and is_of_object(path):
        owner = module.enclosing_class(function)
        for where, caller in program.callers(function) if owner is not None else ():
            if where is module and module.enclosing_class(caller) is owner:
                yield where, caller, path
            elif owner is not None and (given := made_with(module, owner, path, where, caller)):
                yield where, caller, given
        return
    if function is None or not isinstance(path, ast.Name) or path.id not in parameters(function):
        return
    for where, caller in program.callers(function):
        passed = argument_for_parameter(module, function, caller, path.id)
        if passed is not None:
            yield where, caller, passed
            if depth < MAX_CALLERS:
                yield from handed_paths(program, where, caller, passed, depth + 1)


def made_with(
    home: Module, owner: ast.ClassDef, path: ast.expr, module: Module, call: ast.Call
) -> ast.expr | None:
    """What ``Data(folder, name)`` is passed for ``self.path``, where ``data.write()`` is called."""
    made = call.func.value if isinstance(call.func, ast.Attribute) else None
    if isinstance(made, ast.Name):
        made = module.definition(made, made)
    if not isinstance(made, ast.Call) or module.last_name(made.func) != owner.name:
        return None
    for init in owner.body:
        if not isinstance(init, ast.FunctionDef) or init.name != "__init__":
            continue
        for stmt in init.body:
            value = stmt.value if isinstance(stmt, ast.Assign) else None
            if isinstance(value, ast.Name) and value.id in parameters(init):
                assert isinstance(stmt, ast.Assign)
                if any(home.text(target) == home.text(path) for target in stmt.targets):
                    return argument_for_parameter(home, init, made, value.id)
    return None


def is_of_object(path: ast.expr) -> bool:
    """``self.path``."""
    return (
        isinstance(path, ast.Attribute)
        and isinstance(path.value, ast.Name)
        and path.value.id == "self"
    )


def is_handed_on(module: Module, caller: ast.Call, passed: ast.expr) -> bool:
    """Whether a call passes the path that its own function has got, which its callers look for."""
    function = module.function(caller)
    return (
        isinstance(passed, ast.Name)
        and function is not None
        and passed.id in parameters(function)
        and (function, passed.id) not in module.stores
        and reads_instead((module, caller, passed)) is None
    )


def is_result(handed: Handed) -> bool:
    """Whether nobody looks for the file where it is written, nor goes on with its path behind."""
    module, caller, passed = handed
    return not is_looked_for(handed) and not any(
        same_code(node, passed) and precedes(caller, node) and not is_inside(node, caller)
        for node in within(module.scope_statements(caller), type(passed))
    )


def is_looked_for(handed: Handed) -> bool:
    """Whether a test around a call looks for the file: ``if not os.path.exists(name): make(name)``.

    Who called may read it behind.
    """
    module, caller, passed = handed
    return any(
        looks_for(module, test, passed)
        for test in module.ancestors(caller)
        if isinstance(test, ast.If)
    )


def looks_for(module: Module, test: ast.If, path: ast.expr) -> bool:
    """Whether a test asks whether there is a file."""
    return any(
        same_code(path, part)
        for look in everywhere(test.test, ast.Call)
        if asks_for_file(module, look)
        for part in (*argument_values(look), getattr(look.func, "value", None))
        if part is not None
    )


def asks_for_file(module: Module, call: ast.Call) -> bool:
    """``os.path.exists(path)``, and a helper of such a name: ``is_file_exists(path)``."""
    name = module.last_name(call.func)
    return name in LOOKS or "exist" in name.lower()


def reads_instead(handed: Handed) -> ast.Call | None:
    """The call that reads the file where there is one, in the place of what makes and writes it.

    In the other branch of a test that looks for it, or in one above that returns. None where the
    function goes on with the path behind.
    """
    module, caller, passed = handed
    mentions = [
        node
        for node in within(module.scope_statements(caller), type(passed))
        if same_code(node, passed) and node is not passed
    ]
    if any(precedes(caller, node) and not exclusive(caller, node) for node in mentions):
        return None
    for node in mentions:
        read = module.parents[node]
        tests = [up for up in module.ancestors(node) if isinstance(up, ast.If)]
        tests = [
            up for up in tests if not is_inside(node, up.test) and looks_for(module, up, passed)
        ]
        if not isinstance(read, ast.Call) or not tests or asks_for_file(module, read):
            continue
        leaves = isinstance(tests[-1].body[-1], ast.Return) and precedes(tests[-1], caller)
        if exclusive(read, caller) or (leaves and not is_inside(caller, tests[-1])):
            return read
    return None
