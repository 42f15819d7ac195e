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
from .edits import Define, Edit, Guard, Import, Insert, Replace, Rewrite, Unwrap
from .facts import Unit
from .findings import Finding
from .hand_sharding import is_constant
from .inserted import helper_names
from .loaders import Loader, literal, trace
from .module import Module
from .negatives import is_own_number, masked
from .syntax import argument, below, bound_names, everywhere, keyword, mentions, position, within
from .train_loops import TrainLoop

NUMBER = "batch_number"
BATCHES = "train_batches"
WHOLE = "whole_batch"  # weighs as every other one does
OF_BATCHES = ("batch_size", "sampler", "drop_last")  # a loader has them only if it makes batches
BATCH_STATISTICS = ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm")
LOSS = re.compile(r"loss|cross_?entropy", re.IGNORECASE)
AMOUNT = re.compile(r"batch|len\(|step|num", re.IGNORECASE)


def shared_out(unit: Unit) -> Iterator[Finding]:
    """Edits that deal the batches of every training loader out, before any rule's edits.

    Raises RefusedError where the facts do not prove what is needed, naming the place.
    """
    pending: dict[ast.Call, TrainLoop] = {}
    for loop in unit.train_loops:
        loader = known_loader(unit, loop)
        for call in loop.backwards:
            if call.args:
                raise refusal(loop.module, call, "backward() is given something but the loss")
            if any(has_modulo(up) for up in loop.module.ancestors(call)):
                raise refusal(loop.module, call, "one backward() for several batches")
        if not is_shared(loader):
            pending.setdefault(loader.call, loop)
    if pending:
        refuse_the_unequal(unit)
    for loop in pending.values():
        loader = known_loader(unit, loop)
        sampler, edits = lone_sampler(loader)
        test = test_of_others(unit, loader)
        edits += [fork(loader, sampler, test)] if test else [*batches(loader, sampler)]
        edits += [*told_epochs(loader.module, loader.call, loader)]
        if loader.module is loop.module:
            edits += told_epochs(loop.module, loop.steps, loader)
        elif others := told_epochs(loop.module, loop.steps, loader):
            yield Finding(loop.module, loop.steps, "nobody has to be told the epoch", tuple(others))
        yield Finding(
            loader.module,
            loader.call,
            "its batches are dealt out among the ranks",
            (*dict.fromkeys(edits), Define(SHARED)),
        )


def weighed(unit: Unit) -> Iterator[Finding]:
    """Edits that weigh every loss, behind all rules' edits: by then a scaler may hold it."""
    if unit.train_loops:
        refuse_divisions(unit)  # those of data dealt by hand are undone by now
    for loop in unit.train_loops:
        module, loader = loop.module, known_loader(unit, loop)
        backwards = [call for call in loop.backwards if not is_weighed(call)]
        if not backwards:
            continue
        if is_one_of_cycles(loader):
            edits = [weight(module, call, f"{WHOLE}.weight(0)") for call in backwards]
            yield Finding(module, loop.steps, "every batch is shared out alike", tuple(edits))
            continue
        edits = []
        number = f"{loop.step_name} - 1" if loop.step_start else loop.step_name
        if not number or loop.step_name in bound_names(loop.steps.body):
            number = NUMBER
            edits = counted(loop)
        word = keyword(loader.call, "batch_sampler")
        named = word is not None and isinstance(word.value, ast.Name)
        sampler = (
            loader.module.text(word.value) if word and named else f"{loader.name}.batch_sampler"
        )
        for call in backwards:
            edits.append(weight(module, call, f"{sampler}.weight({number})"))
        yield Finding(module, loop.steps, "each rank's loss counts by its part", tuple(edits))


def weight(module: Module, call: ast.Call, factor: str) -> Edit:
    """``loss.backward()`` with the loss times ``factor``; inside what scales it, if anything."""
    assert isinstance(call.func, ast.Attribute)
    loss = call.func.value
    if isinstance(loss, ast.Call) and module.dotted(loss.func).endswith("scale") and loss.args:
        return Rewrite(loss.args[0], f"{operand(module, loss.args[0])} * {factor}")
    if isinstance(loss, ast.BinOp):  # in parentheses already
        return Rewrite(loss, f"({module.text(loss)}) * {factor}")
    return Rewrite(loss, f"({module.text(loss)} * {factor})")


def is_weighed(call: ast.Call) -> bool:
    """Whether a backward() is one that ``weight`` made."""
    assert isinstance(call.func, ast.Attribute)
    loss = call.func.value
    return any(
        isinstance(part.func, ast.Attribute) and part.func.attr == "weight"
        for part in everywhere(loss, ast.Call)
    )


