"""What the loop of an evaluation accumulates for later, and how the parts of ranks come together.

Lists are joined, numbers and arrays of numbers added; arrays that grow row by row are joined by the
function that the script itself joins them with. Anything else cannot be told to be combinable.
"""

from __future__ import annotations

import ast
from typing import Protocol

from ....record import record
from ...source.module import Module
from ...source.tree import (
    argument,
    assigned_pairs,
    bound_names,
    is_empty_list,
    is_inside,
    is_number,
    names_within,
    precedes,
    within,
)
from ..language.call_graph import CallGraph
from ..language.name_flow import roots
from .constructed_loaders import Loader
from .meters import Meter, meter_of

MESSAGES = ("print", "info", "debug", "warning", "set_description", "set_postfix", "update")
MUTATORS = ("append", "extend", "update", "add", "add_batch", "insert", "setdefault", "put")
WRITERS = ("write", "writelines", "writerow", "writerows", "dump", "save", "add_scalar")
MOVES = ("to", "cuda", "cpu", "float", "double", "long", "int", "half", "type", "astype")
ARRAYS = {f"{library}.{name}" for library in ("numpy", "torch") for name in ("zeros", "empty")}
PURE = ("len", "sum", "max", "min", "str", "isinstance")
CONTAINERS = ("list", "dict", "set", "defaultdict", "deque")
EMPTY = {"numpy.array", "torch.tensor", *(f"torch.{kind}Tensor" for kind in ("", "Float", "Long"))}
#: What joins rows: the position of the axis.
JOINS = {
    "numpy.append": 2,
    "numpy.concatenate": 1,
    "numpy.vstack": 9,
    "torch.cat": 1,
    "torch.concat": 1,
    "torch.vstack": 9,
}


class LoopOfEvaluation(Protocol):
    """What is asked of an evaluation."""

    @property
    def module(self) -> Module: ...
    @property
    def loop(self) -> ast.For: ...
    @property
    def loader(self) -> Loader: ...
    @property
    def graph(self) -> CallGraph: ...
    @property
    def before(self) -> list[ast.stmt]: ...
    def leaves(self, name: str) -> bool: ...
    def is_read_later(self, name: str) -> bool: ...


@record
class Accumulator:
    """A name that a loop fills, with the assignment that it begins with.

    ``join`` is the text of the function that joins its rows; "" for lists and what is added up.
    ``meter`` is set where an object adds up.
    """

    begin: ast.stmt
    join: str = ""
    meter: Meter | None = None


@record
class Update:
    """A statement that fills a name, and the names and subscripts of it that are no other reads."""

    name: str
    own: tuple[ast.expr, ...]
    join: str = ""


def accumulated(evaluation: LoopOfEvaluation) -> dict[str, Accumulator] | None:
    """What the loop accumulates for later, by name in the order in which they begin.

    None when it accumulates anything else or exits early: ranks' parts cannot then be combined.
    """
    module, loop = evaluation.module, evaluation.loop
    if loop.orelse or any(within(loop.body, kind) for kind in (ast.Break, ast.Return)):
        return None
    kinds: dict[str, str] = {}
    meters: dict[str, Meter] = {}
    initial: dict[str, ast.stmt] = {}
    for stmt in evaluation.before:
        for name, value in assigned_pairs(stmt) if isinstance(stmt, ast.Assign) else ():
            initial[name], kinds[name] = stmt, kind_of(module, value)
            meter = None if kinds[name] else meter_of(evaluation.graph, module, value)
            if meter is not None:
                kinds[name], meters[name] = "meter", meter
    kinds = {name: kind for name, kind in kinds.items() if kind}
    updates = updates_in(module, loop, kinds)
    if updates is None:
        return None
    own = {node for each in updates for node in each.own}
    filled = {each.name for each in updates}
    if depends_on_count(module, loop, filled, own):
        return None
    if any(map(evaluation.leaves, bound_names(loop) - set(kinds))):
        return None
    after = names_read_after(module, loop)
    if evaluation.loader.name in after and evaluation.leaves(evaluation.loader.name):
        return None
    if keeps_other_state(evaluation, set(kinds), own) or hands_on(evaluation, own):
        return None
    if any(name in filled and reads_last(evaluation, name, meters[name]) for name in meters):
        return None
    joins = {each.name: each.join for each in updates if each.join}
    if any(kinds[name] == "rows" and name not in joins for name in filled):
        return None  # of which a loop keeps the first alone
    return {
        name: Accumulator(initial[name], joins.get(name, ""), meters.get(name))
        for name in kinds
        if name in filled and evaluation.is_read_later(name)
    }


def kind_of(module: Module, value: ast.expr) -> str:
    """``list``, ``number``, ``array`` of numbers, ``rows`` without any yet, or nothing of these."""
    if is_empty_list(value):
        return "list"
    if is_number(value):
        return "number"
    if isinstance(value, ast.Constant) and value.value is None:
        return "rows"
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if value.func.attr not in MOVES:
            break
        value = value.func.value
    if not isinstance(value, ast.Call):
        return ""
    name, first = module.dotted(value.func), value.args[0] if value.args else None
    if name in EMPTY:
        return "rows" if first is None or is_empty_list(first) else ""
    if name not in ARRAYS or first is None:
        return ""
    size = first.elts[0] if isinstance(first, ast.Tuple | ast.List) and first.elts else first
    if isinstance(size, ast.Constant) and size.value == 0:
        return "rows"
    return "array" if name.endswith("zeros") else ""


