"""Edits of a module's text, applied with libcst to the lines that they are about."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Sequence

import libcst as cst

from ..source.module import Module
from .edits import Define, Edit, Guard, Import, Insert, Replace, Rewrite, Unwrap
from .helpers import helper_code, helper_imports, helper_names
from .libcst_editor import Editor, StatementEdits
from .node_pairs import pairs
from .regions import Region, has_block, indentation, newline, pieces
from .rewrites import spans, with_words
from .top_level import with_additions


def apply_edits(module: Module, edits: Sequence[Edit]) -> str:
    """The module's text with ``edits`` in it; everything else is unchanged to the byte.

    Raises RefusedError when two edits want the same thing, or a place takes no statement.
    """
    plans: dict[ast.stmt, StatementEdits] = defaultdict(StatementEdits)
    helpers: list[str] = []
    imports: list[Import] = []
    for edit in edits:
        match edit:
            case Define():
                helpers += [name for name in edit_helpers(edit.name) if name not in helpers]
            case Import():
                imports.append(edit)
            case Rewrite():
                plans[module.statement(edit.first)].rewrites.append(edit)
            case Insert():
                wanted = getattr(plans[edit.anchor], edit.where)
                if edit.code not in wanted:
                    wanted.append(edit.code)
            case Replace():
                plans[edit.anchor].replace = edit.code
            case Guard():
                plans[edit.anchor].guard = edit
            case Unwrap():
                plans[edit.anchor].unwrap = True
    text = edited(module, plans)
    helpers = [name for name in helpers if name not in module.module_names]
    for name in helpers:
        imports += [Import(wanted) for wanted in helper_imports(name)]
    return with_additions(text, module, helpers, imports) if helpers or imports else text


def edit_helpers(name: str) -> list[str]:
    """A helper and the helpers it calls, callees first."""
    code = helper_code(name)
    needed = [other for other in sorted(helper_names()) if other != name and f"{other}(" in code]
    return [*dict.fromkeys(deeper for other in needed for deeper in edit_helpers(other)), name]


def edited(module: Module, plans: dict[ast.stmt, StatementEdits]) -> str:
    """The module's text, each piece that ``plans`` are about as they make it."""
    removed = {stmt for stmt, plan in plans.items() if plan.removes}
    words = sorted(
        word
        for stmt, plan in plans.items()
        if plan.replace is None
        for word in spans(stmt, plan.rewrites)
    )
    block = first_block(module)
    parts: list[str] = []
    done = 0
    for piece in pieces(module, plans, removed):
        parts.append(module.between((done + 1, 0), (piece.first, 0)))
        text = with_words(module, piece.first, piece.last, words)
        parts.append(edited_piece(module, piece, text, plans, block))
        done = piece.last
    return "".join([*parts, module.between((done + 1, 0), (len(module.lines) + 1, 0))])


def first_block(module: Module) -> list[str]:
    """Two lines that make libcst indent and end new lines as the file's own first ones are."""
    end = newline(module.lines)
    return [f"if True:{end}", f"{indentation(module.lines, module.tree)}pass{end}"]


def edited_piece(
    module: Module,
    piece: Region,
    text: str,
    plans: dict[ast.stmt, StatementEdits],
    block: list[str],
) -> str:
    """The ``text`` of a piece with the edits of its statements.

    It is parsed behind the file's first block, in a block of its own where it is indented, and
    before a statement where it ends in a block: a comment's place depends on what follows.
    """
    opening, inner = block
    margin = module.margin(piece.body[0])
    is_all = piece.first == 1 and piece.last == len(module.lines)
    above = "" if is_all or inner.startswith(f"{margin}pass") else opening + inner
    head = above + opening if margin else above
    below = inner.lstrip() if has_block(piece.body[-1]) else ""
    if below and not text.endswith(("\n", "\r")):
        below = newline(module.lines) + below
    tree = cst.parse_module(head + text + below)
    body: Sequence[cst.CSTNode] = tree.body[bool(above) : len(tree.body) - bool(below)]
    inside: set[cst.CSTNode] = set()
    if margin:
        (around,) = body
        assert isinstance(around, cst.If)
        assert isinstance(around.body, cst.IndentedBlock)
        inside, body = {around}, around.body.body
    nodes = dict(pairs(piece.body, body))
    here = {nodes[stmt]: stmt for stmt in nodes if stmt in plans}
    inside |= {nodes[up] for stmt in here.values() for up in module.ancestors(stmt) if up in nodes}
    editor = Editor(module, {node: plans[stmt] for node, stmt in here.items()}, here, inside)
    return tree.visit(editor).code.removeprefix(head).removesuffix(below)
