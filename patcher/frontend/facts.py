"""The command facts: print what the analysis knows of a script, as text or as JSON.

For authors of rules, and to see why a rule fires. It reads the script and runs nothing.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator, Sequence

import click

from ...command_help import HelpfulCommand
from ...errors import InputError
from ...record import as_dict, record
from ..analysis.ranks.rank_reach import ROLES, differs_by_role, roles_reaching
from ..analysis.settings.constant_meanings import ConstantSetting
from ..analysis.settings.constant_settings import constant_settings
from ..analysis.settings.flag_roles import flag_roles
from ..analysis.settings.pretrained_models import NO_MODEL, UnknownModel, pretrained_model
from ..analysis.training.constructed_loaders import Loader, loader_calls, loader_from_call
from ..analysis.training.evaluations import Evaluation
from ..analysis.training.load import read_program
from ..analysis.training.program import Program
from ..analysis.training.train_loops import TrainLoop
from ..capabilities.models import models_of
from ..source.module import Module
from ..source.tree import argument, position, within
from .output import dumps

ROLE_NAMES = {
    "train_batch": "training batch",
    "eval_batch": "batch of evaluations",
    "accumulation": "gradient accumulation",
    "output": "output folder",
    "learning_rate": "learning rate",
    "epochs": "number of epochs",
    "max_steps": "largest number of steps",
    "sequence_length": "sequence length",
    "seed": "seed",
}
WRAPPERS = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "fully_shard")


@record
class Place:
    """A line of the program, from 1, and its text."""

    path: str
    line: int
    text: str


@record
class OptionFacts:
    """An ``add_argument``."""

    path: str
    line: int
    spellings: tuple[str, ...]
    dest: str


@record
class RoleFacts:
    """What an option means: its role, and the line that its value reaches; 0 if its name tells."""

    path: str
    line: int
    role: str
    flag: str


@record
class ModelFacts:
    """The pretrained model that is trained; or in `unknown` why it cannot be told."""

    path: str = ""
    line: int = 0
    flag: str = ""
    model_class: str = ""
    head: str = ""
    optimizer: str = ""
    unknown: str = ""


@record
class ConstantFacts:
    """A constant that has a role for which there is no option: its text, and why it is unknown."""

    path: str
    line: int
    role: str
    text: str
    unknown: str  # why the role's constant cannot be told; "" where it is proved


@record
class LoaderFacts:
    """A DataLoader with its arguments' source text, None for those not passed."""

    path: str
    line: int
    name: str
    dataset: str | None
    batch_size: str | None
    shuffle: str | None
    samplers: tuple[str, ...]  # one for each branch
    drop_last: bool
    distributed: bool  # whether one of the branches uses a DistributedSampler


@record
class TrainLoopFacts:
    """A loop that back-propagates."""

    path: str
    line: int
    text: str
    function: str | None
    epochs: Place | None
    loader: LoaderFacts | None
    models: tuple[str, ...]
    backward: tuple[Place, ...]
    clip: tuple[Place, ...]
    step: tuple[Place, ...]  # of optimizers, schedulers and gradient scalers
    accumulation_test: Place | None
    accumulation: str | None  # number of micro-batches per optimizer step
    counters: tuple[str, ...]  # names that count optimizer steps


@record
class EvaluationFacts:
    """A loop over a loader that evaluates."""

    path: str
    line: int
    text: str
    function: str | None
    model: str
    loader: LoaderFacts
    accumulators: tuple[str, ...] | None  # None: it collects more than lists and sums
    entered: tuple[Place, ...]  # calls of the function


@record
class GateFacts:
    """A test that differs between kinds of process, and which of them reach its branches."""

    path: str
    line: int
    test: str
    reached_by: tuple[str, ...]
    else_reached_by: tuple[str, ...] | None  # None: there is no other branch


@record
class ProgramFacts:
    """Facts of a script and the modules of its folder that it imports."""

    script: str
    trains: bool
    modules: tuple[str, ...]
    options: tuple[OptionFacts, ...]
    roles: tuple[RoleFacts, ...]
    constants: tuple[ConstantFacts, ...]
    pretrained_model: ModelFacts | None
    arguments: tuple[Place, ...]
    process_groups: tuple[Place, ...]
    wraps: tuple[Place, ...]
    loaders: tuple[LoaderFacts, ...]
    train_loops: tuple[TrainLoopFacts, ...]
    evaluations: tuple[EvaluationFacts, ...]
    rank_gates: tuple[GateFacts, ...]
    unreached: tuple[Place, ...]  # functions that nothing in the program calls


