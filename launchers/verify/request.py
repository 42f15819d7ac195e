"""The request for a verification: what to judge, and how."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

from attrs import field, frozen
from attrs.converters import optional

from ...errors import InputError
from ..backends.interpreter import Interpreter
from ..planning.precision import requested_precision
from ..script.arguments import parse_flags
from .tolerances import FP32, TOLERANCES, Tolerances


def _strings(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(values)


def _numbers(values: Iterable[int]) -> tuple[int, ...]:
    return tuple(values)


@frozen
class VerifyRequest:
    """A patched script to judge against its original, and the runs to judge it by.

    ``arguments`` are the script's own, for one process: batch x accumulation is the global batch
    that all runs share. The original is ``original``, or the script at git's revision ``rev``, or
    an unpatched script itself; ``as_is`` judges the script without one. ``exact`` judges the
    result of ``patch --exact``: every group has to follow the untouched script alone, where the
    batch flag is the batch of the whole group and need not divide. ``unsafe`` also applies patches
    that need a judgement. ``capabilities`` are names of capabilities to add; the original runs
    without their flags among ``arguments``, and ``--amp`` selects the tolerances.

    The patched script runs in process groups of ``world_sizes``, and in the largest of these with
    each of ``accumulations``; with ``all_splits`` in every combination. Dropout is off in groups,
    unless ``keep_dropout``. ``timeout`` seconds without any event are a hang. ``against_naive``
    judges the two usual edits by sed in place of the patched script. ``isolation`` is how the
    user's files are kept from what runs write, one of `isolation_choice.MODES`.
    ``python`` runs the scripts, by default ours.
    """

    script: Path = field(converter=Path)
    arguments: tuple[str, ...] = field(converter=_strings)
    original: Path | None = field(default=None, converter=optional(Path))
    rev: str | None = None
    as_is: bool = False
    exact: bool = False
    unsafe: bool = False
    capabilities: tuple[str, ...] = field(default=(), converter=_strings)
    world_sizes: tuple[int, ...] = field(default=(1, 2), converter=_numbers)
    accumulations: tuple[int, ...] = field(default=(1, 2), converter=_numbers)
    all_splits: bool = False
    global_batch: int | None = None
    max_steps: int | None = None
    max_eval_batches: int | None = None
    max_epochs: int | None = None
    timeout: float | None = None
    recipe: str | None = None
    keep_dropout: bool = False
    seed: int | None = None
    against_naive: bool = False
    isolation: str | None = None
    python: Interpreter | None = None

    def tolerances(self) -> Tolerances:
        """The tolerances of the precision that the arguments ask for.

        Raises InputError for an unknown precision, and for options that ``exact`` excludes.
        """
        name = requested_precision(parse_flags(self.arguments))
        if name is not None and name not in TOLERANCES:
            raise InputError(f"--amp {name}: it takes no, bf16 or fp16")
        tolerances = TOLERANCES[name or FP32.precision]
        if self.exact and (self.as_is or self.against_naive or tolerances != FP32):
            raise InputError(
                "--exact holds to the untouched script: leave --as-is, --amp and the like out"
            )
        return tolerances

    def tracer_options(self) -> tuple[str, ...]:
        """Options with which the tracer ends a training, an evaluation or a hang."""
        limits = {
            "--max-steps": self.max_steps,
            "--max-epochs": self.max_epochs,
            "--max-eval-batches": self.max_eval_batches,
            "--phase-timeout": self.timeout,
        }
        pairs = ((name, str(value)) for name, value in limits.items() if value)
        return tuple(itertools.chain.from_iterable(pairs))
