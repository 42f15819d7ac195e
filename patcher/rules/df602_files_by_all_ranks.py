"""A file or folder is made by every rank.

What         open(…, "w") that every rank reaches, or an evaluation function that writes and that
             every rank will run; a folder made after asking whether it exists.
At run time  Ranks overwrite each other's lines; makedirs fails on the rank that comes second.
Example      with open(os.path.join(args.output_dir, "predictions.txt"), "w") as f: …
Fix          Rank 0 alone writes; makedirs gets exist_ok=True.
Fix safety   Safe: a lone process writes as before.
Source       os.makedirs
"""

import ast
from collections.abc import Iterator

from ..distributed import WAIT, only_on_main
from ..edits import Insert, Rewrite
from ..facts import Unit
from ..findings import Finding, Safety, Severity
from ..module import Module
from ..roles import RANKS, Role, reached, reached_in_function
from ..syntax import argument, bound_names, everywhere, keyword, last_argument, parameters, walk

CODE, SEVERITY, SAFETY = "DF602", Severity.DEGRADED, Safety.SAFE


def findings(unit: Unit) -> Iterator[Finding]:
    for module in unit.modules:
        for call in module.calls_to("makedirs"):
            if keyword(call, "exist_ok") is None and module.dotted(call.func) == "os.makedirs":
                last = last_argument(call)
                if last is not None:
                    yield Finding(
                        module,
                        call,
                        "another rank may make the folder first",
                        (Rewrite(last, ", exist_ok=True", after=True),),
                    )
        for call in module.calls_to("open"):
            if is_for_writing(call) and everyone_writes(unit, module, call):
                yield from one_writer(unit, module, call)


def is_for_writing(call: ast.Call) -> bool:
    mode = argument(call, 1, "mode")
    return (
        isinstance(call.func, ast.Name)
        and isinstance(mode, ast.Constant)
        and isinstance(mode.value, str)
        and any(letter in mode.value for letter in "wax+")
    )


def everyone_writes(unit: Unit, module: Module, call: ast.Call) -> bool:
    """Reached by all ranks, now or once every rank evaluates."""
    if unit.evaluation_of(module, call) is not None:
        return Role.OTHER in reached_in_function(module, call)
    return Role.OTHER in reached(unit, module, call)


def one_writer(unit: Unit, module: Module, call: ast.Call) -> Iterator[Finding]:
    """Guard the statement, unless what it binds or writes is wanted by every rank behind it."""
    stmt = module.statement(call)
    because = "every rank writes it"
    if isinstance(stmt, ast.With):
        body = module.body(stmt)
        behind = list(walk(body[body.index(stmt) + 1 :]))
        read = {n.id for n in behind if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        texts = {n.value for n in behind if isinstance(n, ast.Constant)}
        guard = only_on_main(stmt)
        if not bound_names(stmt) & read:
            if not path_names(module, call) & read and not path_texts(call) & texts:
                yield Finding(module, call, because, guard)
                return
            if in_lock_step(unit, module, stmt):
                yield Finding(
                    module, call, f"{because} and reads it", (*guard, Insert(stmt, WAIT, "after"))
                )
                return
        because += ", and it is used behind"
    elif isinstance(stmt, ast.Expr):  # json.dump(result, open(path, "w"))
        guard = only_on_main(stmt)
        yield Finding(module, call, because, guard)
        return
    yield Finding(module, call, because)


def in_lock_step(unit: Unit, module: Module, stmt: ast.stmt) -> bool:
    """Whether all ranks pass ``stmt`` equally often, so that a barrier may stand behind it.

    They do in the training loop, which deals as many batches to each; of other loops it is not
    known.
    """
    training = [loop for train in unit.train_loops for loop in (train.steps, train.epochs)]
    return reached(unit, module, stmt) >= RANKS and all(
        up in training
        for up in module.ancestors(stmt)
        if isinstance(up, ast.For | ast.While | ast.Try)
    )


def path_names(module: Module, call: ast.Call) -> set[str]:
    """Names in the path that belong to this function alone."""
    function = module.function(call)
    if function is None:
        return set()
    names = {node.id for node in everywhere(call.args[0], ast.Name)}
    return names & bound_names(function.body) - parameters(function)


def path_texts(call: ast.Call) -> set[object]:
    """Literals in the path, by which a later line may open it again."""
    return {n.value for n in everywhere(call.args[0], ast.Constant) if n.value}
