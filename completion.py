"""Words that a shell offers on Tab, for arguments whose values ddpfix knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def matching(words: Mapping[str, str], incomplete: str) -> list[CompletionItem]:
    """The words that begin so; each has a line of help."""
    from click.shell_completion import CompletionItem  # not needed to run a command

    return [
        CompletionItem(word, help=text)
        for word, text in words.items()
        if word.startswith(incomplete)
    ]


def matching_last(words: Mapping[str, str], incomplete: str) -> list[CompletionItem]:
    """The words that begin as the last one of a list with commas, behind the others."""
    head, comma, _ = incomplete.rpartition(",")
    before = head.split(",")
    left = {word: text for word, text in words.items() if word not in before}
    return matching({head + comma + word: text for word, text in left.items()}, incomplete)


def files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files, which the shell itself lists."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]
