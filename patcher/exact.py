"""The edits of ``patch --exact``: N ranks train step by step as one process does.

The loader keeps the sampler of a lone process, in the order that rank 0 draws, and its batches are
dealt out among the ranks, whole or not; each rank's loss is weighed by its part of the batch. The
batch flag so keeps the meaning that it has in one process: it is the batch of all ranks together.
What this takes for granted is that a loss is a mean over examples of which none depends on the
others of its batch.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from .apply import RefusedError
from .distributed import SHARED, is_shared
from .edits import Define, Edit, Import, Insert, Replace, Rewrite, Unwrap
from .facts import Loader, TrainLoop, Unit
from .findings import Finding
from .inserted import helper_names
from .module import Module
from .syntax import below, bound_names, keyword, mentions, position, within

COUNTER = "batch_number"
OF_BATCHES = ("batch_size", "sampler", "drop_last")  # a loader has them only if it makes batches
BATCH_STATISTICS = ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm")
AMOUNT = re.compile(r"batch|len\(|step|num", re.IGNORECASE)


def shared_out(unit: Unit) -> Iterator[Finding]:
    """Edits that deal the batches of every training loader out, before any rule's edits.

    Raises RefusedError where the facts do not prove what is needed, naming the place.
    """
    refuse_the_unequal(unit)
    seen: list[ast.Call] = []
    for loop in unit.train_loops:
        loader = known_loader(loop)
        for call in loop.backwards:
            if call.args:
                raise refusal(loop.module, call, "backward() is given something but the loss")
            if any(has_modulo(up) for up in loop.module.ancestors(call)):
                raise refusal(loop.module, call, "one backward() for several batches")
        if loader.call not in seen and not is_shared(loader):
            seen.append(loader.call)
            sampler, edits = lone_sampler(loop.module, loader)
            yield Finding(
                loop.module,
                loader.call,
                "its batches are dealt out among the ranks",
                (
                    *edits,
                    *batches(loop.module, loader, sampler),
                    *epochs_unset(loop, loader),
                    *attributes(loop, loader),
                    Define(SHARED),
                ),
            )


def weighed(unit: Unit) -> Iterator[Finding]:
    """Edits that weigh every loss, behind all rules' edits: by then a scaler may hold it."""
    for loop in unit.train_loops:
        loader = known_loader(loop)
        edits: list[Edit] = []
        number = loop.step_name
        if not counts_batches(loop):
            number = COUNTER
            edits = [
                Insert(loop.steps, f"{COUNTER} = -1"),
                Insert(loop.steps, f"{COUNTER} += 1", "first"),
            ]
        weight = f"{loader.name}.batch_sampler.weight({number})"
        for call in loop.backwards:
            assert isinstance(call.func, ast.Attribute)
            loss = call.func.value
            if mentions(loss, "weight") and mentions(loss, "batch_sampler"):
                continue
            scaled = isinstance(loss, ast.Call) and loop.module.dotted(loss.func).endswith("scale")
            if isinstance(loss, ast.Call) and scaled and len(loss.args) == 1:
                inner = loss.args[0]
                edits.append(Rewrite(inner, f"{operand(loop.module, inner)} * {weight}"))
            elif isinstance(loss, ast.BinOp):  # in parentheses already
                edits.append(Rewrite(loss, f"({loop.module.text(loss)}) * {weight}"))
            else:
                edits.append(Rewrite(loss, f"({loop.module.text(loss)} * {weight})"))
            yield Finding(loop.module, call, "each rank's loss counts by its part", tuple(edits))
            edits = []


def refusal(module: Module, at: ast.stmt | ast.expr | ast.keyword, why: str) -> RefusedError:
    """What to raise where ``at`` cannot be made exact."""
    return RefusedError(f"--exact: {module.source.path.name} line {at.lineno}: {why}")


def known_loader(loop: TrainLoop) -> Loader:
    if loop.loader is None:
        raise refusal(loop.module, loop.steps, "the DataLoader that it goes through is not plain")
    return loop.loader


def has_modulo(node: ast.AST) -> bool:
    """An ``if`` that waits for a number of batches."""
    return isinstance(node, ast.If) and any(
        isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod) for part in below(node.test)
    )


def refuse_the_unequal(unit: Unit) -> None:
    """Raise RefusedError for what makes an example's loss, or the batch, depend on the ranks."""
    evaluating = {evaluation.function for evaluation in unit.evaluations}
    for module in unit.modules:
        for call in module.calls_to(*BATCH_STATISTICS):
            raise refusal(module, call, "its statistics are of the examples that a rank holds")
        for whole, amount, parts in divisions(module):
            function = module.function(whole)
            if (
                (mentions(parts, "world_size") or mentions(parts, "get_world_size"))
                and AMOUNT.search(module.text(amount))
                and function not in evaluating
                and (function is None or function.name not in helper_names())
            ):
                raise refusal(module, whole, "it divides by the number of ranks what they share")


def divisions(module: Module) -> Iterator[tuple[ast.expr | ast.stmt, ast.expr, ast.expr]]:
    """Every ``a / b``, ``a // b`` and ``a //= b``, with its two sides."""
    for node in module.nodes(ast.BinOp):
        if isinstance(node.op, ast.Div | ast.FloorDiv):
            yield node, node.left, node.right
    for stmt in module.nodes(ast.AugAssign):
        if isinstance(stmt.op, ast.Div | ast.FloorDiv):
            yield stmt, stmt.target, stmt.value


