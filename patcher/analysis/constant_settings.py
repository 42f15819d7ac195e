"""The constants of a script that decide what others have options for: batch, learning rate, epochs.

A constant is told only where it is proved: each place of the role leads, through names that are
bound once, to a number (or a path) in the script itself. Everything else is unknown, with a reason.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterable, Iterator

from ...record import record
from ..source.module import Module
from ..source.tree import (
    argument_values,
    assigned_pairs,
    bound_names,
    everywhere,
    mentions,
    parameters,
    same_code,
    within,
)
from .constant_members import member
from .flag_roles import constants_in, options_in, role_places
from .loaders import argument_for_parameter, default_value
from .program import Program
from .train_loops import TrainLoop

KINDS: dict[str, tuple[type, ...]] = {
    "train_batch": (int,),
    "learning_rate": (int, float),
    "epochs": (int,),
    "accumulation": (int,),
    "output": (str,),
}
MOST_NAMES = 8  # names and parameters that a value is followed through
SMALLEST = 2  # smaller numbers stand everywhere and mean nothing
WRAPPERS = ("tqdm", "enumerate", "epochs")
OPTIMIZER = re.compile("opt|scaler", re.IGNORECASE)  # a scaler steps it, too


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
class ConstantBatch:
    """A training batch that is a number in the script: no option reaches it."""

    size: int
    path: str
    line: int


@record
class UnknownSetting:
    """A role that constants decide, without proof of which: the place, and why."""

    role: str
    module: Module
    node: ast.expr
    because: str


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
    return [_unless_shared(program, one, found) for one in found]


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


# ---- constants that mean something else as well


def _unless_shared(
    program: Program,
    one: ConstantSetting | UnknownSetting,
    others: list[ConstantSetting | UnknownSetting],
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
    return isinstance(owner, ast.ClassDef) and any(
        isinstance(stmt, ast.FunctionDef) and stmt.name == "forward" for stmt in owner.body
    )


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
