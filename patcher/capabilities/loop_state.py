"""The state that a training loop carries from step to step, besides model and optimizer.

Counters, best scores, patience, lists of losses: names and attributes that the loop changes, and
that a later step or the code after the loop reads before they are bound again.
"""

from __future__ import annotations

import ast

from ...record import record
from ..analysis.training.loaders import ELEMENT_CALLS
from ..source.module import Module
from ..source.tree import (
    Function,
    argument,
    bound_names,
    everywhere,
    mentions,
    parameters,
    position,
    within,
)

MUTATORS = (
    "add",
    "append",
    "clear",
    "discard",
    "extend",
    "insert",
    "pop",
    "remove",
    "setdefault",
    "update",
)
OPAQUE = ("cycle", "defaultdict", "deque", "iter", "open", *ELEMENT_CALLS)
PLAIN_CALLS = ("Counter", "OrderedDict")
BARS = ("tqdm", "trange")


@record
class LoopState:
    """The names (and attributes) that a loop carries."""

    through: tuple[str, ...]  # kept during the whole training
    of_epoch: tuple[str, ...]  # set at the start of each epoch
    opaque: tuple[tuple[str, ast.stmt], ...]  # not checkpointable, with the statement that shows it


def find_loop_state(
    module: Module, outer: ast.For, epochs: ast.For | None, steps: ast.For, known: set[str]
) -> LoopState:
    """The state that the loop ``outer`` carries; ``known`` names are saved in other ways."""
    function = module.function(outer)
    changed = _changed_names(outer.body) - known - _progress_bars(module, outer)
    after = _statements_after(module, outer)
    read = _read_before_bound(outer.body, set())[0] | _read_before_bound(after, set())[0]
    through = _bound_before(module, outer, changed) & read
    of_epoch: set[str] = set()
    heads: list[ast.stmt] = []
    if epochs is not None:
        tail = [stmt for stmt in epochs.body if position(stmt) > position(steps)]
        later = _read_before_bound(steps.body, set())[0] | _read_before_bound(tail, set())[0]
        heads = [stmt for stmt in epochs.body if position(stmt) < position(steps)]
        if outer is not epochs:
            heads += [stmt for stmt in outer.body if position(stmt) < position(epochs)]
        begun = {name for stmt in heads for name in bound_names(stmt)}
        of_epoch = (_changed_names(steps.body) - known) & begun & later
        # A resumed run runs the head again: what it counts up must be restored after it.
        of_epoch |= through & {name for stmt in heads for name in _changed_names([stmt])}
    opaque = [
        (name, stmt)
        for name in sorted(through | of_epoch)
        for stmt in [_opaque_assignment(module, outer, name)]
        if stmt is not None
    ]
    counted = [module.text(target) for stmt in heads for target in _attribute_counters([stmt])]
    texts = sorted(_attributes(module, outer))

    def order(name: str) -> tuple[int, int]:
        store = _last_binding_before(module, function, name, steps)
        return position(store) if store is not None else (0, 0)

    return LoopState(
        (*sorted(through, key=order), *texts),
        (*sorted(of_epoch, key=order), *[text for text in texts if text in counted]),
        tuple(opaque),
    )


def _bound_before(module: Module, outer: ast.For, names: set[str]) -> set[str]:
    """The names that have a value before the loop: local, parameter or global."""
    function = module.function(outer)
    bound = {n for n in names if _last_binding_before(module, function, n, outer) is not None}
    if function is not None:
        bound |= names & parameters(function)
        bound |= {
            name
            for stmt in within(module.scope_statements(outer), ast.Global)
            for name in stmt.names
            if name in names and (None, name) in module.stores
        }
    return bound


def _changed_names(body: list[ast.stmt]) -> set[str]:
    """Plain names that statements assign or whose lists and dicts they change."""
    found: set[str] = set()
    targets = [target for stmt in within(body, ast.Assign) for target in stmt.targets]
    targets += [stmt.target for stmt in within(body, ast.AugAssign)]
    targets += [stmt.target for stmt in within(body, ast.AnnAssign)]
    for target in targets:
        found |= bound_names(target) | _subscripted_names(target)
    for call in within(body, ast.Call):
        func = call.func
        if (
            isinstance(func, ast.Attribute)
            and isinstance(func.value, ast.Name)
            and func.attr in MUTATORS
        ):
            found.add(func.value.id)
    return found


def _progress_bars(module: Module, outer: ast.For) -> set[str]:
    """The names of progress bars."""
    return {
        name
        for stmt in within(module.scope_statements(outer), ast.Assign)
        if isinstance(stmt.value, ast.Call) and module.last_name(stmt.value.func) in BARS
        for name in bound_names(stmt.targets[0])
    }


def _subscripted_names(target: ast.expr) -> set[str]:
    """``counts`` in ``counts[key] = …``."""
    return {
        node.value.id
        for node in within(target, ast.Subscript)
        if isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name)
    }


def _last_binding_before(
    module: Module, function: Function | None, name: str, before: ast.stmt
) -> ast.Name | None:
    """The last binding of a name above a statement, in its function, outside comprehensions."""
    sites = [
        site
        for site in module.stores.get((function, name), [])
        if position(site) < position(before)
        and not isinstance(module.parents[site], ast.comprehension)
    ]
    return sites[-1] if sites else None


def _statements_after(module: Module, stmt: ast.stmt) -> list[ast.stmt]:
    """The statements that may run after ``stmt``, up to the end of its function."""
    statements: list[ast.stmt] = []
    node: ast.AST = stmt
    while isinstance(node, ast.stmt) and not isinstance(node, Function):
        body = module.body(node)
        statements += body[next(i for i, item in enumerate(body) if item is node) + 1 :]
        node = module.parents[node]
    return statements


