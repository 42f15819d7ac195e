"""What a shell offers on Tab for codes of rules and names of capabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ...completion import matching, matching_last

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def rule_codes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Codes of rules in a list with commas, with their titles."""
    from ..rules import all_rules

    return matching_last({rule.code: rule.title for rule in all_rules()}, incomplete)


def capability_names(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names of capabilities in a list with commas, with what they add."""
    from ..capabilities import all_capabilities

    names = {one.name: one.title for one in all_capabilities()}
    return matching_last({**names, "all": "all of them"}, incomplete)


def manual_names(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """What `ddpfix explain` has a manual of."""
    from ..audit import all_obligations
    from ..capabilities import all_capabilities
    from ..rules import all_rules

    words = {rule.code: rule.title for rule in all_rules()}
    words |= {obligation.code: obligation.title for obligation in all_obligations()}
    words |= {capability.name: capability.title for capability in all_capabilities()}
    return matching(words, incomplete)
