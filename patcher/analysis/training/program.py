"""A training program: its command-line options, train loops, evaluations and live functions.

Each is found in the tables of the modules when a rule first asks for it. Nothing here runs or
imports the user's code.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any

from ....recipes.script_flags import Option, declared_option
from ...source.module import Module, cached_per_module
from ...source.tree import Function, argument, everywhere, mentions, within
from ..language.argv_fields import argv_fields
from ..language.call_graph import CallGraph, reachable_functions
from ..language.copied_libraries import functions_reached
from ..language.literal_arguments import is_possible
from ..language.liveness import called_functions, never_spelled, run_functions, spelled_functions
from ..language.names import calls_at_import, top_level
from ..language.passed_functions import calls_by_attribute
from ..language.results import binds_first, name_of_result, spelled_name
from .chosen_optimizers import chosen_optimizers
from .constructed_loaders import Loader
from .evaluations import Evaluation, find_evaluations
from .frameworks import OPTIMIZERS
from .own_wrappers import plain_subclasses
from .train_loops import TrainLoop, train_loops
from .unused_methods import is_unused_method

OTHER_FRAMEWORKS = {"paddle", "tensorflow", "mxnet", "jax", "mindspore"}
COPIED = {
    *("transformers", "pytorch_transformers", "pytorch_pretrained_bert"),
    *("trl", "peft", "diffusers", "accelerate"),
}
PARTS_OF_COPIED = {"configuration_utils", "modeling_utils", "file_utils"}  # of transformers
MAKES_GROUP = "init_process_group"
PARALLEL_CALLS = (MAKES_GROUP, "DistributedDataParallel", "DataParallel")


class Program(CallGraph):
    """A script and the local modules it imports, as one program."""

    patched_along: frozenset[Path] = frozenset()  # other scripts, in the same go

    @cached_property
    def roles_entering(self) -> dict[Function, frozenset[Any]]:
        """The roles that may enter each function, filled in by analysis/ranks/rank_reach."""
        return {}

    @cached_property
    def is_training_program(self) -> bool:
        """Whether the script is run, and trains, evaluates or makes a process group."""
        packages = set().union(*(module.imported_packages for module in self.modules))
        if packages & OTHER_FRAMEWORKS and "torch" not in packages:
            return False  # paddle has a DataParallel and a DataLoader of its own
        if not self.script.is_program:
            wraps = self.script.calls_to("DataParallel") if self.makes_optimizer_for_wrapped else ()
            is_run = any(self.script.function(call) is None for call in wraps)
            return is_run or self._trains_at_import
        return (
            bool(self.train_loops)
            or bool(self.evaluations)
            or self.makes_optimizer_for_wrapped
            or any(
                module is self.script or self.is_called(module, call)
                for module, call in self.calls_to("init_process_group")
            )
            or self.goes_back_unseen
            or bool(self.gradients_by_hand)
        )

    @cached_property
    def gradients_by_hand(self) -> list[tuple[Module, ast.Call]]:
        """Gradients of a model that ``torch.autograd.grad`` returns, where nothing goes back.

        Those of inputs, and of points that a model draws, are another thing.
        """
        if self.calls_to("backward"):
            return []
        found = []
        for module, call in self.calls_to("grad"):
            taken = argument(call, 1, "inputs")
            if taken is None or not module.dotted(call.func).endswith("autograd.grad"):
                continue
            made = module.definition(taken, taken) or taken
            if any(mentions(made, name) for name in ("parameters", "named_parameters")):
                found += [(module, call)] if self.is_called(module, call) else []
        return found

    @cached_property
    def goes_back_unseen(self) -> bool:
        """Whether the script makes an optimizer and comes to a backward pass of no loop it sees."""
        return (
            not self.train_loops
            and bool(self._optimizers)
            and any(self.is_called(*place) for place in self.calls_to("backward"))
        )

    @cached_property
    def _trains_at_import(self) -> bool:
        """Whether importing the script, which has no main guard, trains or makes a group."""
        calls = calls_at_import(self.script)
        names = {self.script.last_name(call.func) for call in calls}
        if not names:
            return False
        bound = top_level(self.script)
        for call in calls:  # actions[phase](model), of actions = {"train": train}
            for name in everywhere(call.func, ast.Name):
                value = bound.get(name.id)
                if isinstance(value, ast.expr):
                    names |= {part.id for part in everywhere(value, ast.Name)}
        run = reachable_functions(self, names)
        groups = self.calls_to("init_process_group")
        places = [(loop.module, loop.steps) for loop in self.train_loops]
        if any(module is self.script and module.function(node) is None for module, node in places):
            return True
        if self.goes_back_unseen or self.gradients_by_hand:
            return True
        return any(module.function(node) in run for module, node in (*places, *groups))

    @cached_property
    def options(self) -> dict[str, Option]:
        """The command line's options by the attribute they set."""
        by_dest: dict[str, Option] = {}
        for module in self.modules:
            for option in _options(module):
                by_dest.setdefault(option.dest, option)
        if not by_dest:
            return {one.dest: one for module in self.modules for one in argv_fields(module)}
        return by_dest

    @cached_property
    def defaults(self) -> dict[str, object]:
        """The default of each option by the attribute that it sets."""
        return {dest: option.default for dest, option in self.options.items()}

    @cached_property
    def parse_sites(self) -> list[tuple[Module, ast.stmt, str]]:
        """Where the parsed arguments are bound: module, statement and name.

        ``args = parser.parse_args()``, or ``args = get_args()`` where that function returns them;
        ``settings.args`` is a name too, and ``if (args := get_args()).debug:`` a statement that
        binds one before anything else. Without either, the statement that makes an object whose
        ``local_rank`` is read.
        """
        sites = [
            (module, module.statement(call), name)
            for module, call in self._parsing_calls()
            for name in [name_of_result(module, call)]
            if name
        ]
        return sites or list(self._configurations())

    @cached_property
    def argument_names(self) -> list[str]:
        """Names of the parsed arguments: those of the parse sites, and those of callers.

        A function that binds them may return them to one that calls them otherwise.
        """
        names = dict.fromkeys(name for _, _, name in self.parse_sites)
        for module, stmt, name in self.parse_sites:
            function = module.function(stmt)
            if function is None:
                continue
            returned = [each.value for each in within(function.body, ast.Return)]
            if any(value is not None and spelled_name(module, value) == name for value in returned):
                results = [name_of_result(*caller) for caller in self.callers(function)]
                names |= dict.fromkeys(filter(None, results))
        return [*names]

    def _parsing_calls(self) -> Iterator[tuple[Module, ast.Call]]:
        """The parser's own parse_args(), and calls of functions that return what it returns.

        Not what an imported module parses where it is run itself, unless nothing else is parsed.
        Nor ``parser.parse_args([])``, which has the defaults whatever the command line says.
        """
        places = [place for place in self.calls_to("parse_args") if not self.callees(*place)]
        of_command_line = [place for place in places if not is_of_nothing(place[1])]
        places = of_command_line or places
        places = places or self.calls_to("parse_known_args")
        own = [place for place in places if not self._runs_only_as_script(*place)]
        for module, call in own or places:
            yield module, call
            function = module.function(call)
            if function is not None and isinstance(module.parents[call], ast.Return):
                yield from self.callers(function)

    def _runs_only_as_script(
        self, module: Module, node: ast.AST, seen: frozenset[Function] = frozenset()
    ) -> bool:
        """Whether a place is under the main guard of a module that the script imports.

        Or in a function that is called from such places alone.
        """
        if module is self.script:
            return False
        if self._is_under_others_guard(module, node):
            return True
        function = module.function(node)
        if function is None or function in seen:
            return False
        callers = self.callers(function)
        return bool(callers) and all(
            self._runs_only_as_script(*caller, seen | {function}) for caller in callers
        )

    def _configurations(self) -> Iterator[tuple[Module, ast.stmt, str]]:
        """``cfg = load(path)`` and ``model_args, args = parser.parse_args_into_dataclasses()``."""
        for module in self.modules:
            with_local_rank = {
                node.value.id
                for node in module.attributes("local_rank")
                if isinstance(node.value, ast.Name)
            }
            for stmt in module.nodes(ast.Assign):
                target = stmt.targets[0]
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                if not isinstance(stmt.value, ast.Call) or not self.is_live(module, stmt):
                    continue
                handed_on = {node.id for node in everywhere(stmt.value, ast.Name)}
                for name in names:
                    # ``cfg = set_up(cfg)`` makes no object: its rank may be asked for in there.
                    if isinstance(name, ast.Name) and name.id in (
                        with_local_rank - {"self"} - handed_on
                    ):
                        yield module, stmt, name.id
            for binding in module.nodes(ast.NamedExpr):
                name, head = binding.target, module.statement(binding)
                is_first = binds_first(module, head, binding) and self.is_live(module, head)
                if name.id in with_local_rank and isinstance(binding.value, ast.Call) and is_first:
                    yield module, head, name.id

    @cached_property
    def has_ranks(self) -> bool:
        """Whether the program trains or makes a process group; otherwise it has one process."""
        return bool(self.train_loops) or any(
            module.calls_to("init_process_group", "DistributedDataParallel")
            for module in self.modules
        )

    @cached_property
    def only_evaluates(self) -> bool:
        """Whether the program evaluates a model in one process and trains none."""
        if self.has_ranks or any(module.occurrences("local_rank") for module in self.modules):
            return False
        return bool(self.evaluations) and not self.makes_optimizer_for_wrapped

    def has_argument(self, name: str) -> bool:
        """Whether the parsed arguments have this attribute: an option, or read somewhere."""
        if name in self.options:
            return True
        objects = {args for _, _, args in self.parse_sites}
        return any(
            spelled_name(module, node.value) in objects
            for module in self.modules
            for node in module.attributes(name)
        )

    @cached_property
    def _all_loops(self) -> list[TrainLoop]:
        return train_loops(self)

    @cached_property
    def train_loops(self) -> list[TrainLoop]:
        """Every loop over batches that back-propagates, of a script those that it may come to.

        A script that makes no optimizer, and evaluates or calls all by name, comes to none by a
        name that is made at run time; nor to one of another module.
        """
        if not self.script.is_program or not self._all_loops:
            return self._all_loops
        evaluates = any(self.is_named(each.module, each.loop) for each in self.evaluations)
        optimizes = any(self._is_in_named_function(*place) for place in self._optimizers) or any(
            self.is_called(*place) for place in self._optimizers
        )
        has_names = evaluates or self._names_lead_to_loops
        loops = [
            loop
            for loop in self._all_loops
            for by_name in [not optimizes and (has_names or loop.module is not self.script)]
            if (self.is_called if by_name else self.is_live)(loop.module, loop.steps)
        ]
        used = [
            loop
            for loop in loops
            if not is_unused_method(self, loop.module, loop.module.function(loop.steps))
        ]
        return used or loops

    @cached_property
    def makes_optimizer_for_wrapped(self) -> bool:
        """Whether the script wraps a model in DataParallel and makes an optimizer: to train it."""
        return any(self.is_called(*place) for place in self.calls_to("DataParallel")) and any(
            self.is_called(*place) for place in self._optimizers
        )

    def _is_in_named_function(self, module: Module, node: ast.AST) -> bool:
        """Whether names lead to ``node``, and it is in no method: cheaper than is_called()."""
        function = module.function(node)
        is_method = function is not None and isinstance(module.parents[function], ast.ClassDef)
        return not is_method and self.is_named(module, node)

    def is_called(self, module: Module, node: ast.AST) -> bool:
        """Whether names lead from the script to ``node``, in a method that of the method, too."""
        function = module.function(node)
        if function is None:
            return not self._is_under_others_guard(module, node)
        return function in self._called_functions

    @cached_property
    def _called_functions(self) -> set[Function]:
        return called_functions(self)

    @cached_property
    def _optimizers(self) -> list[tuple[Module, ast.Call]]:
        """The calls that make optimizers, of torch and of others by their usual names."""
        found: list[tuple[Module, ast.Call]] = []
        for module in self.modules:
            calls = module.calls_to(*sorted(OPTIMIZERS))
            if not calls and module.spells("optim"):
                calls = [c for c in module.nodes(ast.Call) if _makes_optimizer(module, c)]
            found += [(module, call) for call in calls]
        return found

    @cached_property
    def evaluations(self) -> list[Evaluation]:
        """Every evaluation loop: those of evaluating functions, then those in training code."""
        steps = {loop.steps for loop in self._all_loops}  # a function that they call goes back
        return [each for each in find_evaluations(self) if each.loop not in steps]

    def entries(self, evaluation: Evaluation) -> list[tuple[Module, ast.AST]]:
        """Where an evaluation is entered: calls of its function, or its own loop."""
        if evaluation.function is None:
            return [(evaluation.module, evaluation.loop)]
        return list(self.callers(evaluation.function))

    def is_used_for_training(self, loader: Loader) -> bool:
        """Whether a train loop uses this loader, or shares a sampler with it."""
        return any(loop.loader and loop.loader.shares_with(loader) for loop in self.train_loops)

    @cached_property
    def training_loaders(self) -> list[Loader]:
        """The loaders that training loops may go over."""
        loaders = [each for loop in self.train_loops for each in (loop.loader, *loop.beside)]
        return [each for loader in loaders if loader for each in (loader, *loader.others)]

    @property
    def evaluation_loaders(self) -> list[Loader]:
        """The loaders that evaluations may go over."""
        loaders = [each.loader for each in self.evaluations]
        return [each for loader in loaders for each in (loader, *loader.others)]

    @cached_property
    def live_functions(self) -> set[Function]:
        """Functions that the program may run: those whose names are used by code that runs."""
        return run_functions(self)

    def is_live(self, module: Module, node: ast.AST) -> bool:
        """Whether the program may run ``node``.

        Without names that lead to every train loop and evaluation (a library may look functions up
        by name), all code counts as live. Of a library's copy only what names lead to does.
        """
        if self._is_in_copy(module) and not (
            self.is_called(module, node) and module.function(node) in self._reached_in_copies
        ):
            return False
        if module.function(node) is None:
            return not self._is_under_others_guard(module, node)
        return self.is_named(module, node) or not self._names_lead_to_loops

    def _is_under_others_guard(self, module: Module, node: ast.AST) -> bool:
        """Whether ``node`` is under the main guard of a module that the script imports."""
        return module is not self.script and any(
            isinstance(up, ast.If) and mentions(up.test, "__name__")
            for up in module.ancestors(node)
        )

    def _is_in_copy(self, module: Module) -> bool:
        """Whether a module is part of a copy of a library, in a folder that has its name."""
        if module not in self._in_copies:
            path = os.path.realpath(module.source.name)
            below = [path.removeprefix(root + os.sep) for root in self.roots]
            shortest = min(below, key=len)
            folders = PurePath(shortest).parts[:-1]
            by_name = shortest != path and not COPIED.isdisjoint(folders)
            by_parts = not self._copied_folders.isdisjoint(map(str, PurePath(path).parents))
            self._in_copies[module] = by_name or by_parts
        return self._in_copies[module]

    @cached_property
    def _copied_folders(self) -> set[str]:
        """The folders of other names that hold the parts of a library, and not the script."""
        names: dict[str, set[str]] = {}
        for module in self.modules:
            path = PurePath(os.path.realpath(module.source.name))
            names.setdefault(str(path.parent), set()).add(path.stem)
        script = PurePath(os.path.realpath(self.script.source.name))
        return {
            folder
            for folder, held in names.items()
            if held >= PARTS_OF_COPIED and not script.is_relative_to(folder)
        }

    @cached_property
    def _in_copies(self) -> dict[Module, bool]:
        return {}

    @cached_property
    def _reached_in_copies(self) -> set[Function | None]:
        copies = {each for each in self.modules if self._is_in_copy(each)}
        return {None, *functions_reached(self, copies)}

    def is_named(self, module: Module, node: ast.AST) -> bool:
        """Whether names lead from the script to ``node``."""
        function = module.function(node)
        if function is None:
            return not self._is_under_others_guard(module, node)
        return function in self.live_functions

    @cached_property
    def _names_lead_to_loops(self) -> bool:
        functions = [loop.module.function(loop.steps) for loop in self._all_loops]
        functions += [evaluation.function for evaluation in self.evaluations]
        known = {function for function in functions if function is not None}
        if not known <= self.live_functions:
            left = known - never_spelled(self, known)
            if not left and self._trains_at_top:
                return True
            known = left if left & self.live_functions else known
        return bool(self.live_functions) and (
            known <= self.live_functions
            # Other scripts that this one imports have loops of their own, which it does not run.
            or known <= spelled_functions(self)
        )

    @property
    def _trains_at_top(self) -> bool:
        """Whether the script has a training loop of its own outside of all functions."""
        script = self.script
        return any(
            loop.module is script and script.function(loop.steps) is None
            for loop in self._all_loops
        )

    @cached_property
    def run_by_save_pretrained(self) -> set[Function]:
        """Functions of this name, and all that they may call, by name."""
        return reachable_functions(self, {"save_pretrained"})

    def evaluation_of(self, module: Module, node: ast.AST) -> Evaluation | None:
        """The evaluation by the function around ``node``."""
        function = module.function(node)
        if function is None:
            return None
        return next((e for e in self.evaluations if e.function is function), None)

    def calls_to(self, *names: str) -> list[tuple[Module, ast.Call]]:
        """Calls in all modules whose resolved name ends in one of ``names``.

        A class that only adds attributes to DataParallel is called as DataParallel is. A process
        group that a function of another module would make is none where the script calls nothing
        that leads to it, as where one module serves a script for several cards, too. Who asks for
        all optimizers also gets those whose class is chosen first.
        """
        if "DataParallel" in names:
            names = (*names, *plain_subclasses(self))
        calls = [(module, call) for module in self.modules for call in module.calls_to(*names)]
        if len(names) >= len(OPTIMIZERS) and OPTIMIZERS.issubset(names):
            calls += self.chosen_optimizers
        if MAKES_GROUP not in names:
            return calls
        return [
            (module, call)
            for module, call in calls
            if module is self.script
            or module.last_name(call.func) != MAKES_GROUP
            or self.is_live(module, call)
        ]

    @cached_property
    def chosen_optimizers(self) -> list[tuple[Module, ast.Call]]:
        """Calls of an optimizer's class that is chosen first: ``getattr(torch.optim, name)(…)``."""
        return chosen_optimizers(self)

    def calls_of_apex(self, *names: str) -> list[tuple[Module, ast.Call]]:
        """Calls of what apex has under one of these names."""
        calls = self.calls_to(*names)
        return [(m, call) for m, call in calls if m.dotted(call.func).startswith("apex.")]

    @cached_property
    def names_of_transformers(self) -> set[str]:
        """The last parts of the names that modules import from transformers."""
        names = {name for module in self.modules for name in module.aliases.values()}
        return {name.rpartition(".")[2] for name in names if name.startswith("transformers.")}


