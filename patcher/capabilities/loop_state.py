"""What a training loop carries from step to step, besides the model and what updates it.

Counters, best scores, patience, lists of losses: names and attributes that the loop binds or fills,
and that a later step, or what follows the loop, reads before anything binds them anew.
"""

from __future__ import annotations

import ast

from ...record import record
from ..analysis.loaders import CHOICE
from ..source.module import Module
from ..source.tree import Function, bound_names, everywhere, mentions, parameters, position, within

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
OPAQUE = ("cycle", "defaultdict", "deque", "iter", "open", *CHOICE)
PLAIN_CALLS = ("Counter", "OrderedDict")
BARS = ("tqdm", "trange")


@record
class LoopState:
    """Names that go from step to step, those that each epoch begins anew, and what cannot be kept.

    ``opaque`` are names with the statement that shows that no checkpoint can hold their values.
    """

    through: tuple[str, ...]
    of_epoch: tuple[str, ...]
    opaque: tuple[tuple[str, ast.stmt], ...]


def carried(
    module: Module, outer: ast.For, epochs: ast.For | None, steps: ast.For, known: set[str]
) -> LoopState:
    """What the loop ``outer`` carries; ``known`` are names of what is kept in other ways."""
    function = module.function(outer)
    scope = module.scope_statements(outer)
    changed = changed_names(outer.body) - known - bars(module, outer)
    read = exposed(outer.body, set())[0] | exposed(behind(module, outer), set())[0]
    before = {n for n in changed if first_binding(module, function, n, outer) is not None}
    if function is not None:
        before |= changed & parameters(function)
        before |= {
            name
            for stmt in within(scope, ast.Global)
            for name in stmt.names
            if name in changed and (None, name) in module.stores
        }
    through = before & read
    of_epoch: set[str] = set()
    heads: list[ast.stmt] = []
    if epochs is not None:
        tail = [stmt for stmt in epochs.body if position(stmt) > position(steps)]
        later = exposed(steps.body, set())[0] | exposed(tail, set())[0]
        heads = [stmt for stmt in epochs.body if position(stmt) < position(steps)]
        if outer is not epochs:
            heads += [stmt for stmt in outer.body if position(stmt) < position(epochs)]
        begun = {name for stmt in heads for name in bound_names(stmt)}
        of_epoch = (changed_names(steps.body) - known) & begun & later
        # What a head counts up is counted when a resumed run comes through it, too.
        of_epoch |= through & {name for stmt in heads for name in changed_names([stmt])}
    opaque = [
        (name, stmt)
        for name in sorted(through | of_epoch)
        for stmt in [opaque_value(module, outer, name)]
        if stmt is not None
    ]
    counted = [module.text(target) for stmt in heads for target in counters([stmt])]
    texts = sorted(attributes(module, outer))

    def order(name: str) -> tuple[int, int]:
        store = first_binding(module, function, name, steps)
        return position(store) if store is not None else (0, 0)

    return LoopState(
        (*sorted(through, key=order), *texts),
        (*sorted(of_epoch, key=order), *[text for text in texts if text in counted]),
        tuple(opaque),
    )


def changed_names(body: list[ast.stmt]) -> set[str]:
    """Plain names that statements assign, or whose lists and dicts they fill."""
    found: set[str] = set()
    targets = [target for stmt in within(body, ast.Assign) for target in stmt.targets]
    targets += [stmt.target for stmt in within(body, ast.AugAssign)]
    targets += [stmt.target for stmt in within(body, ast.AnnAssign)]
    for target in targets:
        found |= bound_names(target) | subscripted(target)
    for call in within(body, ast.Call):
        func = call.func
        if (
            isinstance(func, ast.Attribute)
            and isinstance(func.value, ast.Name)
            and func.attr in MUTATORS
        ):
            found.add(func.value.id)
    return found


def bars(module: Module, outer: ast.For) -> set[str]:
    """Names of progress bars."""
    return {
        name
        for stmt in within(module.scope_statements(outer), ast.Assign)
        if isinstance(stmt.value, ast.Call) and module.last_name(stmt.value.func) in BARS
        for name in bound_names(stmt.targets[0])
    }


def subscripted(target: ast.expr) -> set[str]:
    """``counts`` of ``counts[key] = …``."""
    return {
        node.value.id
        for node in within(target, ast.Subscript)
        if isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name)
    }


def first_binding(
    module: Module, function: Function | None, name: str, before: ast.stmt
) -> ast.Name | None:
    """The last place above a statement where its function binds a name outside comprehensions."""
    sites = [
        site
        for site in module.stores.get((function, name), [])
        if position(site) < position(before)
        and not isinstance(module.parents[site], ast.comprehension)
    ]
    return sites[-1] if sites else None


