"""The edits of ``patch --exact``: N ranks train step by step as one process does.

The loader keeps the sampler of a lone process, in the order that rank 0 draws. Each batch is shared
among the ranks, also where it does not divide, and each rank's loss is weighted by its part of the
batch. The batch flag therefore keeps the meaning that it has in one process: it is the global
batch. This assumes that the loss is a mean over examples, none of which depends on the others of
its batch.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..analysis.language.literal_arguments import literal_truth
from ..analysis.ranks.manual_sharding import is_constant
from ..analysis.settings.in_batch_negatives import is_arange, masked_products, products
from ..analysis.training.constructed_loaders import Loader
from ..analysis.training.loaders import trace_loader
from ..analysis.training.program import Program
from ..analysis.training.train_loops import TrainLoop
from ..editing.edits import Define, Edit, Rewrite
from ..editing.helpers import helper_names
from ..findings import Finding
from ..source.branches import exclusive
from ..source.module import Module
from ..source.tree import argument, below, bound_names, everywhere, mentions
from .batch_sharing import (
    WHOLE_BATCH,
    adapt_loader_uses,
    fork_by_test,
    is_one_of_cycles,
    refusal,
    share_batches_of,
    single_process_sampler,
)
from .process_group import BATCH_SAMPLER, shares_batches

BATCH_NUMBER = "batch_number"
BATCH_STATISTICS = ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm")
LOSS_NAME = re.compile(r"loss|cross_?entropy", re.IGNORECASE)
AMOUNT_NAME = re.compile(r"batch|len\(|step|num", re.IGNORECASE)


def share_batches(program: Program) -> Iterator[Finding]:
    """Edits that share the batches of every training loader, to be applied before any rule's.

    Raises RefusedError, naming the place, where the program cannot provably be made exact.
    """
    pending: dict[ast.Call, TrainLoop] = {}
    for loop in program.train_loops:
        loader = training_loader(program, loop)
        for call in loop.backwards:
            if loop.goes_back_elsewhere:
                raise refusal(loop.module, call, "a function of its own goes back and steps")
            if call.args or call.keywords:
                raise refusal(loop.module, call, "backward() is given something but the loss")
            if any(has_modulo(up) for up in loop.module.ancestors(call)):
                raise refusal(loop.module, call, "one backward() for several batches")
        if not shares_batches(loader):
            pending.setdefault(loader.call, loop)
    if pending:
        refuse_batch_dependence(program)
    for loop in pending.values():
        loader = training_loader(program, loop)
        sampler, edits = single_process_sampler(loader)
        test = non_training_test(program, loader)
        edits += (
            [fork_by_test(loader, sampler, test)] if test else [*share_batches_of(loader, sampler)]
        )
        edits += [*adapt_loader_uses(loader.module, loader.call, loader)]
        if loader.module is loop.module:
            edits += adapt_loader_uses(loop.module, loop.steps, loader)
        elif others := adapt_loader_uses(loop.module, loop.steps, loader):
            yield Finding(loop.module, loop.steps, "nobody has to be told the epoch", tuple(others))
        yield Finding(
            loader.module,
            loader.call,
            "its batches are dealt out among the ranks",
            (*dict.fromkeys(edits), Define(BATCH_SAMPLER)),
        )


def weight_losses(program: Program) -> Iterator[Finding]:
    """Edits that weight every loss, to be applied after all rules', which may add a scaler."""
    if program.train_loops:
        refuse_divisions(program)  # the rules have undone those of manual sharding by now
    for loop in program.train_loops:
        module, loader = loop.module, training_loader(program, loop)
        backwards = [call for call in loop.backwards if not is_weighted(call)]
        if not backwards:
            continue
        if is_one_of_cycles(loader):
            edits = [weight_loss(module, call, f"{WHOLE_BATCH}.weight(0)") for call in backwards]
            yield Finding(module, loop.steps, "every batch is shared out alike", tuple(edits))
            continue
        edits = []
        number = f"{loop.step_name} - 1" if loop.step_start else loop.step_name
        if not number or loop.step_name in bound_names(loop.steps.body):
            number = BATCH_NUMBER
            edits = count_batches(loop)
        made = loader.batch_sampler
        sampler = f"{loader.name}.batch_sampler"
        if isinstance(made, ast.Name):
            sampler = made.id
        edits += [weight_loss(module, call, f"{sampler}.weight({number})") for call in backwards]
        yield Finding(module, loop.steps, "each rank's loss counts by its part", tuple(edits))


