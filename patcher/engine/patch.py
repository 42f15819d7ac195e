"""Select rules, apply their edits in rounds, prove the result stable, or refuse.

A round applies every edit that does not meet another one's; what an applied edit brings to light
(an evaluation that every rank reaches now writes its file on every rank) is the next round's work.
The result is written only when it parses, a further round changes nothing, and no error is left.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import InputError
from ...record import record
from ..analysis.load import read_program
from ..analysis.program import Program
from ..codes import selected
from ..editing.edits import Edit, Guard, Insert, RefusedError, Replace, Rewrite, Unwrap
from ..findings import Finding, Safety, Severity
from ..rules import Rule, all_rules
from ..source.files import Source, replace_all
from ..source.module import Module
from ..source.tree import below
from .noqa import UNUSED, audible, noqas, unused

if TYPE_CHECKING:
    from ..capabilities import Capability

ROUNDS = 6


@record
class FileChange:
    """One file, before and after."""

    source: Source
    text: str

    @property
    def data(self) -> bytes:
        """The file's new bytes. Raises InputError where its encoding cannot hold the text."""
        return self.source.encode(self.text)

    def diff(self) -> str:
        """A unified diff, empty when nothing changed."""
        import difflib  # check has no use for it

        path = self.source.name
        return "".join(
            difflib.unified_diff(
                self.source.text.splitlines(keepends=True),
                self.text.splitlines(keepends=True),
                f"a/{path}",
                f"b/{path}",
            )
        )


@record
class Patch:
    """What patching a script would do: nothing is written until ``write`` is called."""

    path: Path
    found: tuple[Finding, ...]  # in the script as it was
    left: tuple[Finding, ...]  # in the result
    changes: tuple[FileChange, ...]
    refusal: str = ""
    lacking: tuple[Finding, ...] = ()  # capabilities that could not be added, and why

    @property
    def remaining(self) -> list[Finding]:
        """What is left and more than a note."""
        return [finding for finding in self.left if finding.severity is not Severity.NOTE]

    def diff(self) -> str:
        """Unified diffs of all changed files."""
        return "".join(change.diff() for change in self.changes)

    def write(self) -> None:
        """Replace the changed files, all or none. Raises InputError on a refused patch."""
        if self.refusal:
            raise InputError(f"{self.path}: {self.refusal}")
        if self.changes:
            replace_all([(change.source, change.text) for change in self.changes])


def select(rules: Iterable[Rule], chosen: Sequence[str], ignored: Sequence[str]) -> list[Rule]:
    """Rules by prefix of their code. Raises InputError for a prefix that fits none."""
    rules = list(rules)
    codes = selected([rule.code for rule in rules], chosen, ignored)
    return [rule for rule in rules if rule.code in codes]


def check(program: Program, rules: Iterable[Rule]) -> list[Finding]:
    """All findings, in order of file and line, but those that a noqa comment silences.

    Few rules have any outside training programs.
    """
    rules = [rule for rule in rules if rule.anywhere or program.is_training_program]
    order = {module: index for index, module in enumerate(program.modules)}
    comments = {module: noqas(module) for module in program.modules}
    every = (finding for rule in rules for finding in rule.findings(program))
    trains = program.is_training_program
    live = (
        finding for finding in every if not trains or program.is_live(finding.module, finding.at)
    )
    found = audible(live, comments)
    codes = {rule.code for rule in rules}
    if UNUSED in codes and program.script.is_program:
        # Another script may need the comments of a module that both import.
        found += audible(unused(program.script, comments[program.script], codes), comments)
    return sorted(found, key=lambda f: (order[f.module], f.line, f.column, f.code))


def patch(
    path: Path,
    *,
    chosen: Sequence[str] = (),
    ignored: Sequence[str] = (),
    unsafe: bool = False,
    exact: bool = False,
    data: bytes | None = None,
    capabilities: Sequence[Capability] = (),
) -> Patch:
    """Patch the script ``path`` and what it imports beside it. Writes nothing.

    ``chosen`` and ``ignored`` are prefixes of rule codes; ``data`` stands in for the file's bytes.
    ``exact``: ranks train on a lone process's batches, in its order; refused where the facts do not
    prove how.
    ``capabilities`` are added behind the repairs, each whole or not at all.
    The patch is refused, as a whole, when errors of any rule would be left, or when an edit cannot
    be carried out.
    Raises InputError when the script cannot be read or parsed.
    """
    rules = select(all_rules(), chosen, ignored)
    program = read_program(str(path), data)
    first = program.modules
    found = check(program, rules)
    allowed = {Safety.SAFE, Safety.UNSAFE} if unsafe else {Safety.SAFE}
    texts: dict[str, str] = {}
    findings, checked = found, program
    try:
        if exact:
            from ..fixes.exact import shared_out, weighed

            program = checked = all_rounds(program, shared_out, texts)
            findings = check(program, rules)
        for _ in range(ROUNDS):
            fixable = [f for f in findings if f.edits and f.safety in allowed]
            if not fixable:
                break
            program = checked = one_round(program, fixable, texts)
            findings = check(program, rules)
        else:
            return refused(path, found, findings, fixable, "the edits do not settle")
        if exact:
            program = all_rounds(program, weighed, texts)
    except RefusedError as error:
        return Patch(path, tuple(found), tuple(findings), (), f"not patched: {error}")
    lacking: list[Finding] = []
    for capability in capabilities:
        program, texts, reasons = with_capability(program, capability, rules, allowed, texts)
        lacking += reasons
    if program is not checked:
        findings = check(program, rules)  # in the lines of the result
    changes = tuple(
        FileChange(module.source, texts[module.source.name])
        for module in first
        if module.source.name in texts and texts[module.source.name] != module.source.text
    )
    for before, after in zip(first, program.modules, strict=True):
        undefined = sorted(after.unbound - before.unbound)
        if undefined:
            reason = f"not patched: the edits would leave {', '.join(undefined)} undefined"
            return Patch(path, tuple(found), tuple(findings), (), reason)
    if changes:
        left = findings if len(rules) == len(all_rules()) else check(program, all_rules())
        errors = [f for f in left if f.severity is Severity.ERROR]
        if errors:
            return refused(path, found, findings, errors, "errors would be left")
    return Patch(path, tuple(found), tuple(findings), changes, lacking=tuple(lacking))


