"""Apply the edits of statements to the libcst tree of a region."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import libcst as cst

from ..source.module import Module
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
    guard: Guard | None = None
    unwrap: bool = False

    @property
    def removes(self) -> bool:
        """Whether the statement and the comments above it are removed."""
        return self.replace is not None and not parse_snippet(self.replace).body


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
        plan = self.plans.get(original_node)
        if plan is None:
            return updated
        stmt = self.statements[original_node]
        assert isinstance(updated, cst.CSTNode)
        if not isinstance(updated, Statement):
            if plan.before or plan.after or plan.guard or plan.replace is not None:
                raise RefusedError(
                    f"line {stmt.lineno}: several statements on one line; split it first"
                )
            return updated
        if plan.first or plan.last:
            updated = self.with_body_inserts(stmt, updated, plan)
        unwraps = plan.unwrap and plan.replace is None
        if unwraps and isinstance(updated, cst.If) and self.is_elif(stmt):
            return cst.Else(updated.body, leading_lines=updated.leading_lines)
        group = self.replaced(updated, plan)
        if plan.guard is not None:
            group = [self.guarded(plan.guard, group)]
        if plan.before:
            added = self.parse_all(plan.before)
            head = group[0]
            assert isinstance(head, Statement)
            added[0] = added[0].with_changes(leading_lines=head.leading_lines)
            group = [*added, head.with_changes(leading_lines=()), *group[1:]]
        group += self.parse_all(plan.after)
        if not group:
            return cst.RemoveFromParent()
        return group[0] if len(group) == 1 else cst.FlattenSentinel(group)

    def replaced(self, node: Statement, plan: StatementEdits) -> list[cst.CSTNode]:
        """What ``Replace`` or ``Unwrap`` puts in the place of a statement; else the statement."""
        if plan.replace is not None:
            new: list[cst.CSTNode] = [*self.parse(plan.replace)]
        elif plan.unwrap:
            assert isinstance(node, cst.If | cst.With)
            new = [*node.body.body]
        else:
            return [node]
        if new:
            head: Any = new[0]
            above = [*node.leading_lines, *head.leading_lines]
            new[0] = head.with_changes(leading_lines=above)
        return new

    def parse_all(self, snippets: list[str]) -> list[Statement]:
        """The statements of several snippets."""
        return [stmt for code in snippets for stmt in self.parse(code)]

    def with_body_inserts(self, stmt: ast.stmt, node: Statement, plan: StatementEdits) -> Statement:
        """A compound statement with new statements first and last in its body."""
        body = getattr(node, "body", None)
        if not isinstance(body, cst.IndentedBlock):
            raise RefusedError(
                f"line {stmt.lineno}: its body stands on the same line; split it first"
            )
        first, last = self.parse_all(plan.first), self.parse_all(plan.last)
        return node.with_changes(body=body.with_changes(body=[*first, *body.body, *last]))

    def is_elif(self, stmt: ast.stmt) -> bool:
        """Whether an ``if`` statement is an ``elif``."""
        above = self.module.parents[stmt]
        return (
            isinstance(above, ast.If)
            and above.orelse == [stmt]
            and above.col_offset == stmt.col_offset
        )

    def guarded(self, guard: Guard, group: list[cst.CSTNode]) -> cst.If:
        """The statements under the guard's test; comments above the first stay above."""
        head = group[0]
        assert isinstance(head, Statement)
        code = f"if {guard.test}:\n    pass\n"
        if guard.orelse:
            code += f"else:\n    {guard.orelse}\n"
        (gate,) = self.parse(code)
        assert isinstance(gate, cst.If)
        return gate.with_changes(
            leading_lines=head.leading_lines,
            body=cst.IndentedBlock([head.with_changes(leading_lines=()), *group[1:]]),  # type: ignore[list-item]
        )
