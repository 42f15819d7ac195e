"""Repair a script: apply edits in rounds until the result is stable, or refuse.

The result is written only when it parses, a further round changes nothing, no error is left, and
the audit finds nothing in it that it breaks.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from ...errors import InputError
from ...record import record, replace
from ..analysis.training.load import SourceReader, read_program, read_source
from ..analysis.training.program import Program
from ..audit.verdict import AuditVerdict
from ..capabilities import Capability
from ..editing.edits import RefusedError
from ..findings import Finding, Safety, Severity
from ..fixes.exact import share_batches, weight_losses
from ..rules import Rule, all_rules
from ..source.files import Source, decode, folder_of, read_bytes
from ..source.old_syntax import modernized
from ..source.replacement import replace_all
from .audited import judge_result
from .check import check, select_rules
from .diffs import unified_diff
from .disk_lines import NOT_SHARED, place_on_disk, text_on_disk
from .lone_gates import without_gates_of_one
from .rounds import apply_round, apply_rounds
from .unpatchable import reason_not_to_begin

MAX_ROUNDS = 6  # edits that ask for more do not settle
# What is right without their repair, so that where it cannot be had the rest is repaired alone.
FIRST = "DF105"
ADDITIONS = frozenset(["DF105", "DF204"])
# Notes of what is right on the cards that a program is meant for: no reason to change one that has
# nothing else, as a group for cards alone or a checkpoint that rank 0 writes in place.
RIGHT_ON_CARDS = frozenset(["DF202", "DF504", "DF601"])
# What today's libraries lack: a script may be right with the version that it was written for.
OF_LIBRARIES = "DF9"


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
        return unified_diff(self.source.name, self.source.text, self.text)

    def diff_data(self) -> bytes:
        """The diff in the file's own encoding, as git apply and patch need it."""
        mark = "\ufeff" if self.source.bom else ""
        text = unified_diff(self.source.name, mark + self.source.text, mark + self.text)
        try:
            return text.encode(self.source.encoding, "surrogateescape")
        except UnicodeError:  # of the file's name, or of new text
            return text.encode(errors="surrogateescape")


@record
class Patch:
    """The result of patching a script; nothing is written until ``write`` is called."""

    path: Path
    original: Program  # as it was read
    findings_before: tuple[Finding, ...]  # in the script as it was
    findings_after: tuple[Finding, ...]  # in the result
    changes: tuple[FileChange, ...]
    refusal: str = ""
    capability_failures: tuple[Finding, ...] = ()  # capabilities that could not be added, and why
    audit: tuple[AuditVerdict, ...] = ()  # what the audit says of the result

    @property
    def remaining(self) -> list[Finding]:
        """Findings in the result that are more than notes."""
        return [finding for finding in self.findings_after if finding.severity is not Severity.NOTE]

    @property
    def unasked(self) -> list[str]:
        """Codes of notes whose edits an unchanged script was not given."""
        notes = [] if self.changes or self.refusal else self.findings_after
        return sorted({one.code for one in notes if one.edits and one.code in RIGHT_ON_CARDS})

    def diff(self) -> str:
        """Unified diffs of all changed files."""
        return "".join(change.diff() for change in self.changes)

    def write(self) -> None:
        """Replace the changed files, all or none. Raises InputError on a refused patch."""
        if self.refusal:
            raise InputError(f"{self.path}: {self.refusal}")
        if self.changes:
            folder = Path(folder_of(str(self.path)))
            replace_all([(change.source, change.text) for change in self.changes], folder)


