"""Deal by rank the whole batches of a sampler that the script itself has a class for.

Such samplers compose batches: so many examples of each identity, or labelled beside unlabelled
ones. Dealt one example at a time, no batch would be what was composed.
"""

from __future__ import annotations

import ast

from ..analysis.language.objects import class_of, method_of
from ..analysis.ranks.rank_reach import RANKS, roles_reaching
from ..analysis.training.constructed_loaders import Loader
from ..analysis.training.frameworks import DEALT_BATCHES
from ..analysis.training.program import Program
from ..editing.edits import Define, Edit, Import, Rewrite
from ..source.module import Module
from ..source.tree import Function, everywhere, keyword, within

OF_TORCH = ("BatchSampler", "RandomSampler", "SequentialSampler", "WeightedRandomSampler")


def deal_batches(program: Program, loader: Loader, alone: str) -> tuple[Edit, ...]:
    """Edits by which ranks take turns at the batches that rank 0's sampler draws; none if unsure.

    ``alone`` is a test that holds where a process has the loader for itself.
    """
    module, call = loader.module, loader.call
    word = keyword(call, "sampler" if loader.batch_sampler is None else "batch_sampler")
    if word is None:
        return ()
    if may_take_turns(program, loader, [word.value]):
        turns = taking_turns(loader, module.text(word.value))
    elif has_batches(loader) and never_ends(program, module, word.value):
        turns = taking_turns(loader, module.text(word.value), ends=False)
    else:
        return ()
    dealt = Rewrite(word.value, f" if {alone} else {turns}", after=True)
    torch = (Import("torch"),) if "torch.distributed" in alone else ()
    return (dealt, Define(DEALT_BATCHES, module.statement(call)), *torch)


def may_take_turns(program: Program, loader: Loader, samplers: list[ast.expr]) -> bool:
    """Whether ranks may take turns at the batches of whichever of the samplers a loader has."""
    module = loader.module
    return (
        has_batches(loader)
        and all(ends(program, module, each) for each in samplers)
        # Ranks wait for each other wherever they begin to go over it.
        and all(roles_reaching(program, module, use) >= RANKS for use in uses(loader))
    )


def has_batches(loader: Loader) -> bool:
    """Whether it can be told which examples that a sampler draws are of one batch."""
    return loader.batch_sampler is not None or loader.batch_size is not None


def taking_turns(loader: Loader, sampler: str, *, ends: bool = True) -> str:
    """The call that deals the batches of a sampler, or of a batch_sampler, of this name."""
    size = loader.batch_size if loader.batch_sampler is None else None
    words = [sampler] if size is None else [sampler, loader.module.text(size)]
    return f"{DEALT_BATCHES}({', '.join(words if ends else [*words, 'ends=False'])})"


def never_ends(program: Program, module: Module, sampler: ast.expr) -> bool:
    """Whether a class of the program has samplers that go on for ever, whatever leads there.

    Ranks draw alike then, and share that out, or each by its own numbers, without an end either.
    """
    values = module.alternatives(sampler, sampler) or [sampler]
    return all(
        (owner := class_of(program, module, value)) is not None
        and (method := method_of(program, owner, "__iter__")) is not None
        and any(goes_on(*each) for each in (method, *handed_back_by(program, *method)))
        for value in values
    )


def handed_back_by(
    program: Program, module: Module, method: Function
) -> list[tuple[Module, Function]]:
    """The functions of ``return iter(self.forever())`` and ``yield from self.forever()``."""
    match method.body[-1]:
        case (
            ast.Return(value=ast.Call(func=ast.Name(id="iter"), args=[ast.Call() as call]))
            | ast.Return(value=ast.Call() as call)
            | ast.Expr(value=ast.YieldFrom(value=ast.Call() as call))
        ):
            return program.callees(module, call)
    return []


def ends(program: Program, module: Module, sampler: ast.expr) -> bool:
    """Whether a sampler is of a class that is read, and comes to an end by itself."""
    values = module.alternatives(sampler, sampler) or [sampler]
    return all(
        isinstance(value, ast.Call)
        and (is_of_torch(module, value) or is_finite(program, module, value))
        for value in values
    )


def is_of_torch(module: Module, made: ast.Call) -> bool:
    package, _, name = module.dotted(made.func).rpartition(".")
    return package.startswith("torch.utils.data") and name in OF_TORCH


def is_finite(program: Program, module: Module, made: ast.Call) -> bool:
    """Whether a class of the program says how long its samplers are, and none goes on for ever."""
    owner = class_of(program, module, made)
    if owner is None or method_of(program, owner, "__len__") is None:
        return False
    method = method_of(program, owner, "__iter__")
    if method is None:
        return False
    endless = {
        function
        for where, function in (method, *program.functions_below(*method))
        if goes_on(where, function)
    }
    return not endless or is_ended_by_another(program, *method, endless)


def is_ended_by_another(
    program: Program, module: Module, method: Function, endless: set[Function]
) -> bool:
    """Whether what goes on for ever is drawn beside what ends: ``zip(once(these), ever(those))``.

    It is a generator then, and no other code of the method's runs it to its end.
    """
    if not all(within(function.body, ast.Yield) for function in endless):
        return False
    zips = [call for call in within(method.body, ast.Call) if module.dotted(call.func) == "zip"]
    return len(zips) == 1 and any(
        not any(function in endless for _, function in program.functions_below(module, *code))
        for code in (made_of(module, value) for value in zips[0].args)
    )


def made_of(module: Module, value: ast.expr) -> list[ast.expr]:
    """A value, and what the names in it are bound to."""
    found = [value]
    for each in found:
        for name in everywhere(each, ast.Name):
            found += (made for made in module.alternatives(name, name) if made not in found)
    return found


def goes_on(module: Module, function: Function) -> bool:
    """Whether a function has a loop without a test that nothing leaves: ``while True:``.

    Or goes over what has no end either, ``itertools.cycle(order)``, which no islice() cuts.
    """
    endless = (call for call in module.calls_to("cycle", "count") if cuts_nothing(module, call))
    return any(module.function(call) is function for call in endless) or any(
        isinstance(loop.test, ast.Constant)
        and not within(loop.body, ast.Break)
        and not within(loop.body, ast.Return)
        for loop in within(function.body, ast.While)
    )


def cuts_nothing(module: Module, call: ast.Call) -> bool:
    """Whether itertools' endless numbers are not handed to another call, which may end them."""
    up = module.parents[call]
    is_handed_on = isinstance(up, ast.Call) and module.last_name(up.func) != "iter"
    return module.dotted(call.func).startswith("itertools.") and not is_handed_on


def uses(loader: Loader) -> list[ast.AST]:
    """Where the module of a loader names it, but for its length."""
    module, name = loader.module, loader.name
    return [
        node
        for node in module.nodes(ast.Name)
        if node.id == name
        and isinstance(node.ctx, ast.Load)
        and not (
            isinstance(up := module.parents[node], ast.Call) and module.last_name(up.func) == "len"
        )
    ]
