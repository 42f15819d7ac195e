"""Choose the devices of a run and lock its cards."""

from __future__ import annotations

import time
from collections.abc import Callable

from ...errors import InputError
from ..gpus.locks import take_locks
from ..gpus.select import CardsTakenError, Devices

_POLL = 1.0  # seconds between looks at cards that others hold
_SETTLE = 30.0
"""Seconds that a card may be busy after its lock is free: memory goes with the last process."""


def claim_devices(
    choose: Callable[[], Devices], say: Callable[[str], None], *, wait: bool
) -> Devices:
    """The devices that `choose` finds, with their cards locked until this process has ended.

    If another run takes one of them in between, it chooses again. With `wait` it waits where other
    runs hold the cards, and tells so once.

    Raises:
        CardsTakenError: other runs hold them, without `wait`.
        InputError: no devices can be chosen for another reason.

    """
    waited, settled = False, 0.0
    while True:
        try:
            devices = choose()
        except CardsTakenError as error:
            if not wait:
                raise
            if not waited:
                say(f"Waiting: {error}")
            waited, settled = True, time.monotonic() + _SETTLE
            time.sleep(_POLL)
        except InputError:
            if time.monotonic() > settled:
                raise
            time.sleep(_POLL)
        else:
            if take_locks(card.uuid for card in devices.cards):
                return devices
