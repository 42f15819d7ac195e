"""Wrapped models that go into a file as they are, with their wrapper."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...source.branches import exclusive
from ...source.module import Module
from ...source.tree import argument, bound_names, names_within, parameters, precedes, within
from ..language.passed_arguments import argument_for_parameter
from ..training.program import Program

HELPER = "save_on_main"  # of patched scripts
SAVERS = ("save", HELPER, "dump")
HOLDERS = ("Sequential", "ModuleList", "deepcopy")
MOVES = ("cuda", "to", "train", "eval")  # methods that return their object
MAX_DEPTH = 3
OF_RANKS = ("DistributedDataParallel",)


def saved_wrappers(program: Program) -> Iterator[tuple[Module, ast.Name | ast.Attribute]]:
    """Names in what is saved, and ``self.model``, that are a DistributedDataParallel on ranks."""
    if not program.calls_to("DistributedDataParallel"):
        return
    for module, call in program.calls_to(*SAVERS):
        if module.last_name(call.func) != HELPER and program.callees(module, call):
            continue  # the program's own save(), which may take the module out
        saved = argument(call, 0, "obj")
        values = [(module, value) for value in saved_values(module, saved)]
        values += values_handed_on(program, module, saved)
        for where, value in values:
            if isinstance(value, ast.Name | ast.Attribute) and is_wrapper(program, where, value):
                yield where, value


def values_handed_on(
    program: Program, module: Module, saved: ast.expr | None, depth: int = 0
) -> list[tuple[Module, ast.expr]]:
    """What dictionaries hold that callers pass for what is saved: ``save({"net": net}, path)``."""
    function = module.function(saved) if isinstance(saved, ast.Name) else None
    if (
        function is None
        or depth > MAX_DEPTH
        or not isinstance(saved, ast.Name)
        or saved.id not in parameters(function)
        or module.definition(saved, saved) is not None
    ):
        return []
    found: dict[ast.expr, Module] = {}
    for where, call in program.callers(function):
        passed = argument_for_parameter(module, function, call, saved.id)
        if passed is None:
            continue
        held = [value for value in saved_values(where, passed) if value is not passed]
        more = values_handed_on(program, where, passed, depth + 1)
        found |= {value: place for place, value in [*((where, value) for value in held), *more]}
    return [(where, value) for value, where in found.items()]


def is_wrapper(program: Program, module: Module, node: ast.Name | ast.Attribute) -> bool:
    """Whether a name was bound to a wrapper last, or a class gives ``self.model`` nothing else.

    Such as one that it is constructed with.
    """
    if isinstance(node, ast.Name):
        return is_wrapped(program, module, node)
    return holds_wrapper(program, module, node)


def holds_wrapper(program: Program, module: Module, attribute: ast.Attribute) -> bool:
    """Whether all that the class around a place assigns to ``self.model`` is a wrapper."""
    owner = module.enclosing_class(attribute)
    if owner is None or module.text(attribute) != f"self.{attribute.attr}":
        return False
    values = [
        value
        for value in module.attribute_values.get(attribute.attr, ())
        if module.enclosing_class(value) is owner
    ]
    return bool(values) and all(
        is_wrap(module, value)
        or (isinstance(value, ast.Name) and is_wrapped(program, module, value))
        for value in values
    )


def wrappers_in_parts(program: Program) -> Iterator[tuple[Module, ast.Name, bool]]:
    """Wrappers in a container that is saved by a name, and whether it is for nothing else.

    ``last = Sequential(net)``, and later ``best = last``; where more is made of the container, as a
    step, it may need the wrapper.
    """
    if not program.calls_to("DistributedDataParallel"):
        return
    for module, call in program.calls_to(*SAVERS):
        saved = argument(call, 0, "obj")
        if not isinstance(saved, ast.Name):
            continue
        scope = module.scope_statements(saved)
        for made, names in containers(module, saved):
            uses = [use for use in names_within(scope, names) if isinstance(use.ctx, ast.Load)]
            is_for_files = all(is_saved_or_named(module, use) for use in uses)
            for value in made.args:
                if isinstance(value, ast.Name) and is_wrapped(program, module, value):
                    yield module, value, is_for_files


def containers(module: Module, name: ast.Name) -> Iterator[tuple[ast.Call, frozenset[str]]]:
    """The containers that a name may stand for, each with the names on the way."""
    pending: list[tuple[ast.Name, frozenset[str]]] = [(name, frozenset([name.id]))]
    for each, names in pending:  # grows
        for value in module.alternatives(each, each) if len(names) <= MAX_DEPTH else ():
            if isinstance(value, ast.Name) and value.id not in names:
                pending.append((value, names | {value.id}))
            elif isinstance(value, ast.Call) and module.last_name(value.func) in HOLDERS[:2]:
                yield value, names | bound_names(module.statement(value))


def is_saved_or_named(module: Module, use: ast.Name) -> bool:
    """Whether a use of a name saves it, or gives what it stands for another name."""
    holder = module.parents[use]
    if isinstance(holder, ast.Call):
        return module.last_name(holder.func) in SAVERS and use in holder.args
    return isinstance(holder, ast.Assign) and holder.value is use


def saved_values(module: Module, saved: ast.expr | None) -> Iterator[ast.expr]:
    """An object that is saved, and what it holds if it is a dictionary, list or tuple.

    Also what a container has that is made in the call: of one under a name more may be made.
    """
    if isinstance(saved, ast.Call) and module.last_name(saved.func) in HOLDERS:
        yield from saved.args
    if isinstance(saved, ast.Name) and not isinstance(module.parents[saved], ast.Dict):
        made = module.definition(saved, saved)
        saved = made if isinstance(made, ast.Dict | ast.List | ast.Tuple | ast.Call) else saved
    match saved:
        case ast.Dict(values=values) | ast.List(elts=values) | ast.Tuple(elts=values):
            yield from values
        case ast.Call(func=ast.Name(id="dict"), keywords=words):
            yield from (word.value for word in words)
        case ast.Name() | ast.Attribute():
            yield saved


def is_wrapped(
    program: Program,
    module: Module,
    name: ast.Name,
    depth: int = 0,
    wrappers: tuple[str, ...] = OF_RANKS,
) -> bool:
    """Whether a name was bound to a wrapper last, here, at module level or by all callers."""
    function = module.function(name)
    own = [
        store
        for store in module.stores.get((function, name.id), ())
        if precedes(store, name) and module.parents[store] is not module.statement(name)
    ]
    if own or function is None:
        last = [each for each in own if each is own[-1] or exclusive(each, own[-1])]
        return any(keeps_wrapper(program, module, each, depth, wrappers) for each in last)
    if name.id in parameters(function):
        passed = [
            (where, argument_for_parameter(module, function, call, name.id))
            for where, call in program.callers(function)
        ]
        return (
            bool(passed)
            and depth < MAX_DEPTH
            and all(
                isinstance(value, ast.Name)
                and is_wrapped(program, where, value, depth + 1, wrappers)
                for where, value in passed
            )
        )
    stores = module.stores.get((None, name.id), [])
    return bool(stores) and keeps_wrapper(program, module, stores[-1], depth, wrappers)


def keeps_wrapper(
    program: Program, module: Module, store: ast.AST, depth: int, wrappers: tuple[str, ...]
) -> bool:
    """Whether an assignment binds a name to a wrapper, or moves one: ``net = net.cuda()``."""
    holder, place = module.parents[store], None
    if isinstance(parts := holder, ast.Tuple) and isinstance(store, ast.expr):
        holder, place = module.parents[parts], parts.elts.index(store)
    value = holder.value if isinstance(holder, ast.Assign) else None
    if value is None or (place is None and is_wrap(module, value, wrappers)):
        return value is not None
    if isinstance(value, ast.Call) and returns_wrapper(
        program, module, value, place, depth + 1, wrappers
    ):
        return True
    func = value.func if isinstance(value, ast.Call) else None
    owner = func.value if isinstance(func, ast.Attribute) and func.attr in MOVES else None
    return (
        isinstance(owner, ast.Name)
        and depth < MAX_DEPTH
        and is_wrapped(program, module, owner, depth + 1, wrappers)
    )


def returns_wrapper(
    program: Program,
    module: Module,
    call: ast.Call,
    place: int | None,
    depth: int = 0,
    wrappers: tuple[str, ...] = OF_RANKS,
) -> bool:
    """Whether a function of the program returns a wrapper, at a place of a tuple."""
    found: list[bool] = []
    for where, function in program.callees(module, call) if depth < MAX_DEPTH else ():
        for result in within(function.body, ast.Return):
            value = result.value
            if place is not None and isinstance(value, ast.Tuple) and place < len(value.elts):
                value = value.elts[place]
            elif place is not None:
                return False
            if isinstance(value, ast.Name):
                found.append(is_wrapped(program, where, value, depth + 1, wrappers))
            else:
                found.append(value is not None and is_wrap(where, value, wrappers))
    return bool(found) and all(found)


def is_wrap(module: Module, value: ast.expr, wrappers: tuple[str, ...] = OF_RANKS) -> bool:
    """``DistributedDataParallel(model)``, also with ``.cuda()`` behind it."""
    while isinstance(value, ast.Call):
        if module.last_name(value.func) in wrappers:
            return True
        if not (isinstance(value.func, ast.Attribute) and value.func.attr in MOVES):
            return False
        value = value.func.value
    return False
