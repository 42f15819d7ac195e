"""What a training program is made of: options, loaders, train loops and evaluations.

Looked up in the tables of its modules when a rule first asks. Nothing here runs or imports the
user's code.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from ...recipes.script_flags import Option, declared_option
from ..source.module import Module, cached_per_module
from ..source.tree import (
    Function,
    uses,
)
from .evaluations import Evaluation, evaluating, in_function, inline
from .loaders import Loader
from .train_loops import TrainLoop, train_loops


class Program:
    """A script and the local modules it imports, as one program."""

    def __init__(self, script: Module, siblings: tuple[Module, ...] = ()) -> None:
        self.script = script
        self.modules = (script, *siblings)
        self.entering: dict[Function, frozenset[Any]] = {}  # roles that may
        self._callers: dict[Function, list[tuple[Module, ast.Call]]] = {}

    @cached_property
    def is_training_program(self) -> bool:
        """Whether it is run, and trains, evaluates or makes a process group."""
        return self.script.is_program and (
            bool(self.train_loops)
            or bool(self.evaluations)
            or any(module.calls_to("init_process_group") for module in self.modules)
        )

    @cached_property
    def options(self) -> dict[str, Option]:
        """The command line's options by the attribute they set."""
        found: dict[str, Option] = {}
        for module in self.modules:
            for option in _options(module):
                found.setdefault(option.dest, option)
        return found

    @cached_property
    def parses(self) -> list[tuple[Module, ast.Assign, str]]:
        """Where the arguments come into being: module, statement and the name it binds.

        ``args = parser.parse_args()``; ``args = get_args()`` of a function that returns as much;
        where neither is, the statement that makes the object whose ``local_rank`` is asked.
        """
        found = [
            (module, stmt, stmt.targets[0].id)
            for module, call in self._parsing_calls()
            for stmt in [module.statement(call)]
            if isinstance(stmt, ast.Assign)
            and stmt.value is call
            and isinstance(stmt.targets[0], ast.Name)
        ]
        return found or list(self._configurations())

    def _parsing_calls(self) -> Iterator[tuple[Module, ast.Call]]:
        for module in self.modules:
            for call in module.calls_to("parse_args"):
                yield module, call
                function = module.function(call)
                if function is not None and isinstance(module.parents[call], ast.Return):
                    yield from self.callers(function)

    def _configurations(self) -> Iterator[tuple[Module, ast.Assign, str]]:
        """``cfg = load(path)`` and ``model_args, args = parser.parse_args_into_dataclasses()``."""
        for module in self.modules:
            asked = {
                node.value.id
                for node in module.attributes("local_rank")
                if isinstance(node.value, ast.Name)
            }
            for stmt in module.nodes(ast.Assign):
                target = stmt.targets[0]
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                if not isinstance(stmt.value, ast.Call) or not self.is_live(module, stmt):
                    continue
                for name in names:
                    if isinstance(name, ast.Name) and name.id in asked - {"self"}:
                        yield module, stmt, name.id

    @cached_property
    def has_ranks(self) -> bool:
        """Whether the program trains, or makes a process group: else it is one process's."""
        return bool(self.train_loops) or any(
            module.calls_to("init_process_group", "DistributedDataParallel")
            for module in self.modules
        )

    def has_argument(self, name: str) -> bool:
        """Whether the arguments have this attribute: an option, a field, or read somewhere."""
        if name in self.options:
            return True
        objects = {args for _, _, args in self.parses}
        return any(
            isinstance(node.value, ast.Name) and node.value.id in objects
            for module in self.modules
            for node in module.attributes(name)
        )

    @cached_property
    def train_loops(self) -> list[TrainLoop]:
        """Every loop over batches that back-propagates."""
        return [loop for module in self.modules for loop in train_loops(self, module)]

    @cached_property
    def evaluations(self) -> list[Evaluation]:
        """Every function that evaluates."""
        return [
            evaluation
            for module in self.modules
            for function in evaluating(module)
            for evaluation in in_function(self, module, function)
        ] + [evaluation for module in self.modules for evaluation in inline(self, module)]

    def entries(self, evaluation: Evaluation) -> list[tuple[Module, ast.AST]]:
        """Where an evaluation is entered: calls of its function, or its own loop."""
        if evaluation.function is None:
            return [(evaluation.module, evaluation.loop)]
        return list(self.callers(evaluation.function))

    def is_trained_on(self, loader: Loader) -> bool:
        """Whether a train loop deals by a sampler of this loader too, or by the loader itself."""
        return any(loop.loader and loop.loader.shares_with(loader) for loop in self.train_loops)

    @cached_property
    def live(self) -> set[Function]:
        """Functions that the program can come to: named in what runs, from module level on.

        A method is one where its class is; a copy that nobody names any more is dead code.
        """
        wanted: dict[str, list[Function]] = defaultdict(list)
        found: set[Function] = set()
        for module in self.modules:
            for function in module.all_functions:
                owner = module.parents[function]
                name = owner.name if isinstance(owner, ast.ClassDef) else function.name
                wanted[name].append(function)
                if function.decorator_list:
                    found.add(function)
        named: dict[ast.AST, set[str]] = defaultdict(set)
        for module in self.modules:
            for node, name in uses(module.tree, wanted.keys()):
                named[node].add(name)
        pending: list[ast.AST] = [*(module.tree for module in self.modules), *found]
        while pending:
            for name in named[pending.pop()] & wanted.keys():
                new = [function for function in wanted.pop(name) if function not in found]
                found.update(new)
                pending += new
        return found

    def is_live(self, module: Module, node: ast.AST) -> bool:
        """Whether the program can come to ``node``.

        Who calls what is believed only where it leads to the train loops: a program may be started
        by a name that is nowhere in it.
        """
        function = module.function(node)
        return function is None or function in self.live or not self._shows_its_way

    @cached_property
    def _shows_its_way(self) -> bool:
        functions = [loop.module.function(loop.steps) for loop in self.train_loops]
        functions += [evaluation.function for evaluation in self.evaluations]
        known = [function for function in functions if function is not None]
        return all(function in self.live for function in known) and bool(self.live)

    def evaluation_of(self, module: Module, node: ast.AST) -> Evaluation | None:
        """The evaluation whose function holds ``node``."""
        function = module.function(node)
        if function is None:
            return None
        return next((e for e in self.evaluations if e.function is function), None)

    def calls_to(self, *names: str) -> list[tuple[Module, ast.Call]]:
        """Calls in all modules whose resolved name ends in one of ``names``."""
        return [(module, call) for module in self.modules for call in module.calls_to(*names)]

    def callers(self, function: Function) -> list[tuple[Module, ast.Call]]:
        """Calls of ``function`` anywhere in the program; of ``__init__``, of its class."""
        if function not in self._callers:
            self._callers[function] = list(_callers(self, function))
        return self._callers[function]