def weight_loss(module: Module, call: ast.Call, factor: str) -> Edit:
    """The edit that multiplies the loss of ``loss.backward()``, inside a scaler's ``scale()``."""
    assert isinstance(call.func, ast.Attribute)
    loss = call.func.value
    if isinstance(loss, ast.Call) and module.dotted(loss.func).endswith("scale"):
        scaled = argument(loss, 0, "outputs")
        if scaled is not None:
            return Rewrite(scaled, f"{module.operand(scaled)} * {factor}")
    if isinstance(loss, ast.BinOp):  # stands in parentheses already
        return Rewrite(loss, f"({module.text(loss)}) * {factor}")
    return Rewrite(loss, f"({module.text(loss)} * {factor})")


def is_weighted(call: ast.Call) -> bool:
    """Whether ``weight_loss`` has edited a call of ``backward()`` already."""
    assert isinstance(call.func, ast.Attribute)
    loss = call.func.value
    return any(
        isinstance(part.func, ast.Attribute) and part.func.attr == "weight"
        for part in everywhere(loss, ast.Call)
    )


def count_batches(loop: TrainLoop) -> list[Edit]:
    """Edits that number the batches of a loop over its loader."""
    module, steps = loop.module, loop.steps
    if not isinstance(steps, ast.For) or loop.loader is None or loop.loader.cycle is not None:
        raise refusal(module, steps, "nothing counts its batches")
    target = module.text(steps.target)
    if isinstance(steps.target, ast.Tuple):
        target = f"({target.strip('()')})"
    return [
        Rewrite(steps.target, f"{BATCH_NUMBER}, {target}"),
        Rewrite(steps.iter, f"enumerate({module.text(steps.iter)})"),
    ]


def training_loader(program: Program, loop: TrainLoop) -> Loader:
    """The loader whose batches the loop takes, directly or from a cycle.

    Raises RefusedError where it is not known, or where nothing numbers its batches.
    """
    loader, module, steps = loop.loader, loop.module, loop.steps
    if loader is None or not (isinstance(steps, ast.For) or is_one_of_cycles(loader)):
        raise refusal(module, steps, "no one DataLoader that it goes through is known")
    if any(
        other.module is loader.module
        and other.made_by == loader.made_by
        and not exclusive(loader.call, other.call)
        for other in loader.others
    ):
        raise refusal(module, steps, "it goes through several DataLoaders in turn")
    if evaluation_loaders(program, loader) and not non_training_test(program, loader):
        raise refusal(loader.module, loader.call, "it makes the loader of an evaluation, too")
    made_here = loader.module is module and module.function(loader.call) is module.function(steps)
    if is_one_of_cycles(loader):
        if not made_here:
            raise refusal(module, steps, "its DataLoaders have no name here")
    elif loader.cycle is not None:
        is_assigned = isinstance(module.statement(loader.call), ast.Assign)
        if not (made_here and loop.step_name and is_assigned):
            raise refusal(module, steps, "nothing counts the batches of its cycle")
    elif not isinstance(steps, ast.For) or trace_loader(program, module, steps.iter) is None:
        raise refusal(module, steps, "it takes its batches one by one from an iterator")
    elif not loader.name or loader.scope is not module.function(steps):
        raise refusal(module, steps, "its DataLoader has no name here")
    return loader


def evaluation_loaders(program: Program, loader: Loader) -> list[Loader]:
    """Loaders of evaluations that the same call creates."""
    return [e.loader for e in program.evaluations if e.loader.call is loader.call]


