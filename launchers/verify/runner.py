"""Run scripts for one verification, with shared settings, each into a folder of its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
from attrs import field, frozen

from ...errors import InputError
from ..backends.interpreter import Interpreter
from ..script.arguments import parse_flags
from ..script.flags import ScriptFlags
from . import trace_compare as compare
from .evidence import RunTrace
from .isolation import Isolation
from .scripts import ScriptsUnderTest
from .tolerances import Tolerances
from .traced_run import TRACE_FOLDER, StartRun, traced_command

Say = Callable[[str], None]
NO_LAUNCHER = "environment variable RANK expected"
"""torch's error when a process group is made without a launcher."""


@frozen
class RunSpec:
    """One run of a script: in a group of ``world_size`` ranks, or on its own where that is None.

    ``options`` are the tracer's. ``sealed``: importing ddpfix fails in it.
    ``change_arguments`` edits the script's arguments. The run begins with a copy of the files in
    ``start_from``. A script on its own uses no GPU, unless ``use_gpus``.
    """

    name: str
    script: Path
    world_size: int | None = None
    accumulation: int = 1
    options: tuple[str, ...] = ()
    sealed: bool = True
    change_arguments: Callable[[list[str]], list[str]] = lambda words: words
    start_from: Path | None = None
    use_gpus: bool = False


