"""Which DataLoader an expression is: followed through names, calls, functions, lists and objects.

A loop goes through ``enumerate(tqdm(train_dataloader))``, through ``self.loader``, through what
``get_loaders()`` returns or yields, or it takes ``next(train_dataloader)`` of a cycle.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

from ...record import changed, record
from ..source.module import Module
from ..source.tree import (
    Function,
    argument,
    everywhere,
    parameters,
    position,
    within,
)

if TYPE_CHECKING:
    from .program import Program

Result = TypeVar("Result", ast.Return, ast.Yield)

DEPTH = 12
# What loops as its first argument does; steps is that of a loop that can be resumed.
SAME = ("enumerate", "tqdm", "iter", "prepare", "prepare_data_loader", "steps")
CHOICE = ("choice", "next", "choices")  # one of what the argument holds


@record
class Loader:
    """A DataLoader and what it deals from."""

    module: Module  # where it is made
    name: str  # what the function that asks calls it; empty where it has no name there
    scope: Function | None  # the function in which it goes by that name
    call: ast.Call
    dataset: ast.expr | None
    samplers: tuple[ast.expr, ...]  # the sampler's own constructions, one per branch
    batch_size: ast.expr | None
    drop_last: bool  # whether a last batch that is not full is left out
    cycle: ast.Call | None = None  # where itertools.cycle makes it endless
    asked: ast.Call | None = None  # the call of the function that makes it

    def shares_with(self, other: Loader) -> bool:
        """Whether the other one deals by the same sampler, or is made in the same place without."""
        if self.samplers or other.samplers:
            return bool(set(self.samplers) & set(other.samplers))
        return self.call is other.call

    @property
    def distributed(self) -> list[ast.Call]:
        """Constructions of a DistributedSampler that this loader may use."""
        return [
            node
            for sampler in self.samplers
            for node in everywhere(sampler, ast.Call)
            if self.module.last_name(node.func) == "DistributedSampler"
        ]


def loader_of(program: Program, module: Module, loop: ast.For) -> Loader | None:
    """The loader that a loop goes through."""
    return trace(program, module, loop.iter)


def next_loader(program: Program, module: Module, body: list[ast.stmt]) -> Loader | None:
    """The loader that the statements take ``next(loader)`` of."""
    for call in within(body, ast.Call):
        if isinstance(call.func, ast.Name) and call.func.id == "next" and call.args:
            loader = trace(program, module, call.args[0])
            if loader is not None:
                return loader
    return None


def trace(program: Program, module: Module, node: ast.expr, depth: int = 0) -> Loader | None:
    """The loader that ``node`` is, or goes through; None where it is something else."""
    if depth > DEPTH:
        return None
    match node:
        case ast.Call():
            return _call(program, module, node, depth)
        case ast.Name():
            found = _name(program, module, node, depth)
            return found and _known_as(module, found, node)
        case ast.Attribute(value=ast.Name(id="self")):
            found = _attribute(program, module, node, depth)
            return found and changed(found, name=module.text(node), scope=module.function(node))
        case ast.Subscript():
            return _element(program, module, node.value, None, depth + 1)
    return None


def _known_as(module: Module, loader: Loader, node: ast.Name) -> Loader:
    """The loader by the first name that the function around ``node`` gives it."""
    scope = module.function(node)
    if loader.name and loader.scope is scope:
        return loader
    return changed(loader, name=node.id, scope=scope)


def made(module: Module, call: ast.Call) -> Loader:
    """The loader that a construction makes."""
    stmt = module.statement(call)
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) and stmt.value is call else None
    sampler, drop = argument(call, 3, "sampler"), argument(call, 8, "drop_last")
    return Loader(
        module,
        module.text(target) if isinstance(target, ast.Name | ast.Attribute) else "",
        module.function(call),
        call,
        argument(call, 0, "dataset"),
        () if sampler is None else _samplers(module, sampler),
        argument(call, 1, "batch_size"),
        isinstance(drop, ast.Constant) and drop.value is True,
    )


def _samplers(module: Module, sampler: ast.expr) -> tuple[ast.expr, ...]:
    """What a sampler argument may be; of ``for d, s in zip(datasets, samplers)`` the list's own."""
    values = module.alternatives(sampler, sampler)
    if values:
        return tuple(values)
    if isinstance(sampler, ast.Name):
        for part in _comprehension_sources(module, sampler):
            lists = [v for v in module.alternatives(part, part) if isinstance(v, ast.ListComp)]
            if lists:
                return tuple(value.elt for value in lists)
    return (sampler,)


