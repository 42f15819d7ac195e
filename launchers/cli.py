"""``ddpfix gpus``, ``ddpfix plan`` and ``ddpfix launch``."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

import attrs
import click

from ..errors import InputError
from ..recipes.model import Recipe, load
from . import command as commands
from . import detached
from .backends import OFFERED, chosen
from .card_options import on_cards
from .care_options import Care, with_care
from .declared import declared
from .devices import Devices, Wish, choose_cpu, choose_devices, choose_for_job
from .emit import FORMS, Launch, backend_for, emitted
from .job_options import Job, as_job
from .ladder import Setting
from .learned import Memory
from .node_options import on_nodes
from .nodes import Nodes
from .planned import Asked, Planned, planned
from .precision import CHOICES
from .record import git_state
from .recovery import Recovery, resuming
from .run import LOG, check_folder, default_folder, run, state_folder
from .slurm import submit


def _shared(function: Any) -> Any:
    """The options that `plan` and `launch` have in common."""
    options = [
        click.option("--recipe", "recipe_name", required=True, help="A recipe's name or file."),
        click.option("--global-batch", type=int, help="Examples per optimizer step over all."),
        click.option("--per-device", type=int, help="The most examples a device takes at once."),
        click.option("--processes", type=int, help="How many; else one per usable card."),
        click.option("--cpu", is_flag=True, help="Use the CPU even where there are cards."),
        click.option(
            "--script",
            type=click.Path(path_type=Path),
            help="Else the recipe's, in this folder.",
        ),
        click.option(
            "--exact",
            is_flag=True,
            help="Ranks share each batch out: for a script of `patch --exact`, which is known as "
            "such by itself.",
        ),
        click.option(
            "--precision",
            type=click.Choice(CHOICES),
            default="auto",
            help="bf16, fp16 or fp32 for a script that has --amp; by the cards unless given.",
        ),
        click.option(
            "--probe",
            type=click.IntRange(min=1),
            metavar="N",
            help="First time N real optimizer steps of the script; what they tell is kept.",
        ),
    ]
    function = on_cards(function)
    for option in reversed(options):
        function = option(function)
    return function


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON; a line each with --watch.")
@click.option("--watch", is_flag=True, help="Again and again, until Ctrl-C.")
@click.option(
    "--every",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    help="Seconds between two looks of --watch.",
)
@on_cards
def gpus(as_json: bool, watch: bool, every: float, wish: Wish) -> None:
    """The cards of this machine, and which of them a training may use."""
    if watch:
        from .watch import watch as keep_watching

        keep_watching(wish.look, every, as_json=as_json)
        return
    found = wish.look()
    if as_json:
        click.echo(json.dumps(attrs.asdict(found), indent=2))
        return
    if found.note:
        click.echo(found.note, err=True)
    from .gpus_table import print_table

    print_table(found)


@click.command()
@_shared
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.argument("extra", nargs=-1, type=click.UNPROCESSED)
def plan(
    recipe_name: str,
    global_batch: int | None,
    per_device: int | None,
    processes: int | None,
    cpu: bool,
    wish: Wish,
    script: Path | None,
    exact: bool,
    precision: str,
    probe: int | None,
    as_json: bool,
    extra: tuple[str, ...],
) -> None:
    """The plan for a recipe on these cards: batch, precision, memory, time, optimizer steps.

    EXTRA, after --, are arguments for the script, as for launch.
    """
    recipe = load(recipe_name)
    path = script or Path(recipe.script)
    devices = _devices(wish, processes, cpu=cpu)
    shared = exact or commands.shares_batches(path)
    asked = Asked(recipe, path, global_batch, per_device, precision, extra, shared)
    click.echo(devices.found, err=True)
    if probe:
        _refuse_simulated(wish)
    found = _planned(asked, devices, probe)
    if as_json:
        click.echo(json.dumps(_facts(recipe, devices, found), indent=2))
        return
    for sentence in (*found.said, *found.others):
        click.echo(sentence)


@click.command()
@_shared
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="The run folder; else a new one under ~/.local/state/ddpfix/runs.",
)
@click.option(
    "--backend",
    type=click.Choice(OFFERED),
    help="What starts the processes: accelerate unless given, or plain Python for one process.",
)
@click.option("--dry-run", is_flag=True, help="Print the command, run and write nothing.")
@click.option(
    "--emit",
    type=click.Choice(list(FORMS)),
    help="Print the command as such a file, run and write nothing.",
)
@click.option("--detach", is_flag=True, help="Leave it running; see attach, status and stop.")
@with_care
@as_job
@on_nodes
@click.argument("extra", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def launch(
    ctx: click.Context,
    recipe_name: str,
    global_batch: int | None,
    per_device: int | None,
    processes: int | None,
    cpu: bool,
    wish: Wish,
    script: Path | None,
    exact: bool,
    precision: str,
    probe: int | None,
    output: Path | None,
    backend: str | None,
    dry_run: bool,
    emit: str | None,
    detach: bool,
    care: Care,
    machines: Nodes,
    job: Job,
    extra: tuple[str, ...],
) -> None:
    """Run a script on every usable card; EXTRA, after --, goes to the script and wins.

    Prints what was found, the batch plan and the exact command, then runs it. The exit status is
    the run's own.
    """
    recipe = load(recipe_name)
    if probe and (dry_run or emit or detach or machines.count > 1):
        raise InputError(
            "--probe runs the script here and now: `ddpfix plan --probe` does it before"
        )
    if (job.submit or not emit) and not dry_run:
        _refuse_simulated(wish)
    devices = _devices(wish, processes, cpu=cpu, job=emit == "sbatch")
    path = script or Path(recipe.script)
    shared = commands.shares_batches(path)
    if exact and path.is_file() and not shared:
        raise InputError(f"--exact: {path} shares no batches out; `ddpfix patch --exact` it first")
    care = machines.care(care)
    # Where no launcher sees all ranks, torch elastic starts them again.
    elastic = care.max_restarts if emit or machines.count > 1 else 0
    asked = Asked(recipe, path, global_batch, per_device, precision, extra, shared, machines.count)
    found = _planned(asked, devices, probe, backend)
    folder = (output or default_folder(recipe.name)).absolute()
    own = folder / machines.record
    check_folder(own)

    def build(setting: Setting) -> commands.Command:
        return commands.build(
            setting.recipe,
            path,
            setting.plan,
            folder,
            cards=devices.indices,
            extra=setting.extra,
            settings=setting.told,
            backend=backend_for(emit, backend),
            nodes=machines,
            restarts=elastic,
        )

    flags, told_flags = declared(path), found.settings.arguments
    if emit == "sbatch" or elastic:
        told_flags = resuming(flags, {*recipe.arguments, *commands.given(extra)}, told_flags)
    setting = Setting(recipe, found.plan, extra, flags, told_flags)
    memory = Memory(state_folder(), devices.cards, setting)
    told = ""
    if care.learned and not (asked.told or emit):
        setting, told = memory.used(setting)
    found = found if setting.plan == found.plan else found.lowered(setting.plan)
    command = build(setting)
    click.echo(devices.found, err=True)
    for sentence in filter(None, (machines.said, told)):
        click.echo(sentence, err=True)
    click.echo(f"Plan: {'; '.join(found.said)}.", err=True)
    for argument in command.replaced:
        click.echo(f"Yours takes the place of the recipe's {argument}", err=True)
    if emit:
        text = emitted(
            emit,
            Launch(recipe.name, command, path, found.plan, devices.indices, Path.cwd(), machines),
        )
        if job.submit and not dry_run:
            number = submit(text, folder, job.words)
            click.echo(f"Job {number} is queued; log: {folder / LOG}", err=True)
            click.echo(number)
        else:
            click.echo(os.fsencode(text), nl=False)
        return
    if dry_run:
        click.echo(os.fsencode(command.line))
        return
    _need_packages(chosen(machines.backend(backend), found.plan.world))
    if detach:
        pid = detached.detach(sys.argv[1:], folder, own)
        click.echo(f"The run goes on in process {pid}: ddpfix attach {own}", err=True)
        return
    click.echo(f"Run folder: {own}", err=True)
    click.echo(command.line, err=True)
    written = folder / recipe.output.folder
    outcome = run(
        command,
        own,
        facts=_facts(recipe, devices, found) | {"machines": attrs.asdict(machines)},
        late=lambda: {"git": git_state(path.parent)},
        grace=care.grace,
        again=Recovery(
            setting, build, written, memory.keep, care.retry, care.max_restarts - elastic
        ),
        patience=care.patience,
        rank_logs=care.rank_logs,
        cards=[gpu.index for gpu in devices.cards],
        output=written,
    )
    if outcome.left_behind:
        click.echo(f"Stopped {outcome.left_behind} process(es) that were left behind.", err=True)
    click.echo(f"The run {outcome.cause} after {outcome.seconds:.1f} s; log: {own / LOG}", err=True)
    from .paced import remember

    with contextlib.suppress(InputError, OSError):  # no reason to fail a run that has ended
        remember(asked, devices, found, own)
    ctx.exit(outcome.status)


def _devices(wish: Wish, processes: int | None, *, cpu: bool, job: bool = False) -> Devices:
    if cpu:
        return choose_cpu(processes, named=wish.named or wish.kinds)
    choose = choose_for_job if job else choose_devices
    return choose(wish.look(), processes, named=wish.named)


def _planned(
    asked: Asked, devices: Devices, probe: int | None, backend: str | None = None
) -> Planned:
    if not probe:
        return planned(asked, devices)
    from .probe import probed

    _need_packages(chosen(backend, devices.world))
    click.echo(f"Timing {probe} optimizer steps after one to warm up.", err=True)
    return probed(asked, devices, probe, backend)


def _refuse_simulated(wish: Wish) -> None:
    if wish.kinds:
        raise InputError(
            f"--gpus {','.join(wish.kinds)!r}: nothing can run on simulated cards; see what would "
            "with --dry-run or --emit"
        )


def _facts(recipe: Recipe, devices: Devices, found: Planned) -> dict[str, Any]:
    return {
        "recipe": recipe.name,
        **found.facts(),
        "cards": [attrs.asdict(gpu) for gpu in devices.cards],
    }


def _need_packages(backend: str) -> None:
    """Fail before anything is written, rather than in N tracebacks."""
    for package in ["torch"] + ["accelerate"] * (backend == "accelerate"):
        if importlib.util.find_spec(package) is None:
            raise InputError(f"{package} is not installed here: pip install 'ddpfix[train]'")
