"""The runs of one verification: what they share, and where each one's output goes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
from attrs import field, frozen

from ..script.arguments import parse_flags
from ..script.flags import ScriptFlags
from . import trace_compare as compare
from .evidence import RunTrace
from .scripts import ScriptsUnderTest
from .tolerances import Tolerances
from .traced_run import TRACE, Start, command

Say = Callable[[str], None]
LAUNCHED = "environment variable RANK expected"
"""What torch says of a process group that nobody has launched."""


@frozen
class RunSpec:
    """One run of a script: in a group of ``world`` ranks, or on its own where that is None.

    ``options`` are the tracer's. ``sealed``: importing ddpfix fails in it. ``change`` edits the
    script's arguments. The run begins with a copy of the files in ``start_from``. A script on its
    own is kept off the cards, unless ``cards``.
    """

    name: str
    script: Path
    world: int | None = None
    accumulation: int = 1
    options: tuple[str, ...] = ()
    sealed: bool = True
    change: Callable[[list[str]], list[str]] = lambda words: words
    start_from: Path | None = None
    cards: bool = False


@frozen
class VerifyRunner:
    """What all runs share. ``notes`` gathers what has to be said about them."""

    place: Path
    subject: ScriptsUnderTest
    arguments: tuple[str, ...]
    flags: ScriptFlags
    options: tuple[str, ...]
    alike: tuple[str, ...]
    seed: int | None
    cpu: bool
    naive: bool
    exact: bool
    held_to: Tolerances
    say: Say
    start: Start
    notes: list[str] = field(factory=list)

    def run(self, spec: RunSpec) -> RunTrace:
        """One traced run, and another where the first was aborted after the script's end.

        Now and then an interpreter that is shutting down is aborted by a C++ thread, whatever the
        script is; only what happens twice counts against the script.
        """
        seen = self._once(spec)
        if seen.aborted_after_the_end:
            self.notes.append(
                f"{spec.name}: ran twice, as {seen.why} after all ranks had ended with 0"
            )
            seen = self._once(attrs.evolve(spec, name=f"{spec.name}, again"))
        return attrs.evolve(seen, name=spec.name)

    def _once(self, spec: RunSpec) -> RunTrace:
        """All runs write to the same path, which then moves to the run's own folder."""
        cpu = self.cpu or (spec.world is None and not spec.cards)
        wrote = self.place / "output"
        shutil.rmtree(wrote, ignore_errors=True)
        if spec.start_from is not None:
            shutil.copytree(spec.start_from, wrote)
        elif Path(replaced_value(self.arguments, self.flags.output)).is_dir():
            wrote.mkdir()
        shares = 1 if self.exact else spec.world or 1  # exact: the flag is the batch of all ranks
        batch = self.flags.global_batch // (shares * spec.accumulation)
        words = self.flags.arguments(self.arguments, str(wrote), batch, spec.accumulation)
        own = self.place / "runs" / spec.name.replace(", ", "-").replace(" ", "-")
        threads = ["--threads", "1"] if cpu else []
        what = command(
            spec.script,
            spec.change(words),
            own,
            world=spec.world,
            options=[*threads, *self.options, *spec.options],
            cpu=cpu,
            sealed=spec.sealed,
        )
        if spec.world is None or self.exact:
            # Sets in an order of their own would be a difference that is nobody's fault.
            what = attrs.evolve(what, env=what.env | {"PYTHONHASHSEED": "0"})
        self.say(f"running {spec.name} …")
        done = self.start(what, own)
        output = own / "output"
        if wrote.exists():
            wrote.rename(output)
        else:
            output.mkdir()
        seen = RunTrace(
            spec.name,
            spec.world,
            spec.accumulation,
            done.outcome,
            done.ranks,
            wrote,
            output,
            own / TRACE,
        )
        if not seen.ended_well:
            self.say(f"{spec.name}: {seen.why}")
        return seen

    def alone(self, name: str, script: Path, shim: bool, *, sealed: bool) -> RunTrace:
        """The script on its own, as the user has it: dropout on, no process group.

        One that makes a process group whoever starts it runs in a group of one.
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
                    change=self.subject.shared,
                )
            )

        seen = run(name, None)
        if LAUNCHED not in compare.failure(seen.ranks):
            return seen
        self.notes.append(f"{name}: makes a process group in any case; ran in a group of one")
        return attrs.evolve(run(f"{name} launched", 1), name=name)

    def group(self, world: int, accumulation: int, shim: bool) -> RunTrace:
        """The judged script in a process group, with nothing random but the seeds."""
        name = f"x{world}" + (f", accumulation {accumulation}" if accumulation > 1 else "")
        return self.run(
            RunSpec(name, self.subject.patched, world, accumulation, self.as_groups(shim))
        )

    def untouched(self, script: Path, shim: bool) -> RunTrace:
        """The original on its own, with nothing random but the seeds, as groups are run."""
        name = "original without dropout" if self.alike else "original, seeded alike"
        return self.run(
            RunSpec(
                name,
                script,
                options=self.as_groups(shim),
                sealed=False,
                change=self.subject.shared,
                cards=True,
            )
        )

    def as_groups(self, shim: bool) -> tuple[str, ...]:
        seed = ["--seed", str(self.seed)] if self.seed is not None else []
        return (*self.alike, "--keep-parameters", *seed, *(["--shim-legacy"] if shim else []))


def replaced_value(arguments: Sequence[str], flag: str) -> str:
    """The value of a flag that is known to be among ``arguments``."""
    return parse_flags(arguments)[flag] or ""
