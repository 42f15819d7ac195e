"""The exact command of a plan: an argv list, never a shell string.

What is printed is what runs: the printed line is the argv quoted for a POSIX shell, after ``env``
and every variable that is set or removed.
"""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from ...errors import InputError
from ...recipes.model import Recipe
from ..cpu import CORES_ELSEWHERE, available_cores
from ..planning.plan import Plan
from ..script.arguments import parse_flags
from ..script.secret_flags import masked_variables, masked_words
from ..script.source import batch_includes_accumulation, script_text, shares_batches
from .interpreter import Interpreter
from .nodes import Nodes
from .registry import (
    BACKENDS,
    RESTART_VARIABLES,
    ShellWord,
    choose_backend,
    escape_words,
    launcher_command,
)

# Left over from another launcher, these would make one process believe it is one of several, give
# torch elastic or accelerate other defaults, or start the ranks with another Python.
STALE_VARIABLES = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "PYTHON_EXEC",
)
STALE_PREFIXES = ("PET_", "TORCHELASTIC_", "ACCELERATE_")

MOST_THREADS = 8
"""Threads per process beyond which the matrix products of a training step on CPU gain little."""


@attrs.frozen
class Command:
    """A process to start: its argv, the environment variables it sets and those it removes.

    `replaced_arguments` lists the arguments of the recipe and the plan that the user's own
    arguments override, each as it would have been passed. `expands`: the back end expands variables
    in the script's arguments, so that a dollar sign is written twice.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    unset: tuple[str, ...] = ()
    replaced_arguments: tuple[str, ...] = ()
    expands: bool = False

    @property
    def line(self) -> str:
        """The command as a line for a POSIX shell, with a mask in the place of each secret."""
        removed = [word for name in self.unset for word in ("-u", name)]
        added = [f"{name}={value}" for name, value in masked_variables(self.env).items()]
        return " ".join(map(quote_word, ["env", *removed, *added, *masked_words(self.argv)]))

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The whole environment of the child process, made from `base`."""
        remaining = {name: value for name, value in base.items() if name not in self.unset}
        return remaining | self.env


@attrs.frozen
class ScriptCall:
    """A call of a training script: the arguments of its recipe and plan, and the user's own.

    `extra` comes last and overrides what the recipe says of the same flags. `settings` are flags
    that the plan sets beyond the batch; None is the value of a switch. The script's output folder
    is below `run_folder`. `elsewhere`: it is for another machine, which has the data. As a `module`
    of this name, if any, it is started with ``-m``, from the folder of its package.
    """

    recipe: Recipe
    script: Path
    plan: Plan
    run_folder: Path
    extra: Sequence[str] = ()
    settings: Mapping[str, str | None] = attrs.field(factory=dict)
    elsewhere: bool = False
    module: str = ""

    def arguments(self) -> tuple[list[str], list[str]]:
        """The script's arguments, and the defaults that the user's own override.

        Raises:
            InputError: a data file is missing.

        """
        overrides = parse_flags(self.extra)
        arguments: list[str] = []
        overridden: list[str] = []
        for flag, value in itertools.chain(_defaults(self, overrides), self.settings.items()):
            words = [flag] if value is None else [flag, value]
            if self.recipe.joined and value is not None:
                words = [f"{flag}={value}"]
            if flag in overrides:
                overridden.append(shlex.join(masked_words(words)))
            else:
                arguments += words
        return [*arguments, *self.extra], overridden


@attrs.frozen
class ProcessOptions:
    """Where and how the processes of a plan are started.

    `cards` are indices as in nvidia-smi. An empty sequence means the CPU, where every card is
    hidden from the processes; None means the cards that a batch job will get. `backend` is one of
    `registry.BACKENDS`, or None for the default. Each of several `nodes` runs its part of the
    processes, on as many `cards` of its own. After a failure the back end itself starts the ranks
    again, `restarts` times. `module_prefix`, such as ``("-m", "package.module", "--out", "DIR")``,
    runs that module with the script and its arguments as its own last arguments. `environment` are
    variables of the user's own command, which the plan's override. `python` runs the ranks, by
    default ours.
    """

    cards: Sequence[int] | None = ()
    backend: str | None = None
    nodes: Nodes = attrs.field(factory=Nodes)
    restarts: int = 0
    module_prefix: Sequence[str] = ()
    environment: Mapping[str, str] = attrs.field(factory=dict)
    python: Interpreter | None = None


def quote_word(word: str) -> str:
    """Quote a word for a POSIX shell, unless the shell has to expand it."""
    return word if isinstance(word, ShellWord) else shlex.quote(word)


