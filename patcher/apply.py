"""Edits applied to the text itself, at the lines and columns that ``ast`` gives its nodes.

What no edit is about is copied byte for byte. Inner statements come before those around them and
later ones before earlier ones, so that every position still holds when its turn comes.
"""

from __future__ import annotations

import ast
import tokenize
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

from .comments import tokens
from .definitions import edit_helpers, import_lines, with_definitions
from .edits import Define, Edit, Guard, Import, Insert, Replace, Rewrite, Unwrap
from .inserted import helper_code, helper_imports
from .module import Module
from .rows import Rows, blocks, first_row, groups, is_elif, last_line, shifted
from .syntax import below, position

HEADS = ("test", "target", "iter")  # the parts of a compound statement's first line
STEP = "    "  # by which the blocks of code that is put in are indented

Place = tuple[int, int]  # a row and a column in bytes


class RefusedError(Exception):
    """An edit that cannot be carried out as asked."""


class Plan:
    """The edits of one statement."""

    def __init__(self) -> None:
        self.before: list[str] = []
        self.after: list[str] = []
        self.first: list[str] = []
        self.last: list[str] = []
        self.rewrites: list[Rewrite] = []
        self.replace: str | None = None
        self.guard: Guard | None = None
        self.unwrap = False


KEPT = Plan()


def apply_edits(module: Module, edits: Sequence[Edit]) -> str:
    """The module's text with ``edits`` in it; everything else is unchanged to the byte.

    Raises RefusedError when two edits want the same thing, or a place takes no statement.
    """
    plans: dict[ast.stmt, Plan] = defaultdict(Plan)
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
    helpers = [name for name in helpers if name not in module.module_names]
    for name in helpers:
        imports += [Import(wanted) for wanted in helper_imports(name)]
    editor = _Editor(module, plans)
    for stmt in sorted(plans, key=position, reverse=True):
        editor.carry_out(stmt, plans[stmt])
    text = editor.text()
    lines = import_lines(module, imports)
    if helpers or lines:
        text = with_definitions(text, [editor.code(helper_code(name)) for name in helpers], lines)
    return text if module.source.text.endswith(("\n", "\r")) else text.rstrip("\r\n")