@click.command(cls=HelpfulCommand)
@click.argument("script")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def facts(script: str, as_json: bool) -> None:
    """Print what ddpfix knows of SCRIPT: options, loaders, loops, evaluations and rank tests.

    The rules are based on these facts. The script and the modules it imports from its folder are
    read but not run.

    Exit status: 0, or 2 if the script cannot be read.
    """
    try:
        result = facts_of(read_program(script))
    except RecursionError as error:
        raise InputError(f"{script}: nested too deeply to be read; split it") from error
    click.echo(dumps(as_dict(result)) if as_json else "\n".join(lines(result)))


def facts_of(program: Program) -> ProgramFacts:
    """The facts of a program, as plain data."""
    return FactReader(program).program_facts()


class FactReader:
    """Reads the facts of a program; modules' paths start as the script's own path does."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._name = program.script.source.name
        self._folder = os.path.dirname(os.path.realpath(self._name))

    def program_facts(self) -> ProgramFacts:
        program = self.program
        return ProgramFacts(
            script=self._name,
            trains=bool(program.train_loops),
            modules=tuple(self.path(module) for module in program.modules),
            options=tuple(self.options()),
            roles=tuple(self.roles()),
            constants=tuple(self.constants()),
            pretrained_model=self.pretrained_model(),
            arguments=tuple(self.place(module, stmt) for module, stmt, _ in program.parse_sites),
            process_groups=self.calls("init_process_group"),
            wraps=self.calls(*WRAPPERS),
            loaders=tuple(
                self.loader(loader_from_call(module, call))
                for module, call in loader_calls(program)
            ),
            train_loops=tuple(map(self.train_loop, program.train_loops)),
            evaluations=tuple(map(self.evaluation, program.evaluations)),
            rank_gates=tuple(self.gates()),
            unreached=tuple(
                Place(self.path(module), function.lineno, function.name)
                for module in program.modules
                for function in module.all_functions
                if not program.is_live(module, function.body[0])
            ),
        )

    def path(self, module: Module) -> str:
        """The path of a module, relative to where the script's own path is relative to."""
        if module is self.program.script:
            return self._name
        relative = os.path.relpath(module.source.name, self._folder)
        return os.path.join(os.path.dirname(self._name), relative)

    def place(self, module: Module, node: ast.stmt | ast.expr) -> Place:
        """The place of a node; for a loop or a test, its first line."""
        if isinstance(node, ast.For | ast.While | ast.If | ast.With):
            text = module.line(node.lineno)
        else:
            text = module.text(node)
        return Place(self.path(module), node.lineno, " ".join(text.split()))

    def calls(self, *names: str) -> tuple[Place, ...]:
        """The statements of all calls of these names."""
        return tuple(
            self.place(module, module.statement(call))
            for module in self.program.modules
            for call in module.calls_to(*names)
        )

    def options(self) -> Iterator[OptionFacts]:
        for module in self.program.modules:
            for option in self.program.options.values():
                if option.call in module.parents:
                    line = option.call.lineno
                    yield OptionFacts(self.path(module), line, option.spellings, option.dest)

    def roles(self) -> Iterator[RoleFacts]:
        paths = {module.source.name: self.path(module) for module in self.program.modules}
        for one in flag_roles(self.program).values():
            yield RoleFacts(paths[one.path], one.line, one.role, one.flag)

    def pretrained_model(self) -> ModelFacts | None:
        """The model with the options' defaults, and any name for an option that has none."""
        options = self.program.options.items()
        names = {dest: "a name" for dest, one in options if not one.default and not one.is_switch}
        found = pretrained_model(self.program, names)
        if isinstance(found, UnknownModel):
            return None if found.because == NO_MODEL else ModelFacts(unknown=found.because)
        path = next(x for x in self.program.modules if x.source.name == found.path)
        return ModelFacts(
            self.path(path),
            found.line,
            found.flag,
            found.model_class,
            found.head,
            found.optimizer,
        )

    def constants(self) -> Iterator[ConstantFacts]:
        """What numbers and paths in the script decide, for want of options."""
        for one in constant_settings(self.program):
            if isinstance(one, ConstantSetting):
                for each in one.literals:
                    path = self.path(each.module)
                    yield ConstantFacts(path, each.node.lineno, one.role, one.text, "")
            else:
                path, text = self.path(one.module), one.module.text(one.node)
                yield ConstantFacts(path, one.node.lineno, one.role, text, one.because)

    def loader(self, loader: Loader) -> LoaderFacts:
        module = loader.module

        def source(node: ast.expr | None) -> str | None:
            return None if node is None else " ".join(module.text(node).split())

        return LoaderFacts(
            self.path(module),
            loader.call.lineno,
            loader.name,
            source(loader.dataset),
            source(loader.batch_size),
            source(argument(loader.call, 2, "shuffle")),
            tuple(text for node in loader.samplers if (text := source(node))),
            loader.drop_last,
            bool(loader.distributed_samplers),
        )

    def train_loop(self, loop: TrainLoop) -> TrainLoopFacts:
        module = loop.module
        here = self.place(module, loop.steps)
        function = module.function(loop.steps)
        return TrainLoopFacts(
            here.path,
            here.line,
            here.text,
            None if function is None else function.name,
            None if loop.epochs is None else self.place(module, loop.epochs),
            None if loop.loader is None else self.loader(loop.loader),
            tuple(models_of(self.program, loop)),
            tuple(self.place(module, call) for call in loop.backwards),
            tuple(self.place(module, stmt) for stmt in loop.clips),
            tuple(
                self.place(module, call)
                for call in within(loop.steps.body, ast.Call)
                if isinstance(call.func, ast.Attribute) and call.func.attr == "step"
            ),
            None if loop.step_test is None else self.place(module, loop.step_test),
            None if loop.accumulation is None else module.text(loop.accumulation),
            tuple(sorted(loop.counters)),
        )

    def evaluation(self, evaluation: Evaluation) -> EvaluationFacts:
        here = self.place(evaluation.module, evaluation.loop)
        function, sums = evaluation.function, evaluation.accumulators
        return EvaluationFacts(
            here.path,
            here.line,
            here.text,
            None if function is None else function.name,
            evaluation.model,
            self.loader(evaluation.loader),
            None if sums is None else tuple(sums),
            ()
            if function is None
            else tuple(self.place(module, call) for module, call in self.program.callers(function)),
        )

    def gates(self) -> Iterator[GateFacts]:
        """Tests with a branch that some kind of process cannot reach."""
        for module in self.program.modules:
            tests: list[ast.If | ast.IfExp | ast.While] = [*module.nodes(ast.If)]
            tests += [*module.nodes(ast.IfExp), *module.nodes(ast.While)]
            for gate in sorted(tests, key=position):
                if not differs_by_role(module, gate.test):
                    continue
                text = " ".join(module.text(gate.test).split())
                body, other = (self.roles_at(module, each) for each in (gate.body, gate.orelse))
                if any(roles is not None and len(roles) < len(ROLES) for roles in (body, other)):
                    yield GateFacts(self.path(module), gate.lineno, text, body or (), other)

    def roles_at(
        self, module: Module, branch: ast.expr | Sequence[ast.stmt]
    ) -> tuple[str, ...] | None:
        """The kinds of process that reach a branch of a test; None where there is no branch."""
        first = branch if isinstance(branch, ast.expr) else next(iter(branch), None)
        if first is None:
            return None
        roles = roles_reaching(self.program, module, first)
        return tuple(role.value for role in ROLES if role in roles)