def _makes_optimizer(module: Module, call: ast.Call) -> bool:
    """``torch.optim.Any(…)``, and ``getattr(torch.optim, name)(…)``."""
    match call.func:
        case ast.Call(func=ast.Name(id="getattr"), args=[package, *_]):
            return module.dotted(package) == "torch.optim"
    return _is_of_optim(module.dotted(call.func))


def _is_of_optim(dotted: str) -> bool:
    return dotted.startswith("torch.optim.") and not dotted.startswith("torch.optim.lr_scheduler.")


@cached_per_module
def _options(module: Module) -> list[Option]:
    options = map(declared_option, module.calls_to("add_argument"))
    return [option for option in options if option is not None]


def trains_on_several_devices(program: Program) -> bool:
    """Whether there is a training loop, and something by which several GPUs or ranks train."""
    return bool(program.train_loops) and any(
        program.is_live(module, call) for module, call in program.calls_to(*PARALLEL_CALLS)
    )


def runs_in_training_step(program: Program, module: Module, function: Function | None) -> bool:
    """Whether a training step runs ``function``: a forward, the loop's own, or called by a step.

    Also through other functions that evaluate nothing.
    """
    loops = program.train_loops
    if getattr(function, "name", "") == "forward":
        return True
    if any(loop.module.function(loop.steps) is function for loop in loops):
        return True
    seen = {each.function for each in program.evaluations}
    if function is None or function in seen:
        return False
    steps = {loop.steps for loop in loops}
    pending = [function]
    while pending:
        called = pending.pop()
        by_attribute = calls_by_attribute(program, program.modules, called)
        for where, call in (*program.callers(called), *by_attribute):
            if not steps.isdisjoint(where.ancestors(call)):
                return True
            caller = where.function(call)
            if getattr(caller, "name", "") == "forward":
                return True
            if caller is not None and caller not in seen:
                seen.add(caller)
                pending.append(caller)
    return False


def is_left_out_by_calls(program: Program, module: Module, node: ast.AST) -> bool:
    """Whether all calls of the function around a place pass by it, by the literals they pass.

    As by ``if as_model: return model`` above, where none of them says ``as_model=False``.
    """
    function = module.function(node)
    if function is None or not program.callers(function):
        return False
    called = [each for each in program.callers(function) if program.is_called(*each)]
    return (
        bool(called)
        and not program.possible_callers(function)
        and not any(is_possible(module, function, node, (each,)) for each in called)
    )


def is_of_nothing(parse: ast.Call) -> bool:
    """``parse_args([])``."""
    match parse.args:
        case [ast.List(elts=[])]:
            return True
    return False
