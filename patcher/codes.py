"""Codes of the rules, and which of them a user asked for. Reads file names, imports no rule."""

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


def selected(codes: Iterable[str], chosen: Sequence[str], ignored: Sequence[str]) -> list[str]:
    """Those of ``codes`` that start with a prefix of ``chosen`` (or all) and none of ``ignored``.

    Raises InputError for a prefix that fits no code.
    """
    codes = list(codes)
    for prefix in (*chosen, *ignored):
        if not any(code.startswith(prefix.upper()) for code in codes):
            raise InputError(f"no rule's code starts with {prefix}; `ddpfix rules` lists them")
    wanted, unwanted = (tuple(p.upper() for p in group) for group in (chosen, ignored))
    return [
        code
        for code in codes
        if code.startswith(wanted or ("",)) and not (unwanted and code.startswith(unwanted))
    ]


def split(value: Sequence[str]) -> list[str]:
    """``--select DF1,DF2 --select DF3`` as one list."""
    return [code.strip() for item in value for code in item.split(",") if code.strip()]
