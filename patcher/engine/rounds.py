"""Apply findings' edits to a program: a round takes every edit that does not meet an earlier one.

What an applied edit brings to light (an evaluation that every rank reaches now writes its file on
every rank) is the next round's work.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from ..analysis.program import Program
from ..editing.edits import Edit, Guard, Insert, Replace, Rewrite, Unwrap
from ..findings import Finding
from ..source.files import Source
from ..source.module import Module
from ..source.tree import below


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