def lines(program: ProgramFacts) -> Iterator[str]:
    """The facts as lines of text, grouped; every place is ``path:line``."""
    kind = "a script that trains" if program.trains else "nothing in it trains"
    yield f"{program.script}: {kind}"
    groups: dict[str, Iterable[str]] = {
        "Modules": program.modules,
        "Options": (
            f"{at(option)}  {', '.join(option.spellings)}  sets {option.dest}"
            for option in program.options
        ),
        "What options mean": (
            f"{role.flag} is the {ROLE_NAMES[role.role]}: "
            + (f"it reaches {at(role)}" if role.line else "by its name")
            for role in program.roles
        ),
        "Constants in place of options": (
            f"{at(one)}  "
            + (
                f"the {ROLE_NAMES[one.role]} cannot be told: {one.unknown}"
                if one.unknown
                else f"{one.text} is the {ROLE_NAMES[one.role]}"
            )
            for one in program.constants
        ),
        "Pretrained model": () if program.pretrained_model is None else model_lines(program),
        "Arguments come from": map(place_line, program.arguments),
        "Process group": map(place_line, program.process_groups),
        "Wraps": map(place_line, program.wraps),
        "Loaders": (
            f"{at(loader)}  {loader.name or 'without a name'}{details(loader_rows(loader))}"
            for loader in program.loaders
        ),
        "Train loops": (
            f"{place_line(loop)}{details(train_loop_rows(loop))}" for loop in program.train_loops
        ),
        "Evaluations": (
            f"{place_line(one)}{details(evaluation_rows(one))}" for one in program.evaluations
        ),
        "Rank tests": (
            f"{at(gate)}  {gate.test}{details(gate_rows(gate))}" for gate in program.rank_gates
        ),
        "Functions that nothing comes to": map(place_line, program.unreached),
    }
    for title, entries in groups.items():
        yield f"\n{title}"
        yield from [f"  {entry}" for entry in entries] or ["  none"]


