"""Apply findings' edits to a program in rounds; each takes the edits that do not overlap.

An edit may bring up new findings, which are left to the next round: an evaluation that every rank
now reaches, for example, writes its file on every rank.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from ..analysis.training.program import Program
from ..editing.edits import Edit, Enter, Guard, Insert, RefusedError, Replace, Rewrite, Unwrap
from ..findings import Finding
from ..source.files import Source
from ..source.module import Module
from ..source.tree import below


def apply_rounds(
    program: Program, edits_of: Callable[[Program], Iterable[Finding]], texts: dict[str, str]
) -> Program:
    """Apply the edits of ``edits_of`` until it has none left; ``texts`` collects the new texts."""
    while findings := list(edits_of(program)):
        program = apply_round(program, findings, texts)
    return program


def apply_round(program: Program, findings: list[Finding], texts: dict[str, str]) -> Program:
    """Apply the findings' edits that do not overlap; ``texts`` collects the new texts."""
    from libcst import ParserSyntaxError  # slow to import

    from ..editing.apply import apply_edits

    applied = compatible(findings)
    modules: list[Module] = []
    for module in program.modules:
        edits = [edit for f in applied for edit in edits_of_module(program, f, module)]
        if not edits:
            modules.append(Module(module.source))  # its facts are those of another program
            continue
        source = module.source
        try:
            text = apply_edits(module, edits)
        except RefusedError as error:
            error.module = module
            raise
        except ParserSyntaxError as error:
            refused = RefusedError(why_not_read(module, error.message))
            refused.module = module
            raise refused from error
        texts[source.name] = text
        modules.append(Module(Source(source.name, text, source.encoding, source.bom)))
    return Program(modules[0], tuple(modules[1:]), program.roots, program.unread)


def why_not_read(module: Module, message: str) -> str:
    """Why libcst does not read what Python does, and what to do."""
    margins = [line[: len(line) - len(line.lstrip())] for line in module.source.text.splitlines()]
    for number, margin in enumerate(margins, 1):
        if "\t" in margin and any(" " in each for each in margins):
            return (
                f"line {number}: it is indented by a tab, other lines by spaces, and libcst, which"
                " makes the edits, does not read both in one file; make spaces of the tabs"
                " (`expand -i`), and patch again"
            )
    return f"libcst, which makes the edits, does not read it: {message}"


def edits_of_module(program: Program, finding: Finding, module: Module) -> list[Edit]:
    """The edits of a finding that change ``module``: those of its nodes, with what they need.

    A finding may be repaired in another module than its own, such as the script that parses the
    arguments.
    """
    places = [home_of(program, finding, edit) for edit in finding.edits]
    homes = {id(place) for place in places if place is not None} or {id(finding.module)}
    if id(module) not in homes:
        return []
    return [
        edit
        for edit, place in zip(finding.edits, places, strict=True)
        if place is None or place is module
    ]


def home_of(program: Program, finding: Finding, edit: Edit) -> Module | None:
    """The module whose node an edit changes, the finding's own first; None without a node."""
    node = edit.first if isinstance(edit, Rewrite) else getattr(edit, "anchor", None)
    if node is None or is_part(node, finding.module):
        return None if node is None else finding.module
    return next(module for module in program.modules if is_part(node, module))


def is_part(node: ast.AST, module: Module) -> bool:
    """Whether a node is one of the module's tree."""
    return node is module.tree or node in module.parents


def compatible(findings: list[Finding]) -> list[Finding]:
    """Findings whose edits do not overlap an earlier one's; the rest is left to the next round.

    A statement that is replaced takes no other edit inside it, and an expression is rewritten only
    once.
    """
    replaced: list[tuple[Module, ast.stmt]] = []
    touched: list[tuple[Module, ast.stmt]] = []
    rewritten: list[ast.AST] = []
    added: set[Rewrite] = set()  # what stands behind an expression, which takes others' as well
    result: list[Finding] = []
    for finding in findings:
        module = finding.module
        whole, parts, expressions = edited_nodes(module, finding.edits)
        clash = any(
            m is module and overlaps(module, s, t) for m, t in replaced for s in (*whole, *parts)
        )
        clash |= any(m is module and overlaps(module, s, t) for m, t in touched for s in whole)
        clash |= any(node in rewritten for node in expressions)
        behind = {edit for edit in finding.edits if isinstance(edit, Rewrite) and edit.after}
        if clash or behind & added:
            continue
        result.append(finding)
        replaced += [(module, stmt) for stmt in whole]
        touched += [(module, stmt) for stmt in parts]
        rewritten += expressions
        added |= behind
    return result


def edited_nodes(
    module: Module, edits: tuple[Edit, ...]
) -> tuple[list[ast.stmt], list[ast.stmt], list[ast.AST]]:
    """Statements that edits replace, statements they change in part, expressions they rewrite."""
    whole: list[ast.stmt] = []
    parts: list[ast.stmt] = []
    expressions: list[ast.AST] = []
    for edit in edits:
        match edit:
            case Replace(anchor=anchor):
                whole.append(anchor)
            case (
                Guard(anchor=anchor)
                | Enter(anchor=anchor)
                | Unwrap(anchor=anchor)
                | Insert(anchor=anchor)
            ):
                parts.append(anchor)
            case Rewrite(first=first, last=last, after=after, before=before):
                parts.append(module.statement(first))
                ends = [] if after else [first]
                ends += [last] if last is not None and not before else []
                expressions += [e for node in ends for e in below(node) if isinstance(e, ast.expr)]
    return whole, parts, expressions


def overlaps(module: Module, stmt: ast.stmt, other: ast.stmt) -> bool:
    """Whether two statements are the same, or one contains the other."""
    return (
        stmt is other
        or any(up is other for up in module.ancestors(stmt))
        or any(up is stmt for up in module.ancestors(other))
    )
