"""Loaders of a class of the program whose constructor calls that of torch's DataLoader.

``ImageLoader(root, batch_size)`` makes the data set itself, and hands it to ``super().__init__``,
which is the construction that counts then.
"""

from __future__ import annotations

import ast

from ....record import replace
from ...source.module import Module
from ...source.tree import Function, argument, keyword, parameters, within
from ..language.call_graph import CallGraph
from ..language.literal_arguments import CallPlace
from ..language.objects import ClassOf, classes_above, method_of, named_definition
from ..language.passed_arguments import argument_for_parameter
from .constructed_loaders import Loader, loader_from_call
from .own_loaders import picks_its_own

MAX_CLASSES = 4  # between the class and torch's


def loader_of_own_class(graph: CallGraph, module: Module, call: ast.Call) -> Loader | None:
    """The loader that a call makes by the constructor of a class of the program."""
    found = named_definition(graph, module, call.func)
    if found is None or not isinstance(found[1], ast.ClassDef):
        return None
    return loader_of_class(graph, (found[0], found[1]), (module, call))


def loader_of_lookup(
    graph: CallGraph, module: Module, made: ast.expr, call: ast.Call
) -> Loader | None:
    """The loader that a function gets by a name in a module which the call passes to it.

    ``config.init_obj("data_loader", loaders)``, where it returns ``getattr(module, name)(…)``: of
    the one class of that module that makes loaders.
    """
    match made:
        case ast.Call(func=ast.Call(func=ast.Name(id="getattr"), args=[ast.Name(id=name), _])):
            function = module.function(made)
        case _:
            return None
    if function is None or name not in parameters(function):
        return None
    where = graph.module_of(call)
    passed = argument_for_parameter(module, function, call, name)
    found = None if passed is None else graph.resolve(where, passed)
    if found is None or found[1] is not found[0].tree:
        return None
    home = found[0]
    classes = [
        each
        for each in home.tree.body
        if isinstance(each, ast.ClassDef) and not graph.classes_below.get(each)
    ]
    loaders = [
        loader
        for each in classes
        if (loader := loader_of_class(graph, (home, each), (where, call))) is not None
    ]
    return loaders[0] if len(loaders) == 1 else None


def loader_of_class(graph: CallGraph, owner: ClassOf, place: CallPlace) -> Loader | None:
    """The loader that a class makes in its constructor, or one above it, by torch's."""
    if picks_its_own(graph, owner):
        return None
    made_by = [place]
    for _ in range(MAX_CLASSES):
        constructor = method_of(graph, owner, "__init__")
        inner = None if constructor is None else _call_of_base(*constructor)
        if constructor is None or inner is None:
            return None
        home = constructor[0]
        own = home.enclosing_class(constructor[1])
        if own is None:
            return None
        above = classes_above(graph, (home, own))[1:]
        if not any(method_of(graph, each, "__init__") for each in above):
            kinds = [
                where.last_name(base)
                for where, each in [(home, own), *above]
                for base in each.bases
            ]
            if "DataLoader" not in kinds:
                return None
            if _hands_all_on(constructor[1], inner):
                where, call = made_by[0]
                if call.args and constructor[1].args.vararg is None:
                    return None  # by position its arguments are the constructor's own
                if argument(call, 0, "dataset") is None:
                    return None
                return replace(loader_from_call(where, call), made_by=tuple(made_by[1:]))
            loader = loader_from_call(home, inner)
            return replace(loader, name="", made_by=tuple(made_by))
        owner = above[0]
        made_by.insert(0, (home, inner))
    return None


def _hands_all_on(constructor: Function, inner: ast.Call) -> bool:
    """``super().__init__(**options)``: what a call of the class says goes to torch's as it is.

    Also by position, ``super().__init__(*args, **options)``, where the constructor has no name.
    """
    rest, places = constructor.args.kwarg, constructor.args.vararg
    match inner.args:
        case []:
            hands_places_on = places is None
        case [ast.Starred(value=ast.Name(id=name))]:
            hands_places_on = (
                places is not None and name == places.arg and len(constructor.args.args) == 1
            )
        case _:
            hands_places_on = False
    return (
        rest is not None
        and hands_places_on
        and not keyword(inner, "dataset")
        and any(
            word.arg is None and isinstance(word.value, ast.Name) and word.value.id == rest.arg
            for word in inner.keywords
        )
    )


def _call_of_base(module: Module, constructor: Function) -> ast.Call | None:
    """The one ``super().__init__(…)`` of a constructor."""
    calls = [
        call
        for call in within(constructor.body, ast.Call)
        if isinstance(call.func, ast.Attribute)
        and call.func.attr == "__init__"
        and isinstance(call.func.value, ast.Call)
        and module.last_name(call.func.value.func) == "super"
    ]
    return calls[0] if len(calls) == 1 else None
