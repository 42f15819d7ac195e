"""Models and tensors that lie in a file whole, and are used as they come out of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.module import Module
from ...source.tree import Function, argument, names_within, parameters, precedes, within
from ..language.passed_arguments import argument_for_parameter
from ..training.program import Program

RUNS = frozenset(
    ["eval", "train", "parameters", "named_parameters", "generate", "forward", "modules"]
)
"""Methods of a model that a dictionary of its weights lacks."""
WRAPPERS = ("DataParallel", "DistributedDataParallel")
PRODUCTS = (
    *("mm", "bmm", "matmul", "mv", "dot", "addmm", "einsum", "cdist", "linear"),
    *("cosine_similarity", "pairwise_distance"),
    *("add_", "sub_", "mul_", "div_", "lerp_", "addcmul_", "addcdiv_"),
)
"""Functions of torch whose arguments have to be on one device."""
SAME_DEVICE = (
    *("T", "mT", "t", "transpose", "permute", "float", "half", "detach", "clone", "view", "data"),
)
"""Attributes and methods of a tensor that give another one on its device."""
MAX_STEPS = 6  # names, items and functions between the file and the use


def holds_used_model(program: Program, module: Module, load: ast.Call) -> bool:
    """Whether what a call loads, or an item of it, is run as a model or computed with as it lies.

    ``model = torch.load(path)`` and then ``model(x)``; also by a function that returns it, alone
    or among others. What goes to ``load_state_dict`` of torch is copied to the model's card, and is
    none. ``torch.mm(features, centres.T)`` wants the centres where the features are.
    """
    return is_named_as_model(module, load) or any(
        is_run(where, node) or is_operand(where, node) or is_put_in_place(where, node)
        for where, node in places_of(program, module, load)
    )


def is_named_as_model(module: Module, load: ast.expr) -> bool:
    """Whether what is loaded gets a name that was run as a model above, in its function.

    ``model = torch.load(path)`` behind ``model = Net()``, whose parameters were trained.
    """
    stmt = module.parents[load]
    if not isinstance(stmt, ast.Assign):
        return False
    names = {target.id for target in stmt.targets if isinstance(target, ast.Name)}
    function = module.function(stmt)
    return any(
        module.function(each) is function and precedes(each, load) and is_run(module, each)
        for name in names
        for each in module.occurrences(name)
        if isinstance(each, ast.Name)
    )


def holds_whole_model(program: Program, module: Module, load: ast.expr) -> bool:
    """Whether what a call loads, or an item of it, is run as a model: not its weights."""
    return any(is_run(where, node) for where, node in places_of(program, module, load))


def places_of(
    program: Program, module: Module, value: ast.expr
) -> Iterator[tuple[Module, ast.expr]]:
    """The expressions that have a value next, such as what a call loads, or an item of it."""
    seen: set[ast.expr] = {value}
    places: list[tuple[Module, ast.expr]] = [(module, value)]
    for _ in range(MAX_STEPS + 1):
        yield from places
        following: list[tuple[Module, ast.expr]] = []
        for where, node in places:
            for place in next_places(program, where, node):
                if place[1] not in seen:  # many ways lead to one read
                    seen.add(place[1])
                    following.append(place)
        places = following


def is_run(module: Module, node: ast.expr) -> bool:
    """Whether an expression is called, asked for its parameters, or wrapped, as models are."""
    user = module.parents[node]
    if isinstance(user, ast.Attribute):
        return user.attr in RUNS and isinstance(module.parents[user], ast.Call)
    if isinstance(user, ast.keyword):
        user = module.parents[user]
    if not isinstance(user, ast.Call):
        return False
    is_wrapped = node is argument(user, 0, "module") and module.last_name(user.func) in WRAPPERS
    return user.func is node or is_wrapped


def is_operand(module: Module, node: ast.expr) -> bool:
    """Whether a tensor is an operand, which has to be on the device of the other one.

    In a sum, what is looked up under no constant is one (``average[name]``), and ``x.data``; what
    has a name of its own may be a number.
    """
    user = module.parents[node]
    match user:
        case ast.BinOp(op=ast.MatMult()):
            return True
        case ast.BinOp():
            is_looked_up = isinstance(node, ast.Subscript) and not isinstance(
                node.slice, ast.Constant | ast.Slice
            )
            return is_looked_up or (isinstance(node, ast.Attribute) and node.attr == "data")
        case ast.Attribute(attr=attr):  # centres.mm(features)
            return attr in PRODUCTS
        case ast.Call(args=args):
            return node in args and module.last_name(user.func) in PRODUCTS
    return False


def is_put_in_place(module: Module, node: ast.expr) -> bool:
    """Whether a tensor becomes a parameter's own: ``layer.weight.data = tensor``."""
    user = module.parents[node]
    return isinstance(user, ast.Assign) and any(
        isinstance(target, ast.Attribute) and target.attr == "data" for target in user.targets
    )


