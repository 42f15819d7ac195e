"""Datasheets of GPU models, to plan for cards that are not in this machine.

The figures are in cards.toml next to this file, each card with its source.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import InputError
from ...record import record


@record
class CardSpec:
    """A GPU model: `name` is NVML's, `memory_mib` the total that NVML reports, in MiB.

    `tflops` are peaks by precision (fp32, tf32, bf16, fp16) in 10^12 floating-point operations per
    second, dense, accumulated in fp32; a precision without hardware units is left out. `bandwidth`
    is the memory's in GB/s, `power` the board's in watts, `source` where the figures are from.
    `nvlink` is the rate between cards in GB/s, both directions together, or 0 without NVLink.
    """

    name: str
    aliases: tuple[str, ...]
    memory_mib: int
    compute_capability: tuple[int, int]
    tflops: Mapping[str, float]
    bandwidth: float
    power: float
    source: str
    nvlink: float = 0.0

    @property
    def memory(self) -> int:
        """The memory in bytes."""
        return self.memory_mib << 20


@functools.cache
def known_cards() -> tuple[CardSpec, ...]:
    """All known GPU models."""
    text = Path(__file__).with_name("cards.toml").read_text(encoding="utf-8")
    return tuple(map(_card, tomllib.loads(text)["card"]))


def card_named(name: str) -> CardSpec | None:
    """The GPU model with this name in NVML, or None if it is not known."""
    return next((card for card in known_cards() if card.name == name), None)


def find_card(words: str) -> CardSpec:
    """Find a GPU model by NVML's name or a common one, ignoring case, spaces and the maker.

    Raises:
        InputError: the name matches no known model, or several.

    """
    key = _normalized(words)
    by_key: dict[str, list[CardSpec]] = {}
    for card in known_cards():
        for name in dict.fromkeys(map(_normalized, (card.name, *card.aliases))):
            by_key.setdefault(name, []).append(card)
    if key not in by_key:  # A100-80, A100-80G
        key = next((full for full in (f"{key}gb", f"{key}b") if full in by_key), key)
    if len(by_key.get(key, ())) == 1:
        return by_key[key][0]
    if key in by_key:
        which = " or ".join(card.aliases[0] for card in by_key[key])
        raise InputError(f"--gpus: {words!r} comes in several sizes: say {which}")
    import difflib  # needed for the error message only

    near = difflib.get_close_matches(key, by_key, n=3, cutoff=0.5)
    close = dict.fromkeys(card.aliases[0] for name in near for card in by_key[name])
    known = ", ".join(card.aliases[0] for card in known_cards())
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    raise InputError(f"--gpus: {words!r} is no card that is known here: {hint}Known: {known}")


def _card(fields: dict[str, Any]) -> CardSpec:
    major, minor = fields.pop("compute_capability")
    aliases = tuple(fields.pop("aliases"))
    return CardSpec(aliases=aliases, compute_capability=(major, minor), **fields)


def _normalized(words: str) -> str:
    """A name in lower case without spaces, punctuation, maker and product line."""
    bare = re.sub(r"nvidia|geforce|tesla|generation|[^a-z0-9]", "", words.lower())
    return bare.replace("gib", "gb")