def lone_sampler(module: Module, loader: Loader) -> tuple[str, list[Edit]]:
    """The text of a lone process's sampler, and edits that give it to ranks as well."""
    word = keyword(loader.call, "sampler")
    if word is None:
        return default_sampler(module, loader), default_imports(module, loader)
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
        return default_sampler(module, loader), default_imports(module, loader)
    if isinstance(word.value, ast.Name):
        return word.value.id, [undone(module, old, new) for old, new in replaced]
    return module.text(replaced[0][1] if replaced else word.value), []


def undone(module: Module, old: ast.expr, new: ast.expr) -> Edit:
    """The lone process's sampler in the place of the ranks': also of the test, if it is all."""
    stmt, other = module.statement(old), module.statement(new)
    gate = module.parents[stmt]
    if isinstance(gate, ast.If) and stmt is not other and len(gate.body) == len(gate.orelse) == 1:
        if gate.body == [other] and gate.orelse == [stmt]:
            return Unwrap(gate)
        if gate.body == [stmt] and gate.orelse == [other]:
            return Replace(gate, module.text(other))
    return Rewrite(old, module.text(new))


def default_sampler(module: Module, loader: Loader) -> str:
    """The sampler that a DataLoader makes for itself."""
    if loader.dataset is None:
        raise refusal(module, loader.call, "it names no dataset")
    if keyword(loader.call, "generator") is not None:
        raise refusal(module, loader.call, "it shuffles with a generator of its own")
    kind = "RandomSampler" if is_shuffled(loader) else "SequentialSampler"
    return f"{kind}({module.text(loader.dataset)})"


def default_imports(module: Module, loader: Loader) -> list[Edit]:
    kind = "RandomSampler" if is_shuffled(loader) else "SequentialSampler"
    return [] if kind in module.aliases else [Import("torch.utils.data", kind)]


def is_shuffled(loader: Loader) -> bool:
    """``shuffle=True``, or a test that comes out so in a lone process."""
    word = keyword(loader.call, "shuffle")
    return word is not None and not (isinstance(word.value, ast.Constant) and not word.value.value)


def batches(module: Module, loader: Loader, sampler: str) -> Iterator[Edit]:
    """The loader's batches made by the sampler that deals them out."""
    call = loader.call
    if len(call.args) > 2 or any(word.arg in (None, "batch_sampler") for word in call.keywords):
        raise refusal(module, call, "its arguments do not show how it makes batches")
    size = "1" if loader.batch_size is None else module.text(loader.batch_size)
    drop = keyword(call, "drop_last")
    last = "False" if drop is None else module.text(drop.value)
    code = f"batch_sampler={SHARED}({sampler}, {size}, drop_last={last})"
    everything: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    everything.sort(key=position)
    first = True
    for before, word in zip([None, *everything], everything, strict=False):
        is_size = word is loader.batch_size
        if not is_size and not (
            isinstance(word, ast.keyword) and word.arg in (*OF_BATCHES, "shuffle")
        ):
            continue
        if first:
            yield Rewrite(word, code)
        elif before is not None:
            yield Rewrite(before, "", word, after=True)
        first = False
    if first:
        yield Rewrite(everything[-1], f", {code}", after=True)


def epochs_unset(loop: TrainLoop, loader: Loader) -> Iterator[Edit]:
    """Without a DistributedSampler nobody has to be told the epoch."""
    module = loop.module
    for stmt in epoch_calls(loop, loader):
        gate = module.parents[stmt]
        alone = isinstance(gate, ast.If) and gate.body == [stmt] and not gate.orelse
        yield Replace(gate if alone and isinstance(gate, ast.If) else stmt, "")


def epoch_calls(loop: TrainLoop, loader: Loader) -> list[ast.Expr]:
    """``sampler.set_epoch(…)`` of this loader's sampler."""
    module, word = loop.module, keyword(loader.call, "sampler")
    samplers = {f"{loader.name}.sampler"} | ({module.text(word.value)} if word else set())
    return [
        stmt
        for stmt in within(loop.scope, ast.Expr)
        if isinstance(stmt.value, ast.Call)
        and isinstance(stmt.value.func, ast.Attribute)
        and stmt.value.func.attr == "set_epoch"
        and module.text(stmt.value.func.value) in samplers
    ]


def attributes(loop: TrainLoop, loader: Loader) -> Iterator[Edit]:
    """What the script reads of the loader and a loader of given batches no longer has."""
    module = loop.module
    gone = {
        node
        for stmt in epoch_calls(loop, loader)
        for up in [module.parents[stmt]]
        for node in below(up if isinstance(up, ast.If) and up.body == [stmt] else stmt)
    }
    for node in within(loop.scope, ast.Attribute):
        if node.attr in OF_BATCHES and module.text(node.value) == loader.name and node not in gone:
            yield Rewrite(node, f"{loader.name}.batch_sampler.{node.attr}")


def counts_batches(loop: TrainLoop) -> bool:
    """Whether the loop's own number is that of the batch, from 0: enumerate's, left alone."""
    if not loop.step_name or loop.step_name in bound_names(loop.steps.body):
        return False
    assert isinstance(loop.steps, ast.For)
    source: ast.expr | None = loop.steps.iter
    for _ in range(6):
        if isinstance(source, ast.Call) and source.args:
            if loop.module.dotted(source.func) == "enumerate":
                return len(source.args) == 1 and not source.keywords
            source = source.args[0]
        elif isinstance(source, ast.Name):
            source = loop.module.definition(source, loop.steps)
        else:
            break
    return False


def operand(module: Module, node: ast.expr) -> str:
    """The text of a factor."""
    text = module.text(node)
    return text if isinstance(node, ast.Name | ast.Attribute | ast.Call) else f"({text})"
