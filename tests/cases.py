"""Parts that several tests use."""

from __future__ import annotations

import difflib
import functools
import inspect
import json
import textwrap
from pathlib import Path
from typing import Any

from ddpfix.patcher.analysis.training.program import Program
from ddpfix.patcher.editing import helper_code as inserts
from ddpfix.patcher.engine.rounds import apply_round
from ddpfix.patcher.findings import Finding
from ddpfix.patcher.rules import all_rules
from ddpfix.patcher.source.files import Source
from ddpfix.patcher.source.module import Module
from forked import Forge, Job

RULES = {rule.code: rule for rule in all_rules()}


def module(text: str) -> Module:
    return Module(Source("script.py", textwrap.dedent(text).lstrip("\n"), "utf-8", False))


def changes(before: str, after: str) -> str:
    """What a patch changes, as a unified diff with one line around each change.

    A function or class of ours that it adds is one line with its name and three dots, if it is
    added to the letter.
    """
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1)
    text = "".join(f"{'' if line == ' ' else line}\n" for line in list(lines)[2:])
    for first, whole in _things_of_ours():
        text = text.replace(whole, f"+{first} ...\n")
    return text


@functools.cache
def _things_of_ours() -> list[tuple[str, str]]:
    """The first line of each function and class that a patch may add, and what a diff adds then.

    Cached, because inspect parses the whole file for each class.
    """
    things = []
    for thing in vars(inserts).values():
        if getattr(thing, "__module__", "") == inserts.__name__:
            lines = inspect.getsource(thing).splitlines()
            first = next(line for line in lines if line.startswith(("def ", "class ")))
            things.append((first, "".join(f"+{line}\n" for line in lines)))
    return things


def found(code: str, text: str) -> list[Finding]:
    """Findings of one rule in a script."""
    return list(RULES[code].findings(Program(module(text))))


def written(forge: Forge, folder: Path, name: str, text: str, world: int | None) -> list[Any]:
    """What each rank of a script writes as JSON to the file of its argument, a dot and its rank."""
    path = folder / f"{name}.py"
    path.write_text(text)
    (run,) = forge.run([Job(folder / name, path, [str(folder / name)], world=world)])
    assert set(run.statuses) == {0}, run.log
    return [json.loads((folder / f"{name}.{rank}").read_text()) for rank in range(world or 1)]


def fixed(code: str, text: str) -> str:
    """The script after one rule's edits."""
    program = Program(module(text))
    findings = [finding for finding in RULES[code].findings(program) if finding.edits]
    return apply_round(program, findings, {}).script.source.text