def patch(
    path: Path,
    *,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    unsafe: bool = False,
    exact: bool = False,
    data: bytes | None = None,
    capabilities: Sequence[Capability] = (),
    look: SourceReader = read_source,
    along: Collection[Path] = (),
) -> Patch:
    """Patch the script ``path`` and the modules of its folder that it imports. Writes nothing.

    ``select`` and ``ignore`` are prefixes of rule codes; ``data`` replaces the file's bytes, and
    ``look`` reads the modules.
    ``exact``: ranks train on one process's batches, in its order; refused where the analysis
    cannot prove how. ``along`` are the scripts that are patched in the same go, which may share
    modules with this one. ``capabilities`` are added after the repairs, each whole or not at all.
    The whole patch is refused when errors of any rule would be left but those of ``ignore``, or an
    edit cannot be carried out. The audit judges the result whatever is ignored.
    Raises InputError when the script cannot be read or parsed.
    """
    rules = select_rules(all_rules(), select, ignore)
    allowed = {Safety.SAFE, Safety.UNSAFE} if unsafe else {Safety.SAFE}
    old: dict[str, Source] = {}  # what was read with words that are keywords now

    def read(source: Source) -> Source:
        text = modernized(source.text)
        if text == source.text:
            return source
        old[source.name] = source
        return replace(source, text=text)

    def look_again(name: str) -> Source | None:
        source = look(name)
        return source and read(source)

    script = read(decode(str(path), read_bytes(str(path)) if data is None else data))
    original = read_program(str(path), script.encode(script.text), look_again)
    original.patched_along = frozenset(Path(os.path.realpath(each)) for each in along)
    prefixes = tuple(prefix.upper() for prefix in ignore)
    request = PatchRequest(
        path, original, tuple(rules), frozenset(allowed), exact, tuple(capabilities), prefixes
    )
    result = attempt(request)
    if result.refusal and any(is_addition(finding) for finding in result.findings_before):
        rest = attempt(request, without=result.refusal)
        starts_ranks = any(each.code == FIRST for each in result.findings_before)
        result = result if rest.refusal and starts_ranks else rest
    if not old or result.refusal:
        return result
    new = {name: modernized(source.text) for name, source in old.items()}
    new |= {change.source.name: change.text for change in result.changes}
    sources = {module.source.name: module.source for module in original.modules} | old
    changes = tuple(FileChange(sources[name], text) for name, text in new.items())
    return replace(result, changes=changes)


@record
class PatchRequest:
    """What is to be patched, with which rules and capabilities."""

    path: Path
    original: Program
    rules: tuple[Rule, ...]
    allowed: frozenset[Safety]
    exact: bool
    capabilities: tuple[Capability, ...]
    ignored: tuple[str, ...] = ()  # prefixes of codes whose errors are the user's to repair

    def errors_left(
        self, program: Program, findings: Sequence[Finding]
    ) -> tuple[list[Finding], list[Finding]]:
        """The errors of all rules in a result, and those of them that are left to the user."""
        every = all_rules()
        whole = findings if len(self.rules) == len(every) else check(program, every)
        errors = [finding for finding in whole if finding.severity is Severity.ERROR]
        ignored = [each for each in errors if self.ignored and each.code.startswith(self.ignored)]
        return [each for each in errors if each not in ignored], ignored

    def check(self, program: Program, without: str) -> tuple[Finding, ...]:
        """The findings of a program; with a reason ``without``, additions are not repaired."""
        found = check(program, self.rules)
        if not without:
            return tuple(found)
        because = without.removeprefix("not patched: ")
        found = [
            replace(one, edits=(), because=f"{one.because}{NOT_SHARED}{because}")
            if is_addition(one)
            else one
            for one in found
        ]
        return tuple(without_gates_of_one(program, found))


def is_addition(finding: Finding) -> bool:
    """Whether a finding's repair is one that the script is right without."""
    return finding.code in ADDITIONS and bool(finding.edits)


def attempt(request: PatchRequest, without: str = "") -> Patch:
    """One try to patch a script, ``without`` additions where there is a reason not to make them."""
    path, original = request.path, request.original
    findings_before = request.check(original, without)
    findings_after = findings_before
    texts: dict[str, str] = {}

    def refuse(reason: str) -> Patch:
        return Patch(path, original, findings_before, findings_after, (), reason)

    if any(finding.edits for finding in findings_before) and (
        reason := reason_not_to_begin(original, findings_before)
    ):
        return refuse(reason)
    if is_right_already(request, findings_before):
        return Patch(path, original, findings_before, findings_before, ())
    try:
        program = apply_rounds(original, share_batches, texts) if request.exact else original
        if request.exact:
            findings_after = request.check(program, without)
        for _ in range(MAX_ROUNDS):
            fixable = [f for f in findings_after if f.edits and f.safety in request.allowed]
            if not fixable:
                break
            # Who comes where is known only when a launcher starts the ranks.
            fixable = [f for f in fixable if f.code == FIRST] or fixable
            program = apply_round(program, fixable, texts)
            findings_after = request.check(program, without)
        else:
            return refuse(undoing_text(original, fixable))
        repaired = program
        if request.exact:
            program = apply_rounds(program, weight_losses, texts)
    except RefusedError as error:
        where = error.module
        reason = str(error) if where is None else text_on_disk(original, where, str(error))
        return refuse(f"not patched: {reason}")
    lacking: list[Finding] = []
    for capability in request.capabilities:
        program, texts, reasons = add_capability(program, capability, request, without, texts)
        lacking += reasons
    if program is not repaired:
        findings_after = request.check(program, without)  # in the lines of the result
    changes = file_changes(original, texts)
    errors, ignored = request.errors_left(program, findings_after) if changes else ([], [])
    if reason := reason_to_refuse(original, program, errors):
        return refuse(reason)
    findings_after = (*findings_after, *ignored)
    reason, verdicts = judge_result(original, program) if changes else ("", ())
    if reason:
        return refuse(reason)
    return Patch(
        path, original, findings_before, findings_after, changes, "", tuple(lacking), verdicts
    )


