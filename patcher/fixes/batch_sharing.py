"""A lone process's batches, dealt out among the ranks: the edits of a training DataLoader."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..analysis.loaders import Loader
from ..editing.edits import Edit, Guard, Import, Insert, RefusedError, Replace, Rewrite, Unwrap
from ..source.module import Module
from ..source.tree import below, everywhere, keyword, position, within
from .process_group import BATCH_SAMPLER

BATCHES_NAME = "train_batches"
WHOLE_BATCH = "whole_batch"  # weighs as every other one does
BATCH_ATTRIBUTES = (
    "batch_size",
    "sampler",
    "drop_last",
)  # a loader has them only if it makes batches


def refusal(module: Module, at: ast.stmt | ast.expr | ast.keyword, why: str) -> RefusedError:
    """What to raise where ``at`` cannot be made exact."""
    return RefusedError(f"--exact: {module.source.file} line {at.lineno}: {why}")


def is_one_of_cycles(loader: Loader) -> bool:
    """Whether it is made in a comprehension, without end: one of a list to take batches from."""
    ups = loader.module.ancestors(loader.call)
    return loader.cycle is not None and any(isinstance(up, ast.ListComp) for up in ups)


def single_process_sampler(loader: Loader) -> tuple[str, list[Edit]]:
    """The text of a lone process's sampler, and edits that give it to ranks as well."""
    module, word = loader.module, keyword(loader.call, "sampler")
    if word is None:
        return default_sampler(loader)
    others = [s for s in loader.samplers if not any(c in below(s) for c in loader.distributed)]
    replaced: list[tuple[ast.expr, ast.expr]] = []
    for call in loader.distributed:
        up = module.parents[call]
        if isinstance(up, ast.IfExp) and call in (up.body, up.orelse):
            replaced.append((up, up.orelse if call is up.body else up.body))
        elif len(others) == 1:
            replaced.append((call, others[0]))
        else:
            raise refusal(module, call, "no branch shows the sampler of a lone process")
    values = [other for _, other in replaced] or others
    if any(isinstance(value, ast.Constant) for value in values):  # None: the loader shuffles
        return default_sampler(loader)
    if isinstance(word.value, ast.Name):
        return word.value.id, [restore_sampler(module, old, new) for old, new in replaced]
    return module.text(replaced[0][1] if replaced else word.value), []


def restore_sampler(module: Module, old: ast.expr, new: ast.expr) -> Edit:
    """The lone process's sampler in the place of the ranks': also of the test, if it is all."""
    stmt, other = module.statement(old), module.statement(new)
    gate = module.parents[stmt]
    if isinstance(gate, ast.If) and stmt is not other and len(gate.body) == len(gate.orelse) == 1:
        if gate.body == [other] and gate.orelse == [stmt]:
            return Unwrap(gate)
        if gate.body == [stmt] and gate.orelse == [other]:
            return Replace(gate, module.text(other))
    return Rewrite(old, module.text(new))


def default_sampler(loader: Loader) -> tuple[str, list[Edit]]:
    """The sampler that a DataLoader makes for itself, and its import."""
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
    """``shuffle=True``, or a test that comes out so in a lone process."""
    word = keyword(loader.call, "shuffle")
    return word is not None and not (isinstance(word.value, ast.Constant) and not word.value.value)


def share_batches_of(loader: Loader, sampler: str) -> Iterator[Edit]:
    """The loader's batches made by the sampler that deals them out; of a cycle, with a name."""
    module, call = loader.module, loader.call
    code = sampler_construction(loader, sampler, batch_size_text(loader))
    if is_one_of_cycles(loader):
        yield constant_weight(loader)
    elif loader.cycle is not None:
        yield Insert(module.statement(call), f"{BATCHES_NAME} = {code}")
        code = BATCHES_NAME
    everything = arguments(call)
    first = True
    for before, word in zip([None, *everything], everything, strict=False):
        if not is_batch_argument(loader, word):
            continue
        if first:
            yield Rewrite(word, f"batch_sampler={code}")
        elif before is not None:
            yield Rewrite(before, "", word, after=True)
        first = False
    if first:
        yield Rewrite(everything[-1], f", batch_sampler={code}", after=True)