def _read_before_bound(body: list[ast.stmt], bound: set[str]) -> tuple[set[str], set[str] | None]:
    """Names that ``body`` may read before it binds them, and the names surely bound after it.

    The latter is None if nothing runs on after it. A loop surely binds nothing.
    """
    reads: set[str] = set()
    for stmt in body:
        found, after = _statement_reads(stmt, bound)
        reads |= found
        if after is None:
            return reads, None
        bound = after
    return reads, bound


def _statement_reads(stmt: ast.stmt, bound: set[str]) -> tuple[set[str], set[str] | None]:
    match stmt:
        case ast.If():
            first, one = _read_before_bound(stmt.body, bound)
            second, other = _read_before_bound(stmt.orelse, bound)
            return _reads(stmt.test, bound) | first | second, _meet(one, other)
        case ast.For() | ast.AsyncFor() | ast.While():
            head = stmt.test if isinstance(stmt, ast.While) else stmt.iter
            own = set() if isinstance(stmt, ast.While) else bound_names(stmt.target)
            found = (
                _read_before_bound(stmt.body, bound | own)[0]
                | _read_before_bound(stmt.orelse, bound)[0]
            )
            return _reads(head, bound) | found, bound
        case ast.With() | ast.AsyncWith():
            reads: set[str] = set()
            for item in stmt.items:
                reads |= _reads(item.context_expr, bound)
                if item.optional_vars is not None:
                    bound = bound | bound_names(item.optional_vars)
            found, after = _read_before_bound(stmt.body, bound)
            return reads | found, after
        case ast.Try():
            reads, end = _read_before_bound([*stmt.body, *stmt.orelse], bound)
            for handler in stmt.handlers:
                caught, after = _read_before_bound(handler.body, bound | {handler.name or ""})
                reads, end = reads | caught, _meet(end, after)
            last, behind_it = _read_before_bound(stmt.finalbody, bound if end is None else end)
            return reads | last, None if end is None else behind_it
        case ast.Return() | ast.Raise() | ast.Break() | ast.Continue():
            return _reads(stmt, bound), None
        case ast.AugAssign(target=ast.Name(id=name)):
            return _reads(stmt.value, bound) | ({name} - bound), bound | {name}
    return _reads(stmt, bound), bound | bound_names(stmt)


def _meet(one: set[str] | None, other: set[str] | None) -> set[str] | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _reads(node: ast.AST, bound: set[str]) -> set[str]:
    own = {
        name for part in everywhere(node, ast.comprehension) for name in bound_names(part.target)
    }
    own |= {arg.arg for arg in everywhere(node, ast.arg)}
    names = {name.id for name in everywhere(node, ast.Name) if isinstance(name.ctx, ast.Load)}
    return names - own - bound


def _opaque_assignment(module: Module, outer: ast.For, name: str) -> ast.stmt | None:
    """The statement, before or in the loop, that assigns a value no checkpoint can hold."""
    function = module.function(outer)
    for site in module.stores.get((function, name), []):
        stmt = module.parents[site]
        near = position(site) <= position(outer) or stmt in within(outer.body, ast.Assign)
        if near and isinstance(stmt, ast.Assign) and _is_opaque(module, stmt.value):
            return stmt
    return None


def _is_opaque(module: Module, value: ast.expr) -> bool:
    """Whether an expression makes an object, a copy of one, or an iterator."""
    if not isinstance(value, ast.Call):
        return False
    last = module.last_name(value.func)
    copied = argument(value, 0, "x") if last == "deepcopy" else None
    if copied is not None:
        return not mentions(copied, "state_dict")
    return last in OPAQUE or (last[:1].isupper() and last not in PLAIN_CALLS)


def _attributes(module: Module, outer: ast.For) -> set[str]:
    """Attributes that carry state: ``self.step += 1`` in the loop, or kept by the loop's class.

    A counter that is reset in the same block carries nothing.
    """
    found: set[str] = set()
    for counter in _attribute_counters(outer.body):
        text = module.text(counter)
        reset = [
            module.text(target)
            for other in module.body(module.statement(counter))
            if isinstance(other, ast.Assign)
            for target in other.targets
        ]
        if text not in reset:
            found.add(text)
    owner = module.enclosing_class(outer)
    return found if owner is None else found | _reassigned_attributes(module, owner)


def _reassigned_attributes(module: Module, owner: ast.ClassDef) -> set[str]:
    """Attributes that a class initializes with a plain value and assigns again in a method."""
    found: set[str] = set()
    is_plain: dict[str, bool] = {}
    for method in owner.body:
        if not isinstance(method, ast.FunctionDef):
            continue
        for assign in within(method.body, ast.Assign):
            for target in assign.targets:
                text = module.text(target)
                if not (isinstance(target, ast.Attribute) and text.startswith("self.")):
                    continue
                if method.name == "__init__":
                    is_plain[text] = _is_plain_value(assign.value)
                elif is_plain.get(text):
                    found.add(text)
    return found


def _attribute_counters(body: list[ast.stmt]) -> list[ast.Attribute]:
    """``self.step`` in ``self.step += 1``."""
    targets = [stmt.target for stmt in within(body, ast.AugAssign)]
    return [target for target in targets if isinstance(target, ast.Attribute)]


def _is_plain_value(value: ast.expr) -> bool:
    """Whether an expression is a literal number, text, None, list or dict, or float('inf')."""
    match value:
        case ast.Constant() | ast.List() | ast.Dict() | ast.Tuple():
            return True
        case ast.UnaryOp(operand=operand):
            return _is_plain_value(operand)
        case ast.Call(func=ast.Name(id="float" | "int")):
            return True
        case ast.Attribute(attr="inf"):
            return True
    return False
