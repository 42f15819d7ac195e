"""``ddpfix launch``."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import attrs
import click

from ...errors import InputError
from ...recipes.load import load
from ..backends import command as commands
from ..backends.export import FORMS, Launch, backend_for, emitted
from ..backends.nodes import Nodes
from ..backends.registry import OFFERED, chosen, need_packages
from ..gpus.select import GpuRequest
from ..planning.planner import PlanRequest
from ..running import detach as detached
from ..running.oom_history import OomHistory
from ..running.oom_ladder import LaunchSettings
from ..running.policy import SupervisionPolicy
from ..running.recovery import Recovery, resuming
from ..running.run_record import git_state
from ..running.runner import (
    LOG,
    OutputOptions,
    RunFacts,
    check_folder,
    default_folder,
    run,
)
from ..running.slurm import submit
from ..script.arguments import parse_flags
from ..script.source import declared, shares_batches
from ..state import state_folder
from .node_options import on_nodes
from .plan_options import devices_for, facts_of, plan_for, planning, refuse_simulated
from .slurm_options import SlurmJob, as_job
from .supervision_options import with_care


@click.command()
@planning
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="Run folder (default: a new one in ~/.local/state/ddpfix/runs).",
)
@click.option(
    "--backend",
    type=click.Choice(OFFERED),
    help="What starts the processes (default: accelerate; Python itself for one process; torchrun "
    "for several machines).",
)
@click.option("--dry-run", is_flag=True, help="Print the command; run and write nothing.")
@click.option(
    "--emit",
    type=click.Choice(list(FORMS)),
    help="Print the command as a file of this kind; run and write nothing.",
)
@click.option("--detach", is_flag=True, help="Run in the background; see attach, status, stop.")
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
    wish: GpuRequest,
    script: Path | None,
    exact: bool,
    precision: str,
    probe: int | None,
    output: Path | None,
    backend: str | None,
    dry_run: bool,
    emit: str | None,
    detach: bool,
    care: SupervisionPolicy,
    machines: Nodes,
    job: SlurmJob,
    extra: tuple[str, ...],
) -> None:
    """Run a training script on every usable GPU.

    EXTRA, after --, are arguments for the script; they override the recipe's. Prints the GPUs, the
    plan and the exact command, then runs it.

    Exit status: the run's own; 124 after a hang, 2 for unusable input.
    """
    recipe = load(recipe_name)
    if probe and (dry_run or emit or detach or machines.count > 1):
        raise InputError(
            "--probe runs the script here and now: `ddpfix plan --probe` does it before"
        )
    if (job.submit or not emit) and not dry_run:
        refuse_simulated(wish)
    devices = devices_for(wish, processes, cpu=cpu, job=emit == "sbatch")
    path = script or Path(recipe.script)
    shared = shares_batches(path)
    if exact and path.is_file() and not shared:
        raise InputError(f"--exact: {path} shares no batches out; `ddpfix patch --exact` it first")
    care = care.for_machines(machines.count)
    # Where no launcher sees all ranks, torch elastic starts them again.
    elastic = care.max_restarts if emit or machines.count > 1 else 0
    asked = PlanRequest(
        recipe, path, global_batch, per_device, precision, extra, shared, machines.count
    )
    found = plan_for(asked, devices, probe, backend)
    folder = (output or default_folder(recipe.name)).absolute()
    own = folder / machines.record
    check_folder(own)

    def build(setting: LaunchSettings) -> commands.Command:
        return commands.build(
            commands.ScriptCall(
                setting.recipe, path, setting.plan, folder, setting.extra, setting.told
            ),
            commands.ProcessOptions(
                devices.indices, backend_for(emit, backend), machines, restarts=elastic
            ),
        )

    flags, told_flags = declared(path), found.settings.arguments
    if emit == "sbatch" or elastic:
        told_flags = resuming(flags, {*recipe.arguments, *parse_flags(extra)}, told_flags)
    setting = LaunchSettings(recipe, found.plan, extra, flags, told_flags)
    memory = OomHistory(state_folder(), devices.cards, setting)
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
    need_packages(chosen(machines.backend(backend), found.plan.world))
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
        limits=care.limits,
        output=OutputOptions(rank_logs=care.rank_logs, script_folder=written),
        facts=RunFacts(
            facts_of(recipe, devices, found) | {"machines": attrs.asdict(machines)},
            late=lambda: {"git": git_state(path.parent)},
        ),
        next_attempt=Recovery(
            setting, build, written, memory.keep, care.retry, care.max_restarts - elastic
        ),
        cards=[gpu.index for gpu in devices.cards],
    )
    if outcome.left_behind:
        click.echo(f"Stopped {outcome.left_behind} process(es) that were left behind.", err=True)
    click.echo(f"The run {outcome.cause} after {outcome.seconds:.1f} s; log: {own / LOG}", err=True)
    from ..running.throughput_log import remember

    with contextlib.suppress(InputError, OSError):  # no reason to fail a run that has ended
        remember(asked, devices, found, own)
    ctx.exit(outcome.status)
