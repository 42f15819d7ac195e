"""Parameters that are frozen when the model is wrapped are never synchronised.

What         Parameters are frozen for the first epochs and trained from then on, and
             DistributedDataParallel wraps the model while they are frozen, or without
             find_unused_parameters although the set of parameters in use will change.
At run time  DistributedDataParallel knows the parameters that require gradients when it wraps.
             The others get no all-reduce, not even once they are thawed: each rank trains them on
             its own examples, the models drift apart, nothing warns, and rank 0's is saved. Frozen
             behind the wrapping instead, the second step is a RuntimeError: expected to have
             finished reduction in the prior iteration.
Example      for p in model.encoder.parameters(): p.requires_grad = False
             model = torch.nn.parallel.DistributedDataParallel(model)
             ... if epoch == 2: for p in model.module.encoder.parameters(): p.requires_grad = True
Fix          Let all parameters require gradients while the model is wrapped, and freeze them again
             behind it; find_unused_parameters=True, as which ones are used changes.
Fix safety   Safe: only a rank of a process group wraps. A frozen parameter keeps no gradient, as in
             one process; its buckets are reduced all the same.
Source       torch.nn.parallel.DistributedDataParallel (parameters that do not require gradients
             are not registered; find_unused_parameters)
"""

import ast
from collections.abc import Iterator

from ...record import record
from ..analysis.program import Program
from ..editing.edits import Edit, Insert, Rewrite
from ..findings import Finding, Safety, Severity
from ..source.module import Module
from ..source.tree import everywhere, keyword, last_argument, mentions, within

CODE, SEVERITY, SAFETY = "DF308", Severity.ERROR, Safety.SAFE

MAX_CALL_DEPTH = 4  # functions between the loop over epochs and the line that thaws
THAW = """\
{frozen} = [parameter for parameter in {model}.parameters() if not parameter.requires_grad]
for parameter in {frozen}:
    parameter.requires_grad_(True)  # else ranks would never synchronise them"""
FREEZE = """\
for parameter in {frozen}:
    parameter.requires_grad_(False)"""


@record
class FreezeSwitch:
    """Where parameters are frozen or thawed; ``on`` is None where a variable says which."""

    module: Module
    stmt: ast.stmt
    on: bool | None


def findings(program: Program) -> Iterator[Finding]:
    wraps = [
        (module, call)
        for module in program.modules
        for call in module.calls_to("DistributedDataParallel")
        if module.dotted(call.func).startswith("torch.") and call.args
    ]
    sites = list(freeze_switches(program)) if wraps else []
    epochs = training_loops(program) if sites else set()
    thawing = [
        s
        for s in sites
        if s.on is not False and is_reached_in_training(program, epochs, s.module, s.stmt)
    ]
    freezing = [s for s in sites if s.on is not True]
    if not thawing or not freezing:
        return
    early = not all(
        is_reached_in_training(program, epochs, s.module, s.stmt, alone=True) for s in freezing
    )
    for module, call in wraps:
        edits = [*find_unused_edits(call)]
        late = early and not is_thawed_above(module, module.statement(call))
        if late:
            edits += thaw_around_wrap(module, call)
        if edits or late:
            where = thawing[0]
            file = "" if where.module is module else f"{where.module.source.file} "
            because = f"{file}line {where.stmt.lineno} thaws parameters in training"
            yield Finding(module, call, because, tuple(edits))


def freeze_switches(program: Program) -> Iterator[FreezeSwitch]:
    """Every line that says of parameters whether they are trained."""
    for module in program.modules:
        for node in module.attributes("requires_grad"):
            stmt = module.parents[node]
            if isinstance(stmt, ast.Assign) and is_model_part(module, node.value):
                yield FreezeSwitch(module, stmt, constant_bool(stmt.value))
        for call in module.calls_to("requires_grad_"):
            stmt = module.statement(call)
            if isinstance(call.func, ast.Attribute) and is_model_part(module, call.func.value):
                block = module.parents[stmt]
                if not (isinstance(block, ast.For) and is_next_to_wrap(module, block)):
                    yield FreezeSwitch(
                        module, stmt, constant_bool(call.args[0]) if call.args else True
                    )


