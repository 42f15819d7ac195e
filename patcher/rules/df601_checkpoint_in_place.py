"""A checkpoint is written in place, or by several ranks.

What         torch.save or a model's save_pretrained straight to the path that will be read;
             save_pretrained on every rank. In place by rank 0 alone is a note.
At run time  Ranks that write the same path tear it; a reader, or a resumed run, meets half a file
             after a crash. 2 of 6 runs of an unpatched script died so.
Example      torch.save(model_to_save.state_dict(), output_dir)
Fix          Rank 0 writes a complete file beside it and renames it. Rank 0 alone calls
             save_pretrained, into a folder from which the files are moved when all are complete. A
             buffer in memory, and a path that names the rank, are left alone.
Fix safety   Safe: a lone process leaves the same bytes under the same name.
Source       os.replace (atomic on one file system)
"""

import ast
import builtins
from collections.abc import Iterator

from ..analysis.effects.file_effects import staged_folder
from ..analysis.effects.file_locks import holds_file_lock
from ..analysis.effects.written_paths import (
    is_memory,
    is_named_by_share,
    is_of_one_example,
    is_open_file,
    may_be_named_by_share,
    names_rank,
)
from ..analysis.models.wrapping import OTHER_WAYS
from ..analysis.ranks.certain_reach import surely_on_every_rank
from ..analysis.ranks.rank_reach import Role, roles_reaching
from ..analysis.training.frameworks import OWNS_LOOP, calls_one_of
from ..analysis.training.program import Program
from ..editing.edits import Define, Edit, Enter, Replace, Rewrite
from ..findings import Finding, Safety, Severity
from ..fixes.process_group import only_on_main
from ..fixes.statements import save_on_main
from ..source.module import Module
from ..source.tree import argument, argument_values, everywhere, keyword, precedes, same_code

CODE, SEVERITY, SAFETY = "DF601", Severity.ERROR, Safety.SAFE


def findings(program: Program) -> Iterator[Finding]:
    if program.only_evaluates:
        return
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
            surely = by_all_ranks and surely_on_every_rank(program, module, call)
            because = "every rank writes it" if surely else "every rank may write it"
            because = because if by_all_ranks else "written in place"
            severity = None if surely else Severity.DEGRADED
            severity = severity if by_all_ranks else Severity.NOTE
            if path is not None and not by_all_ranks and is_renamed_later(module, call, path):
                continue
            if by_all_ranks and holds_file_lock(program, module, call):
                continue  # whoever comes first may have to write it
            if path is None:
                yield Finding(module, call, because, severity=severity)
            elif (
                is_memory(module, path)
                or names_rank(program, module, path)
                or is_named_by_share(program, module, call, path, in_training=False)
            ):
                continue
            elif is_open_file(module, path):
                edits = save_instead_of_opening(module, call, path)
                yield Finding(module, call, because, edits, severity=severity or Severity.DEGRADED)
            elif by_all_ranks and (
                is_of_one_example(module, call, path)
                or may_be_named_by_share(program, module, call, path)
            ):
                because = "every rank may write it, unless each has examples of its own"
                yield Finding(module, call, because, severity=Severity.DEGRADED)
            else:
                edits = save_on_main(module, call)
                yield Finding(module, call, because, edits, severity=severity)


def is_renamed_later(module: Module, call: ast.Call, path: ast.expr) -> bool:
    """Whether the file gets its name when it is complete: ``os.replace(path, …)`` behind it."""
    return any(
        source is not None and precedes(call, rename) and same_code(source, path)
        for rename in module.calls_to("replace", "rename", "move", "renames")
        if module.function(rename) is module.function(call)
        for source in [argument(rename, 0, "src")]
    )


def save_instead_of_opening(module: Module, call: ast.Call, file: ast.expr) -> tuple[Edit, ...]:
    """Edits of ``with open(path, "wb") as f: torch.save(obj, f)``, if there is no more to it.

    Where there is, DF602 leaves the file to rank 0.
    """
    stmt = module.statement(call)
    opening = module.parents[stmt]
    if not (
        isinstance(opening, ast.With)
        and opening.body == [stmt]
        and isinstance(stmt, ast.Expr)
        and stmt.value is call
        and len(opening.items) == 1
        and stmt.lineno == opening.items[0].context_expr.lineno + 1  # no comment between
        and isinstance(file, ast.Name)
        and len(call.args) == 2
        and not call.keywords
    ):
        return ()
    opened = opening.items[0].context_expr
    if not isinstance(opened, ast.Call) or module.dotted(opened.func) != "open":
        return ()
    path, mode = argument(opened, 0, "file"), argument(opened, 1, "mode")
    if path is None or not (isinstance(mode, ast.Constant) and mode.value == "wb"):
        return ()
    code = f"save_on_main({module.text(call.args[0])}, {module.text(path)})"
    return (Replace(opening, code), Define("save_on_main"))


