"""Edits of a training DataLoader that share a lone process's batches among the ranks."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..analysis.training.constructed_loaders import Loader
from ..editing.edits import Edit, Guard, Import, Insert, RefusedError, Replace, Rewrite, Unwrap
from ..source.module import Module
from ..source.tree import below, everywhere, keyword, within
from .process_group import BATCH_SAMPLER
from .statements import arguments_in_order, with_gate

BATCHES_NAME = "train_batches"
WHOLE_BATCH = "whole_batch"  # for cycles, whose batches all have the same weight
BATCH_ATTRIBUTES = ("batch_size", "sampler", "drop_last")  # a batch_sampler replaces them


def refusal(module: Module, at: ast.stmt | ast.expr | ast.keyword, why: str) -> RefusedError:
    """The error to raise where ``at`` cannot be made exact."""
    return RefusedError(f"--exact: {module.source.file} line {at.lineno}: {why}")


def is_one_of_cycles(loader: Loader) -> bool:
    """Whether the loader is one of a list of endless loaders, made in a comprehension."""
    ups = loader.module.ancestors(loader.call)
    return loader.cycle is not None and any(isinstance(up, ast.ListComp) for up in ups)


def single_process_sampler(loader: Loader) -> tuple[str, list[Edit]]:
    """The text of a lone process's sampler, and edits that make ranks use it as well."""
    module, word = loader.module, keyword(loader.call, "sampler")
    if word is None:
        return default_sampler(loader)
    others = [
        s for s in loader.samplers if not any(c in below(s) for c in loader.distributed_samplers)
    ]
    replacements: list[tuple[ast.expr, ast.expr]] = []
    for call in loader.distributed_samplers:
        up = module.parents[call]
        if isinstance(up, ast.IfExp) and call in (up.body, up.orelse):
            replacements.append((up, up.orelse if call is up.body else up.body))
        elif len(others) == 1:
            replacements.append((call, others[0]))
        else:
            raise refusal(module, call, "no branch shows the sampler of a lone process")
    values = [new for _, new in replacements] or others
    if any(isinstance(value, ast.Constant) for value in values):  # None: the loader shuffles
        return default_sampler(loader)
    if isinstance(word.value, ast.Name):
        return word.value.id, [restore_sampler(module, old, new) for old, new in replacements]
    return module.text(replacements[0][1] if replacements else word.value), []


def restore_sampler(module: Module, old: ast.expr, new: ast.expr) -> Edit:
    """The edit that puts a lone process's sampler in the place of the ranks' sampler.

    A test that only chooses between the two goes as well.
    """
    stmt, other = module.statement(old), module.statement(new)
    gate = module.parents[stmt]
    if isinstance(gate, ast.If) and stmt is not other:
        if gate.body == [other] and gate.orelse == [stmt]:
            return Unwrap(gate)
        if gate.body == [stmt] and gate.orelse == [other]:
            return Replace(gate, module.text(other))
    return Rewrite(old, module.text(new))


def default_sampler(loader: Loader) -> tuple[str, list[Edit]]:
    """The text of the sampler that a DataLoader creates by default, and edits that import it."""
    if loader.dataset is None:
        raise refusal(loader.module, loader.call, "it names no dataset")
    if keyword(loader.call, "generator") is not None:
        raise refusal(loader.module, loader.call, "it shuffles with a generator of its own")
    kind = "RandomSampler" if is_shuffled(loader) else "SequentialSampler"
    edits: list[Edit] = []
    if kind not in loader.module.aliases:
        edits.append(Import("torch.utils.data", kind))
    return f"{kind}({loader.module.text(loader.dataset)})", edits


def is_shuffled(loader: Loader) -> bool:
    """Whether a lone process's loader shuffles: ``shuffle`` is neither missing nor False."""
    word = keyword(loader.call, "shuffle")
    return word is not None and not (isinstance(word.value, ast.Constant) and not word.value.value)


def share_batches_of(loader: Loader, sampler: str) -> Iterator[Edit]:
    """Edits that pass the loader a batch sampler, which has a name of its own in a cycle."""
    module, call = loader.module, loader.call
    code = sampler_construction(loader, sampler, batch_size_text(loader))
    if is_one_of_cycles(loader):
        yield constant_weight(loader)
    elif loader.cycle is not None:
        yield Insert(module.statement(call), f"{BATCHES_NAME} = {code}")
        code = BATCHES_NAME
    arguments = arguments_in_order(call)
    is_passed = False
    for before, argument in zip([None, *arguments], arguments, strict=False):
        if not is_batch_argument(loader, argument):
            continue
        if not is_passed:
            yield Rewrite(argument, f"batch_sampler={code}")
        elif before is not None:
            yield Rewrite(before, "", argument, after=True)
        is_passed = True
    if not is_passed:
        yield Rewrite(arguments[-1], f", batch_sampler={code}", after=True)


