"""A DataLoader as the program constructs it: its data, its batches and its samplers."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ....record import record, replace
from ...source.module import Module
from ...source.tree import Function, argument, everywhere, is_none, keyword, within
from ..language.call_graph import CallGraph
from ..language.call_options import values_in_options
from ..language.literal_arguments import CallPlace, is_possible
from ..language.passed_arguments import keyword_value, partial_of
from .assigned_attributes import targets_of
from .frameworks import RANK_SAMPLERS
from .own_loaders import makes_loader, own_loaders


@record
class Loader:
    """A DataLoader: its construction and what it loads from."""

    module: Module  # of the construction
    name: str  # its name in ``scope``, or empty
    scope: Function | None  # the function that uses it
    call: ast.Call  # the construction
    dataset: ast.expr | None
    samplers: tuple[ast.expr, ...]  # constructions of its sampler, one per branch
    batch_size: ast.expr | None
    drop_last: bool  # whether an incomplete last batch is dropped
    cycle: ast.Call | None = None  # itertools.cycle around it, or a generator like it
    made_by: tuple[CallPlace, ...] = ()  # calls of functions that return it, the innermost first
    others: tuple[Loader, ...] = ()  # what other branches construct in its place
    only_for: str = ""  # ``x == 'train'``: the one of a dictionary's loaders, made by one call
    listed_in: str = ""  # what has it and the others in it, where it has no name of its own
    held_in: str | None = ""  # ``.loader`` of the object that is gone over; None: no attribute

    def shares_with(self, other: Loader) -> bool:
        """Whether both use one sampler; without samplers, whether they are one construction."""
        if self.samplers or other.samplers:
            return bool(set(self.samplers) & set(other.samplers))
        return self.call is other.call

    def is_same(self, other: Loader) -> bool:
        """Whether both are one object, and not two that one construction makes."""
        is_made_alike = self.made_by == other.made_by and self.only_for == other.only_for
        return self.shares_with(other) and is_made_alike

    @property
    def factory_call(self) -> ast.Call | None:
        """The call of the function that constructs it."""
        return self.made_by[0][1] if self.made_by else None

    def name_in(self, holder: str) -> str:
        """Its name where ``holder`` is gone over, which it is or which has it; or empty."""
        return "" if self.held_in is None else holder + self.held_in

    def may_come_to(self, node: ast.AST) -> bool:
        """Whether the calls that make this loader may come to ``node`` beside its construction."""
        function = self.module.function(self.call)
        if function is None or not self.made_by or self.module.function(node) is not function:
            return True
        return is_possible(self.module, function, node, self.made_by)

    @property
    def batch_sampler(self) -> ast.expr | None:
        """What makes its batches: the argument, where that is not None."""
        word = keyword(self.call, "batch_sampler")
        return None if word is None or is_none(word.value) else word.value

    @property
    def distributed_samplers(self) -> list[ast.Call]:
        """Constructions of a DistributedSampler that this loader may use."""
        return [
            node
            for sampler in self.samplers
            for node in everywhere(sampler, ast.Call)
            if makes_rank_sampler(self.module, node) and self._is_meant(node)
        ]

    def _is_meant(self, sampler: ast.Call) -> bool:
        """Whether a sampler is for this one of a dictionary's loaders, by the test around it."""
        key = self.only_for.rpartition(" == ")[2]
        tests = [up.test for up in self.module.ancestors(sampler) if isinstance(up, ast.IfExp)]
        meant = not key or not tests or any(key in self.module.text(test) for test in tests)
        return meant and self.may_come_to(sampler)


def makes_rank_sampler(module: Module, call: ast.Call) -> bool:
    """Whether a call makes a sampler for ranks, also by ``kind = Random if alone else Ranked``."""
    values = module.alternatives(call.func, call.func) or [call.func]
    kinds = [
        kind
        for value in values
        for kind in ((value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,))
    ]
    return any(module.last_name(kind) in RANK_SAMPLERS for kind in kinds)


def of_any_branch(found: Iterable[Loader | None]) -> Loader | None:
    """The first loader, with the others as what other branches construct in its place.

    What is told of it holds for all: the batch size is unknown where they differ.
    """
    loaders: dict[tuple[ast.Call, tuple[CallPlace, ...]], Loader] = {}
    for loader in found:
        for each in () if loader is None else (loader, *loader.others):
            loaders.setdefault((each.call, each.made_by), each)
    if not loaders:
        return None
    first, *others = loaders.values()
    sizes = [each.module.text(each.batch_size) for each in loaders.values() if each.batch_size]
    return replace(
        first,
        others=tuple(replace(each, others=()) for each in others),
        drop_last=all(each.drop_last for each in loaders.values()),
        batch_size=first.batch_size if sizes == sizes[:1] * len(loaders) else None,
    )


def loader_calls(graph: CallGraph) -> Iterator[tuple[Module, ast.Call]]:
    """The constructions of torch's DataLoader in all modules."""
    for module in graph.modules:
        for call in module.calls_to("DataLoader", *own_loaders(graph)):
            if makes_loader(graph, module, call):
                yield module, call