def updates_in(module: Module, loop: ast.For, kinds: dict[str, str]) -> list[Update] | None:
    """The statements of a loop that fill names; None where one is changed in another way."""
    found: list[Update] = []
    for stmt in within(loop.body, ast.Assign):
        for name in bound_names(stmt) & {*kinds}:
            update = rebinding(module, stmt, name, kinds)
            if update is None:
                return None
            found.append(update)
    for node in names_within(loop.body, {*kinds}):
        attribute = module.parents[node]
        if isinstance(attribute, ast.Attribute) and is_called(module, attribute):
            fillers = {"list": ("append", "extend"), "meter": ("update",)}
            if attribute.attr not in fillers.get(kinds[node.id], ()):
                return None
            found.append(Update(node.id, (node,)))
    for change in within(loop.body, ast.AugAssign):
        target: ast.expr = change.target
        while isinstance(target, ast.Subscript):
            target = target.value
        if not isinstance(target, ast.Name):
            continue
        is_whole = target is change.target
        if not isinstance(change.op, ast.Add) or (is_whole and target.id not in kinds):
            return None
        kind = kinds.get(target.id)
        if kind == "rows" or not (is_whole or kind == "array"):
            return None
        found.append(Update(target.id, (target, change.target)))
    return found


def rebinding(module: Module, stmt: ast.Assign, name: str, kinds: dict[str, str]) -> Update | None:
    """``total = total + x``, ``rows = np.append(rows, x)``, or the first rows of all."""
    value, kind = stmt.value, kinds[name]
    if not (len(stmt.targets) == 1 and isinstance(stmt.targets[0], ast.Name)):
        return None
    if kind == "rows":
        tested = tested_for_none(module, stmt)
        if kinds.get(tested) == "rows" and not names_within([stmt], {name})[1:]:
            return Update(name, ())
        return joined(module, value, name) if isinstance(value, ast.Call) else None
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        before = value.left
        reads = names_within([stmt], {name})
        if isinstance(before, ast.Name) and before.id == name and len(reads) == 2:
            return Update(name, (before,))
    return None


def tested_for_none(module: Module, stmt: ast.Assign) -> str:
    """The name that a test around a statement finds to be None still; "" for none."""
    up = module.parents[stmt]
    test = up.test if isinstance(up, ast.If) and stmt in up.body else None
    if not (isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is)):
        return ""
    return test.left.id if isinstance(test.left, ast.Name) else ""


def joined(module: Module, call: ast.Call, name: str) -> Update | None:
    """``np.concatenate((rows, more), axis=0)``: rows that come behind those that there are."""
    function = module.dotted(call.func)
    if function not in JOINS or not isinstance(call.func, ast.Attribute):
        return None
    axis = argument(call, JOINS[function], "axis", "dim")
    if axis is not None and not (isinstance(axis, ast.Constant) and axis.value == 0):
        return None
    parts: list[ast.expr] = call.args[:2]
    if function != "numpy.append":
        first = call.args[0] if call.args else None
        parts = first.elts if isinstance(first, ast.Tuple | ast.List) else []
    if not (len(parts) >= 2 and isinstance(parts[0], ast.Name) and parts[0].id == name):
        return None
    if any(names_within(part, {name}) for part in parts[1:]):
        return None
    library = module.text(call.func.value)
    is_append = function == "numpy.append"
    return Update(
        name, (parts[0],), f"{library}.concatenate" if is_append else module.text(call.func)
    )


def is_called(module: Module, func: ast.expr) -> bool:
    """Whether an expression is the function of a call."""
    call = module.parents[func]
    return isinstance(call, ast.Call) and call.func is func


def reads_last(evaluation: LoopOfEvaluation, name: str, meter: Meter) -> bool:
    """Whether what a meter was told last is read behind the loop: ``losses.val``."""
    module, loop = evaluation.module, evaluation.loop
    return any(
        isinstance(up := module.parents[node], ast.Attribute)
        and up.attr in meter.last
        and not is_inside(node, loop)
        for node in names_within(module.scope_statements(loop), {name})
    )


