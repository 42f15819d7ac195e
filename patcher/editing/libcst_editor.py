"""Apply the edits of statements to the libcst tree of a region."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import lru_cache
from textwrap import indent
from typing import Any, Literal

import libcst as cst

from ..source.module import Module
from ..source.tree import is_elif
from .edits import Guard, RefusedError, Rewrite

Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement
BLOCKS = (
    cst.Module,
    cst.IndentedBlock,
    cst.SimpleStatementSuite,
    cst.Else,
    cst.Finally,
    cst.ExceptHandler,
    cst.ExceptStarHandler,
    cst.MatchCase,
)


@dataclass
class StatementEdits:
    """All edits of one statement."""

    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    first: list[str] = field(default_factory=list)
    last: list[str] = field(default_factory=list)
    rewrites: list[Rewrite] = field(default_factory=list)
    replace: str | None = None
    enter: str = ""
    guard: Guard | None = None
    unwrap: Literal["", "body", "orelse"] = ""

    @property
    def removes(self) -> bool:
        """Whether the statement and the comments above it are removed."""
        return self.replace is not None and not parse_snippet(self.replace).body

    @property
    def needs_line(self) -> bool:
        """Whether the statement needs a line of its own."""
        around = self.enter or self.guard
        return bool(self.before or self.after or around or self.replace is not None)


def separate_lines(
    joined: cst.SimpleStatementLine | cst.SimpleStatementSuite,
) -> list[cst.SimpleStatementLine]:
    """A line for each of several small statements; comments stay above them and behind them."""
    default = cst.MaybeSentinel.DEFAULT
    lines = [
        cst.SimpleStatementLine([small.with_changes(semicolon=default)]) for small in joined.body
    ]
    lines[-1] = lines[-1].with_changes(trailing_whitespace=joined.trailing_whitespace)
    if isinstance(joined, cst.SimpleStatementLine):
        lines[0] = lines[0].with_changes(leading_lines=joined.leading_lines)
    return lines


def block_of(body: cst.BaseSuite) -> cst.IndentedBlock:
    """The body of a compound statement, on lines of its own."""
    if isinstance(body, cst.IndentedBlock):
        return body
    assert isinstance(body, cst.SimpleStatementSuite)
    return cst.IndentedBlock(separate_lines(body))


def guard_code(guard: Guard) -> str:
    """An ``if`` with the guard's test, and what is done where it fails."""
    orelse = f"else:\n{indent(guard.orelse, '    ')}\n" if guard.orelse else ""
    return f"if {guard.test}:\n    pass\n{orelse}"


@lru_cache(maxsize=256)
def parse_snippet(code: str) -> cst.Module:
    """Parse a snippet. Cached, because the same code is often inserted several times."""
    return cst.parse_module(code)


