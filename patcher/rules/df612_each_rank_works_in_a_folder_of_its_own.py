"""Each rank works in a folder of its own.

What         hydra.main makes a folder for each run, outputs/<date>/<time>, and goes there; from
             version_base 1.2 on it stays where it is. Each rank does so by its own clock.
At run time  Ranks that start in different seconds work in different folders: what rank 0 saves,
             the others do not find when they load it, behind the training or to go on with it. In
             the next run all may be well.
Example      @hydra.main(config_path="conf")
Fix          The others change into rank 0's folder as soon as the function begins
             (meet_in_folder_of_rank_0). Only noted where a script makes its group itself. No
             finding in a script that loads nothing.
Fix safety   Safe: a lone process stays where it is.
Source       https://hydra.cc/docs/tutorials/basic/running_your_app/working_directory/
"""

import ast
from collections.abc import Iterator

from ..analysis.training.program import Program
from ..editing.edits import Define, Edit, Insert
from ..findings import Finding, Safety, Severity
from ..fixes.group_setup import is_our_group
from ..source.module import Module
from ..source.tree import Function, precedes

CODE, SEVERITY, SAFETY = "DF612", Severity.DEGRADED, Safety.SAFE

HELPER = "meet_in_folder_of_rank_0"
LOADS = ("load", "load_checkpoint", "load_model", "from_pretrained", "read_csv", "load_weights")
CHANGES_FOLDER = ("1.0", "1.1")  # versions whose main does so


def findings(program: Program) -> Iterator[Finding]:
    groups = program.calls_to("init_process_group")
    if not groups or program.calls_to(HELPER) or not program.calls_to(*LOADS):
        return
    for module in program.modules:
        for function in module.all_functions if module.spells("hydra") else ():
            if changes_folder(module, function) and program.callers(function):
                is_ahead = all(is_made_ahead(program, function, *group) for group in groups)
                yield Finding(
                    module,
                    function,
                    f"hydra makes {function.name}() a folder by each rank's clock",
                    edits_of(function) if is_ahead else (),
                    severity=None if is_ahead else Severity.NOTE,
                )


def changes_folder(module: Module, function: Function) -> bool:
    """Whether a function is ``hydra.main``'s, in a version that changes into the run's folder."""
    for each in function.decorator_list:
        if isinstance(each, ast.Call) and module.dotted(each.func) == "hydra.main":
            told = [word.value for word in each.keywords if word.arg == "version_base"]
            return all(isinstance(v, ast.Constant) and v.value in CHANGES_FOLDER for v in told)
    return False


def is_made_ahead(program: Program, function: Function, module: Module, group: ast.Call) -> bool:
    """Whether a patch has made the group at module level, above the calls of a function."""
    return (
        is_our_group(module, group)
        and module.function(group) is None
        and all(
            where is module and precedes(group, call) for where, call in program.callers(function)
        )
    )


def edits_of(function: Function) -> tuple[Edit, ...]:
    """Edits that begin a function in the folder of rank 0."""
    first, *rest = function.body
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return (Insert(rest[0] if is_docstring and rest else first, f"{HELPER}()"), Define(HELPER))
