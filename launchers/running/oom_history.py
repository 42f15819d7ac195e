"""Settings that worked after an OOM, reused for identical runs.

Runs are identical if recipe, arguments, cards and versions are the same. The settings are saved as
soon as they are tried, after a run was out of memory; if they are too much as well, the next ones
replace them.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from ...errors import InputError
from ...record import replace
from ..memory.step import FSDP_FLAG
from ..script.arguments import parse_flags
from ..script.secret_flags import is_secret
from ..state import write_atomically
from ..state_files import read
from ..state_validators import positive
from .oom_ladder import CHECKPOINTING, LaunchSettings, may_shard
from .run_record import utc_now, versions

if TYPE_CHECKING:
    from ..gpus.model import Gpu

# Memory does not depend on these.
_CHECKPOINT_FLAGS = ("--resume", "--save_steps", "--save_total_limit")
_MEMORY_PACKAGES = ("torch", "transformers", "peft")


@attrs.frozen
class RunKind:
    """Everything that the memory of a run depends on."""

    recipe: str
    cards: tuple[str, ...]
    several: bool
    versions: dict[str, str]
    arguments: dict[str, str | None]

    @property
    def name(self) -> str:
        """The name of its file, the same for equal kinds."""
        import hashlib  # loads OpenSSL, which most launches do not need

        text = json.dumps(attrs.asdict(self), sort_keys=True)
        return f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"


def kind_of(setting: LaunchSettings, cards: Sequence[Gpu]) -> RunKind:
    """The kind of a run, from the setting before anything is lowered; no cards mean the CPU."""
    recipe = setting.recipe
    flags = recipe.flags
    # Flags that memory does not depend on, or that are themselves what is learned.
    ignored = {
        *(flags.train_batch, flags.eval_batch, flags.accumulation, flags.output),
        *_CHECKPOINT_FLAGS,
        *(name for name in (flags.learning_rate, flags.epochs, flags.seed) if name),
        *recipe.data.files,
    }
    arguments = {**recipe.arguments, **setting.added_flags, **parse_flags(setting.extra)}
    arguments = {
        flag: value
        for flag, value in arguments.items()
        if not is_secret(flag, None if value is None else str(value))
    }
    return RunKind(
        recipe.name,
        tuple(sorted({f"{gpu.name}, {gpu.memory_total >> 20} MiB" for gpu in cards})) or ("CPU",),
        setting.plan.world > 1,
        {name: version for name, version in versions() if name in _MEMORY_PACKAGES},
        {flag: str(value) for flag, value in arguments.items() if flag not in ignored},
    )


def _all_positive(learned: Any, attribute: attrs.Attribute[Any], value: dict[str, int]) -> None:
    for number in value.values():
        positive(learned, attribute, number)


@attrs.frozen
class LearnedSettings:
    """What is read of a file of learned settings; `numbers` are values of flags."""

    per_device: int = attrs.field(validator=positive)
    eval_per_device: int = attrs.field(validator=positive)
    checkpointing: bool
    numbers: dict[str, int] = attrs.field(validator=_all_positive)
    fsdp: bool = False

    @property
    def switches(self) -> list[str]:
        """The script's switches that were turned on."""
        return [CHECKPOINTING] * self.checkpointing + [FSDP_FLAG] * self.fsdp


class OomHistory:
    """What was learned from earlier runs of one kind.

    `state` is ddpfix' own folder; no `cards` mean the CPU. `setting` is that of the run before
    anything is lowered.
    """

    def __init__(self, state: Path, cards: Sequence[Gpu], setting: LaunchSettings) -> None:
        self._folder = state / "memory"
        self._cards, self._setting = cards, setting

    @functools.cached_property
    def _kind(self) -> RunKind:
        return kind_of(self._setting, self._cards)

    @property
    def _path(self) -> Path:
        return self._folder / self._kind.name

    def save(self, setting: LaunchSettings) -> None:
        """Save a setting that is tried after an OOM. Raises OSError if it cannot be written."""
        content = {
            "kind": attrs.asdict(self._kind),
            "learned": utc_now(),
            "per_device": setting.plan.per_device,
            "eval_per_device": setting.eval_per_device,
            "checkpointing": CHECKPOINTING in setting.added_flags,
            "fsdp": FSDP_FLAG in setting.added_flags,
            "numbers": _halved_numbers(setting),
        }
        write_atomically(self._path, json.dumps(content, indent=2) + "\n")

    def apply(self, setting: LaunchSettings) -> tuple[LaunchSettings, str]:
        """The setting, lowered to what was learned, and a sentence that says so, else empty."""
        if not self._folder.is_dir():
            return setting, ""  # without looking up the versions, which is slow
        try:
            known = read(self._path, LearnedSettings)
        except FileNotFoundError:
            return setting, ""
        except InputError as error:
            return setting, f"{error}; what was learned is not used"
        lowered = _lowered(setting, known)
        if lowered == setting:
            return setting, ""
        more = "".join(f" and {switch}" for switch in known.switches)
        return lowered, (
            f"Learned when such a run was out of memory: {known.per_device} per device{more}. "
            f"--no-learned tries more; {self._path} can be removed."
        )


def _lowered(setting: LaunchSettings, known: LearnedSettings) -> LaunchSettings:
    if known.per_device < setting.plan.per_device:
        setting = setting.with_batch(known.per_device)
    if known.eval_per_device < setting.eval_per_device:
        setting = setting.with_eval_batch(known.eval_per_device)
    switches = {
        one: None
        for one in known.switches
        if one in setting.declared_flags and (one != FSDP_FLAG or may_shard(setting))
    }
    if switches:
        setting = replace(setting, added_flags={**setting.added_flags, **switches})
    present = _halved_numbers(setting)
    smaller = {f: number for f, number in known.numbers.items() if number < present.get(f, 0)}
    return setting.with_numbers(smaller) if smaller else setting


def _halved_numbers(setting: LaunchSettings) -> dict[str, int]:
    """The present numbers of the flags that the recipe allows to be halved."""
    values = {flag: setting.value(flag) or "" for flag in setting.recipe.out_of_memory}
    return {flag: int(value) for flag, value in values.items() if value.isdecimal()}
