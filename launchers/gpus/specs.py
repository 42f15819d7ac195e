"""What the makers' sheets say of cards: so that one can plan for cards that are not here.

The figures are data, in cards.toml beside this file, each card with its source.
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
class Card:
    """A kind of card: `name` is NVML's, `memory_mib` the total that NVML reports, in MiB.

    `tflops` are peaks by precision (fp32, tf32, bf16, fp16) in 10^12 floating-point operations a
    second, dense, summed in fp32; a precision without units is not in it. `bandwidth` is the
    memory's in GB/s, `power` the board's in watts, `source` where the figures are from. `nvlink` is
    the rate between cards in GB/s, both directions together, and 0 where PCIe joins them.
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
        """Bytes."""
        return self.memory_mib << 20


@functools.cache
def cards() -> tuple[Card, ...]:
    """All kinds that are known."""
    text = Path(__file__).with_name("cards.toml").read_text(encoding="utf-8")
    return tuple(map(_card, tomllib.loads(text)["card"]))


def named(name: str) -> Card | None:
    """The card of this name as NVML gives it, or None where it is not known."""
    return next((card for card in cards() if card.name == name), None)


def meant(words: str) -> Card:
    """The card that a user means by `words`: NVML's name or one people use, however spaced.

    Raises:
        InputError: no card known here is called so, or several are.

    """
    key = _key(words)
    by_key: dict[str, list[Card]] = {}
    for card in cards():
        for one in dict.fromkeys(map(_key, (card.name, *card.aliases))):
            by_key.setdefault(one, []).append(card)
    if len(by_key.get(key, ())) == 1:
        return by_key[key][0]
    if key in by_key:
        which = " or ".join(card.aliases[0] for card in by_key[key])
        raise InputError(f"--gpus: {words!r} comes in several sizes: say {which}")
    import difflib  # only here, for a complaint

    near = difflib.get_close_matches(key, by_key, n=3, cutoff=0.5)
    close = dict.fromkeys(card.aliases[0] for one in near for card in by_key[one])
    all_ = ", ".join(card.aliases[0] for card in cards())
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    raise InputError(f"--gpus: {words!r} is no card that is known here: {hint}Known: {all_}")


def _card(fields: dict[str, Any]) -> Card:
    major, minor = fields.pop("compute_capability")
    aliases = tuple(fields.pop("aliases"))
    return Card(aliases=aliases, compute_capability=(major, minor), **fields)


def _key(words: str) -> str:
    """What is left of a name without spelling, maker and product line."""
    bare = re.sub(r"nvidia|geforce|tesla|generation|[^a-z0-9]", "", words.lower())
    return bare.replace("gib", "gb")
