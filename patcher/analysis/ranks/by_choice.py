"""Code that runs only where a user chose it: by an option, or by the kind of a file."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import Function, everywhere
from ..language.conditions import tests_that_hold
from ..language.names import answered_once
from ..training.program import Program
from .certain_reach import needs_option
from .roles import UNKNOWN

KIND_OF_FILE = ("endswith", "splitext", "suffix")


def is_chosen(program: Program, module: Module, node: ast.AST) -> bool:
    """Whether a test of a choice stands on every known way to a place.

    ``args.export`` of a switch, ``args.kind == "tar"`` of an option whose default is another, and
    ``path.endswith(".tar")``; not ``args.do_train``, which the training has to be asked for, too.
    """
    chosen = choice_on_every_way(program, module, node, asked_for_training(program))
    return chosen is not None


@answered_once
def asked_for_training(program: Program) -> frozenset[str]:
    """The tests, as text, without which the program trains nothing."""
    loops = [(loop.module, loop.steps) for loop in program.train_loops]
    tests = [
        (where, choice_on_every_way(program, where, steps, frozenset())) for where, steps in loops
    ]
    return frozenset(where.text(test) for where, test in tests if test is not None)


def choice_on_every_way(
    program: Program, module: Module, node: ast.AST, others: frozenset[str]
) -> ast.expr | None:
    """The test of a choice on one of the ways; None where one has none, but for some others."""
    found: ast.expr | None = None
    seen: set[Function] = set()
    unseen: list[tuple[Module, ast.AST]] = [(module, node)]
    while unseen:
        where, place = unseen.pop()
        tests = tests_that_hold(where, place)
        chosen = next(
            (
                test
                for test in tests
                if is_choice(program, where, test) and where.text(test) not in others
            ),
            None,
        )
        if chosen is not None:
            found = chosen
            continue
        function = where.function(place)
        callers = [] if function is None else program.callers(function)
        if function is None or not callers:
            return None
        if function not in seen:
            seen.add(function)
            unseen += callers
    return found


def is_choice(program: Program, module: Module, test: ast.expr) -> bool:
    """Whether a test fails with the default options, or asks for the kind of a file."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return any(is_choice(program, module, part) for part in test.values)
    if needs_option(program, module, test):
        return True
    match test:
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[ast.Constant(value=str(kind))]):
            calls = everywhere(left, ast.Call)
            if any(module.last_name(call.func) in KIND_OF_FILE for call in calls):
                return True
            if not isinstance(left, ast.Attribute):
                return False
            default = untouched_default(program, left.attr)
            is_another = isinstance(default, str) and default != kind
            return left.attr == "suffix" or is_another
        case ast.Compare(left=left, ops=[ast.Is() | ast.Eq()], comparators=[ast.Constant(True)]):
            return is_choice(program, module, left)
        case ast.Call(func=ast.Attribute(attr="endswith")):
            return True
        case ast.Attribute(attr=name):
            default = untouched_default(program, name)
            return default is not UNKNOWN and not default
    return False


def untouched_default(program: Program, name: str) -> object:
    """The default of an option that nothing sets; UNKNOWN for anything else."""
    option = program.options.get(name)
    if option is None or any(each.attribute_values.get(name) for each in program.modules):
        return UNKNOWN
    return option.default
