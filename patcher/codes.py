"""List the rules' codes and select some by prefix. Reads file names and imports no rule."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from ..errors import InputError

FOLDER = os.path.join(os.path.dirname(__file__), "rules")


def rule_files() -> list[str]:
    """Names of the files in ``rules/`` that are rules, in order."""
    return sorted(
        name for name in os.listdir(FOLDER) if name.startswith("df") and name.endswith(".py")
    )


def all_codes() -> list[str]:
    """Every code, in order: a rule's file is named for it."""
    return [name.partition("_")[0].upper() for name in rule_files()]


def select_codes(codes: Iterable[str], select: Sequence[str], ignore: Sequence[str]) -> list[str]:
    """``codes`` that start with a prefix in ``select`` (empty: any) and with none in ``ignore``.

    Raises InputError for a prefix that fits no code.
    """
    codes = list(codes)
    for prefix in (*select, *ignore):
        if not any(code.startswith(prefix.upper()) for code in codes):
            raise InputError(f"no rule's code starts with {prefix}; `ddpfix rules` lists them")
    wanted, unwanted = (tuple(p.upper() for p in group) for group in (select, ignore))
    return [
        code
        for code in codes
        if code.startswith(wanted or ("",)) and not (unwanted and code.startswith(unwanted))
    ]


def split_codes(value: Sequence[str]) -> list[str]:
    """The values of a repeatable option as one list: ``--select DF1,DF2 --select DF3``."""
    return [code.strip() for item in value for code in item.split(",") if code.strip()]
