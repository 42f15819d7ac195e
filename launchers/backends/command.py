"""From a plan to the exact command: an argv list, never a shell string.

What is printed is what runs: the printed line is the argv quoted for a POSIX shell, behind ``env``
with every variable that is added or taken away.
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
from ..cpu import cores
from ..planning.plan import Plan
from ..script.arguments import parse_flags
from ..script.source import counts_steps, shares_batches, text_of
from .nodes import Nodes
from .registry import RESTARTING, Expanded, chosen, handed_on, starting

# Left over from another launcher, these would make one process believe it is one of several, give
# torch elastic or accelerate other defaults, or start the ranks with another Python.
STALE = (
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
    """What to start: the argv, the variables it adds to the environment and those it removes.

    `replaced` lists the recipe's and the plan's arguments that the user's took the place of, each
    as it would have been.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    unset: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The command for a POSIX shell, which does exactly what running it does."""
        removed = [word for name in self.unset for word in ("-u", name)]
        added = [f"{name}={value}" for name, value in self.env.items()]
        return " ".join(map(quoted, ["env", *removed, *added, *self.argv]))

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The whole environment of the child, made from `base`."""
        kept = {name: value for name, value in base.items() if name not in self.unset}
        return kept | self.env


def quoted(word: str) -> str:
    """The word for a POSIX shell to read as it is, unless it is meant to be expanded."""
    return word if isinstance(word, Expanded) else shlex.quote(word)


def build(
    recipe: Recipe,
    script: Path,
    plan: Plan,
    run_folder: Path,
    *,
    cards: Sequence[int] | None = (),
    extra: Sequence[str] = (),
    module_prefix: Sequence[str] = (),
    settings: Mapping[str, str | None] | None = None,
    backend: str | None = None,
    nodes: Nodes | None = None,
    restarts: int = 0,
    environ: Mapping[str, str] | None = None,
) -> Command:
    """The command that runs `script` by `plan` on `cards` (indices as in nvidia-smi).

    No cards means the CPU, where every card is hidden from the processes; None means those that
    the job will be given. `extra` comes last and replaces what the recipe says of the same flags.
    `module_prefix`, such as ``("-m", "package.module", "--out", "DIR")``, runs that module with
    the script and its arguments as its own last arguments. `settings` are flags of the plan beyond
    the batch; a switch has None for its value. `backend` is one of `backends.BACKENDS`; see there
    for what is taken without one. On several `nodes` each runs its part of the plan's processes, on
    as many `cards` of its own. After a failure the back end itself is to start the
    ranks again, `restarts` times. Nothing is started or written.

    Raises:
        InputError: the script or a data file is missing, `cards` are not one per process, or the
            back end cannot do this.

    """
    environ = os.environ if environ is None else environ
    nodes = nodes or Nodes()
    here = nodes.here(plan)
    if cards and len(cards) != here:
        raise InputError(f"{here} processes need as many cards, but {len(cards)} are given")
    if not script.is_file():
        raise InputError(f"{script}: no such script; pass the right one with --script")
    arguments, replaced = script_arguments(recipe, script, plan, run_folder, extra, settings)
    threads = threads_per_process(here, environ)
    name = chosen(nodes.backend(backend), plan.world)
    stale = [name for name in environ if name in STALE or name.startswith(STALE_PREFIXES)]
    return Command(
        argv=(
            *starting(name, here, threads, module_prefix, nodes.rendezvous(plan), restarts),
            *handed_on(name, [str(script), *arguments]),
        ),
        env={
            **_variables(cards, threads),
            **nodes.variables(environ),
            **(RESTARTING if restarts else {}),
        },
        unset=tuple(sorted(stale)),
        replaced=tuple(replaced),
    )


def script_arguments(
    recipe: Recipe,
    script: Path,
    plan: Plan,
    run_folder: Path,
    extra: Sequence[str],
    settings: Mapping[str, str | None] | None = None,
) -> tuple[list[str], list[str]]:
    """The script's arguments, the user's `extra` last, and the defaults these replaced.

    Raises:
        InputError: a data file is missing.

    """
    mine = parse_flags(extra)
    arguments: list[str] = []
    replaced: list[str] = []
    defaults = _defaults(recipe, script, plan, run_folder, mine)
    for flag, value in itertools.chain(defaults, (settings or {}).items()):
        words = [flag] if value is None else [flag, value]
        if recipe.joined and value is not None:
            words = [f"{flag}={value}"]
        if flag in mine:
            replaced.append(shlex.join(words))
        else:
            arguments += words
    return [*arguments, *extra], replaced


def threads_per_process(world: int, environ: Mapping[str, str]) -> int:
    """OMP_NUM_THREADS as the user has it, else this process's cores shared out, at most 8."""
    asked = environ.get("OMP_NUM_THREADS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    return max(1, min(MOST_THREADS, cores() // world))


def _defaults(
    recipe: Recipe, script: Path, plan: Plan, run_folder: Path, mine: Mapping[str, str | None]
) -> Iterator[tuple[str, str | None]]:
    for flag, value in recipe.arguments.items():
        yield flag, None if value is True else str(value)
    yield from _data(recipe, script, mine)
    flags = recipe.flags
    planned = (
        (flags.train_batch, _batch_flag(recipe, script, plan, mine)),
        (flags.eval_batch, recipe.batch.eval_per_device),
        (flags.accumulation, plan.accumulation),
        (flags.output, run_folder / recipe.output.folder),
    )
    yield from ((flag, str(value)) for flag, value in planned if flag)


def _batch_flag(recipe: Recipe, script: Path, plan: Plan, mine: Mapping[str, str | None]) -> int:
    """What the batch flag is given: a process's batch, or that of all where they share one."""
    flags = recipe.flags
    of_steps = counts_steps(text_of(script), flags.train_batch, flags.accumulation)
    times = plan.accumulation if of_steps else 1
    if not shares_batches(script):
        return plan.per_device * times
    if flags.train_batch in mine:
        raise InputError(
            f"{script}: patched with --exact, its {flags.train_batch} is the batch of all "
            "processes together: pass --global-batch in its place"
        )
    return plan.together * times


def _data(
    recipe: Recipe, script: Path, mine: Mapping[str, str | None]
) -> Iterator[tuple[str, str]]:
    """The data flags with where the recipe expects the files, once all of them are there."""
    # normpath, as resolve() would follow a link to a file kept elsewhere.
    folder = Path(os.path.normpath(Path.cwd() / script.parent / recipe.data.folder))
    first: Path | None = None
    for flag, name in recipe.data.files.items():
        path = Path(mine[flag] or "") if flag in mine else folder / name
        if not path.is_file():
            where = "your" if flag in mine else "not passed, and the recipe's"
            raise InputError(f"{flag}: {where} {path} is no file; pass -- {flag} PATH")
        first = first or path
        yield flag, str(folder / name)
    for name in recipe.data.beside if first else ():
        if first and not (first.parent / name).is_file():
            raise InputError(f"{first.parent / name}: missing, the script reads it beside {first}")


def _variables(cards: Sequence[int] | None, threads: int) -> dict[str, str]:
    variables = {} if cards is None else {"CUDA_VISIBLE_DEVICES": ",".join(map(str, cards))}
    if cards:
        # CUDA would number the fastest card 0; nvidia-smi and our inventory go by the bus.
        variables["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    variables["OMP_NUM_THREADS"] = str(threads)
    variables["PYTHONUNBUFFERED"] = "1"  # into a pipe, Python would hold prints back
    return variables
