"""What a case is, and what builders of several repositories share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from attrs import frozen

Row = Mapping[str, object]
Words = dict[str, object]
Build = Callable[[Path], list[str]]
"""From a folder for model and data to the script's arguments."""

COMMON = {"train_batch_size": 12, "eval_batch_size": 4, "learning_rate": 5e-4, "seed": 3}
PER_GPU = {"per_gpu_train_batch_size": 12, "per_gpu_eval_batch_size": 4} | {
    name: value for name, value in COMMON.items() if "batch" not in name
}
STEADY = {"adam_epsilon": 1e-5}  # else rounding noise of Adam's grows to whole steps


@frozen
class Case:
    """A script below the folder of all repositories.

    ``root`` is the folder that is copied to run it from, where that is not the script's own;
    ``shims`` are names of files in ``shims``, which each rank runs before the script, and
    ``unsafe`` and ``capabilities`` are of `VerifyRequest`. ``max_steps`` ends every run early.
    ``edits`` are texts of the script and what stands in their place before anything else: constants
    that choose a model, a batch and a horizon. ``defect`` says in words what is wrong
    with the script itself, where a promise cannot hold. ``names_output``: the arguments name a
    folder for what the script writes; if not, each run has the current folder for itself.
    ``seed`` is of `VerifyRequest`, for scripts that set none.
    """

    script: str
    build: Build
    unsafe: bool = False
    root: str | None = None
    shims: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    max_steps: int | None = None
    edits: tuple[tuple[str, str], ...] = ()
    defect: str = ""
    names_output: bool = True
    seed: int | None = None


def words(switches: str, **values: object) -> list[str]:
    """``--switch`` for each, and ``--name=value`` for what is not None."""
    options = [f"--{name}={value}" for name, value in values.items() if value is not None]
    return [*(f"--{switch}" for switch in switches.split()), *options]


def nothing(home: Path) -> list[str]:
    """No model and no arguments, for scripts that `patch` refuses."""
    return []
