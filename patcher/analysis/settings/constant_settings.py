"""The constants of a script that decide what others have options for: batch, learning rate, epochs.

A constant is told only where it is proved: each place of the role leads, through names that are
bound once, to a number (or a path) in the script itself. Everything else is unknown, with a reason.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterable, Iterator

from ....record import record
from ...source.module import Module
from ...source.tree import (
    assigned_pairs,
    bound_names,
    parameters,
    same_code,
    within,
)
from ..language.passed_arguments import argument_for_parameter, default_value
from ..training.program import Program
from ..training.train_loops import TrainLoop
from .constant_meanings import ConstantSetting, Literal, UnknownSetting, unless_shared
from .constant_members import member
from .flag_roles import constants_in, options_in, role_places

KINDS: dict[str, tuple[type, ...]] = {
    "train_batch": (int,),
    "learning_rate": (int, float),
    "epochs": (int,),
    "accumulation": (int,),
    "output": (str,),
}
MOST_NAMES = 8  # names and parameters that a value is followed through
WRAPPERS = ("tqdm", "enumerate", "epochs")
OPTIMIZER = re.compile("opt|scaler", re.IGNORECASE)  # a scaler steps it, too


@record
class ConstantBatch:
    """A training batch that is a number in the script: no option reaches it."""

    size: int
    path: str
    line: int


class _UnknownError(Exception):
    def __init__(self, module: Module, node: ast.expr, because: str) -> None:
        super().__init__(because)
        self.module, self.node, self.because = module, node, because


def constant_settings(program: Program) -> list[ConstantSetting | UnknownSetting]:
    """What constants decide, and what they may decide; nothing for roles that options reach."""
    found: list[ConstantSetting | UnknownSetting] = []
    places = {role: list(_places(program, role)) for role in KINDS}
    for role, uses in places.items():
        if not uses or any(options_in(program, module, expr) for module, expr in uses):
            continue
        if not any(_may_decide(program, role, module, expr) for module, expr in uses):
            continue
        try:
            found.append(ConstantSetting(role, tuple(_literals(program, role, uses))))
        except _UnknownError as error:
            found.append(UnknownSetting(role, error.module, error.node, error.because))
    return [unless_shared(program, one) for one in found]


def constant_batch(program: Program) -> ConstantBatch | None:
    """The number that is the training batch where no option reaches it; None for several."""
    for one in constant_settings(program):
        if isinstance(one, ConstantSetting) and one.role == "train_batch":
            first = one.literals[0]
            assert isinstance(first.node.value, int)
            return ConstantBatch(first.node.value, first.module.source.name, first.node.lineno)
    sizes = {
        (size.value, module.source.name, size.lineno)
        for module, expr in role_places(program).get("train_batch", ())
        for size in constants_in(program, module, expr)
        if type(size.value) is int
    }
    return ConstantBatch(*sizes.pop()) if len(sizes) == 1 else None


def _places(program: Program, role: str) -> Iterator[tuple[Module, ast.expr]]:
    """The expressions that decide a role; a loss is divided by other numbers, too."""
    if role == "output":
        yield from _paths(program)
    elif role != "accumulation":
        for module, expr in role_places(program)[role]:
            yield module, _stop(module, expr) if role == "epochs" else expr
    else:
        for loop in program.train_loops:
            if loop.accumulation is not None and _steps_optimizer(loop):
                places = _accumulations(loop, loop.accumulation)
                yield from ((loop.module, each) for each in places)


def _steps_optimizer(loop: TrainLoop) -> bool:
    """Whether the test of the accumulation guards an optimizer's step, and not a schedule's."""
    body = loop.step_test.body if loop.step_test is not None else []
    return any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "step"
        and OPTIMIZER.search(loop.module.text(call.func.value).rpartition(".")[2])
        for call in within(body, ast.Call)
    )


def _accumulations(loop: TrainLoop, waits: ast.expr) -> Iterator[ast.expr]:
    """All places of the accumulation: ``% n`` of its tests, and what losses are divided by."""
    module = loop.module
    test = module.parents[waits]
    losses = [call.func.value for call in loop.backwards if isinstance(call.func, ast.Attribute)]
    names = {module.text(loss) for loss in losses}
    for node in within(loop.steps.body, ast.BinOp):
        is_test = same_code(node, test)
        is_mean = isinstance(node.op, ast.Div) and (
            node in losses
            or module.text(node.left) in names
            or any(name in names for name in _targets(module.parents[node]))
        )
        if is_test or is_mean:
            yield node.right
    for each in within(loop.steps.body, ast.AugAssign):
        if isinstance(each.op, ast.Div) and module.text(each.target) in names:
            yield each.value


def _targets(stmt: ast.AST) -> set[str]:
    """The names that a statement assigns to."""
    return bound_names(stmt) if isinstance(stmt, ast.Assign) else set()


def _paths(program: Program) -> Iterator[tuple[Module, ast.expr]]:
    """The paths that are certainly a string of the script, or begin with one as their folder."""
    for module, expr in role_places(program)["output"]:
        while isinstance(expr, ast.Call) and expr.args:
            if module.dotted(expr.func) not in ("os.path.join", "pathlib.Path"):
                break
            expr = expr.args[0]
        if isinstance(expr, ast.BinOp) and isinstance(expr.op, ast.Add | ast.Div):
            expr = expr.left
        with contextlib.suppress(_UnknownError):
            if all(type(one.node.value) is str for one in _trace(program, module, expr, 0)):
                yield module, expr


def _stop(module: Module, expr: ast.expr) -> ast.expr:
    """What an epoch loop counts to: ``n`` of ``range(n)``, ``range(0, n)``, ``range(1, n + 1)``,
    ``range(start, start + n)``.
    """
    while isinstance(expr, ast.Call) and module.last_name(expr.func) in WRAPPERS and expr.args:
        expr = expr.args[0]
    if not (isinstance(expr, ast.Call) and module.last_name(expr.func) == "range"):
        return expr
    if len(expr.args) == 1:
        return expr.args[0]
    match expr.args:
        case [ast.Constant(value=0), stop]:
            return stop
        case [ast.Constant(value=1), ast.BinOp(left=left, op=ast.Add(), right=right)]:
            if isinstance(right, ast.Constant) and right.value == 1:
                return left
        case [start, ast.BinOp(left=left, op=ast.Add(), right=right)] if same_code(start, left):
            return right
    return expr


def _may_decide(program: Program, role: str, module: Module, expr: ast.expr) -> bool:
    return any(type(one.value) in KINDS[role] for one in constants_in(program, module, expr))


def _literals(
    program: Program, role: str, uses: Iterable[tuple[Module, ast.expr]]
) -> Iterator[Literal]:
    """The literals that decide a role, each once. Raises _UnknownError unless they are equal."""
    seen: dict[ast.Constant, Literal] = {}
    for module, expr in uses:
        for one in _trace(program, module, expr, 0):
            seen.setdefault(one.node, one)
    first = next(iter(seen.values()))
    for one in seen.values():
        if type(one.node.value) not in KINDS[role]:
            raise _UnknownError(one.module, one.node, f"{one.module.text(one.node)} is no value")
        if repr(one.node.value) != repr(first.node.value):
            values = f"{first.module.text(first.node)} and {one.module.text(one.node)}"
            raise _UnknownError(one.module, one.node, f"it is {values} in several places")
    yield from seen.values()


def _trace(program: Program, module: Module, expr: ast.expr, depth: int) -> Iterator[Literal]:
    """The literals that an expression certainly is one of. Raises _UnknownError."""
    if isinstance(expr, ast.Constant):
        yield Literal(module, expr)
        return
    text = module.text(expr)
    found = member(program, module, expr) if depth < MOST_NAMES else None
    if found is not None:
        for one in _trace(program, found.module, found.value, depth + 1):
            yield Literal(one.module, one.node, found.name if one.node is found.value else one.name)
        return
    if not isinstance(expr, ast.Name) or depth > MOST_NAMES:
        raise _UnknownError(module, expr, f"`{text}` is more than a constant")
    function = module.function(expr)
    if function is not None and (function, expr.id) in module.stores:
        yield from _trace_bound(program, module, expr, function, depth)
    elif function is not None and expr.id in parameters(function):
        calls = program.callers(function)
        if not calls or program.possible_callers(function):
            raise _UnknownError(module, expr, f"who passes {text} cannot be told")
        for where, call in calls:
            value = argument_for_parameter(module, function, call, expr.id)
            default = default_value(function, expr.id)
            if value is not None:
                yield from _trace(program, where, value, depth + 1)
            elif default is not None:
                yield from _trace(program, module, default, depth + 1)
            else:
                raise _UnknownError(where, call, f"what {text} is here cannot be told")
    else:
        yield from _trace_bound(program, module, expr, None, depth)


def _trace_bound(
    program: Program, module: Module, name: ast.Name, function: ast.AST | None, depth: int
) -> Iterator[Literal]:
    """The literals of a name that its function, or the module, binds once."""
    scope = module.function(name) if function is not None else None
    stores = module.stores.get((scope, name.id), [])
    if any(name.id in each.names for each in module.nodes(ast.Global)) or len(stores) > 1:
        raise _UnknownError(module, name, f"{name.id} is bound more than once")
    stmt = module.parents[stores[0]] if stores else None
    if isinstance(stmt, ast.Tuple):
        stmt = module.parents[stmt]
    value: ast.expr | None = None
    if isinstance(stmt, ast.Assign):
        value = dict(assigned_pairs(stmt)).get(name.id) if len(stmt.targets) == 1 else None
    elif isinstance(stmt, ast.AnnAssign):
        value = stmt.value
    if value is None:
        raise _UnknownError(module, name, f"where {name.id} comes from cannot be told")
    for one in _trace(program, module, value, depth + 1):
        named = name.id if scope is None and one.node is value else one.name
        yield Literal(one.module, one.node, named)
