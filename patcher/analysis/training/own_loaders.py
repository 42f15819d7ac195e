"""Which calls make a DataLoader of torch, or of a class of the program that is derived from it."""

from __future__ import annotations

import ast

from ...source.module import Module
from ...source.tree import Function, argument, everywhere, is_false, within
from ..language.call_graph import CallGraph
from ..language.names import answered_once
from ..language.objects import ClassOf, method_of
from ..language.passed_arguments import default_value, partial_of

DRAWING = ("__iter__", "_get_iterator", "sampler", "batch_sampler", "_index_sampler")


def makes_loader(graph: CallGraph, module: Module, call: ast.Call) -> bool:
    """Whether a call makes torch's DataLoader, and not one of a class that has this name only.

    Nor one of a class that is derived from it, and takes other arguments.
    """
    if (made := partial_of(module, call)) is not None:
        return leaves_order_open(module, made)
    name = module.last_name(call.func)
    if name not in own_loaders(graph) | {"DataLoader"} or module.dotted(call.func)[:4] == "dgl.":
        return False  # of a graph: it takes no sampler of examples, and deals if it is told to
    found = graph.resolve(module, call.func)
    if found is None or not isinstance(found[1], ast.ClassDef | Function):
        return name == "DataLoader"
    where, own = found
    return isinstance(own, ast.ClassDef) and (
        not picks_its_own(graph, (where, own))
        and any(where.last_name(base) == "DataLoader" for base in own.bases)
        and all(
            hands_options_on(each, call)
            for each in own.body
            if isinstance(each, Function) and each.name == "__init__"
        )
    )


def picks_its_own(graph: CallGraph, owner: ClassOf) -> bool:
    """Whether a class goes over its data set by itself, past the sampler that torch's would ask."""
    own = method_of(graph, owner, "__iter__")
    around = None if own is None else own[0].enclosing_class(own[1])
    return around is not None and not any(
        node.attr in DRAWING for node in everywhere(around, ast.Attribute)
    )


def leaves_order_open(module: Module, made: ast.Call) -> bool:
    """``partial(DataLoader, batch_size=4)``: torch's, whose data and order its calls tell."""
    words = {word.arg for word in made.keywords}
    return (
        len(made.args) == 1
        and module.dotted(made.args[0]).startswith("torch.")
        and module.last_name(made.args[0]) == "DataLoader"
        and words.isdisjoint({"dataset", "shuffle", "sampler", "batch_sampler", None})
    )


@answered_once
def own_loaders(graph: CallGraph) -> set[str]:
    """The names of the program's classes that are derived from DataLoader."""
    return {
        owner.name
        for module in graph.modules
        for owner in module.nodes(ast.ClassDef)
        if any(module.last_name(base) == "DataLoader" for base in owner.bases)
    }


def hands_options_on(constructor: Function, call: ast.Call) -> bool:
    """Whether a loader's constructor begins as torch's, and hands further options on to that.

    What a call leaves out has to be what torch takes then: no order by default.
    """
    names = [each.arg for each in constructor.args.args[1:4]]
    rest = constructor.args.kwarg
    shuffles = default_value(constructor, "shuffle")
    return (
        rest is not None
        and names == ["dataset", "batch_size", "shuffle"][: len(names)]
        and (shuffles is None or is_false(shuffles) or argument(call, 2, "shuffle") is not None)
        and any(
            isinstance(each.func, ast.Attribute)
            and each.func.attr == "__init__"
            and any(
                word.arg is None and isinstance(word.value, ast.Name) and word.value.id == rest.arg
                for word in each.keywords
            )
            for each in within(constructor.body, ast.Call)
        )
    )