@cached_per_module
def _options(module: Module) -> list[Option]:
    found = map(declared_option, module.calls_to("add_argument"))
    return [option for option in found if option is not None]


def _callers(program: Program, function: Function) -> Iterator[tuple[Module, ast.Call]]:
    home = next(module for module in program.modules if function in module.parents)
    owner = home.parents[function]
    if not isinstance(owner, ast.ClassDef):
        for module in program.modules:
            for call in module.calls_to(function.name):
                if isinstance(call.func, ast.Name) or (
                    isinstance(call.func, ast.Attribute)
                    and isinstance(call.func.value, ast.Name)
                    and call.func.value.id in module.aliases
                ):
                    yield module, call
        return
    name = owner.name if function.name == "__init__" else function.name
    for module in program.modules:
        for call in module.calls_to(name):
            if function.name == "__init__" or _is_method_call(module, call, owner):
                yield module, call


def _is_method_call(module: Module, call: ast.Call, owner: ast.ClassDef) -> bool:
    """``self.method()`` inside the class, or a call on what its construction was bound to."""
    if not isinstance(call.func, ast.Attribute):
        return False
    base = call.func.value
    if isinstance(base, ast.Name) and base.id == "self":
        return owner in module.ancestors(call)
    value = module.definition(base, call) if isinstance(base, ast.Name) else base
    return isinstance(value, ast.Call) and module.dotted(value.func).endswith(owner.name)