def sampler_construction(loader: Loader, sampler: str, size: str) -> str:
    """The construction of a sampler that deals the loader's batches out."""
    module, call = loader.module, loader.call
    if len(call.args) > 2 or any(word.arg in (None, "batch_sampler") for word in call.keywords):
        raise refusal(module, call, "its arguments do not show how it makes batches")
    drop = keyword(call, "drop_last")
    last = "False" if drop is None else module.text(drop.value)
    return f"{BATCH_SAMPLER}({sampler}, {size}, drop_last={last})"


def batch_size_text(loader: Loader) -> str:
    """The text of a batch size."""
    return "1" if loader.batch_size is None else loader.module.text(loader.batch_size)


def arguments(call: ast.Call) -> list[ast.expr | ast.keyword]:
    """The arguments in source order."""
    everything: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    return sorted(everything, key=position)


def is_batch_argument(loader: Loader, word: ast.expr | ast.keyword) -> bool:
    """Whether an argument tells how batches are made."""
    named = isinstance(word, ast.keyword) and word.arg in (*BATCH_ATTRIBUTES, "shuffle")
    return named or word is loader.batch_size


def constant_weight(loader: Loader) -> Edit:
    """What tells the weight of every batch that one of several cycles gives."""
    module, call = loader.module, loader.call
    size = batch_size_text(loader)
    inner = {
        name.id
        for up in module.ancestors(call)
        if isinstance(up, ast.ListComp)
        for part in up.generators
        for name in everywhere(part.target, ast.Name)
    }
    sizes = [] if loader.batch_size is None else everywhere(loader.batch_size, ast.Name)
    if not loader.drop_last or any(name.id in inner for name in sizes):
        raise refusal(module, call, "nothing tells which batch of a cycle is a smaller one")
    code = f"{BATCH_SAMPLER}(range({size}), {size}, drop_last=True)"
    return Insert(module.statement(call), f"{WHOLE_BATCH} = {code}")


def fork_by_test(loader: Loader, sampler: str, test: str) -> Edit:
    """The loader as it is where ``test`` holds, and else with its batches dealt out."""
    module, call = loader.module, loader.call
    stmt = module.statement(call)
    if not (isinstance(stmt, ast.Assign) and stmt.value is call):
        raise refusal(module, call, "it makes the loader of an evaluation, too")
    kept = [module.text(word) for word in arguments(call) if not is_batch_argument(loader, word)]
    kept.append(f"batch_sampler={sampler_construction(loader, sampler, batch_size_text(loader))}")
    targets = "".join(f"{module.text(target)} = " for target in stmt.targets)
    return Guard(stmt, test, f"{targets}{module.text(call.func)}({', '.join(kept)})")


def adapt_loader_uses(module: Module, at: ast.AST, loader: Loader) -> list[Edit]:
    """What else the function around ``at`` says to the loader or its sampler.

    Nobody has to be told the epoch any more, and what a loader of given batches no longer has, its
    batch_sampler has. Raises RefusedError for an epoch that is told in another way.
    """
    names = {loader.name}
    if module is loader.module and module.function(at) is module.function(loader.call):
        names = {module.text(t) for t in assignment_targets(module, loader.call)}
    word = keyword(loader.call, "sampler")
    samplers = {f"{name}.sampler" for name in names}
    samplers |= {loader.module.text(word.value)} if word else set()
    scope = module.scope_statements(at)
    edits: list[Edit] = []
    gone: set[ast.AST] = set()
    for call in within(scope, ast.Call):
        if not (isinstance(call.func, ast.Attribute) and call.func.attr == "set_epoch"):
            continue
        stmt = module.statement(call)
        if module.text(call.func.value) not in samplers or not isinstance(stmt, ast.Expr):
            raise refusal(module, call, "whether it tells the training sampler is not known")
        gate = module.parents[stmt]
        alone = isinstance(gate, ast.If) and gate.body == [stmt] and not gate.orelse
        told = gate if alone and isinstance(gate, ast.If) else stmt
        gone.update(below(told))
        edits.append(Replace(told, ""))
    for node in within(scope, ast.Attribute):
        if node.attr in BATCH_ATTRIBUTES and module.text(node.value) in names and node not in gone:
            edits.append(Rewrite(node, f"{module.text(node.value)}.batch_sampler.{node.attr}"))
    return edits


def assignment_targets(module: Module, call: ast.Call) -> list[ast.expr]:
    """What the statement of a construction binds."""
    stmt = module.statement(call)
    return stmt.targets if isinstance(stmt, ast.Assign) else []