def non_training_test(program: Program, loader: Loader) -> str:
    """A test that holds where a function creates a loader that is not trained on, or ``""``.

    It is the key of a comprehension of loaders. Or it is made of a parameter for which all callers
    pass a literal, if exactly the loaders that are trained on get one of its values.
    """
    if loader.only_for:
        return loader.only_for.replace("==", "!=")
    module, function = loader.module, loader.module.function(loader.call)
    loops = [loop.loader for loop in program.train_loops if loop.loader is not None]
    asked = [each.factory_call for each in loops if each.call is loader.call]
    trained = [call for call in asked if call is not None]
    if function is None or len(trained) < len(asked) or not evaluation_loaders(program, loader):
        return ""
    for arg in everywhere(function.args, ast.arg):
        literals = {
            call: literal_truth(module, function, call, arg.arg)
            for _, call in program.callers(function)
        }
        values = {literals.get(call) for call in trained}
        if (
            len(values) == 1
            and None not in {*values, *literals.values()}
            and {call for call, value in literals.items() if value in values} == set(trained)
            and (function, arg.arg) not in module.stores
        ):
            return f"not {arg.arg}" if True in values else arg.arg
    return ""


def has_modulo(node: ast.AST) -> bool:
    """An ``if`` with a ``%`` in its test, as for gradient accumulation."""
    return isinstance(node, ast.If) and any(
        isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod) for part in below(node.test)
    )


def refuse_batch_dependence(program: Program) -> None:
    """Raise RefusedError where an example's loss depends on the other examples of its rank."""
    for module in program.modules:
        for call in module.calls_to(*BATCH_STATISTICS):
            raise refusal(module, call, "its statistics are of the examples that a rank holds")
        for loss in contrastive_losses(program, module):
            why = "the loss compares each example with its whole batch, of which a rank has a part"
            raise refusal(module, loss, why)


def contrastive_losses(program: Program, module: Module) -> Iterator[ast.expr]:
    """Losses that score each example against its whole batch, such as with arange as labels."""
    evaluating = {evaluation.function for evaluation in program.evaluations} - {None}
    for call in module.nodes(ast.Call) if module.calls_to("arange") else ():
        scores, labels = argument(call, 0, "input"), argument(call, 1, "target")
        if scores is None or labels is None or module.function(call) in evaluating:
            continue
        if is_arange(module, labels) and (
            LOSS_NAME.search(module.text(call.func)) or any(products(module, scores))
        ):
            yield call
    for product, _ in masked_products(module):
        yield product.node


def refuse_divisions(program: Program) -> None:
    """Raise RefusedError where a batch size or number of steps is divided by the world size."""
    evaluating = {evaluation.function for evaluation in program.evaluations}
    for module in program.modules:
        for division, amount, divisor in divisions(module):
            function = module.function(division)
            if (
                is_of_world_size(program, module, divisor)
                and AMOUNT_NAME.search(module.text(amount))
                and function not in evaluating
                and (function is None or function.name not in helper_names())
            ):
                raise refusal(module, division, "it divides by the number of ranks what they share")


def is_of_world_size(program: Program, module: Module, divisor: ast.expr) -> bool:
    """Whether a divisor contains the world size."""
    names = [name for name in everywhere(divisor, ast.Name) if name.id == "world_size"]
    return (
        any(not is_constant(program, module, name) for name in names)
        or any(node.attr == "world_size" for node in everywhere(divisor, ast.Attribute))
        or mentions(divisor, "get_world_size")
    )


def divisions(module: Module) -> Iterator[tuple[ast.expr | ast.stmt, ast.expr, ast.expr]]:
    """Every ``a / b``, ``a // b`` and ``a //= b``, with its two sides."""
    for node in module.nodes(ast.BinOp):
        if isinstance(node.op, ast.Div | ast.FloorDiv):
            yield node, node.left, node.right
    for stmt in module.nodes(ast.AugAssign):
        if isinstance(stmt.op, ast.Div | ast.FloorDiv):
            yield stmt, stmt.target, stmt.value
