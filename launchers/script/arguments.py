"""Read the arguments that a user passes to a script."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from ...errors import InputError
from ...recipes.model import Recipe

FLAG = re.compile(r"--?[A-Za-z_]")


def parse_flags(extra: Sequence[str]) -> dict[str, str | None]:
    """The flags among a user's arguments, with the last value of each, or None for a switch."""
    flags: dict[str, str | None] = {}
    for word, following in itertools.zip_longest(extra, extra[1:]):
        if FLAG.match(word):
            flag, equals, value = word.partition("=")
            is_value = following is not None and not FLAG.match(following)
            flags[flag] = value if equals else (following if is_value else None)
    return flags


def requested_batch(recipe: Recipe, extra: Sequence[str]) -> tuple[int | None, int | None]:
    """The per-device batch and the accumulation that the user's own arguments ask for.

    Raises:
        InputError: such an argument is no whole number.

    """
    flags = parse_flags(extra)

    def number(flag: str | None) -> int | None:
        if flag not in flags:
            return None
        try:
            return int(flags[flag] or "")
        except ValueError:
            raise InputError(f"{flag} {flags[flag] or ''}: it takes a whole number") from None

    return number(recipe.flags.train_batch), number(recipe.flags.accumulation)
