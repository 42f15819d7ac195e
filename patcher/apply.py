"""Edits applied with libcst, found by the shape of the tree rather than by metadata.

The statements of an ``ast`` tree and of a libcst tree stand in the same order, so one walk over
both pairs them; libcst's position provider, which costs more than parsing, is not needed.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

import libcst as cst

from .edits import Define, Edit, Guard, Import, Insert, Replace, Rewrite, Unwrap
from .inserted import helper_code, helper_imports, helper_names
from .module import Module

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
HEADS = ("test", "target", "iter")  # the parts of a compound statement's first line


class RefusedError(Exception):
    """An edit that cannot be carried out as asked."""


@dataclass
class Plan:
    """The edits of one statement."""

    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    first: list[str] = field(default_factory=list)
    last: list[str] = field(default_factory=list)
    rewrites: list[Rewrite] = field(default_factory=list)
    replace: str | None = None
    guard: Guard | None = None
    unwrap: bool = False


def apply_edits(module: Module, edits: Sequence[Edit]) -> str:
    """The module's text with ``edits`` in it; everything else is unchanged to the byte.

    Raises RefusedError when two edits want the same thing, or a place takes no statement.
    """
    tree = cst.parse_module(module.source.text)
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
    busy = {up for stmt in plans for up in (stmt, *module.ancestors(stmt))}
    nodes = dict(pairs(module.tree.body, tree.body))
    by_node = {nodes[stmt]: plan for stmt, plan in plans.items()}
    stmts = {nodes[stmt]: stmt for stmt in plans}
    inside = {nodes[up] for up in busy if isinstance(up, ast.stmt)}
    changed = tree.visit(_Editor(module, tree, by_node, stmts, inside))
    changed = with_helpers(changed, helpers)
    changed = with_imports(changed, module, imports)
    return changed.code


@lru_cache(maxsize=256)
def parsed(code: str, config: cst.PartialParserConfig) -> cst.Module:
    """The tree of a piece of code: nobody changes it, and much is put in more than once."""
    return cst.parse_module(code, config=config)


def edit_helpers(name: str) -> list[str]:
    """A helper and the helpers it calls, callees first."""
    code = helper_code(name)
    needed = [other for other in sorted(helper_names()) if other != name and f"{other}(" in code]
    return [*dict.fromkeys(deeper for other in needed for deeper in edit_helpers(other)), name]


def pairs(
    body: Sequence[ast.stmt], nodes: Sequence[cst.CSTNode]
) -> Iterator[tuple[ast.stmt, cst.CSTNode]]:
    """Each statement with its libcst node; of ``a; b`` each small statement with its own."""
    rest = iter(body)
    for node in nodes:
        if isinstance(node, cst.SimpleStatementLine):
            small = list(zip((next(rest) for _ in node.body), node.body, strict=True))
            yield from small if len(small) > 1 else [(small[0][0], node)]
        else:
            stmt = next(rest)
            yield stmt, node
            yield from blocks(stmt, node)


def suite(
    body: Sequence[ast.stmt], block: cst.CSTNode | None
) -> Iterator[tuple[ast.stmt, cst.CSTNode]]:
    match block:
        case cst.IndentedBlock():
            yield from pairs(body, block.body)
        case cst.SimpleStatementSuite():
            yield from zip(body, block.body, strict=True)
        case cst.Else() | cst.Finally():
            yield from suite(body, block.body)
        case cst.If():  # elif
            yield body[0], block
            yield from blocks(body[0], block)


def blocks(stmt: ast.stmt, node: cst.CSTNode) -> Iterator[tuple[ast.stmt, cst.CSTNode]]:
    """The statements inside a compound statement."""
    if isinstance(stmt, ast.Match) and isinstance(node, cst.Match):
        for case, branch in zip(stmt.cases, node.cases, strict=True):
            yield from suite(case.body, branch.body)
        return
    yield from suite(getattr(stmt, "body", []), getattr(node, "body", None))
    yield from suite(getattr(stmt, "orelse", []), getattr(node, "orelse", None))
    yield from suite(getattr(stmt, "finalbody", []), getattr(node, "finalbody", None))
    for handler, branch in zip(
        getattr(stmt, "handlers", []), getattr(node, "handlers", ()), strict=True
    ):
        yield from suite(handler.body, branch.body)


class _Editor(cst.CSTTransformer):
    """Carries out each statement's plan as the walk leaves it. All state is given at the start."""

    def __init__(
        self,
        module: Module,
        tree: cst.Module,
        plans: dict[cst.CSTNode, Plan],
        statements: dict[cst.CSTNode, ast.stmt],
        inside: set[cst.CSTNode],
    ) -> None:
        super().__init__()
        self.module, self.tree, self.plans, self.statements = module, tree, plans, statements
        self.inside = inside

    def on_visit(self, node: cst.CSTNode) -> bool:
        """Go only where a plan is: most of a tree is expressions, and visiting them all is slow."""
        several = isinstance(node, cst.SimpleStatementLine) and len(node.body) > 1
        return several or node in self.inside or node in self.plans or isinstance(node, BLOCKS)

    def parse(self, code: str) -> list[Statement]:
        tree = parsed(code, self.tree.config_for_parsing)
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
            return self.small(stmt, updated, plan)
        if plan.rewrites and plan.replace is None:
            updated = self.rewritten(stmt, updated, plan.rewrites)
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

    def small(
        self, stmt: ast.stmt, node: cst.CSTNode, plan: Plan
    ) -> cst.CSTNode | cst.RemovalSentinel:
        """A small statement of several on one line takes rewrites only."""
        if plan.before or plan.after or plan.guard or plan.replace is not None:
            raise RefusedError(
                f"line {stmt.lineno}: several statements on one line; split it first"
            )
        line = self.in_place(stmt, self.spliced(stmt, plan.rewrites))
        assert isinstance(line, cst.SimpleStatementLine)
        return line.body[0].with_changes(semicolon=node.semicolon)  # type: ignore[attr-defined]

    def spliced(self, node: ast.stmt | ast.expr, rewrites: list[Rewrite]) -> str:
        """The node's text with the rewrites in it."""
        text = self.module.text(node).encode()
        starts = line_starts(text, node.col_offset)
        spans: list[tuple[int, int, str]] = []
        for rewrite in rewrites:
            start, end = (offset(starts, node, place) for place in span(rewrite))
            spans.append((start, end, rewrite.code))
        spans.sort()
        for (_, end, _), (start, _, _) in pairwise(spans):
            if start < end:
                raise RefusedError(f"line {node.lineno}: two edits want the same words")
        for start, end, code in reversed(spans):
            text = text[:start] + code.encode() + text[end:]
        return text.decode()

    def rewritten(self, stmt: ast.stmt, node: Statement, rewrites: list[Rewrite]) -> Statement:
        if isinstance(node, cst.SimpleStatementLine):
            line = self.in_place(stmt, self.spliced(stmt, rewrites))
            assert isinstance(line, cst.SimpleStatementLine)
            return node.with_changes(body=line.body)
        wanted = list(rewrites)
        for head in HEADS:
            part = getattr(stmt, head, None)
            if not isinstance(part, ast.expr):
                continue
            inner = [rewrite for rewrite in wanted if is_inside(rewrite.first, part)]
            if inner:
                wanted = [rewrite for rewrite in wanted if rewrite not in inner]
                new = self.expression(stmt, self.spliced(part, inner), getattr(node, head))
                node = node.with_changes(**{head: new})
        if isinstance(stmt, ast.With) and isinstance(node, cst.With):
            items = list(node.items)
            for index, context in enumerate(item.context_expr for item in stmt.items):
                inner = [rewrite for rewrite in wanted if is_inside(rewrite.first, context)]
                if inner:
                    wanted = [rewrite for rewrite in wanted if rewrite not in inner]
                    new = self.expression(stmt, self.spliced(context, inner), items[index].item)
                    items[index] = items[index].with_changes(item=new)
            node = node.with_changes(items=items)
        if not wanted:
            return node
        raise RefusedError(f"line {stmt.lineno}: an edit inside the head of this statement")

    def expression(self, stmt: ast.stmt, code: str, old: cst.BaseExpression) -> cst.BaseExpression:
        """Parse an expression of the head of ``stmt``, in the parentheses of the ``old`` one."""
        line = self.in_place(stmt, f"if ({code}): pass")
        assert isinstance(line, cst.If)
        return line.test.with_changes(lpar=old.lpar, rpar=old.rpar)

    def in_place(self, stmt: ast.stmt, code: str) -> Statement:
        """Parse a statement at the indentation of ``stmt``, which its further lines carry too."""
        margin = self.module.margin(stmt)
        code = f"if True:\n{margin}{code}\n" if margin else code
        (top,) = cst.parse_module(code, config=self.tree.config_for_parsing).body
        if not margin:
            return top
        assert isinstance(top, cst.If)
        (inner,) = top.body.body
        assert isinstance(inner, Statement)
        return inner

    def filled(self, stmt: ast.stmt, node: Statement, plan: Plan) -> Statement:
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