def build(
    call: ScriptCall,
    processes: ProcessOptions | None = None,
    *,
    environ: Mapping[str, str] | None = None,
) -> Command:
    """The command that starts the processes of a plan. Starts and writes nothing.

    Raises:
        InputError: the script or a data file is missing, there is not one card per process, or the
            back end cannot do this.

    """
    environ = os.environ if environ is None else environ
    processes = processes or ProcessOptions()
    script, cards, nodes = call.script, processes.cards, processes.nodes
    here = nodes.processes_per_node(call.plan)
    if cards and len(cards) != here:
        raise InputError(f"{here} processes need as many cards, but {len(cards)} are given")
    if not script.is_file():
        raise InputError(f"{script}: no such script; pass the right one with --script")
    arguments, overridden = call.arguments()
    threads = threads_per_process(here, environ, call.elsewhere)
    name = choose_backend(nodes.backend_for(processes.backend), call.plan.world, processes.python)
    as_module = ("-m", call.module) if call.module and not processes.module_prefix else ()
    words = [] if as_module else [script_word(script)]
    launcher = launcher_command(
        name,
        here,
        threads,
        as_module or processes.module_prefix,
        nodes.torchrun_options(call.plan),
        processes.restarts,
        processes.python,
    )
    return Command(
        argv=(*launcher, *escape_words(name, [*words, *arguments])),
        env={
            **_own_variables(processes.environment, cards),
            **_variables(cards, threads),
            **nodes.variables(environ),
            **(RESTART_VARIABLES if processes.restarts else {}),
        },
        unset=stale_variables(environ),
        replaced_arguments=tuple(overridden),
        expands=BACKENDS[name].expands,
    )


def script_word(script: Path) -> str:
    """The script's name as a word of a command: one that begins with "-" is no option."""
    return f"./{script}" if str(script).startswith("-") else str(script)


def stale_variables(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Variables of an earlier launch in an environment, sorted: a new one must not see them."""
    return tuple(
        sorted(
            name for name in environ if name in STALE_VARIABLES or name.startswith(STALE_PREFIXES)
        )
    )


def threads_per_process(world: int, environ: Mapping[str, str], elsewhere: bool = False) -> int:
    """OMP_NUM_THREADS if the user has set it, else an equal share of the cores, at most 8.

    `elsewhere`: the cores are those of another machine, whose number is not known.
    """
    requested = environ.get("OMP_NUM_THREADS", "")
    if requested.isdigit() and int(requested) > 0:
        return int(requested)
    if elsewhere:
        return CORES_ELSEWHERE
    return max(1, min(MOST_THREADS, available_cores() // world))


def _defaults(
    call: ScriptCall, overrides: Mapping[str, str | None]
) -> Iterator[tuple[str, str | None]]:
    """The arguments of the recipe and the plan, before the user's own."""
    recipe, flags = call.recipe, call.recipe.flags
    for flag, value in recipe.arguments.items():
        yield flag, None if value is True else str(value)
    yield from _data_files(call, overrides)
    from_plan = (
        (flags.train_batch, _batch_flag(call, overrides)),
        (flags.eval_batch, recipe.batch.eval_per_device),
        (flags.accumulation, call.plan.accumulation),
        (flags.output, call.run_folder / recipe.output.folder),
    )
    yield from ((flag, str(value)) for flag, value in from_plan if flag)


def _batch_flag(call: ScriptCall, overrides: Mapping[str, str | None]) -> int:
    """The value of the batch flag: one process's batch, or that of all where they share one."""
    flags, plan, script = call.recipe.flags, call.plan, call.script
    of_steps = batch_includes_accumulation(
        script_text(script), flags.train_batch, flags.accumulation
    )
    times = plan.accumulation if of_steps else 1
    if call.recipe.batch_is_shared:
        return plan.global_micro_batch * times
    if not shares_batches(script):
        return plan.per_device * times
    if flags.train_batch in overrides:
        raise InputError(
            f"{script}: patched with --exact, its {flags.train_batch} is the batch of all "
            "processes together: pass --global-batch in its place"
        )
    return plan.global_micro_batch * times


def _data_files(call: ScriptCall, overrides: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
    """The data flags with the paths that the recipe expects, once all files are found."""
    recipe, script = call.recipe, call.script
    # normpath, because resolve() would follow a link to a file in another folder.
    folder = Path(os.path.normpath(script.parent / recipe.data.folder))
    if call.elsewhere:
        yield from ((flag, str(folder / name)) for flag, name in recipe.data.files.items())
        return
    folder = Path(os.path.normpath(Path.cwd() / folder))
    first: Path | None = None
    for flag, name in recipe.data.files.items():
        path = Path(overrides[flag] or "") if flag in overrides else folder / name
        if not path.is_file():
            where = "your" if flag in overrides else "not passed, and the recipe's"
            raise InputError(f"{flag}: {where} {path} is no file; pass -- {flag} PATH")
        first = first or path
        yield flag, str(folder / name)
    for name in recipe.data.beside if first else ():
        if first and not (first.parent / name).is_file():
            raise InputError(f"{first.parent / name}: missing, the script reads it beside {first}")


def _own_variables(own: Mapping[str, str], cards: Sequence[int] | None) -> dict[str, str]:
    """The variables of the user's command; a batch job shows its ranks the cards that it gets."""
    hidden = {"CUDA_VISIBLE_DEVICES"} if cards is None else set()
    return {name: value for name, value in own.items() if name not in hidden}


def _variables(cards: Sequence[int] | None, threads: int) -> dict[str, str]:
    variables = {} if cards is None else {"CUDA_VISIBLE_DEVICES": ",".join(map(str, cards))}
    if cards:
        # CUDA would number the fastest card 0; nvidia-smi and our inventory go by the bus.
        variables["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    variables["OMP_NUM_THREADS"] = str(threads)
    variables["PYTHONUNBUFFERED"] = "1"  # into a pipe, Python would hold prints back
    return variables
