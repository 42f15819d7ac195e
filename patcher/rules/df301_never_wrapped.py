"""Ranks train, and nothing keeps their models alike.

What         A process group is created, and the model is never wrapped in DistributedDataParallel,
             or only in apex's class of that name.
At run time  Every rank trains a model of its own on its part of the data; the last one to save
             wins. apex's wrapper is an ImportError where apex is not installed.
Example      torch.distributed.init_process_group(backend="nccl")   # and no DDP anywhere
Fix          torch's DistributedDataParallel: behind the place where a lone process would use
             DataParallel, or in the place of apex's.
Fix safety   Safe: only a rank of a process group reaches the line. Without a DataParallel to show
             where the model is complete, it is only reported.
Source       torch.nn.parallel.DistributedDataParallel; hazards counted in 65 of 134 scripts
"""

import ast
from collections.abc import Iterator

from ..analysis.loaders import argument_for_parameter
from ..analysis.program import Program
from ..analysis.rank_reach import RANKS, roles_reaching_in_function
from ..editing.edits import Edit, Import, Insert, Replace, Rewrite
from ..findings import Finding, Safety, Severity
from ..fixes.process_group import WRAP, card_and_group_test, ddp_options
from ..source.module import Module
from ..source.tree import bound_names, only_argument, parameters, within

CODE, SEVERITY, SAFETY = "DF301", Severity.ERROR, Safety.SAFE


def findings(program: Program) -> Iterator[Finding]:
    groups = program.calls_to("init_process_group")
    if not groups or not program.train_loops:
        return
    wraps = program.calls_to("DistributedDataParallel")
    if any(not module.dotted(call.func).startswith("apex.") for module, call in wraps):
        return
    for module, call in wraps:
        yield Finding(
            module, call, "the only wrapper is apex's", replace_apex_ddp(program, module, call)
        )
    if not wraps:
        places = data_parallel_statements(program)
        models = {
            module.text(stmt.targets[0]) for module, stmt in places if isinstance(stmt, ast.Assign)
        }
        wraps_twice = len(models) < len(places)
        for module, stmt in places:
            edits = () if wraps_twice else add_ddp(program, module, stmt)
            yield Finding(module, stmt, "ranks get no wrapper", edits)
        if not places:
            yield Finding(*groups[0], "no model is wrapped after it")


def data_parallel_statements(program: Program) -> list[tuple[Module, ast.stmt]]:
    """Where a lone process wraps a model in DataParallel to train it."""
    return [
        (module, module.statement(call))
        for module, call in program.calls_to("DataParallel")
        if program.evaluation_of(module, call) is None and program.is_live(module, call)
    ]


def add_ddp(program: Program, module: Module, stmt: ast.stmt) -> tuple[Edit, ...]:
    """Edits that wrap a rank's model in DDP, behind the DataParallel of a lone process."""
    gate = module.parents[stmt]
    if not (
        isinstance(stmt, ast.Assign)
        and isinstance(stmt.targets[0], ast.Name | ast.Attribute)
        and isinstance(gate, ast.If)
        and stmt in gate.body
        and all(is_data_parallel_wrap(module, other) for other in gate.body)
        and not roles_reaching_in_function(module, stmt) & RANKS
    ):
        return ()
    model = module.text(stmt.targets[0])
    if not is_on_device(program, module, stmt, model):
        return ()
    card, group = card_and_group_test(program, module, stmt)
    code = WRAP.format(group=group, model=model, options=ddp_options(program, card))
    imports = [] if "args" in group else [Import("torch")]
    return (Insert(gate, code, "after"), *imports)


def is_data_parallel_wrap(module: Module, stmt: ast.stmt) -> bool:
    """``model = DataParallel(model)``."""
    return (
        isinstance(stmt, ast.Assign)
        and isinstance(stmt.value, ast.Call)
        and module.dotted(stmt.value.func).endswith("DataParallel")
    )


def is_on_device(
    program: Program,
    module: Module,
    node: ast.AST,
    model: str,
    seen: frozenset[ast.AST] = frozenset(),
) -> bool:
    """Whether the model is moved to its device above ``node``, or above all calls that pass it."""
    if is_created_on_device(module, node, model) or any(
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
    arguments = [
        (caller, call, argument_for_parameter(module, function, call, model))
        for caller, call in program.callers(function)
    ]
    return bool(arguments) and all(
        value is not None
        and is_on_device(program, caller, call, caller.text(value), seen | {function})
        for caller, call, value in arguments
    )


def is_created_on_device(module: Module, node: ast.AST, model: str) -> bool:
    """``model = Model().to(device)`` above ``node``."""
    return any(
        isinstance(stmt.value, ast.Call)
        and isinstance(stmt.value.func, ast.Attribute)
        and stmt.value.func.attr in ("to", "cuda")
        and model in map(module.text, stmt.targets)
        and stmt.lineno < getattr(node, "lineno", 0)
        for stmt in within(module.scope_statements(node), ast.Assign)
    )


def replace_apex_ddp(program: Program, module: Module, call: ast.Call) -> tuple[Edit, ...]:
    """Edits that replace apex's class by torch's, in its import and its call."""
    card, _ = card_and_group_test(program, module, call)
    local = module.text(call.func)
    imports = [
        stmt
        for stmt in module.nodes(ast.ImportFrom)
        if stmt.module == "apex.parallel" and bound_names(stmt) == {local}
    ]
    model = only_argument(call, "module")
    if len(imports) != 1 or model is None:
        return ()
    target: ast.stmt = imports[0]
    attempt = module.parents[target]
    if isinstance(attempt, ast.Try):
        if attempt.body != [target] or attempt.orelse or attempt.finalbody:
            return ()
        target = attempt
    name = "DistributedDataParallel"
    line = f"from torch.nn.parallel import {name}" + (f" as {local}" if local != name else "")
    options = f", {ddp_options(program, card)}"
    return (Replace(target, line), Rewrite(model, options, after=True))
