"""Edits of statements, carried out on the libcst tree of the lines that they stand in."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import lru_cache

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
    """The edits of one statement."""

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
        """Whether the statement goes, and the comments above it with it."""
        return self.replace is not None and not parsed(self.replace).body


@lru_cache(maxsize=256)
def parsed(code: str) -> cst.Module:
    """The tree of a piece of code: nobody changes it, and much is put in more than once."""
    return cst.parse_module(code)


class Editor(cst.CSTTransformer):
    """Carries out each statement's plan as the walk leaves it. All state is given at the start."""

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
        """Go only where a plan is: most of a tree is expressions, and visiting them all is slow."""
        several = isinstance(node, cst.SimpleStatementLine) and len(node.body) > 1
        return several or node in self.inside or node in self.plans or isinstance(node, BLOCKS)

    def parse(self, code: str) -> list[Statement]:
        tree = parsed(code)
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
            updated = self.filled(stmt, updated, plan)
        group: list[cst.CSTNode] = [updated]
        if plan.replace is not None:
            new = self.parse(plan.replace)
            if new:
                above = [*updated.leading_lines, *new[0].leading_lines]
                new[0] = new[0].with_changes(leading_lines=above)
            group = list(new)
        elif plan.unwrap:
            if isinstance(updated, cst.If) and isinstance(stmt, ast.If) and self.is_elif(stmt):
                return cst.Else(updated.body, leading_lines=updated.leading_lines)
            assert isinstance(updated, cst.If | cst.With)
            group = list(updated.body.body)
            group[0] = group[0].with_changes(
                leading_lines=[*updated.leading_lines, *group[0].leading_lines]  # type: ignore[attr-defined]
            )
        if plan.guard is not None:
            group = [self.guarded(plan.guard, group)]
        if plan.before:
            added = [line for code in plan.before for line in self.parse(code)]
            head = group[0]
            assert isinstance(head, Statement)
            added[0] = added[0].with_changes(leading_lines=head.leading_lines)
            group = [*added, head.with_changes(leading_lines=()), *group[1:]]
        group += [line for code in plan.after for line in self.parse(code)]
        if not group:
            return cst.RemoveFromParent()
        return group[0] if len(group) == 1 else cst.FlattenSentinel(group)

    def filled(self, stmt: ast.stmt, node: Statement, plan: StatementEdits) -> Statement:
        body = getattr(node, "body", None)
        if not isinstance(body, cst.IndentedBlock):
            raise RefusedError(
                f"line {stmt.lineno}: its body stands on the same line; split it first"
            )
        first = [line for code in plan.first for line in self.parse(code)]
        last = [line for code in plan.last for line in self.parse(code)]
        return node.with_changes(body=body.with_changes(body=[*first, *body.body, *last]))

    def is_elif(self, stmt: ast.If) -> bool:
        above = self.module.parents[stmt]
        return (
            isinstance(above, ast.If)
            and above.orelse == [stmt]
            and above.col_offset == stmt.col_offset
        )

    def guarded(self, guard: Guard, group: list[cst.CSTNode]) -> cst.If:
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
