"""How a script wraps its model in DataParallel, taken apart, and where ranks wrap it instead."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection

from ...record import record
from ..analysis.language.call_graph import callees_by_name, reachable_from
from ..analysis.language.conditions import condition
from ..analysis.language.process_exits import exit_call
from ..analysis.models.conversions import converted_model
from ..analysis.training.program import Program
from ..source.module import Module
from ..source.tree import (
    Function,
    argument_values,
    below,
    bound_names,
    everywhere,
    is_inside,
    names_within,
    parameters,
    position,
    within,
    without_calls_of,
)

NO_GROUP = "not torch.distributed.is_initialized()"
MOVES = ("to", "cuda", "float", "double", "half", "train")  # methods that return their model


@record
class Wrap:
    """``target = DataParallel(inner, …).to(device)``: the text of each part."""

    stmt: ast.Assign
    call: ast.Call  # of DataParallel
    target: str
    inner: str  # the model that is wrapped
    moves: str  # what is called on the wrapper, such as ``.to(device)``; or empty
    wrapper: str  # ``DataParallel(target, …)``


def wrap_in(module: Module, call: ast.Call) -> Wrap | None:
    """The assignment of a wrapper to a name or attribute; None where it goes elsewhere."""
    stmt = module.statement(call)
    if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
        return None
    target = stmt.targets[0]
    if not isinstance(target, ast.Name | ast.Attribute):
        return None
    if without_calls_of(stmt.value, MOVES) is not call:
        return None
    word = next((word for word in call.keywords if word.arg == "module"), None)
    model = call.args[0] if call.args else word.value if word else None
    if model is None or isinstance(model, ast.Starred):
        return None
    name = module.text(target)

    def between(first: tuple[int, int], last: tuple[int, int]) -> str:
        # an edit indents all lines of its code
        return module.text_between(first, last).replace(f"\n{module.margin(stmt)}", "\n")

    return Wrap(
        stmt,
        call,
        name,
        between(start(model), end(model)),
        between(end(call), end(stmt.value)),
        between(start(call), start(model)) + name + between(end(model), end(call)),
    )


def start(node: ast.expr | ast.stmt) -> tuple[int, int]:
    """Line and column where a node starts."""
    return node.lineno, node.col_offset


def end(node: ast.expr | ast.stmt) -> tuple[int, int]:
    """Line and column behind a node."""
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return node.end_lineno, node.end_col_offset


def is_move(module: Module, stmt: ast.stmt, model: str) -> bool:
    """``model.to(device)`` or ``model = model.cuda()``, also under a test without an ``else``.

    So is ``model.apply(initialize)``: ranks draw weights of their own where it stands behind a
    wrapper, which is what makes them alike.
    """
    if isinstance(stmt, ast.If):
        asked = condition(module, stmt)
        moves = [is_move(module, part, model) for part in asked.body]
        return bool(moves) and all(moves) and not asked.orelse
    value = stmt.value if isinstance(stmt, ast.Assign | ast.Expr) else None
    if isinstance(stmt, ast.Assign) and [module.text(each) for each in stmt.targets] != [model]:
        return False
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in (*MOVES, *(("apply",) if isinstance(stmt, ast.Expr) else ()))
        and module.text(value.func.value) == model
    )


def drawn_behind(module: Module, place: ast.stmt, names: Collection[str]) -> ast.Call | None:
    """A call behind a place, in its function, that gives a model of these names other weights.

    It draws them, or converts them to another kind of number.
    """
    names = {*names, *other_names(module, place, names)}
    for call in within(module.scope_statements(place), ast.Call):
        root: ast.expr = call.func
        while isinstance(root, ast.Attribute):
            root = root.value
        of_model = isinstance(root, ast.Name) and root.id in names
        initializes = module.last_name(call.func) in ("apply", "reset_parameters")
        drawn = {name.id for value in argument_values(call) for name in everywhere(value, ast.Name)}
        by_function = re.search("init.*weight|weight.*init", module.last_name(call.func))
        is_later = position(call) > end_of(place)
        if (
            is_later
            and not is_of_later_model(module, place, root, names)
            and (
                (of_model and initializes)
                or (by_function and drawn & {*names})
                or converted_model(module, call) in names
            )
        ):
            return call
    return None


def is_of_later_model(
    module: Module, place: ast.stmt, root: ast.expr, names: Collection[str]
) -> bool:
    """Whether a name stands for a model that is made anew behind a place, as for a last test."""
    values = module.alternatives(root, root)
    return bool(values) and all(
        position(value) > end_of(place) and not names_within(value, {*names}) for value in values
    )


def other_names(module: Module, place: ast.stmt, names: Collection[str]) -> set[str]:
    """What a model is called as well: ``net = model``."""
    return {
        stmt.value.id
        for stmt in within(module.scope_statements(place), ast.Assign)
        if isinstance(stmt.value, ast.Name) and {*map(module.text, stmt.targets)} & {*names}
    }


def end_of(stmt: ast.stmt) -> tuple[int, int]:
    """Line and column behind a statement."""
    return (stmt.end_lineno or 0, stmt.end_col_offset or 0)


def place_behind(module: Module, stmt: ast.stmt, model: str) -> ast.stmt:
    """The statement behind which ranks wrap what ``stmt`` wraps for a lone process.

    That is the test around ``stmt``, unless more of its block uses the model, and the last of the
    statements behind it that move the model before anything else uses it. An optimizer's use keeps
    it from no test whose other branch has a model of that name: ``model = checkpoint["model"]``.
    """
    place = stmt
    while True:
        block = module.body(place)
        behind = block[block.index(place) + 1 :]
        used = next((i for i, each in enumerate(behind) if uses(module, each, model)), len(behind))
        moves = [each for each in behind[:used] if is_move(module, each, model)]
        gate = module.parents[place]
        if not isinstance(gate, ast.If) or not is_bound(module, gate, model):
            return moves[-1] if moves else place
        other = gate.orelse if place in gate.body else gate.body
        is_of_both = model in bound_names(other) and all(
            only_optimizes(module, each, model) for each in behind[used:]
        )
        if used < len(behind) and not is_of_both:
            return moves[-1] if moves else place
        place = gate


def only_optimizes(module: Module, stmt: ast.stmt, model: str) -> bool:
    """Whether a statement asks a model for nothing but its parameters."""
    return all(
        isinstance(up := module.parents[name], ast.Attribute)
        and up.attr in ("parameters", "named_parameters")
        for name in names_within([stmt], {model})
    )


def is_bound(module: Module, gate: ast.If, model: str) -> bool:
    """Whether a variable is bound behind a test, whichever of its branches was taken."""
    if not model.isidentifier():
        return True  # an object's attribute
    function = module.function(gate)
    return (
        any(position(store) < position(gate) for store in module.stores.get((function, model), ()))
        or (function is not None and model in parameters(function))
        or (model in bound_names(gate.body) and model in bound_names(gate.orelse))
    )


def uses(module: Module, stmt: ast.stmt, model: str) -> bool:
    """Whether a statement mentions the model, other than to move it, or leaves the block."""
    if isinstance(stmt, ast.Return | ast.Raise | ast.Continue | ast.Break):
        return True
    if is_move(module, stmt, model):
        return False
    return any(
        module.text(node) == model
        for kind in (ast.Name, ast.Attribute)
        for node in everywhere(stmt, kind)
        if isinstance(node, ast.Name | ast.Attribute)
    )


def serves_training(program: Program, module: Module, wrap: Wrap) -> bool:
    """Whether a training loop may come behind a wrapper that a function's variable holds.

    True where that cannot be told: the function returns it, or it is an object's attribute.
    """
    function = module.function(wrap.stmt)
    if leaves_before_training(program, module, wrap.stmt):
        return False
    if not isinstance(wrap.stmt.targets[0], ast.Name):
        return True
    body = module.scope_statements(wrap.stmt)
    if function is None and any(
        module.function(node) is not None
        for node in module.occurrences(wrap.target)
        if isinstance(node.ctx, ast.Load)
    ):
        return True  # a global that functions may read
    if any(
        value.value is not None and hands_over(module, value.value, wrap.target)
        for value in within(body, ast.Return)
        if module.function(value) is function
    ):
        return True
    around = [up for up in module.ancestors(wrap.stmt) if isinstance(up, ast.For | ast.While)]
    outermost = next((up for up in reversed(around) if module.function(up) is function), None)
    training: set[Function | None] = set()
    for loop in program.train_loops:
        owner = loop.module.function(loop.steps)
        if owner is None and loop.module is not module:
            continue
        if owner is function and loop.module is module:
            if position(loop.steps) > position(wrap.stmt) or is_inside(wrap.stmt, loop.steps):
                return True
            if outermost is not None and loop.steps in below(outermost):
                return True
        training.add(owner)
    calls = (
        call
        for call in within(body, ast.Call)
        if position(call) > position(wrap.stmt)
        or (outermost is not None and is_inside(call, outermost))
    )
    return bool(reachable_from(program, callees_by_name(program, module, calls)) & training)


def hands_over(module: Module, value: ast.expr, model: str) -> bool:
    """Whether a value holds the model itself, and not what a call of it gives."""
    for name in everywhere(value, ast.Name):
        up = module.parents[name]
        if isinstance(up, ast.Attribute) and up.attr not in MOVES:
            up = module.parents[up]
            is_called = isinstance(up, ast.Call)
        else:
            is_called = isinstance(up, ast.Call) and up.func is name
        if name.id == model and not is_called:
            return True
    return False


def leaves_before_training(program: Program, module: Module, stmt: ast.stmt) -> bool:
    """Whether a branch around a statement ends the program or function, and trains nothing."""
    child: ast.AST = stmt
    for up in module.ancestors(stmt):
        if isinstance(up, ast.If):
            block = up.body if any(item is child for item in up.body) else up.orelse
            end = block[-1] if block else None
            leaves = isinstance(end, ast.Return | ast.Raise) or (
                end is not None and exit_call(module, end) is not None
            )
            if leaves and not any(
                loop.module is module and is_inside(loop.steps, up) for loop in program.train_loops
            ):
                called = callees_by_name(program, module, within(block, ast.Call))
                training = {loop.module.function(loop.steps) for loop in program.train_loops}
                return not reachable_from(program, called) & training
        if isinstance(up, Function):
            return False
        child = up
    return False


def is_part(target: str) -> bool:
    """Whether a name is that of a part of a model, ``model.encoder``, and not an object's own."""
    root, _, rest = target.partition(".")
    return "." in rest if root == "self" else bool(rest)