def _comprehension_sources(module: Module, name: ast.Name) -> Iterator[ast.expr]:
    """What ``name`` runs through as the target of a comprehension around it."""
    for up in module.ancestors(name):
        if not isinstance(up, ast.ListComp | ast.GeneratorExp):
            continue
        for part in up.generators:
            source: ast.expr | None = None
            if isinstance(part.target, ast.Name) and part.target.id == name.id:
                source = part.iter
            elif isinstance(part.target, ast.Tuple) and isinstance(part.iter, ast.Call):
                names = [item.id if isinstance(item, ast.Name) else "" for item in part.target.elts]
                zipped = module.dotted(part.iter.func) == "zip"
                if zipped and name.id in names and len(part.iter.args) == len(names):
                    source = part.iter.args[names.index(name.id)]
            if source is not None:
                yield source


def _call(program: Program, module: Module, call: ast.Call, depth: int) -> Loader | None:
    name = module.last_name(call.func)
    if name == "DataLoader":
        return made(module, call)
    if name == "cycle" and call.args:
        found = trace(program, module, call.args[0], depth + 1)
        return found and changed(found, cycle=call)
    if name in SAME and call.args:
        return trace(program, module, call.args[0], depth + 1)
    if name in CHOICE and call.args:
        return _element(program, module, call.args[0], None, depth + 1)
    for where, value in results(program, module, call, ast.Return):
        found = _of_call(program, where, value, module, call, depth)
        if found is not None:
            return found
    return None


def results(
    program: Program, module: Module, call: ast.Call, kind: type[Result]
) -> list[tuple[Module, ast.expr]]:
    """What a function of the program returns, or yields, to this call."""
    if not isinstance(call.func, ast.Name):
        return []
    for where in program.modules:
        function = where.functions.get(where_name := call.func.id)
        if function is not None and (where is module or where_name in module.aliases):
            return [(where, n.value) for n in within(function.body, kind) if n.value is not None]
    return []


def _name(program: Program, module: Module, name: ast.Name, depth: int) -> Loader | None:
    function = module.function(name)
    sites = [n for n in module.stores.get((function, name.id), []) if position(n) < position(name)]
    here = module.statement(name)
    for site in reversed(sites):
        if module.statement(site) is here and isinstance(here, ast.Assign | ast.AnnAssign):
            continue  # loader = cycle(loader): the value is older than the name
        holder = module.parents[site]
        path: int | None = None
        if isinstance(holder, ast.Tuple):
            path, holder = holder.elts.index(site), module.parents[holder]
        match holder:
            case ast.Assign() if path is None:
                return trace(program, module, holder.value, depth + 1)
            case ast.AnnAssign(value=ast.expr() as value):
                return trace(program, module, value, depth + 1)
            case ast.Assign():
                return _unpacked(program, module, holder.value, path or 0, depth + 1)
            case ast.For():
                return _element(program, module, holder.iter, path, depth + 1)
            case ast.comprehension():
                continue
        return None
    if function is not None and name.id in parameters(function):
        return _given(program, module, function, name.id, depth)
    if function is not None and (None, name.id) in module.stores:
        for site in reversed(module.stores[None, name.id]):
            holder = module.parents[site]
            if isinstance(holder, ast.Assign):
                return trace(program, module, holder.value, depth + 1)
    return None


def _given(
    program: Program, module: Module, function: Function, name: str, depth: int
) -> Loader | None:
    """What every caller gives for a parameter; None unless all give a loader."""
    found: Loader | None = None
    for where, call in program.callers(function):
        value = argument_for_parameter(module, function, call, name)
        loader = None if value is None else trace(program, where, value, depth + 1)
        if loader is None:
            return None
        found = found or loader
    return found


def argument_for_parameter(
    module: Module, function: Function, call: ast.Call, name: str
) -> ast.expr | None:
    """The argument that ``call`` gives for the parameter ``name`` of ``function``."""
    names = [arg.arg for arg in (*function.args.posonlyargs, *function.args.args)]
    if names and isinstance(module.parents.get(function), ast.ClassDef):
        names = names[1:]  # self
    index = names.index(name) if name in names else len(call.args)
    return argument(call, index, name)