def loader_from_call(module: Module, call: ast.Call) -> Loader:
    """Describe the loader that ``DataLoader(…)`` constructs."""
    stmt = module.statement(call)
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) and stmt.value is call else None
    sampler, size = argument(call, 3, "sampler"), argument(call, 1, "batch_size")
    drop = argument(call, 8, "drop_last")
    if (made := partial_of(module, call)) is not None:
        size = size or keyword_value(made, "batch_size")
        drop = drop or keyword_value(made, "drop_last")
    sizes = [size] if size is not None else values_in_options(module, call, "batch_size")
    data = argument(call, 0, "dataset")
    named = [
        each
        for each in values_in_options(module, call, "dataset")
        if isinstance(each, ast.Name | ast.Attribute)
    ]
    drops = [drop] if drop is not None else values_in_options(module, call, "drop_last")
    return Loader(
        module,
        module.text(target) if isinstance(target, ast.Name | ast.Attribute) else "",
        module.function(call),
        call,
        data if data is not None else named[0] if len(named) == 1 else None,
        _samplers_in_options(module, call) if sampler is None else _samplers(module, sampler),
        sizes[0] if len(sizes) == 1 else None,
        bool(drops) and all(isinstance(d, ast.Constant) and d.value is True for d in drops),
    )


def _samplers_in_options(module: Module, call: ast.Call) -> tuple[ast.expr, ...]:
    """What ``**options`` has for a sampler, also in a dictionary that is made for the call.

    Such as ``**{**options, "sampler": DistributedSampler(data)}``.
    """
    values = values_in_options(module, call, "sampler")
    return tuple(each for value in values for each in _samplers(module, value))


def _samplers(module: Module, sampler: ast.expr) -> tuple[ast.expr, ...]:
    """The constructions behind a sampler argument, also in ``for d, s in zip(sets, samplers)``."""
    values = module.alternatives(sampler, sampler) or _own_attribute(module, sampler)
    if isinstance(sampler, ast.IfExp):
        parts = [value for _, value in _of_branches(module, sampler)]
        calls = (call for value in parts for call in everywhere(value, ast.Call))
        values = parts if any(makes_rank_sampler(module, call) for call in calls) else []
    if values:
        return tuple(values)
    if isinstance(sampler, ast.Name):
        for part in _comprehension_sources(module, sampler):
            lists = [v for v in module.alternatives(part, part) if isinstance(v, ast.ListComp)]
            if lists:
                return tuple(value.elt for value in lists)
    return (sampler,)


def _own_attribute(module: Module, node: ast.expr) -> list[ast.expr]:
    """What the class around ``self.sampler`` assigns to it; of a name, what it is unpacked from."""
    match node:
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            owner = module.enclosing_class(node)
            values = module.attribute_values.get(name, ())
            own = [value for value in values if module.enclosing_class(value) is owner]
            return own or _unpacked(module, owner, f"self.{name}")
        case ast.Name(id=name):
            return _unpacked(module, module.function(node), name)
    return []


def _unpacked(module: Module, owner: ast.AST | None, name: str) -> list[ast.expr]:
    """What a method returns for ``self.sampler, self.held_out = self.split(share)``."""
    found: list[ast.expr] = []
    for stmt in () if owner is None else everywhere(owner, ast.Assign):
        for target, place in targets_of(stmt):
            if place is None or module.text(target) != name:
                continue
            if module.graph is None or not isinstance(stmt.value, ast.Call):
                return []
            for where, method in module.graph.callees(module, stmt.value):
                for result in within(method.body, ast.Return):
                    parts = result.value.elts if isinstance(result.value, ast.Tuple) else []
                    if where is not module or place >= len(parts):
                        return []
                    found += module.alternatives(parts[place], parts[place]) or [parts[place]]
    return found


def _of_branches(module: Module, choice: ast.IfExp) -> list[tuple[ast.expr, ast.expr]]:
    """The branches of ``sampler if train else None``, each with what its name stands for.

    None where no branch is a name: a construction is looked at where it stands.
    """
    branches = (choice.body, choice.orelse)
    named = [(each, value) for each in branches for value in module.alternatives(each, choice)]
    if not named:
        return []
    return [*named, *((each, each) for each in branches if not isinstance(each, ast.Name))]


def may_get(
    module: Module, function: Function, loader: Loader, sampler: ast.expr, at: CallPlace
) -> bool:
    """Whether a call of the function that makes a loader lets it have a sampler."""
    if not is_possible(module, function, sampler, (at,)):
        return False
    choice = argument(loader.call, 3, "sampler")
    if not isinstance(choice, ast.IfExp):
        return True
    branches = [branch for branch, value in _of_branches(module, choice) if value is sampler]
    return not branches or any(is_possible(module, function, each, (at,)) for each in branches)


def _comprehension_sources(module: Module, name: ast.Name) -> Iterator[ast.expr]:
    """The iterables that ``name`` is a loop variable of, in the comprehensions around it."""
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
