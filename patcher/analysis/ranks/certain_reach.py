"""Whether every rank certainly comes to a place, with the program's options as they are by default.

Known calls have to lead there from a module's own code, and no test on the way may be one whose
answer could keep ranks away, or one that an option has to turn on.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import takewhile

from ...source.module import Module
from ...source.tree import FUNCTIONS, Function, argument, everywhere, mentions, parameters, within
from ..language.conditions import tests_at, tests_that_hold
from ..language.names import answered_once
from ..language.passed_arguments import argument_for_parameter
from ..training.program import Program
from .rank_reach import (
    QUERIES,
    UNKNOWN,
    Role,
    is_surely_entered,
    roles_reaching,
    value_for_role,
)
from .spawning import is_started

MAX_DEPTH = 4  # names, attributes and functions that a value passes through
OF_A_RANK = re.compile(
    r"rank|gpu|master|is_main|main_proc|is_root|primary|leader|chief|(proc(ess)?|cuda|device)_?id",
    re.I,
)
CONVERSIONS = ("int", "bool", "str")


def surely_on_every_rank(
    program: Program, module: Module, node: ast.AST, *, with_options: bool = False
) -> bool:
    """Whether known calls lead to ``node`` past no test that may keep a rank away from it.

    ``with_options``: with whatever options a user may give.
    """
    seen: set[Function] = set()
    unseen: list[tuple[Module, ast.AST]] = [(module, node)]
    while unseen:
        where, place = unseen.pop()
        if is_barred(program, where, place, with_options):
            continue
        if is_started(program, where, place):
            return is_surely_entered(program, where.function(place))
        if Role.OTHER not in roles_reaching(program, where, place):
            continue
        function = where.function(place)
        if function is None:
            return True
        if function not in seen:
            seen.add(function)
            unseen += program.callers(function)
            possible = program.possible_callers(function)
            passed_on = [each for each in possible if not isinstance(each[1], ast.Call)]
            unseen += [each for each in passed_on if not is_kept(*each)]
    return False


def is_kept(module: Module, value: ast.AST) -> bool:
    """Whether a function is put into a table, from which it may be called or not."""
    holder = module.parents[value]
    targets = holder.targets if isinstance(holder, ast.Assign) else []
    return isinstance(holder, ast.Dict) or any(isinstance(each, ast.Subscript) for each in targets)


def is_barred(program: Program, module: Module, node: ast.AST, with_options: bool) -> bool:
    """Whether a test in the function around ``node`` may keep a rank away from it. Cached."""
    known: dict[ast.AST, bool] = module.program_answers.setdefault((is_barred, with_options), {})
    path = [node]
    for up in module.ancestors(node):
        if path[-1] in known or (len(path) > 1 and isinstance(path[-1], FUNCTIONS)):
            break
        path.append(up)
    answer = known.get(path[-1], False)
    for child, up in zip(reversed(path[:-1]), reversed(path[1:]), strict=True):
        known[child] = answer = answer or bars(program, module, child, up, with_options)
    return answer


def bars(program: Program, module: Module, child: ast.AST, up: ast.AST, with_options: bool) -> bool:
    """Whether what is directly around a node may keep a rank away: see `surely_on_every_rank`."""
    if any(may_keep_ranks_away(program, module, test) for test in tests_at(child, up)):
        return True
    if isinstance(up, ast.With | ast.AsyncWith) and lets_ranks_in_turn(program, module, up):
        return True
    if not isinstance(up, ast.If) or child is up.test:
        return False
    in_body = any(stmt is child for stmt in up.body)
    if asks_for_missing_file(module, up.test, in_body):
        return True
    if in_body:
        return does_not_hold(program, module, up.test, with_options)
    return not with_options and holds_by_default(program, module, up.test)


def lets_ranks_in_turn(program: Program, module: Module, block: ast.With | ast.AsyncWith) -> bool:
    """``with rank_0_first(rank):``, where others may find done what the first one does."""
    return any(
        is_barred_barrier(where, call)
        for item in block.items
        if isinstance(item.context_expr, ast.Call)
        for where, function in program.callees(module, item.context_expr)
        for call in within(function.body, ast.Call)
        if where.last_name(call.func) == "barrier"
    )


def is_barred_barrier(module: Module, call: ast.Call) -> bool:
    """Whether a barrier stands under a test."""
    return any(isinstance(up, ast.If) for up in module.ancestors(call))


def does_not_hold(program: Program, module: Module, test: ast.expr, with_options: bool) -> bool:
    """Whether a test is another script's main guard, or an option has to turn it on.

    So may a setting of a file that is not read: ``if config.save_again:``.
    """
    is_others_guard = module is not program.script and mentions(test, "__name__")
    return is_others_guard or (not with_options and may_never_hold(program, module, test))


def may_keep_ranks_away(program: Program, module: Module, test: ast.expr) -> bool:
    """Whether a test asks for a rank, and its answer for the ranks behind 0 cannot be told.

    Where it can, the roles that reach a place say who passes it.
    """
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return any(may_keep_ranks_away(program, module, part) for part in test.values)
    is_unknown = value_for_role(module, test, Role.OTHER) is UNKNOWN
    return is_unknown and asks_for_rank(program, module, test)


def asks_for_missing_file(module: Module, test: ast.expr, answer: bool) -> bool:
    """Whether a test has an answer because a file is missing: the first rank may have left it."""
    return any(
        module.last_name(call.func) in ("exists", "is_file", "isfile")
        and is_negated(module, call, test) is answer
        for call in everywhere(test, ast.Call)
    )


def is_negated(module: Module, node: ast.expr, test: ast.expr) -> bool:
    """Whether ``not`` stands around a part of a test, an odd number of times."""
    inside = [node, *takewhile(lambda up: up is not test, module.ancestors(node)), test]
    nots = {id(up) for up in inside if isinstance(up, ast.UnaryOp) and isinstance(up.op, ast.Not)}
    return len(nots) % 2 == 1


def asks_for_rank(program: Program, module: Module, test: ast.expr, depth: int = 0) -> bool:
    """Whether a part of a test is, or may be made of, what sounds of a rank or of a card."""
    return any(sounds_of_rank(program, module, each, depth) for each in operands(test))


def operands(test: ast.expr) -> Iterator[ast.expr]:
    """What a test compares, connects and counts with; not what calls make their results of."""
    match test:
        case ast.BoolOp(values=parts):
            inner = parts
        case ast.UnaryOp(operand=part):
            inner = [part]
        case ast.BinOp(left=left, right=right):
            inner = [left, right]
        case ast.Compare(left=left, comparators=others):
            inner = [left, *others]
        case ast.IfExp(test=asked, body=first, orelse=second):
            inner = [asked, first, second]
        case ast.NamedExpr(value=part):
            inner = [part]
        case _:
            yield test
            return
    for part in inner:
        yield from operands(part)


def sounds_of_rank(program: Program, module: Module, node: ast.expr, depth: int) -> bool:
    """Whether a name, an attribute, a call or a subscript is of a rank, or stands for one."""
    if depth > MAX_DEPTH or is_switch(program, module, node, depth):
        return False
    values: list[tuple[Module, ast.expr]] = []
    match node:
        case ast.Call():
            name = module.last_name(node.func)
            if name in QUERIES or OF_A_RANK.search(name):
                return True
            if name in CONVERSIONS or name in ("get", "getenv"):
                values += [(module, value) for value in node.args]
            values += [
                (where, result.value)
                for where, function in program.callees(module, node)
                for result in within(function.body, ast.Return)
                if result.value is not None
            ]
        case ast.Subscript():
            values.append((module, node.slice))
        case ast.Constant(value=str() as text):
            return bool(re.search("RANK|PROCID|LOCALID", text))
        case ast.Attribute():
            if OF_A_RANK.search(node.attr) or node.attr in options_of_group(program):
                return True
            for where in program.modules:
                values += [(where, each) for each in where.attribute_values.get(node.attr, ())]
            values += [
                (where, result.value)
                for where, function in program.functions_by_name.get(node.attr, ())
                if any(
                    where.last_name(each).endswith("property") for each in function.decorator_list
                )
                for result in within(function.body, ast.Return)
                if result.value is not None
            ]
        case ast.Name():
            if OF_A_RANK.search(node.id):
                return True
            values += passed_or_assigned(program, module, node)
    return any(asks_for_rank(program, where, value, depth + 1) for where, value in values)


def is_switch(program: Program, module: Module, node: ast.expr, depth: int = 0) -> bool:
    """Whether a value is an option's switch, or whether there are cards, whatever its name says.

    ``use_gpu = torch.cuda.is_available() and not args.no_gpu``, which all ranks answer alike.
    """
    if depth > MAX_DEPTH:
        return False
    values: list[tuple[Module, ast.expr]] = []
    option = None
    match node:
        case ast.Constant(value=bool()):
            return True
        case ast.Call(func=ast.Attribute(attr="is_available")):
            return module.dotted(node.func) == "torch.cuda.is_available"
        case ast.BoolOp(values=parts):
            values += [(module, part) for part in parts]
        case ast.UnaryOp(op=ast.Not(), operand=part):
            values.append((module, part))
        case ast.Attribute(attr=name):
            option = program.options.get(name)
            for where in program.modules:
                values += [(where, each) for each in where.attribute_values.get(name, ())]
        case ast.Name():
            values += passed_or_assigned(program, module, node)
    if option is not None and not option.is_switch:
        return False
    known = bool(values) or option is not None
    return known and all(is_switch(program, *each, depth + 1) for each in values)


@answered_once
def options_of_group(program: Program) -> set[str]:
    """The attributes that are asked for wherever a process group is made: without, no rank is."""
    asked: list[set[str]] = []
    for module, call in program.calls_to("init_process_group"):
        function = module.function(call)
        places = [(module, call), *(program.callers(function) if function else ())]
        tests = [test for where, place in places for test in tests_that_hold(where, place)]
        asked.append({part.attr for test in tests for part in everywhere(test, ast.Attribute)})
    return set.intersection(*asked) if asked else set()


def passed_or_assigned(
    program: Program, module: Module, name: ast.Name
) -> Iterator[tuple[Module, ast.expr]]:
    """The values that a name may have: those it is bound to, or those passed for a parameter."""
    function = module.function(name)
    for value in module.alternatives(name, name):
        yield module, value
    if function is not None and name.id in parameters(function):
        for where, call in program.callers(function):
            passed = argument_for_parameter(module, function, call, name.id)
            if passed is not None:
                yield where, passed


def needs_option(program: Program, module: Module, test: ast.expr, depth: int = 0) -> bool:
    """Whether a test is false unless an option, or a setting with a default, is given.

    ``args.save`` of a switch, ``config.get("save", False)``, an optional parameter that is None.
    """
    if depth > MAX_DEPTH:
        return False
    match test:
        case ast.BoolOp(op=ast.And(), values=values):
            return any(needs_option(program, module, value, depth) for value in values)
        case ast.BoolOp(op=ast.Or(), values=values):
            return all(needs_option(program, module, value, depth) for value in values)
        case ast.Compare(ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
            return needs_option(program, module, test.left, depth)
        case ast.Constant(value=value):
            return value is False or value is None
        case ast.Call():
            return has_false_default(module, test)
        case ast.Name():
            return is_false_by_default(program, module, test, depth)
        case ast.Attribute():
            option = program.options.get(test.attr)
            assigned = [
                (where, value)
                for where in program.modules
                for value in where.attribute_values.get(test.attr, ())
            ]
            if option is not None and not assigned:
                return option.default is None and option.is_switch
            return bool(assigned) and all(
                needs_option(program, *each, depth=depth + 1) for each in assigned
            )
    return False


def may_never_hold(program: Program, module: Module, test: ast.expr) -> bool:
    """Whether an option has to turn a test on, or nothing that is read sets what it asks for."""
    if needs_option(program, module, test):
        return True
    return (
        isinstance(test, ast.Attribute)
        and test.attr not in program.options
        and not any(test.attr in each.attribute_values for each in program.modules)
        and program.resolve(module, test) is None
    )


def holds_by_default(program: Program, module: Module, test: ast.expr, depth: int = 0) -> bool:
    """Whether a test is true unless an option is given: ``not args.plain``, also as a parameter."""
    if depth > MAX_DEPTH:
        return False
    match test:
        case ast.Constant(value=value):
            return value is True
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return needs_option(program, module, operand, depth)
        case ast.Name():
            values = list(passed_or_assigned(program, module, test))
            return bool(values) and all(
                holds_by_default(program, *each, depth=depth + 1) for each in values
            )
    return False


def has_false_default(module: Module, call: ast.Call) -> bool:
    """``config.get("save", False)`` and ``getattr(config, "save", False)``."""
    place = {"get": 1, "getattr": 2}.get(module.last_name(call.func))
    default = None if place is None else argument(call, place, "default")
    return isinstance(default, ast.Constant) and default.value in (False, None)


def is_false_by_default(program: Program, module: Module, name: ast.Name, depth: int) -> bool:
    """Whether a name holds such an answer: by its assignment, or as a parameter's default."""
    value = module.definition(name, name)
    if value is not None:
        return needs_option(program, module, value, depth + 1)
    function = module.function(name)
    if function is None or name.id not in parameters(function):
        return False
    listed = [*function.args.posonlyargs, *function.args.args]
    defaults = dict(
        zip([each.arg for each in reversed(listed)], reversed(function.args.defaults), strict=False)
    )
    defaults |= {
        each.arg: default
        for each, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
        if default is not None
    }
    default = defaults.get(name.id)
    return isinstance(default, ast.Constant) and default.value in (False, None)
