"""The state of a process's global random numbers, to tell whether something draws."""

from __future__ import annotations

import random
import sys
from typing import Any


def random_state(torch: Any) -> int:
    """A number for the state of random, torch and numpy, which another draw changes."""
    states: list[Any] = [random.getstate(), torch.get_rng_state().numpy().tobytes()]
    if torch.cuda.is_initialized():
        states.append(torch.cuda.get_rng_state().numpy().tobytes())
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        _, keys, *rest = numpy.random.get_state()
        states += [keys.tobytes(), *rest]
    return hash(tuple(states))
