"""From what the user asks for to a command that is ready to run, and its run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import attrs

from ...errors import InputError
from ..backends import command as commands
from ..backends.export import Launch, backend_for, export_launch
from ..backends.interpreter import Interpreter
from ..backends.nodes import Nodes
from ..backends.registry import choose_backend, require_packages
from ..gpus.locks import name_run, release_locks
from ..gpus.select import Devices
from ..planning.options import PlanOptions
from ..planning.planner import FullPlan, PlanRequest, make_plan
from ..script.arguments import parse_flags
from ..script.source import declared_flag_names, shares_batches
from ..state import state_folder
from .device_claim import claim_devices
from .oom_history import OomHistory
from .oom_ladder import LaunchSettings
from .policy import SupervisionPolicy
from .recovery import Recovery, with_resume_flags
from .run_folder import check_folder, claim_folder, default_folder
from .run_record import git_state
from .runner import (
    OutputOptions,
    RunFacts,
    RunOutcome,
    run,
)
from .view import RunView

Say = Callable[[str], None]
RUNS_ELSEWHERE = Path(".ddpfix/runs")  # below the folder of the command


@attrs.frozen
class LaunchOptions:
    """How a plan is run: where, by which back end, under which supervision.

    `output` is the run's folder, `runs` where a new one is made. `emit` is the form of the file
    that is printed in place of a run. `python` runs the ranks, by default ours. `wait`: for cards
    that other runs hold.
    """

    plan: PlanOptions
    policy: SupervisionPolicy
    machines: Nodes
    output: Path | None = None
    backend: str | None = None
    dry_run: bool = False
    emit: str | None = None
    detach: bool = False
    submit: bool = False
    python: Interpreter | None = None
    wait: bool = False
    runs: Path | None = None

    def __attrs_post_init__(self) -> None:
        """Refuse what excludes each other."""
        if self.plan.probe and (
            self.dry_run or self.emit or self.detach or self.machines.count > 1
        ):
            raise InputError(
                "--probe runs the script here and now: `ddpfix plan --probe` does it before"
            )
        if (self.submit or not self.emit) and not self.dry_run:
            self.plan.refuse_simulated()

    @property
    def runs_here(self) -> bool:
        """Whether something runs on this machine's cards, rather than being printed or queued."""
        return not (self.dry_run or self.emit)

    @property
    def is_elsewhere(self) -> bool:
        """Whether a file is printed for a machine with other cards, folders and programs."""
        return bool(self.emit and self.plan.gpus.kinds)

    @property
    def elastic_restarts(self) -> int:
        """Restarts that are torch elastic's: where no launcher of ours sees all ranks."""
        ours = not self.emit and self.machines.count == 1
        return 0 if ours else self.policy.for_machines(self.machines.count).max_restarts


@attrs.frozen
class PreparedLaunch:
    """A launch up to its command; nothing has run, and nothing is written.

    `folder` is the run folder that all machines share, `own` this machine's part of it.
    """

    options: LaunchOptions
    devices: Devices
    request: PlanRequest
    plan: FullPlan
    settings: LaunchSettings
    history: OomHistory
    command: commands.Command
    folder: Path
    own: Path
    learned: str  # from earlier runs that were out of memory, in a sentence

    @property
    def summary(self) -> Iterator[str]:
        """What was found and decided, a line each."""
        yield self.devices.summary
        if self.options.python is not None and not self.options.is_elsewhere:
            yield self.options.python.summary
        yield from filter(None, (self.options.machines.summary, self.learned))
        yield f"Plan: {'; '.join(self.plan.summary)}."
        yield from self.options.plan.remarks
        if self.options.plan.is_command:
            return  # its arguments are all the user's own
        for argument in self.command.replaced_arguments:
            yield f"Yours takes the place of the recipe's {argument}"

    def file_text(self) -> str:
        """The text of the file that `--emit` asks for."""
        options = self.options
        assert options.emit is not None
        return export_launch(
            options.emit,
            Launch(
                options.plan.recipe.name,
                self.command,
                options.plan.script,
                self.plan.plan,
                self.devices.indices,
                None if options.is_elsewhere else Path.cwd(),
                options.machines,
            ),
        )

    def check_packages(self) -> None:
        """Raise InputError where the back end's package is not installed."""
        options = self.options
        backend = choose_backend(
            options.machines.backend_for(options.backend), self.plan.plan.world, options.python
        )
        require_packages(backend, options.python)

    def with_claimed_folder(self) -> PreparedLaunch:
        """The same launch in a folder that no other launch has; the user's --output stays.

        Raises InputError if none can be created.
        """
        if self.options.output is not None:
            return self
        folder = claim_folder(self.folder)
        if folder == self.folder:
            return self
        own = folder / self.own.relative_to(self.folder)
        command = build(self.options, self.devices, folder, self.settings)
        return attrs.evolve(self, folder=folder, own=own, command=command)

    def run(self, view: RunView | None = None) -> RunOutcome:
        """Run the command to its end, and record its pace for later plans; `view` shows it."""
        options = self.options
        policy = options.policy.for_machines(options.machines.count)
        written = self.folder / options.plan.recipe.output.folder
        facts = options.plan.facts(self.devices, self.plan)
        script_folder = options.plan.script.parent
        recovery = Recovery(
            self.settings,
            lambda settings: build(options, self.devices, self.folder, settings),
            written,
            self.history.save,
            policy.retry,
            policy.max_restarts - options.elastic_restarts,
        )
        name_run(self.own)
        outcome = run(
            self.command,
            self.own,
            limits=policy.limits,
            output=OutputOptions(rank_logs=policy.rank_logs, script_folder=written, view=view),
            facts=RunFacts(
                facts | {"machines": attrs.asdict(options.machines)},
                late=lambda: {"git": git_state(script_folder)},
            ),
            next_attempt=recovery,
            cards=[gpu.index for gpu in self.devices.cards],
            last=True,
        )
        recovery.learn(outcome)
        release_locks()
        from .throughput_log import record_throughput  # a run that has ended has time

        with contextlib.suppress(InputError, OSError):  # no reason to fail a run that has ended
            record_throughput(self.request, self.devices, self.plan, self.own)
        return outcome