def sampler_construction(loader: Loader, sampler: str, size: str) -> str:
    """The text that creates a sampler which shares the loader's batches among the ranks."""
    module, call = loader.module, loader.call
    if len(call.args) > 2 or any(word.arg in (None, "batch_sampler") for word in call.keywords):
        raise refusal(module, call, "its arguments do not show how it makes batches")
    drop = keyword(call, "drop_last")
    last = "False" if drop is None else module.text(drop.value)
    return f"{BATCH_SAMPLER}({sampler}, {size}, drop_last={last})"


def batch_size_text(loader: Loader) -> str:
    """The text of the loader's batch size."""
    return "1" if loader.batch_size is None else loader.module.text(loader.batch_size)


def is_batch_argument(loader: Loader, argument: ast.expr | ast.keyword) -> bool:
    """Whether an argument says how the loader forms batches."""
    names = (*BATCH_ATTRIBUTES, "shuffle")
    is_named = isinstance(argument, ast.keyword) and argument.arg in names
    return is_named or argument is loader.batch_size


def constant_weight(loader: Loader) -> Edit:
    """The edit that defines a sampler whose ``weight(0)`` is that of every batch of the cycles."""
    module, call = loader.module, loader.call
    size = batch_size_text(loader)
    comprehension_names = {
        name.id
        for up in module.ancestors(call)
        if isinstance(up, ast.ListComp)
        for part in up.generators
        for name in everywhere(part.target, ast.Name)
    }
    sizes = [] if loader.batch_size is None else everywhere(loader.batch_size, ast.Name)
    if not loader.drop_last or any(name.id in comprehension_names for name in sizes):
        raise refusal(module, call, "nothing tells which batch of a cycle is a smaller one")
    code = f"{BATCH_SAMPLER}(range({size}), {size}, drop_last=True)"
    return Insert(module.statement(call), f"{WHOLE_BATCH} = {code}")


def fork_by_test(loader: Loader, sampler: str, test: str) -> Edit:
    """The edit that keeps the loader where ``test`` holds, and shares its batches elsewhere."""
    module, call = loader.module, loader.call
    stmt = module.statement(call)
    if not (isinstance(stmt, ast.Assign) and stmt.value is call):
        raise refusal(module, call, "it makes the loader of an evaluation, too")
    texts = [
        module.text(argument)
        for argument in arguments_in_order(call)
        if not is_batch_argument(loader, argument)
    ]
    texts.append(f"batch_sampler={sampler_construction(loader, sampler, batch_size_text(loader))}")
    targets = "".join(f"{module.text(target)} = " for target in stmt.targets)
    return Guard(stmt, test, f"{targets}{module.text(call.func)}({', '.join(texts)})")


def adapt_loader_uses(module: Module, at: ast.AST, loader: Loader) -> list[Edit]:
    """Edits of other uses of the loader and its sampler in the function around ``at``.

    Calls of ``set_epoch`` go, and attributes that the loader loses are read from its
    batch_sampler. Raises RefusedError for a call of ``set_epoch`` on something else.
    """
    names = {loader.name}
    if module is loader.module and module.function(at) is module.function(loader.call):
        names = {module.text(t) for t in assignment_targets(module, loader.call)}
    word = keyword(loader.call, "sampler")
    samplers = {f"{name}.sampler" for name in names}
    samplers |= {loader.module.text(word.value)} if word else set()
    scope = module.scope_statements(at)
    edits: list[Edit] = []
    removed: set[ast.AST] = set()
    for call in within(scope, ast.Call):
        if not (isinstance(call.func, ast.Attribute) and call.func.attr == "set_epoch"):
            continue
        stmt = module.statement(call)
        if module.text(call.func.value) not in samplers or not isinstance(stmt, ast.Expr):
            raise refusal(module, call, "whether it tells the training sampler is not known")
        statement = with_gate(module, stmt)
        removed.update(below(statement))
        edits.append(Replace(statement, ""))
    for node in within(scope, ast.Attribute):
        owner = module.text(node.value)
        if node.attr in BATCH_ATTRIBUTES and owner in names and node not in removed:
            edits.append(Rewrite(node, f"{owner}.batch_sampler.{node.attr}"))
    return edits


def assignment_targets(module: Module, call: ast.Call) -> list[ast.expr]:
    """The targets of the statement around ``call``; none if it is no assignment."""
    stmt = module.statement(call)
    return stmt.targets if isinstance(stmt, ast.Assign) else []