def model_lines(program: ProgramFacts) -> Iterator[str]:
    """Where the pretrained model is made, of which option and class, or why that is not known."""
    model = program.pretrained_model
    if model is None:
        return
    if model.unknown:
        yield f"cannot be told: {model.unknown}"
        return
    named = f"{model.flag} names" if model.flag else "the script names"
    yield f"{model.path}:{model.line}  {model.model_class}, which {named}" + details(
        (("head", model.head), ("optimizer", model.optimizer))
    )


Located = (
    Place
    | OptionFacts
    | RoleFacts
    | ConstantFacts
    | LoaderFacts
    | TrainLoopFacts
    | EvaluationFacts
    | GateFacts
)
Rows = Iterable[tuple[str, str | None]]


def at(item: Located) -> str:
    return f"{item.path}:{item.line}"


def place_line(item: Place | TrainLoopFacts | EvaluationFacts) -> str:
    return f"{at(item)}  {item.text}"


def details(rows: Rows) -> str:
    """Named values below an entry, a line each."""
    return "".join(f"\n      {name:20}{value or 'none'}" for name, value in rows)


def join_commas(items: Iterable[str]) -> str:
    return ", ".join(items)


def places(items: Iterable[Place]) -> str:
    """Places without their file, which the line above names."""
    return join_commas(f"{item.text} (line {item.line})" for item in items)


def loader_rows(loader: LoaderFacts) -> Rows:
    yield "data", loader.dataset
    yield "batch size", loader.batch_size
    yield "sampler", " or ".join(loader.samplers)
    yield "shuffle", loader.shuffle
    yield "dealt by rank", "yes" if loader.distributed else "no"


def train_loop_rows(loop: TrainLoopFacts) -> Rows:
    yield "function", loop.function or "module level"
    yield "epoch loop", None if loop.epochs is None else places([loop.epochs])
    yield "loader", loader_label(loop.loader)
    yield "models", join_commas(loop.models)
    yield "backward", places(loop.backward)
    yield "clip", places(loop.clip)
    yield "step", places(loop.step)
    yield "accumulation", loop.accumulation
    yield (
        "accumulation test",
        None if loop.accumulation_test is None else places([loop.accumulation_test]),
    )
    yield "counts steps in", join_commas(loop.counters)


def evaluation_rows(evaluation: EvaluationFacts) -> Rows:
    sums = evaluation.accumulators
    yield "function", evaluation.function or "inline"
    if evaluation.function is not None:
        yield "entered from", join_commas(map(at, evaluation.entered))
    yield "model", evaluation.model
    yield "loader", loader_label(evaluation.loader)
    yield "accumulates", "more than lists and sums" if sums is None else join_commas(sums)


def gate_rows(gate: GateFacts) -> Rows:
    yield "reached by", join_commas(gate.reached_by)
    if gate.else_reached_by is not None:
        yield "else by", join_commas(gate.else_reached_by)


def loader_label(loader: LoaderFacts | None) -> str:
    """A loader's name and place; None is a train loop's loader that was not found."""
    if loader is None:
        return "not found"
    sampling = ", dealt by rank" if loader.distributed else ""
    return f"{loader.name or 'without a name'} ({at(loader)}{sampling})"