def save_pretrained_calls(program: Program, module: Module) -> Iterator[Finding]:
    """``model.save_pretrained(folder)`` where every rank arrives, or straight to the folder."""
    for call in module.calls_to("save_pretrained"):
        path = argument(call, 0, "save_directory")
        in_place = path is not None and may_be_half_a_model(program, module, call, path)
        staged = save_to_staging_folder(module, call, path) if path is not None and in_place else ()
        if Role.OTHER not in roles_reaching(program, module, call):
            if in_place:
                because = "written in place"
                yield Finding(module, call, because, staged, severity=Severity.NOTE)
            continue
        if keyword(call, "is_main_process") or (path and names_rank(program, module, path)):
            continue
        stmt = module.statement(call)
        surely = surely_on_every_rank(program, module, call)
        because = "every rank writes the folder" if surely else "every rank may write the folder"
        is_whole_statement = isinstance(stmt, ast.Expr) and stmt.value is call
        edits: tuple[Edit, ...] = ()
        if is_whole_statement:
            edits = (*only_on_main(with_staging(module, stmt, path)), *staged)
        if gather := call_that_may_gather(module, call):
            because += f"; {module.text(gather)} may need all of them"
            edits = ()
        if holds_weights(module, call) and calls_one_of(program, OTHER_WAYS | OWNS_LOOP):
            because += "; where its weights are dealt among ranks, all of them have to come"
            edits, surely = (), False
        yield Finding(module, call, because, edits, severity=None if surely else Severity.DEGRADED)


def may_be_half_a_model(program: Program, module: Module, call: ast.Call, path: ast.expr) -> bool:
    """Whether a library writes a model's weights to a folder while it may be read."""
    return (
        holds_weights(module, call)
        and staged_folder(module, path) is None
        and keyword(call, "is_main_process") is None
        and not program.callees(module, call)
        and not is_renamed_later(module, call, path)
        and not calls_one_of(program, OTHER_WAYS | OWNS_LOOP)
    )


def with_staging(module: Module, stmt: ast.stmt, path: ast.expr | None) -> ast.stmt:
    """The ``with staging_folder(…) as path`` that holds ``stmt`` alone, or ``stmt`` itself."""
    around = module.parents[stmt]
    is_staged = path is not None and staged_folder(module, path) is not None
    return around if is_staged and isinstance(around, ast.With) and around.body == [stmt] else stmt


def save_to_staging_folder(module: Module, call: ast.Call, path: ast.expr) -> tuple[Edit, ...]:
    """Edits that let a call write to a folder beside; none where it gets the folder's name, too.

    ``push_to_hub=True`` makes a repository's name of it.
    """
    stmt = module.statement(call)
    is_whole_statement = isinstance(stmt, ast.Expr) and stmt.value is call
    is_taken = any(
        name.id == "staging" and staged_folder(module, name) is None
        for name in module.nodes(ast.Name)
    )
    if not is_whole_statement or keyword(call, "push_to_hub") or is_taken:
        return ()
    manager = f"staging_folder({module.text(path)}) as staging"
    return (Enter(stmt, manager), Rewrite(path, "staging"), Define("staging_folder"))


def holds_weights(module: Module, call: ast.Call) -> bool:
    """Whether what is saved may be a model, and not a tokenizer or the like, by its name."""
    text = module.text(call.func).lower()
    return not any(word in text for word in ("token", "process", "config", "extractor", "card"))


def call_that_may_gather(module: Module, save: ast.Call) -> ast.Call | None:
    """A call in the arguments that gets the model, and may collect its weights from all ranks.

    Accelerate's ``get_state_dict(model)`` does, for weights that are dealt among ranks.
    """
    models = {node.id for node in everywhere(save.func, ast.Name)}
    for value in argument_values(save):
        for call in everywhere(value, ast.Call):
            gets = {n.id for each in argument_values(call) for n in everywhere(each, ast.Name)}
            known = isinstance(call.func, ast.Name) and (
                call.func.id in dir(builtins) or call.func.id in module.functions
            )
            if gets & models and not known:
                return call
    return None