def keeps_other_state(evaluation: LoopOfEvaluation, initial: set[str], own: set[ast.expr]) -> bool:
    """Whether the body fills a meter, a table or a file rather than what it accumulates."""
    module, body = evaluation.module, evaluation.loop.body
    bound_above = bound_names(evaluation.before) - initial if evaluation.before else set()
    for call in within(body, ast.Call):
        if any(word.arg == "file" for word in call.keywords):
            return True
        if not isinstance(call.func, ast.Attribute):
            continue
        name, target = call.func.attr, call.func.value
        if isinstance(target, ast.Name) and target.id in module.aliases:
            target = call  # np.append(rows, x): a library's function
        if name in WRITERS and not module.dotted(call.func).startswith("tqdm"):
            return True
        if isinstance(target, ast.Name):
            is_other = target.id not in initial and (target.id in bound_above or name in MUTATORS)
            if is_other and evaluation.leaves(target.id):
                return True
        elif isinstance(target, ast.Attribute) and name in MUTATORS:
            return True
        elif isinstance(target, ast.Subscript) and name in MUTATORS:  # parts[k].append(x)
            made = roots(target) & bound_names(evaluation.loop)
            if not made or any(map(evaluation.leaves, made)):
                return True
    stores: list[ast.Subscript | ast.Attribute] = [*within(body, ast.Subscript)]
    stores += within(body, ast.Attribute)
    return any(
        not isinstance(each.ctx, ast.Load)
        and each not in own
        and not is_of_one_batch(module, evaluation.loop, each)
        for each in stores
    )


def is_of_one_batch(module: Module, loop: ast.For, store: ast.expr) -> bool:
    """Whether a dictionary gets something that the loop makes anew of each batch.

    ``inputs = {"input_ids": batch[0]}``, and ``inputs["labels"] = batch[1]`` below.
    """
    holder = store.value if isinstance(store, ast.Subscript) else None
    if not isinstance(holder, ast.Name):
        return False
    bindings = [stmt for stmt in within(loop.body, ast.Assign) if holder.id in bound_names(stmt)]
    return any(
        precedes(stmt, store) and module.parents[stmt] in module.ancestors(store)
        for stmt in bindings
    ) and all(
        isinstance(stmt.value, ast.Dict | ast.DictComp) and isinstance(stmt.targets[0], ast.Name)
        for stmt in bindings
    )


def hands_on(evaluation: LoopOfEvaluation, own: set[ast.expr]) -> bool:
    """Whether the body passes something that a call may fill, and that is read behind the loop.

    ``add_results(results, output)`` and ``np.add.at(counts, labels, 1)``.
    """
    module, loop, before = evaluation.module, evaluation.loop, {*evaluation.before}
    mutable = {
        name
        for stmt in within(module.scope_statements(loop), ast.Assign)
        if not is_inside(stmt, loop)
        for name, value in assigned_pairs(stmt)
        if is_container(module, value) or (stmt in before and is_object(module, value))
    }
    return any(
        node not in own
        and isinstance(up := module.parents[node], ast.Call | ast.keyword)
        and not (isinstance(up, ast.Call) and (up.func is node or is_pure(module, up)))
        and evaluation.is_read_later(node.id)
        for node in names_within(loop.body, mutable)
    )


def is_container(module: Module, value: ast.expr) -> bool:
    """Whether a value is a list, a dictionary, a set or an array that a loop may fill."""
    if isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp):
        return True
    return isinstance(value, ast.Call) and (
        module.last_name(value.func) in CONTAINERS or kind_of(module, value) in ("array", "rows")
    )


def is_object(module: Module, value: ast.expr) -> bool:
    """Whether a value is an object of a class, by the class's name."""
    return isinstance(value, ast.Call) and module.last_name(value.func)[:1].isupper()


def is_pure(module: Module, call: ast.Call) -> bool:
    """Whether a call surely leaves alone what it is passed."""
    return module.last_name(call.func) in (*MESSAGES, *PURE)


def depends_on_count(module: Module, loop: ast.For, filled: set[str], own: set[ast.expr]) -> bool:
    """Whether the body computes with the batch number or with what it has accumulated so far.

    Each rank's part starts from zero. Reads in tests and messages do not count.
    """
    names = set(filled)
    first = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) else loop.target
    is_counted = isinstance(loop.iter, ast.Call) and module.dotted(loop.iter.func) == "enumerate"
    if isinstance(first, ast.Name) and is_counted:
        names.add(first.id)
    return any(
        isinstance(name.ctx, ast.Load) and name not in own and not is_harmless_read(module, name)
        for name in names_within(loop.body, names)
    )


def is_harmless_read(module: Module, name: ast.Name) -> bool:
    """Whether a name is read for a test, for a message, or to append to it."""
    child: ast.AST = name
    for up in module.ancestors(name):
        if isinstance(up, ast.If) and child is up.test:
            return True
        if isinstance(up, ast.Call):
            last = module.last_name(up.func)
            if last in MESSAGES or (child is up.func and last in ("append", "extend")):
                return True
        if isinstance(up, ast.stmt):
            return False
        child = up
    return False


def names_read_after(module: Module, loop: ast.For) -> set[str]:
    """Names that statements after the loop, in its own block, read."""
    body = module.body(loop)
    rest = body[body.index(loop) + 1 :]
    return {name.id for name in within(rest, ast.Name) if isinstance(name.ctx, ast.Load)}


def is_shown(module: Module, node: ast.AST) -> bool:
    """Whether a value goes into a message alone."""
    for up in module.ancestors(node):
        if isinstance(up, ast.Call) and module.last_name(up.func) in MESSAGES:
            return True
        if isinstance(up, ast.stmt):
            return False
    return False