def next_places(
    program: Program, module: Module, node: ast.expr
) -> Iterator[tuple[Module, ast.expr]]:
    """The expressions that have the value of one next, or an item of it."""
    user = module.parents[node]
    match user:
        case ast.IfExp() if node is not user.test:
            yield module, user
        case ast.NamedExpr(target=target):
            yield module, user
            yield from reads(module, target)
        case ast.Subscript(value=value) if value is node:
            yield module, user
        case ast.Attribute() if user.attr in SAME_DEVICE:
            call = module.parents[user]
            yield module, call if isinstance(call, ast.Call) and call.func is user else user
        case ast.Attribute(attr="get" | "pop"):
            call = module.parents[user]
            if isinstance(call, ast.Call):
                yield module, call
        case ast.Assign(targets=targets):
            for each in targets:
                parts = each.elts if isinstance(each, ast.Tuple | ast.List) else [each]
                for part in parts:  # model, optimizer = torch.load(path)
                    yield from reads(module, part)
        case ast.AnnAssign(target=annotated):
            yield from reads(module, annotated)
        case ast.Call():
            yield from passed_on(program, module, user, node)
        case ast.keyword():
            call = module.parents[user]
            if isinstance(call, ast.Call):
                yield from passed_on(program, module, call, node)
        case ast.Return():
            yield from results(program, module, node)
        case ast.Tuple() if isinstance(stmt := module.parents[user], ast.Assign):
            for each in stmt.targets:  # self.net, self.loss = net, loss
                if isinstance(each, ast.Tuple) and len(each.elts) == len(user.elts):
                    yield from reads(module, each.elts[user.elts.index(node)])
        case ast.Tuple() if isinstance(module.parents[user], ast.Return):
            yield from results(program, module, node, user.elts.index(node))


def reads(module: Module, target: ast.expr) -> Iterator[tuple[Module, ast.expr]]:
    """The reads of a name below its assignment, or of an attribute, in one module."""
    if isinstance(target, ast.Attribute):
        for node in module.attributes(target.attr):
            if isinstance(node.ctx, ast.Load):
                yield module, node
    if not isinstance(target, ast.Name):
        return
    function = module.function(target)
    is_global = isinstance(function, Function) and any(
        target.id in each.names for each in within(function.body, ast.Global)
    )
    for name in module.occurrences(target.id):
        if not isinstance(name, ast.Name) or not isinstance(name.ctx, ast.Load):
            continue
        owner = module.function(name)
        if is_global:
            is_same = owner in (None, function) or (owner, name.id) not in module.stores
        elif owner is function:
            is_same = precedes(target, name) and not rebound(module, target, name)
        else:
            is_same = function is None and (owner, name.id) not in module.stores  # a global
        if is_same:
            yield module, name


def passed_on(
    program: Program, module: Module, call: ast.Call, value: ast.expr
) -> Iterator[tuple[Module, ast.expr]]:
    """The reads of a function's parameter for which a call passes a value, or may pass it."""
    may_run = program.possible_callees(module, call)
    for where, function in (*program.callees(module, call), *may_run):
        names = {
            name
            for name in parameters(function)
            if (function, name) not in where.stores
            and argument_for_parameter(where, function, call, name) is value
        }
        for read in names_within(function.body, names):
            yield where, read


def rebound(module: Module, target: ast.Name, name: ast.Name) -> bool:
    """Whether the name is assigned anew in the same block, between an assignment and a read."""
    stmt = module.statement(target)
    return any(
        precedes(target, store)
        and precedes(store, name)
        and module.statement(store) in module.body(stmt)
        and module.statement(store) is not module.statement(name)
        for store in module.stores.get((module.function(target), target.id), ())
    )


def results(
    program: Program, module: Module, node: ast.expr, index: int | None = None
) -> Iterator[tuple[Module, ast.expr]]:
    """What callers have of a value that their function returns, alone or as one of several."""
    function = module.function(node)
    if not isinstance(function, Function):
        return
    for where, call in program.callers(function):
        if index is None:
            yield where, call
            continue
        user = where.parents[call]
        for target in user.targets if isinstance(user, ast.Assign) else ():
            if isinstance(target, ast.Tuple) and index < len(target.elts):
                yield from reads(where, target.elts[index])