def _attribute(program: Program, module: Module, node: ast.Attribute, depth: int) -> Loader | None:
    """``self.loader``: what a method of the class assigns to it."""
    owner = next((up for up in module.ancestors(node) if isinstance(up, ast.ClassDef)), None)
    if owner is None:
        return None
    for stmt in everywhere(owner, ast.Assign):
        for target in stmt.targets:
            if isinstance(target, ast.Attribute) and module.text(target) == module.text(node):
                return trace(program, module, stmt.value, depth + 1)
    return None


def _unpacked(
    program: Program, module: Module, value: ast.expr, path: int, depth: int
) -> Loader | None:
    """Element ``path`` of what a call returns, or of ``next`` of what it yields."""
    if isinstance(value, ast.Tuple) and path < len(value.elts):
        return trace(program, module, value.elts[path], depth)
    if depth > DEPTH:
        return None
    if isinstance(value, ast.Name):
        bound = module.definition(value, value)
        return None if bound is None else _unpacked(program, module, bound, path, depth + 1)
    if not isinstance(value, ast.Call):
        return None
    if module.dotted(value.func) == "next" and value.args:
        return _element(program, module, value.args[0], path, depth)
    for where, result in results(program, module, value, ast.Return):
        if isinstance(result, ast.Tuple) and path < len(result.elts):
            return _of_call(program, where, result.elts[path], module, value, depth)
    return None


def _element(
    program: Program, module: Module, many: ast.expr, path: int | None, depth: int
) -> Loader | None:
    """One of the loaders in a list, or that a generator yields, alone or in tuples."""
    if depth > DEPTH:
        return None
    match many:
        case ast.ListComp() | ast.GeneratorExp():
            return trace(program, module, many.elt, depth + 1)
        case ast.List() | ast.Tuple():
            found = [trace(program, module, item, depth + 1) for item in many.elts]
            return next((loader for loader in found if loader is not None), None)
        case ast.Name():
            for value in reversed(module.alternatives(many, many)):
                return _element(program, module, value, path, depth + 1)
            return None
        case ast.Call():
            name = module.last_name(many.func)
            if name in (*SAME, *CHOICE, "cycle") and many.args:
                return _element(program, module, many.args[0], path, depth + 1)
            for where, value in results(program, module, many, ast.Yield):
                item = value
                if path is not None:
                    if not isinstance(value, ast.Tuple) or path >= len(value.elts):
                        continue
                    item = value.elts[path]
                return _of_call(program, where, item, module, many, depth)
    return None


def _of_call(
    program: Program, where: Module, item: ast.expr, module: Module, call: ast.Call, depth: int
) -> Loader | None:
    """The loader a function makes for one call: branches that its arguments exclude left out."""
    function = where.function(item)
    values = where.alternatives(item, item)
    if function is not None and len(values) > 1:
        possible = [value for value in values if _agrees(where, function, value, call)]
        item = possible[-1] if 0 < len(possible) < len(values) else item
    loader = trace(program, where, item, depth + 1)
    if loader is None or function is None:
        return loader
    taken = tuple(s for s in loader.samplers if _agrees(where, function, s, call))
    here = loader.module is where and where.function(loader.call) is function
    asked = call if here else loader.asked
    return changed(loader, samplers=taken or loader.samplers, asked=asked)


def _agrees(module: Module, function: Function, node: ast.expr, call: ast.Call) -> bool:
    """Whether the tests of a literal parameter around ``node`` let this call pass."""
    child: ast.AST = node
    for up in module.ancestors(node):
        if up is function:
            break
        if isinstance(up, ast.If) and child is not up.test:
            negated = isinstance(up.test, ast.UnaryOp) and isinstance(up.test.op, ast.Not)
            tested = up.test.operand if isinstance(up.test, ast.UnaryOp) else up.test
            told = (
                literal(module, function, call, tested.id) if isinstance(tested, ast.Name) else None
            )
            inside = any(item is child for item in up.body)
            if told is not None and (told is not negated) is not inside:
                return False
        child = up
    return True


def literal(module: Module, function: Function, call: ast.Call, name: str) -> bool | None:
    """The truth of a parameter for one call; None where the call gives no literal for it."""
    value = argument_for_parameter(module, function, call, name) or default(function, name)
    return bool(value.value) if isinstance(value, ast.Constant) else None


def default(function: Function, name: str) -> ast.expr | None:
    """The default value of a parameter."""
    named = [*function.args.posonlyargs, *function.args.args]
    defaults = function.args.defaults
    for arg, value in zip(named[len(named) - len(defaults) :], defaults, strict=True):
        if arg.arg == name:
            return value
    for arg, given_value in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        if arg.arg == name:
            return given_value
    return None