def span(rewrite: Rewrite) -> tuple[tuple[int, int], tuple[int, int]]:
    """Start and end of a rewrite as (line, byte column)."""
    first, last = rewrite.first, rewrite.last or rewrite.first
    start = end_of(first) if rewrite.after else (first.lineno, first.col_offset)
    end = (last.lineno, last.col_offset) if rewrite.before else end_of(last)
    return start, end


def end_of(node: ast.expr | ast.keyword | ast.alias) -> tuple[int, int]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return node.end_lineno, node.end_col_offset


def line_starts(text: bytes, column: int) -> list[int]:
    """Where each line of a node's text begins; the first is shifted by the node's own column."""
    starts = [-column]
    for line in text.splitlines(keepends=True)[:-1]:
        starts.append(starts[-1] + len(line) if len(starts) > 1 else len(line))
    return starts


def offset(starts: list[int], node: ast.stmt | ast.expr, place: tuple[int, int]) -> int:
    return starts[place[0] - node.lineno] + place[1]


def is_inside(inner: ast.AST, outer: ast.AST) -> bool:
    return any(node is inner for node in ast.walk(outer))


def with_helpers(tree: cst.Module, names: list[str]) -> cst.Module:
    """The tree with the helpers before its first function or class, or behind its imports.

    They come behind the imports, too, where a statement above the first function calls one.
    """
    if not names:
        return tree
    body = list(tree.body)
    definitions = (
        i for i, node in enumerate(body) if isinstance(node, cst.FunctionDef | cst.ClassDef)
    )
    place = next(definitions, len(body))
    calls = (i for i, node in enumerate(body[:place]) if calls_one(tree, node, names))
    above = next(calls, place)
    if above < place or place == len(body):
        place = max((i + 1 for i, node in enumerate(body[:above]) if is_import(node)), default=0)
    blank = cst.EmptyLine(indent=False)
    new: list[Statement] = []
    for name in names:
        (helper,) = parsed(helper_code(name), tree.config_for_parsing).body
        new.append(helper.with_changes(leading_lines=[blank, blank]))
    return tree.with_changes(body=[*body[:place], *new, *body[place:]])