class Editor(cst.CSTTransformer):
    """Applies each statement's edits when the walk leaves it."""

    def __init__(
        self,
        module: Module,
        plans: dict[cst.CSTNode, StatementEdits],
        statements: dict[cst.CSTNode, ast.stmt],
        inside: set[cst.CSTNode],
    ) -> None:
        super().__init__()
        self.module, self.plans = module, plans
        self.statements, self.inside = statements, inside

    def on_visit(self, node: cst.CSTNode) -> bool:
        """Visit only the blocks and statements that lead to an edit, and no expressions."""
        is_joined = isinstance(node, cst.SimpleStatementLine) and len(node.body) > 1  # a; b
        return is_joined or node in self.inside or node in self.plans or isinstance(node, BLOCKS)

    def parse(self, code: str) -> list[Statement]:
        """The statements of a snippet, the first with the comments above it."""
        tree = parse_snippet(code)
        if not tree.body or not tree.header:
            return list(tree.body)
        head, *rest = tree.body
        return [head.with_changes(leading_lines=[*tree.header, *head.leading_lines]), *rest]

    def on_leave(  # type: ignore[override]
        self, original_node: cst.CSTNode, updated_node: cst.CSTNode
    ) -> cst.CSTNode | cst.RemovalSentinel | cst.FlattenSentinel[cst.CSTNode]:
        updated = super().on_leave(original_node, updated_node)
        if isinstance(original_node, cst.SimpleStatementLine | cst.SimpleStatementSuite):
            plans = [self.plans.get(small) for small in original_node.body]
            if any(plan is not None and plan.needs_line for plan in plans):
                return self.split(updated, original_node)
        plan = self.plans.get(original_node)
        if plan is None or not isinstance(updated, Statement):
            return updated
        group = self.edited(self.statements[original_node], updated, plan)
        if not group:
            return cst.RemoveFromParent()
        return group[0] if len(group) == 1 else cst.FlattenSentinel(group)

    def split(
        self, joined: Any, original: cst.SimpleStatementLine | cst.SimpleStatementSuite
    ) -> cst.FlattenSentinel[cst.CSTNode] | cst.IndentedBlock:
        """``a; b``, or the body of ``if t: a; b``, with the edits of each on lines of its own."""
        group: list[cst.CSTNode] = []
        for line, small in zip(separate_lines(joined), original.body, strict=True):
            plan = self.plans.get(small)
            group += [line] if plan is None else self.edited(self.statements[small], line, plan)
        if isinstance(original, cst.SimpleStatementLine):
            return cst.FlattenSentinel(group)
        return cst.IndentedBlock(group or [cst.parse_statement("pass")])  # type: ignore[arg-type]

    def edited(self, stmt: ast.stmt, updated: Statement, plan: StatementEdits) -> list[cst.CSTNode]:
        """What stands in the place of a statement after its edits."""
        if plan.first or plan.last:
            updated = self.with_body_inserts(stmt, updated, plan)
        unwraps = plan.unwrap and plan.replace is None
        if unwraps and isinstance(updated, cst.If) and is_elif(self.module.parents[stmt], stmt):
            body = self.staying(updated, plan.unwrap)
            return [cst.Else(body, leading_lines=updated.leading_lines)]
        group = self.replaced(updated, plan)
        if plan.enter:
            group = [self.under(f"with {plan.enter}:\n    pass\n", group)]
        if plan.guard is not None:
            group = [self.under(guard_code(plan.guard), group)]
        if plan.before:
            added = self.parse_all(plan.before)
            head = group[0]
            assert isinstance(head, Statement)
            added[0] = added[0].with_changes(leading_lines=head.leading_lines)
            group = [*added, head.with_changes(leading_lines=()), *group[1:]]
        return [*group, *self.parse_all(plan.after)]

    def replaced(self, node: Statement, plan: StatementEdits) -> list[cst.CSTNode]:
        """What ``Replace`` or ``Unwrap`` puts in the place of a statement; else the statement."""
        if plan.replace is not None:
            new: list[cst.CSTNode] = [*self.parse(plan.replace)]
        elif plan.unwrap:
            new = [*self.staying(node, plan.unwrap).body]
        else:
            return [node]
        if new:
            head: Any = new[0]
            above = [*node.leading_lines, *head.leading_lines]
            new[0] = head.with_changes(leading_lines=above)
        return new

    def staying(self, node: Statement, which: str) -> cst.IndentedBlock:
        """The block of an ``if`` or ``with`` that takes its place."""
        if which == "body":
            assert isinstance(node, cst.If | cst.With)
            return block_of(node.body)
        assert isinstance(node, cst.If)
        if not isinstance(node.orelse, cst.Else):
            raise RefusedError("an elif cannot take the place of its if")
        return block_of(node.orelse.body)

    def parse_all(self, snippets: list[str]) -> list[Statement]:
        """The statements of several snippets."""
        return [stmt for code in snippets for stmt in self.parse(code)]

    def with_body_inserts(self, stmt: ast.stmt, node: Statement, plan: StatementEdits) -> Statement:
        """A compound statement with new statements first and last in its body."""
        body = getattr(node, "body", None)
        if not isinstance(body, cst.BaseSuite):
            raise RefusedError(f"line {stmt.lineno}: it has no body to insert into")
        body = block_of(body)
        first, last = self.parse_all(plan.first), self.parse_all(plan.last)
        return node.with_changes(body=body.with_changes(body=[*first, *body.body, *last]))

    def under(self, code: str, group: list[cst.CSTNode]) -> Statement:
        """The statements as the body of a statement; comments above the first stay above."""
        head = group[0]
        assert isinstance(head, Statement)
        (around,) = self.parse(code)
        assert isinstance(around, Statement)
        return around.with_changes(
            leading_lines=head.leading_lines,
            body=cst.IndentedBlock([head.with_changes(leading_lines=()), *group[1:]]),  # type: ignore[list-item]
        )