def is_right_already(request: PatchRequest, findings: Sequence[Finding]) -> bool:
    """Whether all that would be repaired is right on cards, and nothing was asked for by name."""
    fixable = [one for one in findings if one.edits and one.safety in request.allowed]
    return (
        bool(fixable)
        and not request.exact
        and not request.capabilities
        and len(request.rules) == len(all_rules())
        and all(one.code in RIGHT_ON_CARDS and one.severity is Severity.NOTE for one in fixable)
        and not any(one.severity is Severity.ERROR for one in findings)
    )


def file_changes(before: Program, texts: Mapping[str, str]) -> tuple[FileChange, ...]:
    """The files of a program whose new text differs; ``texts`` by file name."""
    return tuple(
        FileChange(module.source, texts[module.source.name])
        for module in before.modules
        if module.source.name in texts and texts[module.source.name] != module.source.text
    )


def reason_to_refuse(before: Program, after: Program, errors: Sequence[Finding]) -> str:
    """Why the result must not be written, such as undefined names or errors left; "" if it may."""
    for old, new in zip(before.modules, after.modules, strict=True):
        if undefined := sorted(new.unbound_names - old.unbound_names):
            return f"not patched: the edits would leave {', '.join(undefined)} undefined"
    if not errors:
        return ""
    codes = [*dict.fromkeys(finding.code for finding in errors)]
    may_stay = all(code.startswith(OF_LIBRARIES) for code in codes)
    older = f"; if you keep an older library, `--ignore {','.join(codes)}` leaves it as it is"
    return (
        refusal_text(before, "errors would be left", errors)
        + f"; repair by hand what `ddpfix explain` says of {' and '.join(codes)}, and patch again"
        + (older if may_stay else "")
    )


def undoing_text(original: Program, findings: Sequence[Finding]) -> str:
    """The refusal for edits that other edits undo, in every round again."""
    codes = ",".join(sorted({finding.code for finding in findings}))
    return refusal_text(
        original,
        "what is repaired here comes back in the next round, which is a defect of ddpfix; "
        f"`--ignore {codes}` repairs all else and leaves this to you",
        findings,
    )


def refusal_text(original: Program, text: str, findings: Sequence[Finding]) -> str:
    """A refusal that names the findings that cause it, at their lines on the disk."""
    places = "; ".join(place_on_disk(original, finding) for finding in findings[:4])
    return f"not patched: {text}: {places}"


def add_capability(
    program: Program,
    capability: Capability,
    request: PatchRequest,
    without: str,
    texts: dict[str, str],
) -> tuple[Program, dict[str, str], list[Finding]]:
    """Add a capability; returns the program, its new texts, and why it could not be added.

    Program and texts are unchanged where an edit cannot be carried out, or would leave something
    that a rule would repair.
    """
    before, new = program, dict(texts)
    findings = list(capability.findings(program))
    try:
        for _ in range(MAX_ROUNDS):
            wanted = [finding for finding in findings if finding.edits]
            if not wanted:
                break
            program = apply_round(program, wanted, new)
            findings = list(capability.findings(program))
        else:
            return before, texts, [not_added(before, capability, "another edit undoes its own")]
    except RefusedError as error:
        return before, texts, [not_added(before, capability, str(error))]
    if program is before:
        return before, texts, findings
    for finding in request.check(program, without):
        fixable = finding.edits and finding.safety in request.allowed
        if fixable or finding.severity is Severity.ERROR:
            because = f"{finding.code} would be left in line {finding.line} ({finding.because})"
            return before, texts, [not_added(before, capability, because)]
    return program, new, findings


def not_added(program: Program, capability: Capability, because: str) -> Finding:
    """The finding that says why a capability is not added."""
    first = program.script.tree.body[0]
    return Finding(
        program.script,
        first,
        because,
        code=capability.name,
        severity=Severity.NOTE,
        safety=Safety.REPORT,
    )
