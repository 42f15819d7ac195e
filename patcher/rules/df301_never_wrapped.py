"""Ranks train, and nothing keeps their models alike.

What         A process group is made and the model is never wrapped by DistributedDataParallel, or
             by apex's class of that name only.
At run time  Every rank trains a model of its own on its part of the data; the last one to save
             wins. apex's wrapper is an ImportError where apex is not installed.
Example      torch.distributed.init_process_group(backend="nccl")   # and no DDP anywhere
Fix          torch's DistributedDataParallel: behind the place where a lone process would use
             DataParallel, or in the place of apex's.
Fix safety   Safe: only a rank of a process group reaches the line. Without a DataParallel to show
             where the model is complete, it is reported only.
Source       torch.nn.parallel.DistributedDataParallel; hazards counted in 65 of 134 scripts
"""

import ast
from collections.abc import Iterator

from ..distributed import WRAP, arguments_name, ddp_options, is_in_scope
from ..edits import Edit, Insert, Replace, Rewrite
from ..facts import Unit
from ..findings import Finding, Safety, Severity
from ..loaders import given
from ..module import Module
from ..roles import RANKS, reached_in_function
from ..syntax import bound_names, parameters, within

CODE, SEVERITY, SAFETY = "DF301", Severity.ERROR, Safety.SAFE


def findings(unit: Unit) -> Iterator[Finding]:
    groups = [(m, call) for m in unit.modules for call in m.calls_to("init_process_group")]
    if not groups or not unit.train_loops:
        return
    wraps = [(m, call) for m in unit.modules for call in m.calls_to("DistributedDataParallel")]
    if any(not module.dotted(call.func).startswith("apex.") for module, call in wraps):
        return
    for module, call in wraps:
        yield Finding(module, call, "the only wrapper is apex's", native(unit, module, call))
    if not wraps:
        module, call = groups[0]
        place = data_parallel(unit)
        if place is not None:
            module, stmt = place
            yield Finding(module, stmt, "ranks get no wrapper", wrap(unit, module, stmt))
        else:
            yield Finding(module, call, "no model is wrapped after it")


def data_parallel(unit: Unit) -> tuple[Module, ast.stmt] | None:
    """The one place where a lone process wraps the model in DataParallel."""
    places = [
        (module, stmt)
        for module in unit.modules
        for call in module.calls_to("DataParallel")
        for stmt in [module.statement(call)]
        if unit.evaluation_of(module, call) is None
    ]
    return places[0] if len(places) == 1 else None


def wrap(unit: Unit, module: Module, stmt: ast.stmt) -> tuple[Edit, ...]:
    """DDP for a rank behind DataParallel for a lone process."""
    args = arguments_name(unit)
    gate = module.parents[stmt]
    if not (
        isinstance(stmt, ast.Assign)
        and isinstance(stmt.targets[0], ast.Name)
        and isinstance(gate, ast.If)
        and gate.body == [stmt]
        and not reached_in_function(module, stmt) & RANKS
        and args
        and is_in_scope(module, stmt, args)
    ):
        return ()
    model = stmt.targets[0].id
    if not is_moved(unit, module, stmt, model):
        return ()
    code = WRAP.format(args=args, model=model, options=ddp_options(unit, args))
    return (Insert(gate, code, "after"),)


def is_moved(
    unit: Unit, module: Module, node: ast.AST, model: str, seen: frozenset[ast.AST] = frozenset()
) -> bool:
    """Whether the model goes to its device above ``node``, or above every call of the function."""
    if any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr in ("to", "cuda")
        and module.text(call.func.value) == model
        and call.lineno < getattr(node, "lineno", 0)
        for call in within(module.scope_statements(node), ast.Call)
    ):
        return True
    function = module.function(node)
    if function is None or function in seen or model not in parameters(function):
        return False
    callers = unit.callers(function)
    given_models = [(where, call, given(module, function, call, model)) for where, call in callers]
    return bool(callers) and all(
        value is not None and is_moved(unit, where, call, where.text(value), seen | {function})
        for where, call, value in given_models
    )


def native(unit: Unit, module: Module, call: ast.Call) -> tuple[Edit, ...]:
    """Torch's class in the place of apex's, import and call."""
    args = arguments_name(unit)
    local = module.text(call.func)
    imports = [
        stmt
        for stmt in module.nodes(ast.ImportFrom)
        if stmt.module == "apex.parallel" and bound_names(stmt) == {local}
    ]
    if len(imports) != 1 or len(call.args) != 1 or call.keywords or not args:
        return ()
    if not is_in_scope(module, call, args):
        return ()
    attempt = module.parents[imports[0]]
    place = imports[0]
    if isinstance(attempt, ast.Try):
        if attempt.body != [place] or attempt.orelse or attempt.finalbody:
            return ()
        target: ast.stmt = attempt
    else:
        target = place
    name = "DistributedDataParallel"
    line = f"from torch.nn.parallel import {name}" + (f" as {local}" if local != name else "")
    options = f", {ddp_options(unit, args)}"
    return (Replace(target, line), Rewrite(call.args[0], options, after=True))