def with_capability(
    program: Program,
    capability: Capability,
    rules: Sequence[Rule],
    allowed: set[Safety],
    texts: dict[str, str],
) -> tuple[Program, dict[str, str], list[Finding]]:
    """The program and its new texts with a capability, or as they were, and why it is not added.

    It is not, where an edit cannot be carried out or leaves something that a rule would repair.
    """
    before, new = program, dict(texts)
    findings = list(capability.findings(program))
    try:
        for _ in range(ROUNDS):
            wanted = [finding for finding in findings if finding.edits]
            if not wanted:
                break
            program = one_round(program, wanted, new)
            findings = list(capability.findings(program))
        else:
            return before, texts, [not_added(before, capability, "its edits do not settle")]
    except RefusedError as error:
        return before, texts, [not_added(before, capability, str(error))]
    if program is before:
        return before, texts, findings
    for finding in check(program, rules):
        fixable = finding.edits and finding.safety in allowed
        if fixable or finding.severity is Severity.ERROR:
            because = f"{finding.code} would be left in line {finding.line} ({finding.because})"
            return before, texts, [not_added(before, capability, because)]
    return program, new, findings


def not_added(program: Program, capability: Capability, because: str) -> Finding:
    """Why a capability is not added."""
    first = program.script.tree.body[0]
    return Finding(
        program.script,
        first,
        because,
        code=capability.name,
        severity=Severity.NOTE,
        safety=Safety.REPORT,
    )


def refused(
    path: Path, found: list[Finding], left: list[Finding], why: list[Finding], text: str
) -> Patch:
    """A patch that does nothing, and says which findings stand in its way."""
    places = ", ".join(f"{f.code} line {f.line} ({f.because})" for f in why[:4])
    return Patch(path, tuple(found), tuple(left), (), f"not patched: {text}: {places}")


def all_rounds(
    program: Program, edits_of: Callable[[Program], Iterable[Finding]], texts: dict[str, str]
) -> Program:
    """The program once ``edits_of`` asks for nothing more."""
    while findings := list(edits_of(program)):
        program = one_round(program, findings, texts)
    return program


def one_round(program: Program, findings: list[Finding], texts: dict[str, str]) -> Program:
    """The program after one round of edits; ``texts`` collects the new texts."""
    from ..editing.apply import apply_edits  # libcst costs more to import than all rules to run

    chosen = compatible(findings)
    modules: list[Module] = []
    for module in program.modules:
        edits = [edit for f in chosen if f.module is module for edit in f.edits]
        if not edits:
            modules.append(module)
            continue
        source = module.source
        text = apply_edits(module, edits)
        texts[source.name] = text
        modules.append(Module(Source(source.name, text, source.encoding, source.bom)))
    return Program(modules[0], tuple(modules[1:]))


def compatible(findings: list[Finding]) -> list[Finding]:
    """Findings whose edits do not meet an earlier one's: the rest waits for the next round.

    A statement that is replaced, guarded or unwrapped takes no other edit inside it.
    """
    taken: list[tuple[Module, ast.stmt]] = []
    touched: list[tuple[Module, ast.stmt]] = []
    spans: list[ast.AST] = []
    chosen: list[Finding] = []
    for finding in findings:
        module = finding.module
        whole, parts, words = reach_of(module, finding.edits)
        clash = any(
            m is module and overlaps(module, s, t) for m, t in taken for s in (*whole, *parts)
        )
        clash |= any(m is module and overlaps(module, s, t) for m, t in touched for s in whole)
        clash |= any(word in spans for word in words)
        if clash:
            continue
        chosen.append(finding)
        taken += [(module, stmt) for stmt in whole]
        touched += [(module, stmt) for stmt in parts]
        spans += words
    return chosen


def reach_of(
    module: Module, edits: tuple[Edit, ...]
) -> tuple[list[ast.stmt], list[ast.stmt], list[ast.AST]]:
    """Statements that edits take whole, statements they only touch, and words they rewrite."""
    whole: list[ast.stmt] = []
    parts: list[ast.stmt] = []
    words: list[ast.AST] = []
    for edit in edits:
        match edit:
            case Replace(anchor=anchor):
                whole.append(anchor)
            case Guard(anchor=anchor) | Unwrap(anchor=anchor) | Insert(anchor=anchor):
                parts.append(anchor)
            case Rewrite(first=first, last=last, after=after, before=before):
                parts.append(module.statement(first))
                taken = [] if after else [first]
                taken += [last] if last is not None and not before else []
                words += [w for node in taken for w in below(node) if isinstance(w, ast.expr)]
    return whole, parts, words


def overlaps(module: Module, stmt: ast.stmt, other: ast.stmt) -> bool:
    """Whether one statement is, or stands inside, the other."""
    return (
        stmt is other
        or any(up is other for up in module.ancestors(stmt))
        or any(up is stmt for up in module.ancestors(other))
    )
