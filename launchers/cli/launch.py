"""``ddpfix launch``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from ...command_help import HelpfulCommand
from ...errors import InputError
from ...progress_line import have_one_terminal
from ...standard_streams import say
from ..backends.export import FILE_FORMATS
from ..backends.exported_secrets import secret_variables
from ..backends.interpreter import Interpreter, choose_interpreter, interpreter_elsewhere
from ..backends.nodes import Nodes
from ..backends.registry import BACKEND_CHOICES
from ..gpus.locks import release_locks
from ..planning.options import PlanOptions
from ..running import detach as detached
from ..running.launch import LaunchOptions, PreparedLaunch, prepare
from ..running.policy import SupervisionPolicy
from ..running.runner import LOG
from ..running.slurm import submit
from ..running.view import RunView
from .node_options import with_node_options
from .plan_options import with_plan_options
from .python_option import with_python
from .script_check import script_errors
from .slurm_options import SlurmJob, with_slurm_options
from .supervision_options import with_supervision


def _read_backend(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """What --launcher was called; elsewhere a backend is what the ranks talk through."""
    if value is not None and value not in BACKEND_CHOICES:
        raise InputError(
            f"--backend {value}: what starts the processes is --launcher, one of "
            f"{', '.join(BACKEND_CHOICES)}; nccl or gloo is chosen by the cards"
        )
    return value


@click.command(cls=HelpfulCommand)
@with_plan_options
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="Run folder (default: a new one in --runs).",
)
@click.option(
    "--runs",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for new run folders (default: .ddpfix/runs of the current project, else "
    "~/.local/state/ddpfix/runs).",
)
@click.option(
    "--launcher",
    type=click.Choice(BACKEND_CHOICES),
    help="What starts the processes (default: accelerate; Python itself for one process; torchrun "
    "for several machines).",
)
@click.option("--backend", hidden=True, callback=_read_backend, help="The old name of --launcher.")
@click.option("--dry-run", is_flag=True, help="Print the command; run and write nothing.")
@click.option(
    "--emit",
    type=click.Choice(list(FILE_FORMATS)),
    help="Print the command as a file of this kind; run and write nothing.",
)
@click.option("--detach", is_flag=True, help="Run in the background; see attach, status, stop.")
@click.option("--wait", is_flag=True, help="Wait for cards that other runs hold.")
@with_python
@click.option(
    "--unchecked", is_flag=True, help="Launch a script in which `ddpfix check` finds errors."
)
@click.option(
    "--no-live",
    is_flag=True,
    help="On a terminal, show the output alone, without step, time left and cards below it.",
)
@with_supervision
@with_slurm_options
@with_node_options
@click.pass_context
def launch(
    ctx: click.Context,
    plan_options: PlanOptions,
    output: Path | None,
    runs: Path | None,
    launcher: str | None,
    backend: str | None,
    dry_run: bool,
    emit: str | None,
    detach: bool,
    wait: bool,
    python: str | None,
    unchecked: bool,
    no_live: bool,
    policy: SupervisionPolicy,
    nodes: Nodes,
    job: SlurmJob,
) -> None:
    """Run a training script on every usable GPU.

    EXTRA is a script with its arguments after --, or after -- the command that starts it today.
    With --recipe it is arguments for the recipe's script, which override the recipe's. Prints the
    GPUs, the plan and the exact command, then runs it.

    Before several processes the script is checked, and errors end the launch.

    Exit status: the run's own; 124 after a hang, 1 for a script with errors, 2 for unusable input.
    """
    options = LaunchOptions(
        plan_options,
        policy,
        nodes,
        output,
        launcher or backend,
        dry_run,
        emit,
        detach,
        job.submit,
        _interpreter(python or plan_options.command_python, plan_options, emit),
        wait,
        runs,
    )
    errors = [] if unchecked else script_errors(plan_options.script)
    trains = not dry_run and (job.submit or not emit)
    if errors and plan_options.probe:
        _stop_for(errors, ctx)
    prepared = prepare(options, say)
    for line in prepared.summary:
        say(line)
    if errors and prepared.plan.plan.world > 1:
        _stop_for(errors, ctx, trains)
    if trains:
        if not emit:
            prepared.check_packages()
        prepared = prepared.with_claimed_folder()
    if emit:
        text = prepared.file_text()
        if job.submit and not dry_run:
            number = submit(
                text,
                prepared.folder,
                job.words,
                is_new=output is None,
                secrets=secret_variables(prepared.command),
            )
            say(f"Job {number} is queued; log: {prepared.folder / LOG}")
            click.echo(number)
        else:
            click.echo(os.fsencode(text), nl=False)
        return
    if dry_run:
        click.echo(os.fsencode(prepared.command.line))
        return
    own = prepared.own
    if detach:
        release_locks()  # the launch in the background takes them again
        pid = detached.detach(sys.argv[1:], prepared.folder, own)
        say(f"The run goes on in process {pid}: ddpfix attach {own}")
        return
    say(f"Run folder: {own}")
    say(prepared.command.line)
    outcome = prepared.run(None if no_live else _view(prepared))
    if outcome.left_behind:
        say(f"Stopped {outcome.left_behind} process(es) that were left behind.")
    say(f"The run {outcome.cause} after {outcome.seconds:.1f} s; log: {own / LOG}")
    ctx.exit(outcome.status)


def _view(prepared: PreparedLaunch) -> RunView | None:
    """What shows the run on a terminal; None where nobody looks."""
    if not have_one_terminal():
        return None
    from .launch_view import view_of

    return view_of(prepared)


def _interpreter(path: str, plan: PlanOptions, emit: str | None) -> Interpreter | None:
    """The Python of the ranks; a file for simulated cards is for that of another machine."""
    return interpreter_elsewhere(path) if emit and plan.gpus.kinds else choose_interpreter(path)


def _stop_for(errors: list[str], ctx: click.Context, trains: bool = True) -> None:
    """Show the errors in a script, and end before it trains."""
    for line in errors:
        click.echo(line, err=True)
    if trains:
        ctx.exit(1)