def counted(loop: TrainLoop) -> list[Edit]:
    """Have a loop that goes through its loader count the batches."""
    module, steps = loop.module, loop.steps
    if not isinstance(steps, ast.For) or loop.loader is None or loop.loader.cycle is not None:
        raise refusal(module, steps, "nothing counts its batches")
    target = module.text(steps.target)
    if isinstance(steps.target, ast.Tuple):
        target = f"({target.strip('()')})"
    return [
        Rewrite(steps.target, f"{NUMBER}, {target}"),
        Rewrite(steps.iter, f"enumerate({module.text(steps.iter)})"),
    ]


def refusal(module: Module, at: ast.stmt | ast.expr | ast.keyword, why: str) -> RefusedError:
    """What to raise where ``at`` cannot be made exact."""
    return RefusedError(f"--exact: {module.source.path.name} line {at.lineno}: {why}")


def known_loader(unit: Unit, loop: TrainLoop) -> Loader:
    """The loader that the loop goes through, or takes the next batch of a cycle of."""
    loader, module, steps = loop.loader, loop.module, loop.steps
    if loader is None or not (isinstance(steps, ast.For) or is_one_of_cycles(loader)):
        raise refusal(module, steps, "no one DataLoader that it goes through is known")
    if others(unit, loader) and not test_of_others(unit, loader):
        raise refusal(loader.module, loader.call, "it makes the loader of an evaluation, too")
    here = loader.module is module and module.function(loader.call) is module.function(steps)
    if is_one_of_cycles(loader):
        if not here:
            raise refusal(module, steps, "its DataLoaders have no name here")
    elif loader.cycle is not None:
        if not (here and loop.step_name and isinstance(module.statement(loader.call), ast.Assign)):
            raise refusal(module, steps, "nothing counts the batches of its cycle")
    elif not isinstance(steps, ast.For) or trace(unit, module, steps.iter) is None:
        raise refusal(module, steps, "it takes its batches one by one from an iterator")
    elif not loader.name or loader.scope is not module.function(steps):
        raise refusal(module, steps, "its DataLoader has no name here")
    return loader


def is_one_of_cycles(loader: Loader) -> bool:
    """Whether it is made in a comprehension, without end: one of a list to take batches from."""
    ups = loader.module.ancestors(loader.call)
    return loader.cycle is not None and any(isinstance(up, ast.ListComp) for up in ups)


def others(unit: Unit, loader: Loader) -> list[Loader]:
    """Loaders of evaluations that are made by the same construction."""
    return [e.loader for e in unit.evaluations if e.loader.call is loader.call]


def test_of_others(unit: Unit, loader: Loader) -> str:
    """A test that holds where a function makes a loader for no training; empty where none does.

    A parameter tells, if all callers give it a literal, and one of its two values is never given
    but for a loader that is trained on.
    """
    module, function = loader.module, loader.module.function(loader.call)
    loops = [loop.loader for loop in unit.train_loops if loop.loader is not None]
    asked = [each.asked for each in loops if each.call is loader.call]
    trained = [call for call in asked if call is not None]
    if function is None or len(trained) < len(asked) or not others(unit, loader):
        return ""
    for arg in everywhere(function.args, ast.arg):
        told = {c: literal(module, function, c, arg.arg) for _, c in unit.callers(function)}
        values = {told.get(call) for call in trained}
        if (
            len(values) == 1
            and None not in {*values, *told.values()}
            and {call for call, value in told.items() if value in values} == set(trained)
            and (function, arg.arg) not in module.stores
        ):
            return f"not {arg.arg}" if True in values else arg.arg
    return ""


def has_modulo(node: ast.AST) -> bool:
    """An ``if`` that waits for a number of batches."""
    return isinstance(node, ast.If) and any(
        isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod) for part in below(node.test)
    )


def refuse_the_unequal(unit: Unit) -> None:
    """Raise RefusedError for what makes an example's loss depend on those that a rank holds."""
    for module in unit.modules:
        for call in module.calls_to(*BATCH_STATISTICS):
            raise refusal(module, call, "its statistics are of the examples that a rank holds")
        for call in contrasts(unit, module):
            why = "the loss compares each example with its whole batch, of which a rank has a part"
            raise refusal(module, call, why)


def contrasts(unit: Unit, module: Module) -> Iterator[ast.Call]:
    """Calls that score examples against all of their batch: with their own numbers for labels."""
    evaluating = {evaluation.function for evaluation in unit.evaluations}
    for call in module.nodes(ast.Call) if module.calls_to("arange") else ():
        labels = argument(call, 1, "target")
        if labels is None or not LOSS.search(module.text(call.func)):
            continue
        if is_own_number(module, labels) and module.function(call) not in evaluating - {None}:
            yield call
    for call, _ in masked(module):
        yield call


