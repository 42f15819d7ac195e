"""Choose the precision of a training: the one its cards are made for, or the one asked for.

It is passed only to a script that declares ``--amp``, which ``ddpfix patch --with amp`` adds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import InputError
from ...record import record

if TYPE_CHECKING:
    from ..gpus.model import Gpu

AMP_FLAG = "--amp"
SWITCH = "--bf16"  # of scripts with a switch of their own
AMP_VALUES = {"bf16": "bf16", "fp16": "fp16", "fp32": "no"}  # precision -> value of FLAG
CHOICES = ("auto", *AMP_VALUES)

BF16_FROM = (8, 0)
"""The compute capability from which tensor cores multiply bfloat16 (CUDA C++ Programming Guide,
table of arithmetic throughput)."""
FP16_FROM = (7, 0)
"""The compute capability from which they multiply float16, whose range needs loss scaling."""


@record
class Precision:
    """One of bf16, fp16 and fp32, and why; `told`: whether the script has a flag for it."""

    name: str
    why: str
    told: bool


def choose_precision(
    script: Path,
    requested: str,
    cards: Sequence[Gpu],
    flags: frozenset[str],
    mine: Mapping[str, str | None],
    built_in: str = "",
) -> Precision:
    """Choose the precision for `script`, which declares `flags`, on `cards` (none: the CPU).

    `requested` is one of CHOICES; `mine` are the user's own arguments for the script, which win.
    `built_in` is the precision of a script that always computes in the same one.

    Raises:
        InputError: bf16 or fp16 is requested, and the script has no flag for it.

    """
    passed = _amp_precision(mine)
    if passed is not None:
        return Precision(passed, "as passed to the script", told=True)
    if built_in and requested in ("auto", built_in):
        return Precision(built_in, "by the script itself", told=False)
    has_flag = AMP_FLAG in flags
    if requested != "auto":
        if not has_flag and requested != "fp32":
            raise InputError(
                f"--precision {requested}: {script} has no {AMP_FLAG}; `ddpfix patch --with amp` "
                "adds it"
            )
        return Precision(requested, _why_requested(requested, cards), has_flag)
    name, why = best_precision(cards)
    if name != "fp32" and not has_flag:
        able = f"the script has no {AMP_FLAG}, which `ddpfix patch --with amp` adds"
        return Precision("fp32", f"{able}; the cards could do {name}", told=False)
    return Precision(name, why, has_flag)


def requested_precision(arguments: Mapping[str, str | None]) -> str | None:
    """The precision that a script's arguments ask for by FLAG or SWITCH, or None."""
    name = _amp_precision(arguments)
    on = arguments.get(SWITCH, "no") in (None, "True", "true", "1")
    return "bf16" if name is None and on else name


def _amp_precision(arguments: Mapping[str, str | None]) -> str | None:
    """The precision set by FLAG, or its value as it is if unknown; None without the flag."""
    if AMP_FLAG not in arguments:
        return None
    names = {value: name for name, value in AMP_VALUES.items()}
    value = arguments[AMP_FLAG] or ""
    return names.get(value, value)


def best_precision(cards: Sequence[Gpu]) -> tuple[str, str]:
    """The precision that these cards are made for (none: the CPU), and why."""
    if not cards:
        return "fp32", "on the CPU"
    silent = [gpu.index for gpu in cards if gpu.compute_capability is None]
    if silent:
        return "fp32", f"card {silent[0]} does not tell its compute capability"
    least = min(cards, key=lambda gpu: gpu.compute_capability or (0, 0))
    capability = least.compute_capability or (0, 0)
    words = f"the least compute capability here is {'.'.join(map(str, capability))}"
    if capability >= BF16_FROM:
        return "bf16", f"{words}, and bfloat16 is there from 8.0 on"
    if capability >= FP16_FROM:
        return "fp16", f"{words}, and bfloat16 is there from 8.0 on; losses are scaled"
    return "fp32", f"{words}, and float16 is there from 7.0 on"


def _why_requested(precision: str, cards: Sequence[Gpu]) -> str:
    """The reason to print, with a warning for cards that are slow in this precision."""
    needed = {"bf16": BF16_FROM, "fp16": FP16_FROM}.get(precision, (0, 0))
    for gpu in cards:
        if gpu.compute_capability is not None and gpu.compute_capability < needed:
            below = ".".join(map(str, gpu.compute_capability))
            return f"as asked, though card {gpu.index} ({below}) has no units for it and is slow"
    return "as asked"
