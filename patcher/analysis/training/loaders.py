"""Find the DataLoader behind an expression, through names, calls, functions, lists and attributes.

A loop may iterate over ``enumerate(tqdm(train_dataloader))``, ``self.loader`` or what
``get_loaders()`` returns or yields, or call ``next(train_dataloader)`` on a cycle.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ....record import replace
from ...source.branches import exclusive
from ...source.module import Module
from ...source.tree import (
    Function,
    argument,
    argument_values,
    everywhere,
    is_inside,
    is_none,
    parameters,
    position,
    within,
)
from ..language.binding_tests import reaching
from ..language.call_graph import CallGraph
from ..language.dictionaries import (
    in_phase,
    is_of_other_phase,
    item_of,
    key_in_call,
    key_of_all_calls,
    key_that_trains,
    pair_of,
    second_of_pair,
    values_of,
)
from ..language.iterated_attributes import iterated_attributes
from ..language.listed import all_of, comprehension_of, elements_of, place_in
from ..language.literal_arguments import is_possible
from ..language.names import answered_once
from ..language.objects import ClassOf, class_of, is_property, method_of
from ..language.passed_arguments import argument_for_parameter, default_value, keyword_of
from ..language.placed_items import item_at, zipped_at
from ..language.results import unpacked_result
from ..language.training_calls import calls_that_train
from .arguments_by_key import condition_in_factory
from .assigned_attributes import classes_with, is_set_on, values_assigned
from .constructed_loaders import Loader, loader_from_call, may_get, of_any_branch
from .endless_batches import endless_batches, passed_on, returns_one_of
from .own_loaders import makes_loader
from .returned_values import carried_stores, possible_results, returned_values
from .subclassed_loaders import loader_of_lookup, loader_of_own_class
from .unused_methods import is_unused_method

MAX_DEPTH = 12
# Calls that loop as their first argument does, and return another object; and those that may
# return it. steps is a method of capabilities' Resumable.
AROUND = ("enumerate", "tqdm", "iter", "list", "progress_bar", "track", "BackgroundGenerator")
PASSED_THROUGH = (*AROUND, "prepare", "prepare_data_loader", "steps")
ELEMENT_CALLS = ("choice", "next", "choices")  # they return an element of their first argument

# The names under which such calls take it.
SOURCE_NAMES = ("iterable", "loader", "data_loader", "seq", "population")


NextLoader = tuple[ast.Call, Loader]  # next(loader), and the loader


@answered_once
def loader_of(graph: CallGraph, module: Module, loop: ast.For) -> Loader | None:
    """The loader that a loop iterates over."""
    return trace_loader(graph, module, loop.iter)


def next_loaders(graph: CallGraph, module: Module, body: list[ast.stmt]) -> Iterator[NextLoader]:
    """The loaders of each ``next(loader)`` among the statements, and of ``batches.next()``."""
    for call in within(body, ast.Call):
        iterator: ast.expr | None = None
        match call:
            case ast.Call(func=ast.Name(id="next"), args=[iterator, *_]):
                pass
            case ast.Call(func=ast.Attribute(value=iterator, attr="next" | "__next__"), args=[]):
                pass
        for source in () if iterator is None else zipped(module, iterator):
            loader = trace_loader(graph, module, source)
            if loader is not None:
                yield call, loader


def zipped(module: Module, iterator: ast.expr) -> list[ast.expr]:
    """What ``pairs = zip(first, second)`` joins, for ``pairs``; otherwise the iterator itself."""
    made = module.definition(iterator, iterator)
    is_zip = isinstance(made, ast.Call) and module.dotted(made.func) == "zip"
    return made.args if isinstance(made, ast.Call) and is_zip else [iterator]


def trace_loader(graph: CallGraph, module: Module, node: ast.expr, depth: int = 0) -> Loader | None:
    """The loader that ``node`` evaluates to or iterates over; None for anything else."""
    if depth > MAX_DEPTH:
        return None
    match node:
        case ast.Call():
            return _trace_call(graph, module, node, depth)
        case ast.Name():
            loader = _trace_name(graph, module, node, depth)
            return loader and _with_local_name(graph, module, loader, node, depth)
        case ast.Attribute():
            loader = _trace_attribute(graph, module, node, depth)
            is_made_here = bool(everywhere(node, ast.Call))  # Batches(data).loader
            name = "" if loader is None or is_made_here else loader.name_in(module.text(node))
            return loader and replace(loader, name=name, scope=module.function(node))
        case ast.IfExp():  # tqdm(loader) if verbose else loader
            first = trace_loader(graph, module, node.body, depth + 1)
            other = first and trace_loader(graph, module, node.orelse, depth + 1)
            return first if first and other and first.call is other.call else None
        case ast.ListComp(generators=[ast.comprehension(ifs=[], iter=source)]):
            return trace_loader(graph, module, source, depth + 1)  # a list of its batches
        case ast.Subscript() if (passed := keyword_of(module, node)) is not None:
            return _trace_parameter(graph, module, *passed, depth)
        case ast.Subscript():
            loader = _trace_item(graph, module, node, depth)
            if loader is None and not key_that_trains(module, node):
                return _trace_place(graph, module, node, depth)
            return loader  # that of another phase may be beside it
    return None


def _trace_item(
    graph: CallGraph, module: Module, node: ast.Subscript, depth: int, key: str = ""
) -> Loader | None:
    """The loader ``loaders["train"]``, also of ``loaders[phase]`` where that is what trains."""
    key = key or key_that_trains(module, node) or key_of_all_calls(graph, module, node)
    for where, value, call in _dictionaries(graph, module, node.value) if key else ():
        if call is None and (zipped := zipped_at(where, value, key)) is not None:
            loader = _trace_unpacked(graph, where, *zipped, depth + 1)
            if loader is not None:
                name = loader.name_in(f"{module.text(node.value)}[{key!r}]")
                return replace(loader, name=name, scope=module.function(node))
        item, only_for = item_of(where, value, key)
        if item is None:
            continue
        loader = (
            trace_loader(graph, where, item, depth + 1)
            if call is None
            else _trace_result(graph, where, item, call, depth + 1)
        )
        if loader is not None and only_for and loader.call is not item:
            only_for = condition_in_factory(loader, item, only_for)
            loader = loader if only_for else None
        if loader is not None:
            name = loader.name_in(f"{module.text(node.value)}[{key!r}]")
            scope = module.function(node)
            return replace(loader, name=name, scope=scope, only_for=only_for)
    return None


def _trace_place(
    graph: CallGraph, module: Module, node: ast.Subscript, depth: int
) -> Loader | None:
    """The loader ``loaders[0]``; of ``loaders[i]`` all that the list has, as one."""
    elements = elements_of(graph, module, node.value)
    loader: Loader | None = None
    if elements and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, int):
        number = node.slice.value
        chosen = elements[number] if number < len(elements) else None
        loader = chosen and trace_loader(graph, *chosen, depth + 1)
    loader = loader or _trace_element(graph, module, node.value, None, depth + 1)
    is_placed = isinstance(node.slice, ast.Name | ast.Constant)
    if loader is None or loader.held_in is None or loader.name or not is_placed:
        return loader
    return replace(loader, name=module.text(node), scope=module.function(node))


def _dictionaries(
    graph: CallGraph, module: Module, node: ast.expr
) -> Iterator[tuple[Module, ast.expr, ast.Call | None]]:
    """What a dictionary may be, each with the call whose function returns it, if one does."""
    for where, value in values_of(graph, module, node):
        call = value if isinstance(value, ast.Call) else None
        results = [] if call is None else possible_results(graph, where, call)
        if not results:
            yield where, value, None
        for source, result in results:
            yield from ((*each, call) for each in values_of(graph, source, result))


def _with_local_name(
    graph: CallGraph, module: Module, loader: Loader, node: ast.Name, depth: int
) -> Loader:
    """The loader with its name in the function around ``node``; a first name there stays.

    ``bar = tqdm(DataLoader(…))`` is no name: the bar has no sampler. Nor is one that is given to
    the bar: ``loader = tqdm(loader)``; nor that of a bar that a method returns, ``self.batches()``.
    """
    scope = module.function(node)
    value = module.definition(node, node)
    made = value if isinstance(value, ast.Call) else None
    is_around = made is not None and module.last_name(made.func) in AROUND
    if loader.name and loader.scope is scope and not (is_around and loader.name == node.id):
        return loader
    if made and not is_around and returns_one_of(graph, module, made, AROUND):
        owners = {module.enclosing_class(each) for each in (node, loader.scope) if each}
        is_kept = loader.name.startswith("self.") and loader.scope and len(owners) == 1
        name = loader.name if is_kept else _name_passed(graph, module, made, loader, depth)
        return replace(loader, name=name, scope=scope)
    return replace(loader, name="" if is_around else loader.name_in(node.id), scope=scope)


def _name_passed(
    graph: CallGraph, module: Module, call: ast.Call, loader: Loader, depth: int
) -> str:
    """The name by which a call gets a loader, ``bar_of(loader)``; empty if it gets it by none."""
    named = (each for each in argument_values(call) if isinstance(each, ast.Name | ast.Attribute))
    found = (trace_loader(graph, module, each, depth + 1) for each in named)
    return next((each.name for each in found if each and each.is_same(loader)), "")


def _trace_call(graph: CallGraph, module: Module, call: ast.Call, depth: int) -> Loader | None:
    name = module.last_name(call.func)
    if makes_loader(graph, module, call):
        return loader_from_call(module, call)
    if (own := loader_of_own_class(graph, module, call)) is not None:
        return own
    if name == "cycle" and call.args:
        loader = trace_loader(graph, module, call.args[0], depth + 1)
        return loader and replace(loader, cycle=call)
    source = argument(call, 0, *SOURCE_NAMES)
    if name in PASSED_THROUGH and source is not None:
        results = possible_results(graph, module, call)  # of the program's own prepare()
        found = of_any_branch(_trace_result(graph, *result, call, depth) for result in results)
        return found or trace_loader(graph, module, source, depth + 1)
    if name in ELEMENT_CALLS and source is not None:
        return _trace_element(graph, module, source, None, depth + 1)
    if endless_batches(graph, module, call) is not None:
        loader = trace_loader(graph, module, call.args[0], depth + 1)
        return loader and replace(loader, cycle=call)
    if name == "map" and len(call.args) == 2 and isinstance(call.func, ast.Name):
        return trace_loader(graph, module, call.args[1], depth + 1)
    if (source_of_all := passed_on(graph, module, call)) is not None:
        return trace_loader(graph, *source_of_all, depth + 1)
    if isinstance(call.func, ast.Subscript):
        return _trace_table(graph, module, call, call.func.value, depth)
    results = possible_results(graph, module, call)
    found = of_any_branch(_trace_result(graph, *result, call, depth) for result in results)
    if found is not None and found.name.startswith("self."):  # the object's, of a bar perhaps
        passed = _name_passed(graph, module, call, found, depth)
        if passed and module.enclosing_class(call) is None:
            return replace(found, name=passed, scope=module.function(call))
    return found or _trace_iterated(graph, module, call, depth)


def _trace_table(
    graph: CallGraph, module: Module, call: ast.Call, table: ast.expr, depth: int
) -> Loader | None:
    """What ``MAKERS[name](args)`` returns, where each function of the table makes a loader."""
    found: list[Loader | None] = []
    for where, element in elements_of(graph, module, table) or ():
        known = graph.resolve(where, element)
        results = (
            [each.value for each in within(known[1].body, ast.Return) if each.value is not None]
            if known is not None and isinstance(known[1], Function)
            else []
        )
        found += [_trace_result(graph, known[0], each, call, depth) for each in results if known]
        if not results:
            return None
    return of_any_branch(found) if all(found) else None


def _trace_iterated(graph: CallGraph, module: Module, call: ast.Call, depth: int) -> Loader | None:
    """The loader that an object goes over, which it makes or gets as an argument.

    None where it goes over several, of which each step may take a batch.
    """
    held: dict[str, Loader] = {}
    for name, where, value in iterated_attributes(graph, module, call):
        constructor = where.function(value)
        source: ast.expr | None = value
        if isinstance(value, ast.Call) and where.last_name(value.func) in PASSED_THROUGH:
            source = argument(value, 0, *SOURCE_NAMES)
        is_argument = (
            isinstance(source, ast.Name)
            and constructor is not None
            and source.id in parameters(constructor)
            and (constructor, source.id) not in where.stores
        )
        if is_argument and isinstance(source, ast.Name) and constructor is not None:
            passed = argument_for_parameter(where, constructor, call, source.id)
            loader = None if passed is None else trace_loader(graph, module, passed, depth + 1)
        else:
            loader = _trace_result(graph, where, value, call, depth + 1)
        if loader is not None:
            is_itself = source is value and loader.held_in is not None
            held[name] = replace(loader, held_in=loader.name_in(f".{name}") if is_itself else None)
    return next(iter(held.values())) if len(held) == 1 else None


def _trace_name(graph: CallGraph, module: Module, name: ast.Name, depth: int) -> Loader | None:
    function = module.function(name)
    if (phase := in_phase(module, name)) is not None:
        item = second_of_pair(graph, module, phase[0].iter, phase[1])
        return item and trace_loader(graph, *item, depth + 1)
    if (part := comprehension_of(module, name)) is not None:
        place = place_in(part.target, name)
        found = _trace_element(graph, module, part.iter, place, depth + 1)
        return found and replace(found, name="", held_in=None, listed_in=all_of(module, part))
    stores = [n for n in module.stores.get((function, name.id), []) if position(n) < position(name)]
    here = module.statement(name)
    stores = [
        store
        for store in reversed(stores)  # loader = cycle(loader) has the value of an earlier binding
        if not (module.statement(store) is here and isinstance(here, ast.Assign | ast.AnnAssign))
        and not any(isinstance(up, ast.comprehension) for up in module.ancestors(store)[:2])
        and not is_of_other_phase(module, store, name)
    ]
    if stores:
        found = _trace_stores(graph, module, reaching(module, stores[::-1], name), depth)
        late = carried_stores(module, name, stores) if found is not None else []
        return of_any_branch((found, *(_trace_store(graph, module, each, depth) for each in late)))
    while function is not None:
        if name.id in parameters(function):
            return _trace_parameter(graph, module, function, name.id, depth)
        inner, function = function, module.function(function)
        if stores := module.stores.get((function, name.id), []):
            return _trace_stores(graph, module, reaching(module, stores, inner), depth)
    return None


def _trace_stores(
    graph: CallGraph, module: Module, stores: list[ast.Name], depth: int
) -> Loader | None:
    """The loader of a name by its bindings, the last first; each but the last is of a branch.

    None where the last is none, unless another branch of its own test makes one.
    """
    found = [(store, _trace_store(graph, module, store, depth)) for store in stores]
    known = bool(found) and found[0][1] is not None
    return of_any_branch(loader for store, loader in found if known or exclusive(store, stores[0]))


def _trace_store(graph: CallGraph, module: Module, store: ast.Name, depth: int) -> Loader | None:
    """The loader that a name is bound to in one place."""
    holder = module.parents[store]
    index: int | None = None  # in the tuple that is unpacked
    if isinstance(holder, ast.Tuple):
        index, holder = holder.elts.index(store), module.parents[holder]
    match holder:
        case ast.Assign() if index is None:
            return trace_loader(graph, module, holder.value, depth + 1)
        case ast.AnnAssign(value=ast.expr() as value):
            return trace_loader(graph, module, value, depth + 1)
        case ast.Assign():
            return _trace_unpacked(graph, module, holder.value, index or 0, depth + 1)
        case ast.For():
            return _trace_element(graph, module, holder.iter, index, depth + 1)
        case ast.withitem(context_expr=ast.Call() as bar) if module.last_name(bar.func) in AROUND:
            return trace_loader(graph, module, bar, depth + 1)
    return None


def _trace_parameter(
    graph: CallGraph,
    module: Module,
    function: Function,
    name: str,
    depth: int,
    index: int | None = None,
) -> Loader | None:
    """The loaders that callers pass for a parameter, as one; None unless all pass one, or None.

    Of a function that trains they are those that it may train with. With an ``index``, in a tuple.
    """
    passed: list[Loader] = []
    callers = calls_that_train(graph, module, function, graph.callers(function))
    live = [(w, c) for w, c in callers if not is_unused_method(graph, w, w.function(c))]
    for where, call in live or callers:
        value = argument_for_parameter(module, function, call, name)
        told = default_value(function, name) if value is None else value
        if told is not None and is_none(told):
            continue  # of a call that trains nothing, such as of a trainer that is to evaluate
        loader = (
            None
            if value is None
            else _trace_unpacked(graph, where, value, index, depth + 1)
            if index is not None
            else _trace_in_phase(graph, where, value, function, call, depth)
            or trace_loader(graph, where, value, depth + 1)
        )
        if loader is None:
            return None
        passed.append(loader)
    return of_any_branch(passed)


def _trace_in_phase(
    graph: CallGraph,
    module: Module,
    value: ast.expr,
    function: Function,
    call: ast.Call,
    depth: int,
) -> Loader | None:
    """The loader that a call passes in the phase that its function trains in.

    ``run(phase, loaders[phase])``, and ``for phase, loader in pairs: run(phase, loader)``.
    """
    where = graph.module_of(function)
    if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Name):
        key = key_in_call(where, function, call, value.slice.id)
        return _trace_item(graph, module, value, depth, key) if key else None
    pair = pair_of(module, value) if isinstance(value, ast.Name) else None
    key = key_in_call(where, function, call, pair[1]) if pair is not None else ""
    if pair is None or not key:
        return None
    item = second_of_pair(graph, module, pair[0].iter, key)
    return item and trace_loader(graph, *item, depth + 1)


def _trace_attribute(
    graph: CallGraph, module: Module, node: ast.Attribute, depth: int
) -> Loader | None:
    """The loader that a class assigns to ``self.loader``, for ``data.loader`` of such an object."""
    if isinstance(node.value, ast.Name) and node.value.id == "self":
        around = module.enclosing_class(node)  # also of a function in a method
        found = None if around is None else (module, around)
    else:
        found = class_of(graph, module, node.value)
    if found is None:
        return None
    owner = found[1]
    made = node.value if isinstance(node.value, ast.Call) else None
    if isinstance(node.value, ast.Name) and node.value.id != "self":
        value = module.definition(node.value, node.value)
        made = value if isinstance(value, ast.Call) else None
    own = (
        _of_constructor(trace_loader(graph, home, value, depth + 1), module, made, owner)
        if index is None
        else _trace_unpacked(graph, home, value, index, depth + 1)
        for each in (found, *classes_with(graph, owner, node.attr))
        for home, value, index in values_assigned(each, node.attr)
    )
    outside = (
        trace_loader(graph, other, value, depth + 1)
        for other in graph.modules
        for value in other.attribute_values.get(node.attr, ())
        if not is_inside(value, owner) and is_set_on(graph, other, value, node.attr, owner)
    )
    return of_any_branch((*own, *outside)) or _trace_property(graph, found, node, depth)


def _of_constructor(
    loader: Loader | None, module: Module, made: ast.Call | None, owner: ast.ClassDef
) -> Loader | None:
    """The loader that an object makes as it is constructed, with the call that does so.

    As a function's loader has the call of the function: others may construct one as well.
    """
    if (
        loader is None
        or made is None
        or loader.made_by
        or module.last_name(made.func) != owner.name
    ):
        return loader
    function = loader.module.function(loader.call)
    if function is None or function.name != "__init__" or not is_inside(function, owner):
        return loader
    return replace(loader, made_by=((module, made),))


def _trace_property(
    graph: CallGraph, owner: ClassOf, node: ast.Attribute, depth: int
) -> Loader | None:
    """The loader that a property of an object returns; without a name where it makes it anew."""
    where, method = method_of(graph, owner, node.attr) or (owner[0], None)
    if method is None or not is_property(method):
        return None
    results = [each.value for each in within(method.body, ast.Return) if each.value is not None]
    loader = of_any_branch(trace_loader(graph, where, each, depth + 1) for each in results)
    is_kept = all(isinstance(each, ast.Attribute) for each in results)
    return loader if loader is None or is_kept else replace(loader, name="", held_in=None)


def _trace_unpacked(
    graph: CallGraph, module: Module, value: ast.expr, index: int, depth: int
) -> Loader | None:
    """The loader at one index of a tuple: literal, returned by a call, or yielded to ``next``."""
    if isinstance(value, ast.Tuple) and index < len(value.elts):
        return trace_loader(graph, module, value.elts[index], depth)
    if depth > MAX_DEPTH:
        return None
    if isinstance(value, ast.Name):
        bound = module.definition(value, value)
        if bound is None:
            return _trace_nested(graph, module, value, index, depth)
        return _trace_unpacked(graph, module, bound, index, depth + 1)
    if not isinstance(value, ast.Call):
        return None
    if module.dotted(value.func) == "next" and value.args:
        return _trace_element(graph, module, value.args[0], index, depth)
    return of_any_branch(
        _trace_placed(graph, where, result, index, value, depth)
        for where, result in possible_results(graph, module, value)
    )


def _trace_placed(
    graph: CallGraph, module: Module, result: ast.expr, index: int, call: ast.Call, depth: int
) -> Loader | None:
    """The loader at a place of what a function returns to a call: a tuple, or a list it fills."""
    item, only_for = item_at(module, result, index) or (None, "")
    loader = None if item is None else _trace_result(graph, module, item, call, depth)
    if loader is not None and item is not None and only_for:
        if loader.call is not item:
            only_for = condition_in_factory(loader, item, only_for)
        loader = replace(loader, only_for=only_for) if only_for else None
    return loader


def _trace_nested(
    graph: CallGraph, module: Module, name: ast.Name, index: int, depth: int
) -> Loader | None:
    """The loader at one index of a tuple in a tuple: ``loaders, names = get_data()``.

    Or of one that callers pass.
    """
    function = module.function(name)
    if function is not None and name.id in parameters(function):
        is_bound = (function, name.id) in module.stores
        return (
            None if is_bound else _trace_parameter(graph, module, function, name.id, depth, index)
        )
    call, place = unpacked_result(module, name) or (None, 0)
    if not isinstance(call, ast.Call):
        return None
    return of_any_branch(
        _trace_result(graph, where, inner.elts[index], call, depth)
        for where, result in possible_results(graph, module, call)
        if isinstance(result, ast.Tuple) and place < len(result.elts)
        for inner in [where.definition(result.elts[place], result) or result.elts[place]]
        if isinstance(inner, ast.Tuple) and index < len(inner.elts)
    )


def _trace_element(
    graph: CallGraph, module: Module, container: ast.expr, index: int | None, depth: int
) -> Loader | None:
    """A loader among the elements of a list or generator; ``index`` if the elements are tuples."""
    if depth > MAX_DEPTH:
        return None
    match container:
        case ast.Call(func=ast.Name(id="zip"), args=args) if index is not None:
            plain = index < len(args) and not any(isinstance(each, ast.Starred) for each in args)
            return _trace_element(graph, module, args[index], None, depth + 1) if plain else None
        case ast.Call(func=ast.Name(id="enumerate"), args=[listed, *_]) if index is not None:
            return _trace_element(graph, module, listed, None, depth + 1) if index == 1 else None
        case ast.Call(func=ast.Attribute(value=owner, attr="items"), args=[]):
            return _trace_element(graph, module, owner, None, depth + 1) if index == 1 else None
    if (elements := elements_of(graph, module, container)) is not None:
        return _trace_elements(graph, elements, index, depth)
    match container:
        case ast.Name():
            values = module.alternatives(container, container)
            if not values or isinstance(values[-1], ast.List | ast.Tuple | ast.Dict):
                return None  # more may be in it
            return _trace_element(graph, module, values[-1], index, depth + 1)
        case ast.Call():
            name = module.last_name(container.func)
            source = argument(container, 0, *SOURCE_NAMES)
            if name in (*PASSED_THROUGH, *ELEMENT_CALLS, "cycle") and source is not None:
                return _trace_element(graph, module, source, index, depth + 1)
            for where, value in returned_values(graph, module, container, ast.Yield):
                item = value
                if index is not None:
                    if not isinstance(value, ast.Tuple) or index >= len(value.elts):
                        continue
                    item = value.elts[index]
                return _trace_result(graph, where, item, container, depth)
    return None


def _trace_elements(
    graph: CallGraph, elements: list[tuple[Module, ast.expr]], index: int | None, depth: int
) -> Loader | None:
    """The loaders that are all elements of a list, as one: whichever a name has in its turn."""
    found: list[Loader] = []
    for where, value in elements:
        item = value
        if index is not None and isinstance(value, ast.Tuple) and index < len(value.elts):
            item = value.elts[index]
        if isinstance(item, ast.Constant) and item.value is None:
            continue
        loader = trace_loader(graph, where, item, depth + 1)
        if loader is None:
            return None
        is_around = isinstance(item, ast.Call) and where.last_name(item.func) in AROUND
        found.append(replace(loader, held_in=None) if is_around else loader)
    whole = of_any_branch(found)
    return whole and (replace(whole, name="") if len(elements) > 1 else whole)


def is_made_in(loader: Loader, function: Function) -> bool:
    """Whether a function constructs a loader, or calls what makes it."""
    where, call = loader.made_by[-1] if loader.made_by else (loader.module, loader.call)
    return where.function(call) is function


def _trace_result(
    graph: CallGraph, module: Module, item: ast.expr, call: ast.Call, depth: int
) -> Loader | None:
    """The loader ``item`` that a function returns to ``call``, whose arguments exclude branches."""
    if (looked_up := loader_of_lookup(graph, module, item, call)) is not None:
        return looked_up
    function = module.function(item)
    values = module.alternatives(item, item)
    items = [item]
    if function is not None and len(values) > 1:
        place = (graph.module_of(call), call)
        reached = [value for value in values if is_possible(module, function, value, (place,))]
        items = reached[::-1] if 0 < len(reached) < len(values) else [item]
    loader = of_any_branch(trace_loader(graph, module, each, depth + 1) for each in items)
    if loader is None or function is None:
        return loader
    place = (graph.module_of(call), call)
    every = [loader, *loader.others]
    own = {each.call for each in every if module.function(each.call) is function}
    possible = [
        each
        for each in every
        if each.call not in own or is_possible(module, function, each.call, (place,))
    ]
    return of_any_branch(
        replace(
            each,
            others=(),
            samplers=tuple(s for s in each.samplers if may_get(module, function, each, s, place))
            or each.samplers,
            made_by=(*each.made_by, place) if is_made_in(each, function) else each.made_by,
        )
        for each in possible or every
    )
