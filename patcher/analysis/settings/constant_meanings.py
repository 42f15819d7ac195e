"""Settings that constants decide, and whether such a constant means something else as well."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ....record import record
from ...source.module import Module
from ...source.tree import (
    argument_values,
    assigned_pairs,
    everywhere,
    has_forward,
    mentions,
    within,
)
from ..training.program import Program
from .flag_roles import constants_in, role_places

SMALLEST = 2  # smaller numbers stand everywhere and mean nothing


@record
class Literal:
    """A number or a string in a module; `name` is the module's name for it, if it has one."""

    module: Module
    node: ast.Constant
    name: str = ""


@record
class ConstantSetting:
    """What a role has for an option: its value, and all literals that decide it."""

    role: str
    literals: tuple[Literal, ...]

    @property
    def text(self) -> str:
        """The value as the script writes it."""
        first = self.literals[0]
        return first.module.text(first.node)


@record
class UnknownSetting:
    """A role that constants decide, without proof of which: the place, and why."""

    role: str
    module: Module
    node: ast.expr
    because: str


def unless_shared(
    program: Program, one: ConstantSetting | UnknownSetting
) -> ConstantSetting | UnknownSetting:
    """The setting, unless its constant decides more than this role."""
    if isinstance(one, UnknownSetting):
        return one
    nodes = {literal.node for literal in one.literals}
    first = one.literals[0]
    for role, uses in role_places(program).items():
        shares_batch = {role, one.role} == {"train_batch", "eval_batch"}
        if role == one.role or shares_batch or "output" in (role, one.role):
            continue
        if any(nodes & {*constants_in(program, module, expr)} for module, expr in uses):
            because = f"{one.text} is several things: {one.role} and {role}"
            return UnknownSetting(one.role, first.module, first.node, because)
    if (place := _in_a_model(program, one)) is not None:
        because = f"{one.text} is also passed to what makes a model"
        return UnknownSetting(one.role, place[0], place[1], because)
    if (place := _in_a_loop(program, one)) is not None:
        because = f"whether this {one.text} is the same thing cannot be told"
        return UnknownSetting(one.role, place[0], place[1], because)
    return one


def _in_a_model(program: Program, one: ConstantSetting) -> tuple[Module, ast.expr] | None:
    """A use of the constant's name among the arguments of a layer or of a class of the script."""
    for literal in one.literals:
        for name in _names_of(literal):
            for call in literal.module.nodes(ast.Call):
                called = literal.module.dotted(call.func)
                if (called.startswith("torch.nn.") and called != "torch.nn.DataParallel") or (
                    _makes_a_model(program, literal.module, call)
                ):
                    for value in argument_values(call):
                        if mentions(value, name):
                            return literal.module, call
    return None


def _makes_a_model(program: Program, module: Module, call: ast.Call) -> bool:
    found = program.resolve(module, call.func)
    owner = found[1] if found is not None else None
    return isinstance(owner, ast.ClassDef) and has_forward(owner)


def _names_of(literal: Literal) -> Iterator[str]:
    """The names that the literal is bound to in its own statement."""
    stmt = literal.module.statement(literal.node)
    if isinstance(stmt, ast.Assign):
        yield from (name for name, value in assigned_pairs(stmt) if value is literal.node)
        if isinstance(stmt.value, ast.Dict):
            yield literal.name.partition("[")[0]
    elif isinstance(stmt, ast.AnnAssign) and isinstance(stmt.target, ast.Name):
        yield stmt.target.id


def _in_a_loop(program: Program, one: ConstantSetting) -> tuple[Module, ast.expr] | None:
    """An equal number that stands by itself in a loop that trains, or makes a schedule."""
    value = one.literals[0].node.value
    own = {literal.node for literal in one.literals}
    if one.role == "learning_rate":
        return _in_own_schedule(program, value, own)
    if type(value) is not int or value < SMALLEST:
        return None
    for loop in program.train_loops:
        body = [*(loop.epochs or loop.steps).body]
        for node in within(body, ast.Constant):
            if node not in own and type(node.value) is int and node.value == value:
                return loop.module, node
    for module in program.modules:
        for pair in module.nodes(ast.BinOp):
            for side, other in ((pair.left, pair.right), (pair.right, pair.left)):
                calls = everywhere(other, ast.Call)
                counts = any(module.last_name(call.func) == "len" for call in calls)
                if side not in own and counts and _is_number(side, value):
                    return module, side
    if one.role == "epochs":
        for module in program.modules:
            for call in module.nodes(ast.Call):
                if "lr" in module.last_name(call.func).lower():
                    for each in argument_values(call):
                        if isinstance(each, ast.Constant) and each.value == value:
                            return module, each
    return None


def _is_number(node: ast.expr, value: object) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value == value


def _in_own_schedule(
    program: Program, value: object, own: set[ast.Constant]
) -> tuple[Module, ast.expr] | None:
    """An equal number in a function that sets ``group["lr"]`` itself."""
    for module in program.modules:
        for target in module.nodes(ast.Subscript):
            key = target.slice
            if not (isinstance(target.ctx, ast.Store) and isinstance(key, ast.Constant)):
                continue
            if key.value != "lr":
                continue
            for node in within(module.scope_statements(target), ast.Constant):
                if node not in own and type(node.value) is float and node.value == value:
                    return module, node
    return None