def behind(module: Module, stmt: ast.stmt) -> list[ast.stmt]:
    """What may run behind a statement, to the end of its function."""
    found: list[ast.stmt] = []
    node: ast.AST = stmt
    while isinstance(node, ast.stmt) and not isinstance(node, Function):
        body = module.body(node)
        found += body[next(i for i, item in enumerate(body) if item is node) + 1 :]
        node = module.parents[node]
    return found


def exposed(body: list[ast.stmt], bound: set[str]) -> tuple[set[str], set[str] | None]:
    """Names that ``body`` may read before it binds them, and those that are bound behind it.

    None in their place where nothing runs on behind it. A loop binds nothing for sure.
    """
    reads: set[str] = set()
    for stmt in body:
        found, after = _exposed(stmt, bound)
        reads |= found
        if after is None:
            return reads, None
        bound = after
    return reads, bound


def _exposed(stmt: ast.stmt, bound: set[str]) -> tuple[set[str], set[str] | None]:
    match stmt:
        case ast.If():
            first, one = exposed(stmt.body, bound)
            second, other = exposed(stmt.orelse, bound)
            return _reads(stmt.test, bound) | first | second, _meet(one, other)
        case ast.For() | ast.AsyncFor() | ast.While():
            head = stmt.test if isinstance(stmt, ast.While) else stmt.iter
            own = set() if isinstance(stmt, ast.While) else bound_names(stmt.target)
            found = exposed(stmt.body, bound | own)[0] | exposed(stmt.orelse, bound)[0]
            return _reads(head, bound) | found, bound
        case ast.With() | ast.AsyncWith():
            reads: set[str] = set()
            for item in stmt.items:
                reads |= _reads(item.context_expr, bound)
                if item.optional_vars is not None:
                    bound = bound | bound_names(item.optional_vars)
            found, after = exposed(stmt.body, bound)
            return reads | found, after
        case ast.Try():
            reads, end = exposed([*stmt.body, *stmt.orelse], bound)
            for handler in stmt.handlers:
                caught, after = exposed(handler.body, bound | {handler.name or ""})
                reads, end = reads | caught, _meet(end, after)
            last, behind_it = exposed(stmt.finalbody, bound if end is None else end)
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


def opaque_value(module: Module, outer: ast.For, name: str) -> ast.stmt | None:
    """The statement that gives a name, before or in the loop, what no checkpoint can hold."""
    function = module.function(outer)
    for site in module.stores.get((function, name), []):
        stmt = module.parents[site]
        near = position(site) <= position(outer) or stmt in within(outer.body, ast.Assign)
        if near and isinstance(stmt, ast.Assign) and is_opaque(module, stmt.value):
            return stmt
    return None


def is_opaque(module: Module, value: ast.expr) -> bool:
    """The construction of an object, a copy of one, or an iterator."""
    if not isinstance(value, ast.Call):
        return False
    last = module.last_name(value.func)
    if last == "deepcopy" and value.args:
        return not mentions(value.args[0], "state_dict")
    return last in OPAQUE or (last[:1].isupper() and last not in PLAIN_CALLS)


def attributes(module: Module, outer: ast.For) -> set[str]:
    """Attributes that count: ``self.step += 1`` in the loop, or what the loop's class keeps.

    An attribute that its statement's own block sets back is none.
    """
    found: set[str] = set()
    for counter in counters(outer.body):
        text = module.text(counter)
        again = [
            module.text(target)
            for other in module.body(module.statement(counter))
            if isinstance(other, ast.Assign)
            for target in other.targets
        ]
        if text not in again:
            found.add(text)
    owner = next((up for up in module.ancestors(outer) if isinstance(up, ast.ClassDef)), None)
    if owner is None:
        return found
    methods = [item for item in owner.body if isinstance(item, ast.FunctionDef)]
    kept: dict[str, bool] = {}
    for method in methods:
        for assign in within(method.body, ast.Assign):
            for target in assign.targets:
                text = module.text(target)
                if not (isinstance(target, ast.Attribute) and text.startswith("self.")):
                    continue
                if method.name == "__init__":
                    kept[text] = is_number_or_list(assign.value)
                elif kept.get(text):
                    found.add(text)
    return found


def counters(body: list[ast.stmt]) -> list[ast.Attribute]:
    """``self.step`` of ``self.step += 1``."""
    targets = [stmt.target for stmt in within(body, ast.AugAssign)]
    return [target for target in targets if isinstance(target, ast.Attribute)]


def is_number_or_list(value: ast.expr) -> bool:
    """A literal number, text, None, list or dict, or float('inf')."""
    match value:
        case ast.Constant() | ast.List() | ast.Dict() | ast.Tuple():
            return True
        case ast.UnaryOp(operand=operand):
            return is_number_or_list(operand)
        case ast.Call(func=ast.Name(id="float" | "int")):
            return True
        case ast.Attribute(attr="inf"):
            return True
    return False
