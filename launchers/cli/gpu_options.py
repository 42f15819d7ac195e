"""Options that choose the GPUs."""

from __future__ import annotations

import functools
import re
from typing import Any

import click

from ...errors import InputError
from ..gpus.select import GpuRequest
from .word_completion import cards

UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def read_size(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Bytes, from a number with a binary unit: 2GiB, 500M, 1073741824."""
    if value is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", value.strip().lower())
    if not match:
        raise InputError(f"{value!r} is no size: write it as 2GiB or 500MiB")
    return int(float(match[1]) * UNITS[match[2]])


def read_names(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...]:
    """The words between commas."""
    if value is None:
        return ()
    names = tuple(word.strip() for word in value.split(","))
    if not all(names):
        raise InputError(
            f"--gpus {value!r}: name cards as 0,2 or by the beginning of their UUIDs, or others "
            "as '2x RTX 4090'"
        )
    return names


OPTIONS = (
    click.option(
        "--gpus",
        "--gpu-ids",
        callback=read_names,
        shell_complete=cards,
        metavar="CARD,CARD...",
        help="Use only these cards, in this order: indices or UUID prefixes. To plan for cards "
        "that are not here, name their kinds: '2x RTX 6000 Ada' (default: all usable cards).",
    ),
    click.option(
        "--min-free",
        callback=read_size,
        metavar="SIZE",
        help="Skip cards with less free memory than this, such as 30GiB (default: no limit).",
    ),
    click.option(
        "--busy-above",
        callback=read_size,
        metavar="SIZE",
        help="Skip cards with more memory than this in use (default: 1GiB, or no limit with "
        "--min-free).",
    ),
)


def with_gpu_options(function: Any) -> Any:
    """Add these options to a command, as one argument `gpu_request`."""

    @functools.wraps(function)
    def with_request(
        *words: Any,
        gpus: tuple[str, ...],
        min_free: int | None,
        busy_above: int | None,
        **others: Any,
    ) -> Any:
        gpu_request = GpuRequest.from_names(gpus, busy_above=busy_above, min_free=min_free)
        return function(*words, gpu_request=gpu_request, **others)

    for option in reversed(OPTIONS):
        with_request = option(with_request)
    return with_request
