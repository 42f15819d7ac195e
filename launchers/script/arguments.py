"""What a user's own arguments for a script say."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ...errors import InputError
from ...recipes.model import Recipe


def parse_flags(extra: Sequence[str]) -> dict[str, str | None]:
    """The flags among a user's arguments, with the last value of each, or None for a switch."""
    found: dict[str, str | None] = {}
    for word, following in itertools.zip_longest(extra, extra[1:]):
        if word.startswith("--") and len(word) > 2:
            flag, equals, value = word.partition("=")
            is_value = following is not None and not following.startswith("--")
            found[flag] = value if equals else (following if is_value else None)
    return found


def fixed_by(recipe: Recipe, extra: Sequence[str]) -> tuple[int | None, int | None]:
    """The per-device batch and the accumulation that the user's own arguments ask for.

    Raises:
        InputError: such an argument is no whole number.

    """
    mine = parse_flags(extra)

    def number(flag: str | None) -> int | None:
        if flag not in mine:
            return None
        try:
            return int(mine[flag] or "")
        except ValueError:
            raise InputError(f"{flag} {mine[flag] or ''}: it takes a whole number") from None

    return number(recipe.flags.train_batch), number(recipe.flags.accumulation)