def refuse_divisions(unit: Unit) -> None:
    """Raise RefusedError where a batch or number of steps is made to depend on the ranks."""
    evaluating = {evaluation.function for evaluation in unit.evaluations}
    for module in unit.modules:
        for whole, amount, parts in divisions(module):
            function = module.function(whole)
            worlds = [n for n in everywhere(parts, ast.Name) if n.id == "world_size"]
            if (
                (
                    any(not is_constant(unit, module, name) for name in worlds)
                    or any(n.attr == "world_size" for n in everywhere(parts, ast.Attribute))
                    or mentions(parts, "get_world_size")
                )
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


def lone_sampler(loader: Loader) -> tuple[str, list[Edit]]:
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


def dealing(loader: Loader, sampler: str, size: str) -> str:
    """The construction of a sampler that deals the loader's batches out."""
    module, call = loader.module, loader.call
    if len(call.args) > 2 or any(word.arg in (None, "batch_sampler") for word in call.keywords):
        raise refusal(module, call, "its arguments do not show how it makes batches")
    drop = keyword(call, "drop_last")
    last = "False" if drop is None else module.text(drop.value)
    return f"{SHARED}({sampler}, {size}, drop_last={last})"


def size_of(loader: Loader) -> str:
    """The text of a batch size."""
    return "1" if loader.batch_size is None else loader.module.text(loader.batch_size)


def arguments(call: ast.Call) -> list[ast.expr | ast.keyword]:
    """The arguments in source order."""
    everything: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    return sorted(everything, key=position)


def is_of_batches(loader: Loader, word: ast.expr | ast.keyword) -> bool:
    """Whether an argument tells how batches are made."""
    named = isinstance(word, ast.keyword) and word.arg in (*OF_BATCHES, "shuffle")
    return named or word is loader.batch_size


def fork(loader: Loader, sampler: str, test: str) -> Edit:
    """The loader as it is where ``test`` holds, and else with its batches dealt out."""
    module, call = loader.module, loader.call
    stmt = module.statement(call)
    if not (isinstance(stmt, ast.Assign) and stmt.value is call):
        raise refusal(module, call, "it makes the loader of an evaluation, too")
    kept = [module.text(word) for word in arguments(call) if not is_of_batches(loader, word)]
    kept.append(f"batch_sampler={dealing(loader, sampler, size_of(loader))}")
    targets = "".join(f"{module.text(target)} = " for target in stmt.targets)
    return Guard(stmt, test, f"{targets}{module.text(call.func)}({', '.join(kept)})")


def whole_batch(loader: Loader) -> Edit:
    """What tells the weight of every batch that one of several cycles gives."""
    module, call = loader.module, loader.call
    size = size_of(loader)
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
    code = f"{SHARED}(range({size}), {size}, drop_last=True)"
    return Insert(module.statement(call), f"{WHOLE} = {code}")


def batches(loader: Loader, sampler: str) -> Iterator[Edit]:
    """The loader's batches made by the sampler that deals them out; of a cycle, with a name."""
    module, call = loader.module, loader.call
    code = dealing(loader, sampler, size_of(loader))
    if is_one_of_cycles(loader):
        yield whole_batch(loader)
    elif loader.cycle is not None:
        yield Insert(module.statement(call), f"{BATCHES} = {code}")
        code = BATCHES
    everything = arguments(call)
    first = True
    for before, word in zip([None, *everything], everything, strict=False):
        if not is_of_batches(loader, word):
            continue
        if first:
            yield Rewrite(word, f"batch_sampler={code}")
        elif before is not None:
            yield Rewrite(before, "", word, after=True)
        first = False
    if first:
        yield Rewrite(everything[-1], f", batch_sampler={code}", after=True)


def told_epochs(module: Module, at: ast.AST, loader: Loader) -> list[Edit]:
    """What else the function around ``at`` says to the loader or its sampler.

    Nobody has to be told the epoch any more, and what a loader of given batches no longer has, its
    batch_sampler has. Raises RefusedError for an epoch that is told in another way.
    """
    names = {loader.name}
    if module is loader.module and module.function(at) is module.function(loader.call):
        names = {module.text(t) for t in assigned_to(module, loader.call)}
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
        if node.attr in OF_BATCHES and module.text(node.value) in names and node not in gone:
            edits.append(Rewrite(node, f"{module.text(node.value)}.batch_sampler.{node.attr}"))
    return edits


def assigned_to(module: Module, call: ast.Call) -> list[ast.expr]:
    """What the statement of a construction binds."""
    stmt = module.statement(call)
    return stmt.targets if isinstance(stmt, ast.Assign) else []


def operand(module: Module, node: ast.expr) -> str:
    """The text of a factor."""
    text = module.text(node)
    return text if isinstance(node, ast.Name | ast.Attribute | ast.Call) else f"({text})"
