"""A name is bound under a rank test and read outside it.

What         On some rank no path binds the name before it is read; in a lone process one may.
At run time  UnboundLocalError on that rank; its peers see a closed connection or wait.
Example      if args.local_rank == -1: results = evaluate(…)
             if results["f1"] > best: …
Fix          Where the name holds an evaluation's result, DF501 lets every rank evaluate. Where it
             is a writer of rank 0, the read gets the same test.
Fix safety   Safe: for a lone process the test holds.
Source       definite-assignment analysis, once for rank 0 and once for the other ranks
"""

import ast
from collections.abc import Iterator

from ..analysis.program import Program
from ..analysis.rank_reach import rank_gates
from ..analysis.unbound_reads import UnboundRead, unbound_reads
from ..editing.edits import Edit
from ..findings import Finding, Safety, Severity
from ..fixes.process_group import only_on_main
from ..source.module import Module
from ..source.tree import Function, names_within

CODE, SEVERITY, SAFETY = "DF502", Severity.ERROR, Safety.SAFE


def findings(program: Program) -> Iterator[Finding]:
    for module in program.modules:
        guarded: set[ast.stmt] = set()
        for unbound in unbound_reads(module):
            stmt = module.statement(unbound.name)
            binding = gated_bindings(module, unbound.function, unbound.name.id)
            where = f"bound in line {binding[0].lineno} only" if binding else "never bound"
            edits: tuple[Edit, ...] = ()
            if stmt not in guarded and is_writers_call(module, stmt, unbound, binding):
                guarded.add(stmt)
                edits = only_on_main(stmt)
            yield Finding(
                module,
                unbound.name,
                f"{unbound.name.id} is {where}; {unbound.role.value} reads it unbound",
                edits,
            )


def gated_bindings(module: Module, function: Function, name: str) -> list[ast.stmt]:
    """Statements of the function that bind ``name`` under a rank test."""
    stored = (n for n in names_within(function.body, {name}) if not isinstance(n.ctx, ast.Load))
    stmts = map(module.statement, stored)
    return [stmt for stmt in stmts if isinstance(stmt, ast.Assign) and rank_gates(module, stmt)]


def is_writers_call(
    module: Module, stmt: ast.stmt, unbound: UnboundRead, binding: list[ast.stmt]
) -> bool:
    """``tb_writer.add_scalar(…)``: a call for its effect on an object that only rank 0 has."""
    return (
        bool(binding)
        and isinstance(stmt, ast.Expr)
        and isinstance(stmt.value, ast.Call)
        and isinstance(stmt.value.func, ast.Attribute)
        and stmt.value.func.value is unbound.name
    )
