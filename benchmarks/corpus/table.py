"""What `ddpfix verify` says of the corpus, as a page in Markdown."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from . import SOURCES
from .case import Case

CODES = tuple(f"C{number}" for number in range(1, 10))
SIGNS = {"holds": "✓", "broken": "✗", "unproven": "?", "not judged": "-"}
FOLDERS = re.compile(r" \(/[^)]*/site-packages/[^)]*\)|/tmp/ddpfix-verify-\w+/live/")
SHIMS = Path(__file__).parent / "shims"

Verdicts = Mapping[str, Sequence[Sequence[str]]]
"""For each script the code, status and evidence of each row."""

HEAD = """\
# Public scripts, patched and judged

`benchmarks/verify_corpus.py` patches public training scripts and judges each by `ddpfix verify`,
with 1 and 2 processes, and with accumulation 2 where the script has a flag for it; models and data
are tiny, made by our own code. Nothing of the scripts is part of this repository. This page is what

    PYTHONPATH=tests python benchmarks/verify_corpus.py FOLDER --markdown > docs/corpus.md

prints, where FOLDER holds the repositories beside each other. {summary}

C1 to C9 are the lines of the contract ([verify](commands/verify.md)): ✓ holds, ✗ broken, ? unproven
by these runs, - not judged. Below the table is why for each that does not hold. Scripts that name
an output folder run in forked processes, in which what `save_pretrained` writes by safetensors is
not seen: C5 says nothing of it there.
"""


def page(cases: Sequence[Case], verdicts: Verdicts) -> str:
    """The whole page, for the cases that have a verdict."""
    judged = [case for case in cases if case.script in verdicts]
    parts = [HEAD.format(summary=_summary(judged, verdicts)), *_table(judged, verdicts)]
    return (
        "\n".join(
            [*parts, "", *_reasons(judged, verdicts), *_edits(judged), *_shims(judged)]
        ).rstrip()
        + "\n"
    )


def _summary(cases: Sequence[Case], verdicts: Verdicts) -> str:
    ran = [case for case in cases if len(verdicts[case.script]) == len(CODES)]
    broken = [case for case in ran if any(s == "broken" for _, s, _ in verdicts[case.script])]
    refused = [case for case in cases if "not patched" in verdicts[case.script][0][2]]
    return (
        f"{len(cases)} of {len(SOURCES)} scripts have a verdict here: {len(refused)} are "
        f"refused, and {len(ran)} run; "
        f"{len(ran) - len(broken)} of these keep every promise that could be judged."
    )


def _table(cases: Sequence[Case], verdicts: Verdicts) -> Iterator[str]:
    yield f"| repository | path | commit | command | shims | {' | '.join(CODES)} |"
    yield "|---" * (5 + len(CODES)) + "|"
    for case in cases:
        repository, commit = SOURCES[case.script]
        path = case.script.partition("/")[2]
        statuses = {code: status for code, status, _ in verdicts[case.script]}
        signs = (SIGNS.get(statuses.get(code, ""), "") for code in CODES)
        shims = ", ".join(f"`{name}`" for name in case.shims)
        cells = (repository, f"`{path}`", commit[:7], f"`{command(case)}`", shims, *signs)
        yield f"| {' | '.join(cells)} |"


def command(case: Case) -> str:
    """The command that a case stands for, without the script and its own arguments."""
    words = ["verify"]
    words += ["--unsafe-fixes"] * case.unsafe
    words += [f"--with {name}" for name in case.capabilities]
    words += [f"--seed {case.seed}"] * (case.seed is not None)
    words += [f"--max-steps {case.max_steps}"] * (case.max_steps is not None)
    return " ".join(words)


def _reasons(cases: Sequence[Case], verdicts: Verdicts) -> Iterator[str]:
    yield "## What does not hold, and why\n"
    for case in cases:
        left = [row for row in verdicts[case.script] if row[1] != "holds"]
        if left:
            yield f"- `{case.script}`" + (f": {case.defect}" if case.defect else "")
        for code, status, evidence in left:
            told = click.unstyle(FOLDERS.sub("", evidence))
            yield f"  - {code} {status}: {told}" if code in CODES else f"  - {told}"
    yield ""


def _edits(cases: Sequence[Case]) -> Iterator[str]:
    edited = [case for case in cases if case.edits]
    if edited:
        yield "## Constants changed\n\nBefore all else, for a small model, batch and horizon:\n"
    for case in edited:
        changes = "; ".join(f"`{_line(before)}` → `{_line(after)}`" for before, after in case.edits)
        yield f"- `{case.script}`: {changes}"
    yield ""


def _line(text: str) -> str:
    return " ⏎ ".join(line.strip() for line in text.splitlines())


def _shims(cases: Sequence[Case]) -> Iterator[str]:
    used = sorted({name for case in cases for name in case.shims})
    if used:
        yield "## Shims\n\nWhat each rank runs before the script, original and patched alike:\n"
    for name in used:
        tree = ast.parse((SHIMS / f"{name}.py").read_text("utf-8"))
        yield f"- `{name}`: {' '.join((ast.get_docstring(tree) or '').split())}"
