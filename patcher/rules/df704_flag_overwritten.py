"""A flag is overwritten after it was parsed.

What         A command-line option is reassigned, whatever the user passed, from a value that does
             not depend on it.
At run time  --save_steps 500 is accepted and ignored; nothing says so.
Example      args.save_steps = len(train_dataloader)
Fix          None by itself: assign only where the user left the option at its default, or drop
             the option.
Fix safety   Report only: obeying a flag that run scripts have passed in vain for years would
             change what they compute.
Source       counted in 53 of 134 public scripts
"""

import ast
from collections.abc import Iterator

from ..analysis.language.results import spelled_name
from ..analysis.ranks.rank_reach import RANK_NAMES
from ..analysis.settings.parsed_arguments import parameter_with_arguments
from ..analysis.training.program import Program
from ..findings import Finding, Safety, Severity
from ..source.module import Module
from ..source.tree import everywhere, position

CODE, SEVERITY, SAFETY = "DF704", Severity.NOTE, Safety.REPORT

MAX_DEPTH = 4  # attributes to follow from one to the next


def findings(program: Program) -> Iterator[Finding]:
    names = {args for _, _, args in program.parse_sites}
    for module in program.modules:
        assigned = module.attribute_values
        statements = {
            stmt
            for name in program.options.keys() & assigned.keys()
            for value in assigned[name]
            if isinstance(stmt := module.parents[value], ast.Assign)
        }
        for stmt in sorted(statements, key=position):
            for target in stmt.targets:
                if (
                    isinstance(target, ast.Attribute)
                    and target.attr in program.options
                    and target.attr not in RANK_NAMES
                    and is_arguments(program, module, target.value, names)
                    and not depends_on_option(program, stmt.value, target.attr)
                    and not is_conditional(module, stmt)
                ):
                    spelling = program.options[target.attr].spellings[0]
                    because = f"{spelling} has no effect: it becomes {module.text(stmt.value)}"
                    yield Finding(module, stmt, because)


def is_arguments(program: Program, module: Module, node: ast.expr, names: set[str]) -> bool:
    """Whether an expression stands for the parsed arguments, here or in the callers."""
    name = spelled_name(module, node)
    return name in names or name == parameter_with_arguments(program, module, node) != ""


def depends_on_option(program: Program, value: ast.expr, name: str, depth: int = 0) -> bool:
    """Whether ``value`` depends on the attribute ``name``, also through other attributes."""
    if depth > MAX_DEPTH:
        return True
    read = {node.attr for node in everywhere(value, ast.Attribute)}
    return name in read or any(
        depends_on_option(program, other, name, depth + 1)
        for module in program.modules
        for attribute in read
        for other in module.attribute_values.get(attribute, ())
        if other is not value
    )


def is_conditional(module: Module, stmt: ast.stmt) -> bool:
    """Whether the assignment stands under a test, in a loop or in a ``try``."""
    for up in module.ancestors(stmt):
        if isinstance(up, ast.FunctionDef | ast.AsyncFunctionDef):
            return False
        if isinstance(up, ast.If | ast.Try | ast.For | ast.While):
            return True
    return False