@frozen
class VerifyRunner:
    """Runs scripts with the settings that all runs of a verification share.

    ``folder`` contains all runs, which ``isolation`` keeps from the user's files.
    ``determinism_options`` are the tracer's options that make runs comparable. ``python`` runs the
    ranks, by default ours. ``seeds_apart``: ranks begin with ``seed`` and their rank, as those of a
    script that seeds nothing draw other numbers than rank 0. ``notes`` collects sentences about the
    runs for the report.
    """

    folder: Path
    isolation: Isolation
    scripts: ScriptsUnderTest
    arguments: tuple[str, ...]
    flags: ScriptFlags
    options: tuple[str, ...]
    determinism_options: tuple[str, ...]
    seed: int | None
    cpu: bool
    naive: bool
    exact: bool
    tolerances: Tolerances
    say: Say
    start: StartRun
    python: Interpreter | None = None
    seeds_apart: bool = False
    notes: list[str] = field(factory=list)

    def run(self, spec: RunSpec) -> RunTrace:
        """Trace a run, and repeat it where it was aborted after the script's end.

        Now and then an interpreter that is shutting down is aborted by a C++ thread, whatever the
        script is; only what happens twice counts against the script.
        """
        run = self._run_once(spec)
        if run.aborted_after_the_end:
            self.notes.append(
                f"{spec.name}: ran twice, as {run.failure_reason} after all ranks had ended with 0"
            )
            run = self._run_once(attrs.evolve(spec, name=f"{spec.name}, again"))
        return attrs.evolve(run, name=spec.name)

    def _run_once(self, spec: RunSpec) -> RunTrace:
        """Trace a run; all write to the same path, which then moves to the run's own folder."""
        cpu = self.cpu or (spec.world_size is None and not spec.use_gpus)
        live_output = self._live_output(spec)
        where_files_go = live_output if self.flags.output else self.isolation.current
        run_folder = self.folder / "runs" / spec.name.replace(", ", "-").replace(" ", "-")
        threads = ["--threads", "1"] if cpu else []
        before = spec.start_from.parent if spec.start_from else None
        with self.isolation.begin(spec.script, run_folder, live_output.parent, before) as isolated:
            traced = traced_command(
                isolated.script,
                isolated.arguments(spec.change_arguments(self._arguments(spec, live_output))),
                run_folder,
                world=spec.world_size,
                options=[*threads, *self._kept(run_folder), *self.options, *spec.options],
                cpu=cpu,
                sealed=spec.sealed,
                python=self.python,
            )
            if spec.world_size is None or self.exact:
                # The order of sets must not make runs differ.
                traced = attrs.evolve(traced, env=traced.env | {"PYTHONHASHSEED": "0"})
            self.say(f"running {spec.name} …")
            result = self.start(isolated.command(traced), run_folder)
            refused = isolated.refused_write(result.ranks)
            isolated.name_originals(result.ranks)
        output = run_folder / "output"
        if live_output.exists():
            live_output.rename(output)
        else:
            output.mkdir(exist_ok=True)  # the tracer made it, where the script has no option for it
        run = RunTrace(
            spec.name,
            spec.world_size,
            spec.accumulation,
            result.outcome,
            result.ranks,
            where_files_go,
            output,
            run_folder / TRACE_FOLDER,
        )
        hint = "" if run.ended_well else isolated.explain(run.failure_reason, refused)
        if hint:
            raise InputError(f"{spec.name}: {hint}")
        if not run.ended_well:
            self.say(f"{spec.name}: {run.failure_reason}")
        return run

    def _live_output(self, spec: RunSpec) -> Path:
        """Prepare the path that a run writes to, as the user's output folder is or a copy."""
        folder = self.folder / "live" / "output"
        shutil.rmtree(folder.parent, ignore_errors=True)
        folder.parent.mkdir()
        if spec.start_from is not None:
            shutil.copytree(spec.start_from, folder)
        elif self.flags.output and Path(_flag_value(self.arguments, self.flags.output)).is_dir():
            folder.mkdir()
        return folder

    def _kept(self, run_folder: Path) -> list[str]:
        """The tracer's options that collect the output of a script without an option for it."""
        return [] if self.flags.output else ["--keep-written", str(run_folder / "output")]

    def _arguments(self, spec: RunSpec, output: Path) -> list[str]:
        """The script's arguments, with the per-device batch that keeps the global batch."""
        shares = (
            1 if self.exact else spec.world_size or 1
        )  # exact: the flag is the batch of all ranks
        batch = self.flags.global_batch // (shares * spec.accumulation)
        return self.flags.arguments(self.arguments, str(output), batch, spec.accumulation)

    def run_alone(self, name: str, script: Path, shim: bool, *, sealed: bool) -> RunTrace:
        """Run a script on its own, as the user does: dropout on, no process group.

        A script that always makes a process group runs in a group of one.
        """
        seed = ["--seed", str(self.seed if self.seed is not None else 0)]
        shims = ["--shim-legacy"] if shim else []

        def run(name: str, world: int | None) -> RunTrace:
            return self.run(
                RunSpec(
                    name,
                    script,
                    world,
                    options=(*seed, *shims),
                    sealed=sealed,
                    change_arguments=self.scripts.arguments_for_original,
                )
            )

        traced = run(name, None)
        if NO_LAUNCHER not in compare.uncaught_exception(traced.ranks):
            return traced
        self.notes.append(f"{name}: makes a process group in any case; ran in a group of one")
        return attrs.evolve(run(f"{name} launched", 1), name=name)

    def run_group(self, world: int, accumulation: int, shim: bool) -> RunTrace:
        """Run the judged script in a process group, dropout off and everything seeded."""
        name = f"x{world}" + (f", accumulation {accumulation}" if accumulation > 1 else "")
        return self.run(
            RunSpec(name, self.scripts.patched, world, accumulation, self.group_options(shim))
        )

    def run_exact_reference(self, script: Path, shim: bool) -> RunTrace:
        """Run the original on its own with the options of groups: dropout off, seeded."""
        name = "original without dropout" if self.determinism_options else "original, seeded alike"
        return self._run_original_like_groups(name, script, self.group_options(shim))

    def run_double(self, run: RunTrace, shim: bool) -> RunTrace:
        """Run a group, or the original that groups are held to, once more in fp64."""
        name, options = f"{run.name}, fp64", (*self.group_options(shim), "--double")
        if run.world_size is None and self.scripts.original is not None:
            return self._run_original_like_groups(name, self.scripts.original, options)
        spec = RunSpec(name, self.scripts.patched, run.world_size, run.accumulation, options)
        return self.run(spec)

    def _run_original_like_groups(
        self, name: str, script: Path, options: tuple[str, ...]
    ) -> RunTrace:
        return self.run(
            RunSpec(
                name,
                script,
                options=options,
                sealed=False,
                change_arguments=self.scripts.arguments_for_original,
                use_gpus=True,
            )
        )

    def group_options(self, shim: bool) -> tuple[str, ...]:
        """The tracer's options for runs in process groups."""
        seed = ["--seed", str(self.seed)] if self.seed is not None else []
        if self.seeds_apart:
            seed.append("--seed-apart")
        return (
            *self.determinism_options,
            "--keep-parameters",
            *seed,
            *(["--shim-legacy"] if shim else []),
        )


def _flag_value(arguments: Sequence[str], flag: str) -> str:
    """The value of a flag that is known to be among ``arguments``."""
    return parse_flags(arguments)[flag] or ""
