"""DataParallel wraps a model for evaluation, or where a process group may exist.

What         torch.nn.DataParallel inside an evaluation function, or where ranks of a process group
             reach it.
At run time  Wrappers nest at every evaluation (DataParallel of DistributedDataParallel does not
             run), and state_dict keys gain another "module." each time.
Example      if args.n_gpu > 1: model = torch.nn.DataParallel(model)   # in evaluate()
Fix          No wrapper in evaluation; elsewhere only under the single-process test, which a test
             of n_gpu is where the set-up gives each rank one card.
Fix safety   Safe: the values computed are the same; a lone process with several cards evaluates
             on one of them.
Source       torch.nn.DataParallel
"""

import ast
from collections.abc import Iterator

from ..analysis.program import Program
from ..analysis.rank_reach import RANKS, roles_reaching_in_function
from ..editing.edits import Edit, Guard, Import, Replace, Rewrite
from ..findings import Finding, Safety, Severity
from ..fixes.data_parallel import end, wrap_in
from ..fixes.statements import with_gate
from ..source.module import Module

CODE, SEVERITY, SAFETY = "DF303", Severity.DEGRADED, Safety.SAFE

NO_GROUP = "not torch.distributed.is_initialized()"


def findings(program: Program) -> Iterator[Finding]:
    has_group = bool(program.calls_to("init_process_group"))
    for module, call in program.calls_to("DataParallel"):
        stmt = module.statement(call)
        if program.evaluation_of(module, call) is not None and program.has_ranks:
            edit = Replace(with_gate(module, stmt), "")
            yield Finding(module, call, "an evaluation function wraps its model", (edit,))
        elif has_group and roles_reaching_in_function(module, call) & RANKS:
            because = "nothing keeps a rank of a process group away from it"
            yield Finding(module, call, because, restrict_to_lone_process(module, call))


def restrict_to_lone_process(module: Module, call: ast.Call) -> tuple[Edit, ...]:
    """Edits that leave a wrapper to a process without a group, and its model to all.

    ``model = DataParallel(Net()).to(device)`` becomes ``model = Net().to(device)`` and the wrapper.
    """
    stmt = module.statement(call)
    if isinstance(stmt, ast.Return) and stmt.value is call:
        return name_returned_wrapper(module, stmt, call)
    wrap = wrap_in(module, call)
    if wrap is None:
        return ()
    stmt = wrap.stmt
    if wrap.inner != wrap.target or wrap.moves:
        model = f"{wrap.target} = {wrap.inner}{wrap.moves}"
        code = f"{model}\nif {NO_GROUP}:\n    {wrap.target} = {wrap.wrapper}"
        return (Replace(stmt, code), Import("torch"))
    gate = module.parents[stmt]
    if not isinstance(gate, ast.If) or gate.body != [stmt] or gate.orelse:
        return (Guard(stmt, NO_GROUP), Import("torch"))
    test = module.text(gate.test)
    if isinstance(gate.test, ast.BoolOp | ast.IfExp | ast.NamedExpr | ast.Lambda):
        test = f"({test})"
    return (Rewrite(gate.test, f"{test} and {NO_GROUP}"), Import("torch"))


def name_returned_wrapper(module: Module, stmt: ast.Return, call: ast.Call) -> tuple[Edit, ...]:
    """Edits that give ``return DataParallel(net)`` a name, and leave the wrapper to one process."""
    if not call.args or isinstance(call.args[0], ast.Starred):
        return ()
    model = call.args[0]
    is_named = isinstance(model, ast.Name)
    name = module.text(model) if is_named else "model"
    head = "" if is_named else f"{name} = {module.text(model)}\n"
    wrapper = f"{module.text(call.func)}({name}{module.text_between(end(model), end(call))}"
    code = f"{head}if {NO_GROUP}:\n    {name} = {wrapper}\nreturn {name}"
    return (Replace(stmt, code), Import("torch"))