class _Editor:
    """The rows of a module as they change; ``before`` and ``after`` hold what goes beside them."""

    def __init__(self, module: Module, plans: dict[ast.stmt, Plan]) -> None:
        self.module, self.plans = module, plans
        self.rows = Rows(module.source.text)  # as they are
        self.newline = self.rows.newline
        self.texts = list(self.rows.texts)
        self.before: dict[int, bytes] = defaultdict(bytes)
        self.after: dict[int, bytes] = defaultdict(bytes)

    def text(self) -> str:
        """The whole text."""
        return self.taken(0, len(self.texts) - 1).decode()

    def taken(self, first: int, last: int) -> bytes:
        """What stands in these rows now; nothing is left of it."""
        parts: list[bytes] = []
        for row in range(first, last + 1):
            parts += (self.before.pop(row, b""), self.texts[row], self.after.pop(row, b""))
            self.texts[row] = b""
        return b"".join(parts)

    def carry_out(self, stmt: ast.stmt, plan: Plan) -> None:
        """All edits of one statement."""
        rows = self.rows
        around = plan.before or plan.after or plan.guard or plan.replace is not None
        if not self.is_alone(stmt):
            if around:
                raise refused(stmt, "several statements on one line; split it first")
            self.rewrite(stmt, plan.rewrites)
            return
        if around and is_elif(stmt, self.module.parents[stmt]):
            raise refused(stmt, "nothing goes between an if and its elif")
        if plan.rewrites and plan.replace is None:
            self.rewrite(stmt, plan.rewrites)
        if plan.first or plan.last:
            self.fill(stmt, plan)
        margin, start, end = rows.margin(stmt), first_row(stmt), rows.last_row(stmt)
        if plan.replace is not None:
            self.replace(stmt, plan.replace)
        elif plan.unwrap:
            self.unwrap(stmt)
        if plan.guard is not None:
            head = self.placed([f"if {plan.guard.test}:"], margin)
            inside = shifted(self.taken(start, end), margin, margin + self.step.encode())
            orelse = f"else:\n{STEP}{plan.guard.orelse}" if plan.guard.orelse else ""
            self.texts[start] = head + inside + self.placed([orelse], margin)
        self.before[start] = self.placed(plan.before, margin) + self.before[start]
        self.after[end] += self.placed(plan.after, margin)

    def is_alone(self, stmt: ast.stmt) -> bool:
        """Whether a statement has its lines for itself."""
        body = self.module.body(stmt)
        number = body.index(stmt)
        beside = groups(body[max(0, number - 1) : number + 2])
        return [stmt] in beside and self.rows.is_first(stmt)

    def rewrite(self, stmt: ast.stmt, rewrites: list[Rewrite]) -> None:
        """Put new words in the place of old ones."""
        if next(blocks(stmt), None) is not None:
            parts = [getattr(stmt, name, None) for name in HEADS]
            parts += [item.context_expr for item in getattr(stmt, "items", ())]
            for rewrite in rewrites:
                if not any(part and is_inside(rewrite.first, part) for part in parts):
                    raise refused(stmt, "an edit inside the head of this statement")
        spans = sorted((*span(rewrite), rewrite.code) for rewrite in rewrites)
        for (_, end, _), (start, _, _) in pairwise(spans):
            if start < end:
                raise refused(stmt, "two edits want the same words")
        for (row, column), (last, end_column), code in reversed(spans):
            rest = self.texts[last][end_column:]
            self.texts[row] = self.texts[row][:column] + self.ended(code) + rest
            self.texts[row + 1 : last + 1] = [b""] * (last - row)

    def fill(self, stmt: ast.stmt, plan: Plan) -> None:
        """Put statements first and last in the body."""
        body: list[ast.stmt] = getattr(stmt, "body", [])
        if not body or not self.rows.is_first(body[0]):
            raise refused(stmt, "its body stands on the same line; split it first")
        margin = self.rows.margin(body[0])
        self.after[self.rows.head_row(body)] += self.placed(plan.first, margin)
        self.after[self.rows.last_row(body[-1])] += self.placed(plan.last, margin)

    def replace(self, stmt: ast.stmt, code: str) -> None:
        """Other statements in the place of one; with no code, its comments go too."""
        body, start = self.module.body(stmt), first_row(stmt)
        if not code:
            if stmt is body[0] and all(self.is_removed(one) for one in body):
                code = "pass"
            start = self.above(stmt, body)
        self.taken(start, self.rows.last_row(stmt))
        self.texts[start] = self.placed([code], self.rows.margin(stmt))

    def is_removed(self, stmt: ast.stmt) -> bool:
        """Whether nothing is left of a statement, nor put beside it."""
        plan = self.plans.get(stmt, KEPT)
        return plan.replace == "" and not (plan.before or plan.after or plan.guard)

    def above(self, stmt: ast.stmt, body: list[ast.stmt]) -> int:
        """The first row of the comments and empty rows over ``stmt``; a file's own are not its."""
        number = body.index(stmt)
        if number:
            return self.rows.last_row(body[number - 1]) + 1
        is_top = body is self.module.tree.body
        return first_row(stmt) if is_top else self.rows.head_row(body) + 1

    def unwrap(self, stmt: ast.stmt) -> None:
        """The body in the place of the whole statement."""
        assert isinstance(stmt, ast.If | ast.With)
        rows, body = self.rows, stmt.body
        if not rows.is_first(body[0]):
            raise refused(stmt, "its body stands on the same line; split it first")
        start, inside, end = first_row(stmt), rows.head_row(body) + 1, rows.last_row(body[-1])
        kept = self.after.pop(inside - 1, b"") + self.taken(inside, end)
        self.taken(start, rows.last_row(stmt))
        if is_elif(stmt, self.module.parents[stmt]):
            # The colon behind the test, and a comment behind the colon.
            assert isinstance(stmt, ast.If)
            last = stmt.test.end_col_offset if last_line(stmt.test) == inside else 0
            rest = rows.texts[inside - 1][last:].partition(b":")[2]
            self.texts[start] = rows.margin(stmt) + b"else:" + rest + kept
        else:
            self.texts[start] = shifted(kept, rows.margin(body[0]), rows.margin(stmt))

    @cached_property
    def step(self) -> str:
        """By what the module's first block is indented."""
        margins = (
            self.rows.margin(block[0]).decode()
            for node in below(self.module.tree)
            if isinstance(node, ast.stmt)
            for block in blocks(node)
            if self.rows.is_first(block[0])
        )
        return next(filter(None, margins), STEP)

    def placed(self, codes: Sequence[str], margin: bytes) -> bytes:
        """Statements at a margin, as rows of their own."""
        return b"".join(shifted(self.code(code).encode(), b"", margin) for code in codes if code)

    def code(self, code: str) -> str:
        """Statements in the module's own newlines and steps."""
        code = code.rstrip("\n") + "\n"
        if self.step != STEP:
            code = stepped(code, self.step)
        return self.ended(code).decode()

    def ended(self, code: str) -> bytes:
        """A text in the module's own newlines."""
        return code.encode().replace(b"\r\n", b"\n").replace(b"\n", self.newline)


def refused(stmt: ast.stmt, why: str) -> RefusedError:
    """What to raise for an edit of ``stmt``."""
    return RefusedError(f"line {stmt.lineno}: {why}")


def stepped(code: str, step: str) -> str:
    """Code with its blocks indented by ``step``."""
    depths: dict[int, int] = {}
    depth = 0
    for token in tokens(code):
        if token.type == tokenize.INDENT:
            depth += 1
        elif token.type == tokenize.DEDENT:
            depth -= 1
        elif token.type not in (tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER):
            depths.setdefault(token.start[0], depth)
    rows = code.splitlines(keepends=True)
    for number, depth in depths.items():
        row = rows[number - 1]
        if row.startswith(STEP * depth):
            rows[number - 1] = step * depth + row[len(STEP) * depth :]
    return "".join(rows)


def span(rewrite: Rewrite) -> tuple[Place, Place]:
    """Start and end of a rewrite."""
    first, last = rewrite.first, rewrite.last or rewrite.first
    start = end_of(first) if rewrite.after else (first.lineno - 1, first.col_offset)
    end = (last.lineno - 1, last.col_offset) if rewrite.before else end_of(last)
    return start, end


def end_of(node: ast.expr | ast.keyword | ast.alias) -> Place:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return node.end_lineno - 1, node.end_col_offset


def is_inside(inner: ast.AST, outer: ast.AST) -> bool:
    return any(node is inner for node in below(outer))
