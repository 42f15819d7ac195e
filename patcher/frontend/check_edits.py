"""The repairs of ``ddpfix patch`` as data, for ``check --edits``: of all, and of each finding."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from ...record import record
from ..analysis.training.load import read_program
from ..editing.text_edits import TextEdit, text_edits
from ..engine.patch import FileChange, Patch
from ..engine.rule_fixes import RuleFixes
from ..findings import Finding, Safety, Severity
from .diagnostics import Diagnostic, diagnose, printable
from .patch_command import PatchOptions, choose_capabilities, one_per_file, patch_files
from .request import Request

Place = tuple[str, int, int, str]


@record
class Fix:
    """Edits that go together: all of them are made, or none."""

    applicability: str  # safe, or unsafe where a person is to look at it
    message: str
    files: tuple[tuple[str, tuple[TextEdit, ...]], ...]


@record
class Fixes:
    """What ``patch`` would write, and which part of it repairs a finding by itself."""

    whole: tuple[Fix, ...]
    parts: dict[Place, Fix]

    def part(self, item: Diagnostic) -> Fix | None:
        """The fix of a finding that stands alone, in the finding's own file."""
        return self.parts.get((os.path.realpath(item.path), item.line, item.column, item.code))


def find_fixes(request: Request, paths: Iterable[str], data: bytes | None) -> Fixes:
    """The repairs of scripts as ``patch`` makes them under the project's settings."""
    config = request.config
    options = PatchOptions(
        request,
        choose_capabilities([], [], config),
        dry_run=True,
        diff=False,
        unsafe=config.unsafe_fixes,
        exact=False,
        mark=False,
        may_suggest=False,
        data=data,
    )
    patches, _ = patch_files([Path(path) for path in paths], options)
    patches = [one for one in patches if one.changes]
    parts: dict[Place, Fix] = {}
    for one in patches:
        parts = {**parts_of(one, options), **parts}
    return Fixes(tuple(map(whole_fix, together(patches))), parts)


def together(patches: Sequence[Patch]) -> list[list[Patch]]:
    """Patches in groups; those that change the same file are in one."""
    groups: list[list[Patch]] = []
    for one in patches:
        touching = [group for group in groups if files_of(group) & files_of([one])]
        groups = [group for group in groups if group not in touching]
        groups.append([*(each for group in touching for each in group), one])
    return groups


def files_of(patches: Iterable[Patch]) -> set[str]:
    """The files that patches change."""
    return {os.path.realpath(change.source.path) for one in patches for change in one.changes}


def whole_fix(patches: Sequence[Patch]) -> Fix:
    """What patch writes for scripts that share modules."""
    gone: Counter[str] = Counter()
    for one in patches:
        gone |= Counter(f.code for f in one.findings_before)
        gone -= Counter(f.code for f in one.findings_after)
    scripts = ", ".join(printable(str(one.path)) for one in patches)
    doubts = [verdict for one in patches for verdict in one.audit]
    unsafe = any(is_unsafe(f) for one in patches for f in one.findings_before if f.edits)
    message = f"Repair {scripts}: {', '.join(sorted(gone))}" if gone else f"Repair {scripts}"
    if doubts:
        message += f"; read {', '.join(sorted({each.code for each in doubts}))} of the audit first"
    changes = one_per_file([change for one in patches for change in one.changes])
    return Fix("unsafe" if doubts or unsafe else "safe", message, edited(changes))


def parts_of(one: Patch, options: PatchOptions) -> dict[Place, Fix]:
    """The fixes that stand alone, by the place of what they repair."""
    allowed = {Safety.SAFE, Safety.UNSAFE} if options.unsafe else {Safety.SAFE}
    program = read_program(str(one.path), options.data)  # the files as they are
    fixes = RuleFixes(program, frozenset(allowed))
    parts: dict[Place, Fix] = {}
    for finding in one.findings_before:
        if not finding.edits or finding.safety not in allowed:
            continue
        changes = fixes.changes(finding.code)
        item = diagnose(finding)
        name = os.path.realpath(item.path)
        if len(changes) != 1 or os.path.realpath(changes[0].source.path) != name:
            continue
        applicability = "unsafe" if is_unsafe(finding) else "safe"
        message = f"Repair {finding.code} in this file: {item.title}"
        parts[name, item.line, item.column, item.code] = Fix(
            applicability, message, edited(changes)
        )
    return parts


def is_unsafe(finding: Finding) -> bool:
    """Whether a finding's edits need a judgement."""
    return finding.safety is Safety.UNSAFE and finding.severity is not Severity.NOTE


def edited(changes: Iterable[FileChange]) -> tuple[tuple[str, tuple[TextEdit, ...]], ...]:
    """The edits of each changed file, by its name."""
    return tuple((c.source.name, text_edits(c.source.text, c.text)) for c in changes)