def plan_after_probe(
    options: PlanOptions,
    request: PlanRequest,
    devices: Devices,
    say: Say,
    backend: str | None = None,
    python: Interpreter | None = None,
) -> FullPlan:
    """The plan, after a probe of so many steps in that Python if one is asked for."""
    if not options.probe:
        return make_plan(request, devices)
    from .probe import probe_plan  # of no use without a probe

    require_packages(choose_backend(backend, devices.world, python), python)
    say(f"Timing {options.probe} optimizer steps after one to warm up.")
    return probe_plan(request, devices, options.probe, backend, python)


def prepare(options: LaunchOptions, say: Say) -> PreparedLaunch:
    """Choose devices, plan, and build the command; `say` is told of a probe before it runs.

    Raises:
        InputError: a flag, file or folder that cannot be used, or a plan that does not exist.

    """
    asked, machines = options.plan, options.machines
    choose = partial(asked.devices, job=options.emit == "sbatch")
    devices = claim_devices(choose, say, wait=options.wait) if options.runs_here else choose()
    shared = shares_batches(asked.script)
    if asked.exact and asked.script.is_file() and not shared:
        raise InputError(
            f"--exact: {asked.script} shares no batches out; `ddpfix patch --exact` it first"
        )
    request = asked.request(shared=shared, machines=machines.count)
    plan = plan_after_probe(asked, request, devices, say, options.backend, options.python)
    folder = options.output or default_folder(asked.recipe.name, runs=options.runs)
    if options.is_elsewhere:
        folder = options.output or (options.runs or RUNS_ELSEWHERE) / folder.name
    else:
        folder = folder.absolute()
    own = folder / machines.record_folder
    # A folder that ddpfix names itself gets another name where a launch of this second has it.
    if not options.is_elsewhere:
        check_folder(own if options.output is not None else folder.parent)
    flags, added = declared_flag_names(asked.script), plan.settings.arguments
    if options.emit == "sbatch" or options.elastic_restarts:
        mine = {*asked.recipe.arguments, *parse_flags(asked.extra)}
        added = with_resume_flags(flags, mine, added)
    settings = LaunchSettings(asked.recipe, plan.plan, asked.extra, flags, added)
    history = OomHistory(state_folder(), devices.cards, settings)
    learned = ""
    if options.policy.learned and not (request.batch_is_fixed or options.emit):
        settings, learned = history.apply(settings)
    plan = plan if settings.plan == plan.plan else plan.with_learned_plan(settings.plan)
    return PreparedLaunch(
        options,
        devices,
        request,
        plan,
        settings,
        history,
        build(options, devices, folder, settings),
        folder,
        own,
        learned,
    )


def build(
    options: LaunchOptions, devices: Devices, folder: Path, settings: LaunchSettings
) -> commands.Command:
    """The command that trains with these settings into the run folder."""
    return commands.build(
        commands.ScriptCall(
            settings.recipe,
            options.plan.script,
            settings.plan,
            folder,
            settings.extra,
            settings.added_flags,
            options.is_elsewhere,
            options.plan.module,
        ),
        commands.ProcessOptions(
            devices.indices,
            backend_for(options.emit, options.backend),
            options.machines,
            restarts=options.elastic_restarts,
            environment=options.plan.environment,
            python=options.python,
        ),
    )
