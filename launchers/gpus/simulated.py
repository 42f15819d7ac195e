"""An inventory of simulated cards, to plan for cards that are not in this machine."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...errors import InputError
from ...record import replace
from .model import Gpu, Inventory, why_unusable
from .specs import CardSpec, find_card
from .visibility import LOCAL_CARD

MOST_CARDS = 9_999
COUNTED = re.compile(r"(\d+)\s*[x*]\s*(.+)", re.IGNORECASE)


def simulate_inventory(names: Sequence[str], *, min_free: int | None = None) -> Inventory:
    """Make an inventory of idle cards from names such as "2x T4", without asking NVML.

    Raises:
        InputError: a count is 0, or a card is not known.

    """
    kinds = [_parse_kind(name) for name in names]
    gpus = [card for count, card in kinds for _ in range(count)]
    summary = ", ".join(f"{count} x {card.name}" for count, card in kinds)
    return Inventory(
        tuple(_gpu(index, card, min_free) for index, card in enumerate(gpus)),
        driver="",
        note=f"Simulated: {summary}.",
        simulated=True,
    )


def _parse_kind(name: str) -> tuple[int, CardSpec]:
    if LOCAL_CARD.fullmatch(name):
        raise InputError(
            f"--gpus: {name} names a card of this machine and others do not: name either alone "
            "(a kind whose name could begin a UUID needs a count, as in 1x L4,1x A10)"
        )
    counted = COUNTED.fullmatch(name)
    digits, words = (counted[1].lstrip("0"), counted[2]) if counted else ("1", name)
    if len(digits) > len(str(MOST_CARDS)):
        raise InputError(f"--gpus: {name[:40]!r}: at most {MOST_CARDS} cards can be simulated")
    count = int(digits or "0")
    if count < 1:
        raise InputError(f"--gpus: {name!r} are no cards: say 1x or more")
    return count, find_card(words)


def _gpu(index: int, card: CardSpec, min_free: int | None) -> Gpu:
    gpu = Gpu(
        index,
        uuid="",
        name=card.name,
        memory_total=card.memory,
        memory_used=0,
        memory_free=card.memory,
        compute_capability=card.compute_capability,
        utilization=None,
        mig=False,
        usable=True,
        why_not="",
        power_limit=card.power,
    )
    why_not = why_unusable(gpu, None, min_free)
    return replace(gpu, usable=not why_not, why_not=why_not)
