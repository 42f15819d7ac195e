"""Apply edits to a module's text, with libcst, on the lines that they touch."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Sequence

import libcst as cst

from ..source.module import Module
from .edits import Define, Edit, Enter, Guard, Import, Insert, Replace, Rewrite, Unwrap
from .helpers import helper_code, helper_imports, helper_names
from .libcst_editor import Editor, StatementEdits
from .local_imports import hoist_local_imports
from .node_pairs import pair_statements
from .regions import Region, find_regions, has_block, indentation, newline
from .rewrites import replace_spans, rewrite_spans
from .top_level import add_helpers_and_imports, called_before, without_definitions


def apply_edits(module: Module, edits: Sequence[Edit]) -> str:
    """The module's text after ``edits``; everything else is unchanged to the byte.

    Raises RefusedError when two edits overlap, or a place cannot hold the new statement.
    """
    plans: dict[ast.stmt, StatementEdits] = defaultdict(StatementEdits)
    helpers: list[str] = []
    imports: list[Import] = []
    for edit in (*edits, *hoist_local_imports(module, edits)):
        match edit:
            case Define():
                helpers += [name for name in _with_callees(edit.name) if name not in helpers]
            case Import():
                imports.append(edit)
            case Rewrite():
                plans[module.statement(edit.first)].rewrites.append(edit)
            case Insert():
                inserts = getattr(plans[edit.anchor], edit.where)
                if edit.code not in inserts:
                    inserts.append(edit.code)
            case Replace():
                plans[edit.anchor].replace = edit.code
            case Guard():
                plans[edit.anchor].guard = edit
            case Enter():
                plans[edit.anchor].enter = edit.manager
            case Unwrap():
                plans[edit.anchor].unwrap = edit.stays
    text = _edit_regions(module, plans)
    bound = names_at_top(module, text, helpers)
    late = called_before(text, bound)
    text = without_definitions(text, late)
    helpers = [name for name in helpers if name not in bound - late]
    for name in helpers:
        imports += [Import(needed) for needed in helper_imports(name)]
    return add_helpers_and_imports(text, module, helpers, imports) if helpers or imports else text


def names_at_top(module: Module, text: str, helpers: list[str]) -> set[str]:
    """The helpers' names that the edited text still binds: an edit may have taken an import out."""
    bound = module.module_names & set(helpers)
    if not bound:
        return bound
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return bound  # the engine's next round reports the error
    imported = {
        alias.asname or alias.name
        for stmt in ast.walk(tree)
        if isinstance(stmt, ast.Import | ast.ImportFrom)
        for alias in stmt.names
    }
    return {name for name in bound if name in imported or name not in module.aliases}


def _with_callees(name: str) -> list[str]:
    """A helper and the helpers it calls, callees first."""
    code = helper_code(name)
    needed = [other for other in sorted(helper_names()) if other != name and f"{other}(" in code]
    return [*dict.fromkeys(deeper for other in needed for deeper in _with_callees(other)), name]


def _edit_regions(module: Module, plans: dict[ast.stmt, StatementEdits]) -> str:
    """The module's text with all regions edited that hold a statement of ``plans``."""
    removed = {stmt for stmt, plan in plans.items() if plan.removes}
    words = sorted(
        word
        for stmt, plan in plans.items()
        if plan.replace is None
        for word in rewrite_spans(stmt, plan.rewrites)
    )
    block = _first_block(module)
    parts: list[str] = []
    done = 0  # lines that are in ``parts``
    for region in find_regions(module, plans, removed):
        parts.append(module.text_between((done + 1, 0), (region.first, 0)))
        text = replace_spans(module, region.first, region.last, words)
        parts.append(_edit_region(module, region, text, plans, block))
        done = region.last
    return "".join([*parts, module.text_between((done + 1, 0), (len(module.lines) + 1, 0))])


def _first_block(module: Module) -> list[str]:
    """An ``if`` of two lines, from which libcst detects the file's indentation and line ending."""
    end = newline(module.lines)
    return [f"if True:{end}", f"{indentation(module.lines, module.tree)}pass{end}"]


def _edit_region(
    module: Module,
    region: Region,
    text: str,
    plans: dict[ast.stmt, StatementEdits],
    block: list[str],
) -> str:
    """The ``text`` of a region after the edits of its statements.

    Around it libcst also parses ``block``, for the file's style; an ``if`` where the region is
    indented; and a statement below where the region ends in a block, because what follows decides
    where libcst attaches a comment.
    """
    opening, inner = block
    margin = module.margin(region.body[0])
    is_all = region.first == 1 and region.last == len(module.lines)
    above = "" if is_all or inner.startswith(f"{margin}pass") else opening + inner
    head = above + opening if margin else above
    below = inner.lstrip() if has_block(region.body[-1]) else ""
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
    nodes = dict(pair_statements(region.body, body))
    planned = {nodes[stmt]: stmt for stmt in nodes if stmt in plans}
    inside |= {
        nodes[up] for stmt in planned.values() for up in module.ancestors(stmt) if up in nodes
    }
    editor = Editor(module, {node: plans[stmt] for node, stmt in planned.items()}, planned, inside)
    return tree.visit(editor).code.removeprefix(head).removesuffix(below)
