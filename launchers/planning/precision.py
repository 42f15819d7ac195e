"""In which precision a training computes: what its cards are made for, or as asked.

A script that declares ``--amp``, as ``ddpfix patch --with amp`` has it, is told; no other is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import InputError
from ...record import record

if TYPE_CHECKING:
    from ..gpus.model import Gpu

FLAG = "--amp"
SWITCH = "--bf16"  # of scripts that choose it by themselves
VALUES = {"bf16": "bf16", "fp16": "fp16", "fp32": "no"}  # of the flag
CHOICES = ("auto", *VALUES)

BF16_FROM = (8, 0)
"""The compute capability from which tensor cores multiply bfloat16 (CUDA C++ Programming Guide,
table of arithmetic throughput)."""
FP16_FROM = (7, 0)
"""The one from which they multiply float16; its range is small, so losses have to be scaled."""


@record
class Precision:
    """One of bf16, fp16 and fp32, and why; `told` is false where the script has no flag for it."""

    name: str
    why: str
    told: bool


def decide(
    script: Path,
    asked: str,
    cards: Sequence[Gpu],
    flags: frozenset[str],
    mine: Mapping[str, str | None],
    own: str = "",
) -> Precision:
    """The precision for `script`, which declares `flags`, on `cards`; without any, on the CPU.

    `asked` is one of CHOICES; `mine` are the user's own arguments for the script, which win. `own`
    is what the script computes in whatever it is told, where it does.

    Raises:
        InputError: bf16 or fp16 are asked for, and the script has no flag for it.

    """
    passed = named(mine)
    if passed is not None:
        return Precision(passed, "as passed to the script", told=True)
    if own and asked in ("auto", own):
        return Precision(own, "by the script itself", told=False)
    told = FLAG in flags
    if asked != "auto":
        if not told and asked != "fp32":
            raise InputError(
                f"--precision {asked}: {script} has no {FLAG}; `ddpfix patch --with amp` adds it"
            )
        return Precision(asked, _warning(asked, cards), told)
    name, why = best_of(cards)
    if name != "fp32" and not told:
        able = f"the script has no {FLAG}, which `ddpfix patch --with amp` adds"
        return Precision("fp32", f"{able}; the cards could do {name}", told=False)
    return Precision(name, why, told)


def named(mine: Mapping[str, str | None]) -> str | None:
    """The precision that arguments for a script name, or their word for it; None without any."""
    if FLAG not in mine:
        return None
    names = {value: name for name, value in VALUES.items()}
    value = mine[FLAG] or ""
    return names.get(value, value)


def computed(mine: Mapping[str, str | None]) -> str | None:
    """The precision that arguments ask for, also by a script's own switch; None without any."""
    name = named(mine)
    on = mine.get(SWITCH, "no") in (None, "True", "true", "1")
    return "bf16" if name is None and on else name


def best_of(cards: Sequence[Gpu]) -> tuple[str, str]:
    """The precision that these cards are made for, and why; without any, that of the CPU."""
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


def _warning(asked: str, cards: Sequence[Gpu]) -> str:
    needed = {"bf16": BF16_FROM, "fp16": FP16_FROM}.get(asked, (0, 0))
    for gpu in cards:
        if gpu.compute_capability is not None and gpu.compute_capability < needed:
            below = ".".join(map(str, gpu.compute_capability))
            return f"as asked, though card {gpu.index} ({below}) has no units for it and is slow"
    return "as asked"
