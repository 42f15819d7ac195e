"""The manuals of rules and capabilities, one by one or all as a Markdown page."""

from __future__ import annotations

from difflib import get_close_matches

from ...errors import InputError
from ..audit import all_obligations
from ..capabilities import all_capabilities
from ..findings import Safety
from ..rules import all_rules
from .severity import NAMES


def manual(name: str) -> str:
    """The manual of a rule or an obligation, by its code, or of a capability, by its name.

    Raises InputError for a name that none has.
    """
    for capability in all_capabilities():
        if capability.name == name.lower():
            return f"{capability.name} (capability)\n\n{capability.manual}"
    for obligation in all_obligations():
        if obligation.code == name.upper():
            return f"{obligation.code} (obligation)\n\n{obligation.manual}"
    rules = {rule.code: rule for rule in all_rules()}
    rule = rules.get(name.upper())
    if rule is None:
        close = [code for code in rules if code.startswith(name.upper())]
        close = close or get_close_matches(name.upper(), rules, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]}? " if close else ""
        raise InputError(f"no rule {name}; {hint}`ddpfix rules` lists them")
    return f"{rule.code} ({NAMES[rule.severity.value]}, {rule.safety.value})\n\n{rule.manual}"


def rule_manuals() -> str:
    """Every rule's manual as one Markdown page."""
    parts = ["# Rules\n", "Written by `ddpfix rules --markdown` from the rules' own docstrings.\n"]
    for rule in all_rules():
        safety = {Safety.SAFE: "safe fix", Safety.UNSAFE: "unsafe fix", Safety.REPORT: "report"}
        about = f"{NAMES[rule.severity.value]}, {safety[rule.safety]}"
        body = rule.manual.partition("\n")[2].strip("\n")
        parts.append(f"## {rule.code}: {rule.title}\n\n{about}\n\n```text\n{body}\n```\n")
    return "\n".join(parts)


def capability_manuals() -> str:
    """Every capability's manual as one Markdown page."""
    parts = [
        "# Capabilities\n",
        "Written by `ddpfix capabilities --markdown` from their own docstrings.\n",
    ]
    for one in all_capabilities():
        body = one.manual.partition("\n")[2].strip("\n")
        parts.append(f"## {one.name}: {one.title}\n\n```text\n{body}\n```\n")
    return "\n".join(parts)