def calls_one(tree: cst.Module, node: cst.CSTNode, names: list[str]) -> bool:
    code = tree.code_for_node(node)
    return any(f"{name}(" in code for name in names)


def with_imports(tree: cst.Module, module: Module, wanted: list[Import]) -> cst.Module:
    """The tree with the imports that it lacks behind its first plain import."""
    lines: list[str] = []
    for item in wanted:
        if item.name:
            line = f"from {item.module} import {item.name}"
        elif module.aliases.get(item.module) == item.module and item.module in top_level(module):
            continue
        else:
            line = f"import {item.module}"
        if line not in lines:
            lines.append(line)
    if not lines:
        return tree
    body = list(tree.body)
    places = [i for i, node in enumerate(body) if is_import(node)]
    plain = [i for i in places if is_import(body[i], plain=True)]
    for line in lines:
        anchor = plain if line.startswith("import ") and plain else places
        at = (anchor[0] if line.startswith("import ") else anchor[-1]) + 1 if anchor else 0
        new = parsed(f"{line}\n", tree.config_for_parsing).body
        body[at:at] = new
        places = [i for i, node in enumerate(body) if is_import(node)]
        plain = [i for i in places if is_import(body[i], plain=True)]
    return tree.with_changes(body=body)


def top_level(module: Module) -> set[str]:
    """Names that plain imports bind at module level."""
    return {
        alias.asname or alias.name.partition(".")[0]
        for stmt in module.tree.body
        if isinstance(stmt, ast.Import)
        for alias in stmt.names
    }


def is_import(node: cst.CSTNode, plain: bool = False) -> bool:
    kinds = cst.Import if plain else (cst.Import, cst.ImportFrom)
    return isinstance(node, cst.SimpleStatementLine) and isinstance(node.body[0], kinds)
