"""A checkpoint is written in place, or by several ranks.

What         torch.save straight to the path that will be read; save_pretrained on every rank.
At run time  Ranks that write the same path tear it; a reader, or a resumed run, meets half a file
             after a crash. 2 of 6 runs of an unpatched script died so.
Example      torch.save(model_to_save.state_dict(), output_dir)
Fix          Rank 0 writes a complete file beside it and renames it; rank 0 alone calls
             save_pretrained.
Fix safety   Safe: a lone process leaves the same bytes under the same name.
Source       os.replace (atomic on one file system)
"""

import ast
from collections.abc import Iterator

from ..analysis.program import Program
from ..analysis.rank_reach import Role, roles_reaching
from ..findings import Finding, Safety, Severity
from ..fixes.process_group import only_on_main
from ..fixes.statements import save_on_main
from ..source.module import Module
from ..source.tree import argument, within

CODE, SEVERITY, SAFETY = "DF601", Severity.ERROR, Safety.SAFE


def findings(program: Program) -> Iterator[Finding]:
    for module in program.modules:
        yield from save_pretrained_calls(program, module)
        for call in module.calls_to("save"):
            if module.dotted(call.func) != "torch.save":
                continue
            function = module.function(call)
            if function is not None and function.name == "save_on_main":
                continue
            path = argument(call, 1, "f")
            by_all_ranks = Role.OTHER in roles_reaching(program, module, call)
            because = "every rank writes it" if by_all_ranks else "written in place"
            is_path = path is not None and not is_open_file(module, path)
            yield Finding(module, call, because, save_on_main(module, call) if is_path else ())


def is_open_file(module: Module, path: ast.expr) -> bool:
    """Whether ``path`` is not a path, but a file that a ``with`` of the function opens."""
    return any(
        type(file := item.optional_vars) is type(path) and module.text(file) == module.text(path)
        for node in within(module.scope_statements(path), ast.With)
        for item in node.items
    )


def save_pretrained_calls(program: Program, module: Module) -> Iterator[Finding]:
    """``model.save_pretrained(folder)`` where every rank arrives."""
    for call in module.calls_to("save_pretrained"):
        if Role.OTHER not in roles_reaching(program, module, call):
            continue
        stmt = module.statement(call)
        is_whole_statement = isinstance(stmt, ast.Expr) and stmt.value is call
        edits = only_on_main(stmt) if is_whole_statement else ()
        yield Finding(module, call, "every rank writes the folder", edits)