def constant_bool(value: ast.expr) -> bool | None:
    return value.value is True if isinstance(value, ast.Constant) else None


def is_model_part(module: Module, node: ast.expr) -> bool:
    """Whether it is a part of a model, or a name that goes through parameters: no other tensor."""
    if isinstance(node, ast.Subscript):  # encoder.layers[3]
        return isinstance(node.value, ast.Attribute)
    if isinstance(node, ast.Attribute):
        return node.attr not in ("data", "grad")
    return isinstance(node, ast.Name) and any(
        isinstance(up, ast.For)
        and any(mentions(up.iter, name) for name in ("parameters", "named_parameters"))
        and any(name.id == node.id for name in everywhere(up.target, ast.Name))
        for up in module.ancestors(node)
    )


def training_loops(program: Program) -> set[ast.AST]:
    """Loops that train, and those over epochs around them, also in a function that calls theirs."""
    found: set[ast.AST] = set()
    for loop in program.train_loops:
        found |= {loop.steps, loop.epochs or loop.steps}
        function = loop.module.function(loop.steps)
        for where, call in program.callers(function) if function is not None else ():
            found |= {up for up in where.ancestors(call) if isinstance(up, ast.For | ast.While)}
    return found


def is_reached_in_training(
    program: Program,
    epochs: set[ast.AST],
    module: Module,
    node: ast.AST,
    *,
    alone: bool = False,
    depth: int = 0,
) -> bool:
    """Whether training comes to ``node``; ``alone``: and nothing before it does."""
    if not epochs.isdisjoint(module.ancestors(node)):
        return True
    function = module.function(node)
    callers = program.callers(function) if function is not None and depth < MAX_CALL_DEPTH else []
    each = (
        is_reached_in_training(program, epochs, where, call, alone=alone, depth=depth + 1)
        for where, call in callers
    )
    return bool(callers) and (all(each) if alone else any(each))


def find_unused_edits(call: ast.Call) -> Iterator[Edit]:
    """The edit that has unused parameters looked for, where they are not."""
    word, static = keyword(call, "find_unused_parameters"), keyword(call, "static_graph")
    if word is not None:
        if isinstance(word.value, ast.Constant) and word.value.value is not True:
            yield Rewrite(word.value, "True")
    elif static is not None:  # which it is not
        yield Rewrite(static, "find_unused_parameters=True")
    else:
        last = last_argument(call)
        assert last is not None
        yield Rewrite(last, ", find_unused_parameters=True", after=True)


def thaw_around_wrap(module: Module, call: ast.Call) -> tuple[Edit, ...]:
    """Edits that wrap a model while all of it is trained; none where the wrapper has no name."""
    stmt = module.statement(call)
    model = call.args[0]
    if not isinstance(stmt, ast.Assign) or not isinstance(model, ast.Name | ast.Attribute):
        return ()
    names = {name.id for name in within(module.scope_statements(call), ast.Name)}
    texts = {
        "model": module.text(model),
        "frozen": "frozen_parameters" if "frozen" in names else "frozen",
    }
    return (Insert(stmt, THAW.format(**texts)), Insert(stmt, FREEZE.format(**texts), "after"))


def is_thawed_above(module: Module, stmt: ast.stmt) -> bool:
    """Whether the loop above a statement thaws."""
    block = module.body(stmt)
    above = block[: block.index(stmt)]
    return (
        bool(above)
        and isinstance(above[-1], ast.For)
        and any(
            module.last_name(call.func) == "requires_grad_" and constant_bool(call.args[0])
            for call in within(above[-1].body, ast.Call)
            if call.args
        )
    )


def is_next_to_wrap(module: Module, stmt: ast.stmt) -> bool:
    """Whether the statement above one, or below it, wraps."""
    block = module.body(stmt)
    place = block.index(stmt)
    return any(
        mentions(other, "DistributedDataParallel")
        for other in block[max(0, place - 1) : place + 2]
        if other is not stmt
    )
