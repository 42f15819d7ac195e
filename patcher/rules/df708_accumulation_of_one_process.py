"""The accumulation makes one process's batches a global batch.

What         The number of micro-batches of a step is a batch by the size of the loader's, such as
             args.total_batch // args.batch_size, and every rank takes batches of that size.
At run time  A step has as many times the examples asked for as there are ranks, and an epoch as
             many times fewer steps. Nothing warns.
Example      accumulation = args.total_batch // args.batch_size
Fix          Divide by the number of ranks, too, to 1 at least.
Fix safety   Safe: a lone process counts what it did.
Source       transformers.TrainingArguments (train_batch_size and world_size)
"""

import ast
from collections.abc import Iterator

from ..analysis.batches.batches_of_all import divisions, holds_size, is_for_all_ranks, is_of_data
from ..analysis.batches.example_counts import counts_listed_cards, has_world_size
from ..analysis.training.constructed_loaders import Loader
from ..analysis.training.only_values import origin
from ..analysis.training.program import Program
from ..analysis.training.train_loops import TrainLoop, is_optimizer_step
from ..editing.edits import Rewrite
from ..findings import Finding, Safety, Severity
from ..fixes.ranks_counted import number_of_ranks
from ..source.module import Module
from ..source.tree import is_inside, within

CODE, SEVERITY, SAFETY = "DF708", Severity.DEGRADED, Safety.SAFE


def findings(program: Program) -> Iterator[Finding]:
    told: set[ast.expr] = set()
    for loop in program.train_loops:
        loader = loop.loader
        if loader is None or not loader.distributed_samplers:
            continue
        number = loop.accumulation or waited_for(loop)
        if number is None:
            continue
        for module, value in values_of_accumulation(program, loop, number):
            for node, size in quotients(program, loader, module, value):
                if node not in told:
                    told.add(node)
                    yield divided(program, module, node, size)


def waited_for(loop: TrainLoop) -> ast.expr | None:
    """``n`` of the test ``batches - last >= n`` or ``waiting == n`` around an optimizer's step."""
    module = loop.module
    for call in within(loop.steps.body, ast.Call):
        if not is_optimizer_step(module, call):
            continue
        for up in module.ancestors(call):
            if up is loop.steps:
                break
            match up:
                case ast.If(
                    test=ast.Compare(
                        left=ast.BinOp(op=ast.Sub()) | ast.Name() | ast.Attribute(),
                        ops=[ast.GtE() | ast.Eq()],
                        comparators=[ast.Name() | ast.Attribute() as number],
                    )
                ):
                    return number
    return None


def values_of_accumulation(
    program: Program, loop: TrainLoop, accumulation: ast.expr
) -> Iterator[tuple[Module, ast.expr]]:
    """What makes the number: of a name, or all that is assigned to a name or an option."""
    module, value = origin(program, loop.module, accumulation)
    yield module, value
    if isinstance(value, ast.Name):  # ``n = total // size; n += 1``
        stores = module.stores.get((module.function(value), value.id), ())
        bound = [module.statement(store) for store in stores]
        yield from ((module, each.value) for each in bound if isinstance(each, ast.Assign))
    if isinstance(value, ast.Attribute):
        for where in program.modules:
            yield from ((where, each) for each in where.attribute_values.get(value.attr, ()))


def quotients(
    program: Program, loader: Loader, module: Module, value: ast.expr
) -> Iterator[tuple[ast.expr, ast.expr]]:
    """``total // size`` in a value, where no ranks are counted, with the size."""
    size = loader.batch_size
    if size is None or has_world_size(module, value) or counts_listed_cards(module, value):
        return
    if is_for_all_ranks(program, loader, size) or later_divided(module, value):
        return
    for node, counted, divisor in divisions(module):
        if (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Div | ast.FloorDiv)
            and (node is value or is_inside(node, value))
            and holds_size(program, loader, module, divisor)
            and not is_of_data(program, loader, module, counted)
        ):
            yield node, divisor


def later_divided(module: Module, value: ast.expr) -> bool:
    """Whether another line divides the number by the ranks, ``n = n // world_size``."""
    stmt = module.statement(value)
    names = {module.text(t) for t in stmt.targets} if isinstance(stmt, ast.Assign) else set()
    changes: list[tuple[ast.expr, ast.expr]] = [
        (each.target, each.value) for each in module.nodes(ast.AugAssign)
    ]
    changes += [(each.targets[0], each.value) for each in module.nodes(ast.Assign)]
    return any(
        module.text(target) in names and has_world_size(module, new) for target, new in changes
    )


def divided(program: Program, module: Module, node: ast.expr, size: ast.expr) -> Finding:
    """The finding of a quotient, which is divided by the ranks and is 1 at least."""
    assert isinstance(node, ast.BinOp)
    rounds = isinstance(node.op, ast.FloorDiv)
    ranks, needed = number_of_ranks(program, module, node)
    by = f"{module.operand(size)} * ({ranks})"
    text = f"{module.operand(node.left)} {'//' if rounds else '/'} ({by})"
    whole: ast.expr = node
    up = module.parents[node]
    if isinstance(up, ast.Call) and module.last_name(up.func) in ("int", "round", "ceil", "floor"):
        text, whole = f"{module.text(up.func)}({text})", up
    up = module.parents[whole]
    is_guarded = isinstance(up, ast.Call) and module.last_name(up.func) == "max"
    edit = Rewrite(whole, text if is_guarded else f"max(1, {text})")
    because = f"{module.text(node)} counts the batches of one process, and each rank takes so many"
    return Finding(module, node, because, (edit, needed))
