"""The sampler deals the same order in every epoch.

What         A DistributedSampler serves several epochs, and nothing calls set_epoch.
At run time  Epoch 2 repeats the order of epoch 1; nothing warns.
Example      for epoch in range(epochs): for batch in train_dataloader: …
Fix          Call set_epoch at the head of the epoch loop, or in the function of the steps if that
             is told the epoch; where the steps begin a loader anew, by iter(loader), or a
             generator does so without end, the next number there, as each beginning deals the same
             order.
Fix safety   Safe: only a distributed run has a DistributedSampler.
Source       torch.utils.data.distributed.DistributedSampler
"""

import ast
from collections.abc import Iterator

from ...record import replace
from ..analysis.language.passed_arguments import argument_for_parameter
from ..analysis.ranks.rank_reach import RANKS, Role, roles_reaching
from ..analysis.training.constructed_loaders import Loader, makes_rank_sampler
from ..analysis.training.counting_loops import (
    begins_again,
    counting_loops,
    rounds_around,
    serves_outer_loop,
)
from ..analysis.training.endless_batches import EndlessBatches, endless_batches
from ..analysis.training.epoch_loops import (
    EpochLoop,
    epoch_loop,
    has_several_epochs,
    is_one_pass,
    number_passed,
)
from ..analysis.training.frameworks import DEALT_BATCHES, RANK_SAMPLERS
from ..analysis.training.loaders import trace_loader
from ..analysis.training.program import Program
from ..analysis.training.restarted_loaders import begun_anew
from ..analysis.training.told_epochs import may_tell_sampler
from ..analysis.training.train_loops import TrainLoop
from ..editing.edits import Edit, Insert
from ..findings import Finding, Safety, Severity
from ..fixes.sampler_epochs import (
    drawn_anew,
    import_of,
    kind_of_sampler,
    name_loader,
    tell_each,
    tell_epoch,
)
from ..source.module import Module
from ..source.tree import (
    argument,
    bound_names,
    everywhere,
    is_inside,
    is_within,
    mentions,
    precedes,
    within,
)

CODE, SEVERITY, SAFETY = "DF402", Severity.DEGRADED, Safety.SAFE

NO_NUMBER = "there is no epoch loop to call it from"
UNTOLD = "no sampler is told the epoch, and whether one deals what this goes over cannot be told"


def findings(program: Program) -> Iterator[Finding]:
    beside = [loader for each in program.train_loops for loader in each.beside]
    loops = [
        (
            each if loader is each.loader else replace(each, loader=loader),
            (each.loader, *each.beside),
        )
        for each in program.train_loops
        for loader in (each.loader, *each.beside)
    ]
    by_steps: dict[ast.AST, list[TrainLoop]] = {}
    for loop, _ in loops:
        by_steps.setdefault(loop.steps, []).append(loop)
    for loop, loaders in loops:
        dealt = None if loop.loader is None else of_ranks(loop.loader)
        others = {each.name for each in loaders if each and each is not loop.loader}
        yield from told_by_round(program, loop, dealt)
        if is_told(program, loop, others) or deals_in_order(dealt):
            continue
        around = loop.module.ancestors(loop.steps)
        if any(goes_over(each, dealt) for up in around for each in by_steps.get(up, ())):
            continue  # several steps of one batch
        if roles_reaching(program, loop.module, loop.steps) & RANKS == {Role.MAIN}:
            continue  # the others have left
        if dealt is None:
            yield from of_unknown_loader(program, loop)
        else:
            yield from never_told(program, loop, dealt, loop.loader in beside)


def of_unknown_loader(program: Program, loop: TrainLoop) -> Iterator[Finding]:
    """The finding of steps over what cannot be told, in a program that deals to ranks."""
    if (
        not any(each.attributes("set_epoch") for each in program.modules)
        and not is_told_by_callers(program, loop)
        and not is_one_pass(program, loop)
        and shuffles_by_rank(program)
    ):
        yield Finding(loop.module, loop.steps, UNTOLD, severity=Severity.NOTE)


def never_told(
    program: Program, loop: TrainLoop, dealt: Loader, is_beside: bool
) -> Iterator[Finding]:
    """The findings of a loader that nothing in the function of the steps tells the epoch.

    ``dealt`` is the loader, or the one that ranks have in its place; ``is_beside`` tells that it
    is not the one which the steps go over.
    """
    assert loop.loader is not None
    cycle = loop.loader.cycle
    endless = None if cycle is None else endless_batches(program, program.module_of(cycle), cycle)
    if endless and (dealt.distributed_samplers or gets_rank_sampler(program, dealt)):
        yield from next_numbers(program, endless, dealt)
        return
    if cycle is not None and not endless and keeps_first_epoch(loop, cycle):
        because = "cycle() keeps the first epoch's batches and deals them again, alone too"
        yield Finding(program.module_of(cycle), cycle, because, severity=Severity.NOTE)
        return
    above, again = begun_anew(program, loop)
    if again:
        yield from (next_number(program, loop, call) for call in (*above, *again))
        return
    epochs = epoch_loop(program, loop)
    made_by_steps = [
        each
        for each in dict.fromkeys((dealt, loop.loader, *loop.loader.others))
        if is_within(each.call, loop.steps.body)
    ]
    if any(mentions(each.call, DEALT_BATCHES) for each in made_by_steps):
        return
    if any(each.distributed_samplers for each in made_by_steps):
        edits = [edit for each in made_by_steps for edit in drawn_anew(replace(loop, loader=each))]
        yield Finding(loop.module, loop.steps, NO_NUMBER, tuple(edits))
    elif epochs is not None:
        yield from never_told_in(program, loop, dealt, epochs, is_beside)
    elif is_told_by_callers(program, loop, of_all=True):
        return  # each of several calls of the steps' function stands below it
    elif dealt.distributed_samplers and (number := number_passed(program, loop)):
        use = loop.module.statement(above[0]) if above else loop.steps
        yield told_before(loop, use, kind_of_sampler(dealt), number)
    elif dealt.distributed_samplers and (takes_turns(loop) or has_several_epochs(program, loop)):
        yield told_before(loop, loop.steps, kind_of_sampler(dealt), "")
    elif not is_told_by_callers(program, loop) and not is_one_pass(program, loop):
        deals = loop.loader.distributed_samplers or loop.module.calls_to(*RANK_SAMPLERS)
        if deals and not is_beside:
            yield Finding(loop.module, loop.steps, NO_NUMBER, drawn_anew(loop))


def never_told_in(
    program: Program, loop: TrainLoop, dealt: Loader, place: EpochLoop, is_beside: bool
) -> Iterator[Finding]:
    """The findings of a loader whose epochs a loop counts."""
    module, (epochs, number), name, use = place
    loader = loop.loader
    assert loader is not None
    is_dealt = bool(dealt.distributed_samplers) or gets_rank_sampler(program, loader)
    if not is_dealt or calls_set_epoch(program, module, epochs.body):
        return
    kind = kind_of_sampler(dealt)
    if is_beside and is_made_under_test(loader, epochs):
        if begins_with_steps(loop):
            yield told_before(loop, loop.steps, kind, "")
        return  # its name may be unbound at the head, and its one iterator may have begun
    is_made_inside = reads_name_of(name, epochs)
    if not loader.name and loader.listed_in:
        code = tell_each(name, kind, number)
        insert = Insert(use, code) if is_made_inside or not number else at_head(epochs, code)
        because = f"{name} are shuffled by a {kind} that never learns the epoch"
        yield Finding(module, epochs, because, (insert, *import_of(module, kind)))
        return
    sampler = f"{name}.sampler" if name else sampler_by_name(module, loader, epochs)
    if not number and (is_made_inside or not sampler):
        yield Finding(loop.module, loop.steps, NO_NUMBER)
        return
    if not sampler:
        because = f"each epoch makes a new {kind}, which deals the first epoch's order"
        yield Finding(module, epochs, because, name_loader(loop, kind, number))
        return
    if is_made_inside:
        counts = [count for _, count in counting_loops(module, use)]
        number = " + ".join(dict.fromkeys(reversed(counts)))
    elif serves_outer_loop(module, epochs, name) or begins_again(program, module, place[1], name):
        number = f"{sampler}.epoch + 1"
    is_tested = use not in epochs.body and is_made_under_test(loader, epochs)
    is_inside_epochs = is_made_inside or is_tested or not number
    code = tell_epoch(sampler, kind, number)
    insert = Insert(use, code) if is_inside_epochs else at_head(epochs, code)
    because = f"{name or 'the loader'} is shuffled by a {kind} that never learns the epoch"
    yield Finding(module, epochs, because, (insert, *import_of(module, kind)))


def at_head(epochs: ast.For | ast.While, code: str) -> Insert:
    """The edit that puts code at the head of a loop's body."""
    return Insert(epochs, code, "first")


def begins_with_steps(loop: TrainLoop) -> bool:
    """Whether the head of the steps names the loader, as ``zip(loader, other)``: no iterator."""
    name = "" if loop.loader is None else loop.loader.name
    heads = loop.steps.iter if isinstance(loop.steps, ast.For) else loop.steps
    return any(each.id == name for each in everywhere(heads, ast.Name))


def takes_turns(loop: TrainLoop) -> bool:
    """Whether a loop goes over one of several loaders, which a loop around it takes in turn."""
    name = "" if loop.loader is None else loop.loader.name
    return name.isidentifier() and any(
        isinstance(up, ast.For) and name in bound_names(up.target)
        for up in loop.module.ancestors(loop.steps)
    )


def told_by_round(program: Program, loop: TrainLoop, dealt: Loader | None) -> Iterator[Finding]:
    """The note of a loader that is made anew in each round, whose epochs begin with 0 again."""
    if dealt is None or deals_in_order(dealt) or DEALT_BATCHES in kinds_of_samplers(dealt):
        return
    if not dealt.distributed_samplers or dealt.module.function(dealt.call) is None:
        return
    rounds = rounds_around(program, dealt.module, dealt.call)
    if rounds is not None and is_inside(loop.steps, rounds):
        return  # which can be told the round
    if rounds is not None and (loop.epochs is None or not is_inside(dealt.call, loop.epochs)):
        line = f"line {rounds.lineno}"
        because = f"each round of {line} makes this loader anew, in its first orders"
        yield Finding(dealt.module, dealt.call, because, severity=Severity.NOTE)


def kinds_of_samplers(loader: Loader) -> set[str]:
    """The classes that deal a loader's examples to ranks."""
    return {loader.module.last_name(call.func) for call in loader.distributed_samplers}


def goes_over(loop: TrainLoop, dealt: Loader | None) -> bool:
    """Whether a loop is over the loader that another one has."""
    if loop.loader is None or dealt is None:
        return False
    return of_ranks(loop.loader).call is dealt.call


def reads_name_of(text: str, epochs: ast.For | ast.While) -> bool:
    """Whether an expression, such as ``loader`` or ``loaders[phase]``, has a name of a loop."""
    names = {part.id for part in ast.walk(ast.parse(text)) if isinstance(part, ast.Name)}
    return not names.isdisjoint(bound_names(epochs))


def told_before(loop: TrainLoop, use: ast.stmt, kind: str, number: str) -> Finding:
    """The finding of steps whose function gets the number of the epoch, and may be called twice."""
    name = "" if loop.loader is None else loop.loader.name
    code = tell_epoch(f"{name}.sampler", kind, number)
    because = f"{name} is shuffled by a {kind} that never learns the epoch"
    edits = (Insert(use, code), *import_of(loop.module, kind))
    return Finding(loop.module, loop.steps, because, edits)


def keeps_first_epoch(loop: TrainLoop, cycle: ast.Call) -> bool:
    """Whether a ``cycle()`` is of all epochs: each epoch's own goes over its loader anew."""
    return loop.epochs is None or not is_inside(cycle, loop.epochs)


def shuffles_by_rank(program: Program) -> bool:
    """Whether something deals by torch's sampler of ranks, in an order of its epoch.

    Not for an evaluation, as far as can be told.
    """
    evaluated = {call for each in program.evaluations for call in each.loader.distributed_samplers}
    return any(
        program.is_live(module, call)
        and call not in evaluated
        and not (isinstance(told := argument(call, 3, "shuffle"), ast.Constant) and not told.value)
        for module, call in program.calls_to("DistributedSampler")
    )


def sampler_by_name(module: Module, loader: Loader, epochs: ast.stmt) -> str:
    """The name of the sampler of a loader that is made above the epochs and has lost its own name.

    As by ``loader = tqdm(loader)``, whose bar has no sampler.
    """
    sampler = argument(loader.call, 3, "sampler")
    is_above = loader.module is module and precedes(loader.call, epochs)
    if not isinstance(sampler, ast.Name) or not is_above:
        return ""
    return sampler.id if module.function(sampler) is module.function(epochs) else ""


def gets_rank_sampler(program: Program, loader: Loader) -> bool:
    """Whether a function of the program makes torch's sampler of ranks for a loader."""
    return any(
        where.dotted(value.func).startswith("torch.") and makes_rank_sampler(where, value)
        for sampler in loader.samplers
        if isinstance(sampler, ast.Call)
        for where, function in program.callees(loader.module, sampler)
        for result in within(function.body, ast.Return)
        if result.value is not None
        for value in (result.value, *where.alternatives(result.value, result))
        if isinstance(value, ast.Call)
    )


def next_number(program: Program, loop: TrainLoop, call: ast.Call) -> Finding:
    """The finding of a loader that begins anew, with an order of its own each time."""
    module, loader = loop.module, loop.loader
    assert loader is not None
    kind, owner = kind_of_sampler(loader), module.text(call.args[0])
    code = tell_epoch(f"{owner}{loader.held_in or ''}.sampler", kind)
    edits: tuple[Edit, ...] = (Insert(module.statement(call), code), *import_of(module, kind))
    if loader.held_in is None:
        edits = ()
    if is_in_comprehension(module, call):
        found = trace_loader(program, module, call.args[0])
        if found is None or not found.listed_in:
            edits = ()
        else:
            code = tell_each(found.listed_in, kind)
            edits = (Insert(module.statement(call), code), *import_of(module, kind))
    because = f"a {kind} deals the same order each time that it begins anew"
    return Finding(module, call, because, edits)


def is_in_comprehension(module: Module, call: ast.Call) -> bool:
    """Whether a call is made for each element of a comprehension, which may bind its argument."""
    kinds = ast.ListComp | ast.GeneratorExp | ast.DictComp | ast.SetComp
    return any(isinstance(up, kinds) for up in module.ancestors(call))


def next_numbers(program: Program, again: EndlessBatches, dealt: Loader) -> Iterator[Finding]:
    """The findings of a generator that begins its loader anew, without end."""
    where, name = again.module, again.loader
    kind = kind_of_sampler(dealt) if where is dealt.module else "DistributedSampler"
    arguments = [
        (module, argument_for_parameter(where, again.function, call, name))
        for module, call in program.callers(again.function)
    ]
    loaders = [
        None if passed is None else trace_loader(program, module, passed)
        for module, passed in arguments
    ]
    held_in = {None if each is None else each.held_in for each in loaders}  # batches.loader
    goes_over_loaders = len(held_in) < 2 and None not in held_in
    sampler = f"{again.text}{next(iter(held_in), '')}.sampler"
    code = tell_epoch(sampler, kind)
    for stmt in again.passes:
        around = where.parents[stmt]
        if not calls_set_epoch(program, where, getattr(around, "body", [])):
            yield Finding(
                where,
                stmt,
                f"a {kind} deals the same order each time that it begins anew",
                (Insert(stmt, code), *import_of(where, kind)) if goes_over_loaders else (),
            )


def is_made_under_test(loader: Loader, epochs: ast.For | ast.While) -> bool:
    """Whether a test above a loop over epochs decides whether there is a loader."""
    return any(
        isinstance(up, ast.If) and not is_inside(epochs, up)
        for up in loader.module.ancestors(loader.call)
    )


def of_ranks(loader: Loader) -> Loader:
    """The loader of the branch that ranks take, where another makes one for a lone process."""
    return next((each for each in (loader, *loader.others) if each.distributed_samplers), loader)


def deals_in_order(loader: Loader | None) -> bool:
    """Whether no sampler of ranks has to be told of the epoch, in whatever branch one is made."""
    branches = () if loader is None else (loader, *loader.others)
    orders = [has_one_order(each) for each in branches if is_dealt_by_rank(each)]
    return bool(orders) and all(orders)


def is_dealt_by_rank(loader: Loader) -> bool:
    """Whether a loader's construction deals its examples to ranks."""
    return mentions(loader.call, DEALT_BATCHES) or bool(loader.distributed_samplers)


def has_one_order(loader: Loader) -> bool:
    """Whether all that deals a loader's examples deals them in order, or as rank 0 draws on."""
    return mentions(loader.call, DEALT_BATCHES) or all(
        loader.module.last_name(call.func) == "DistributedSampler"
        and isinstance(shuffle := argument(call, 3, "shuffle"), ast.Constant)
        and not shuffle.value
        for call in loader.distributed_samplers
    )


def calls_set_epoch(program: Program, module: Module, body: list[ast.stmt]) -> bool:
    """Whether a sampler is told the epoch in some statements, and not on rank 0 alone."""
    return any(
        is_within(node, body)
        and may_tell_sampler(program, module, node)
        and roles_reaching(program, module, node) & RANKS != {Role.MAIN}
        for node in module.attributes("set_epoch")
    )


def is_told(program: Program, loop: TrainLoop, others: set[str]) -> bool:
    """Whether the function of some steps tells a sampler the epoch, and none of other loaders."""
    module = loop.module
    return any(
        is_within(node, loop.scope)
        and may_tell_sampler(program, module, node)
        and roles_reaching(program, module, node) & RANKS != {Role.MAIN}
        and module.text(node.value).removesuffix(".sampler") not in others
        and not is_in_other_training(program, loop, node)
        for node in module.attributes("set_epoch")
    )


def is_in_other_training(program: Program, loop: TrainLoop, node: ast.AST) -> bool:
    """Whether a place is in the epochs of another training of the function, and not of this one."""
    around = [up for up in loop.module.ancestors(node) if isinstance(up, ast.For | ast.While)]
    if any(up is loop.steps or is_inside(loop.steps, up) for up in around):
        return False
    others = [each.steps for each in program.train_loops if each.steps is not loop.steps]
    return any(other is up or is_inside(other, up) for other in others for up in around)


def is_told_by_callers(program: Program, loop: TrainLoop, *, of_all: bool = False) -> bool:
    """Whether a function that calls the loop's, perhaps for other loaders too, tells the epoch.

    ``of_all``: above every call that is known, in the loop around it.
    """
    function = loop.module.function(loop.steps)
    callers = [] if function is None else program.callers(function)
    if not of_all:
        return any(
            calls_set_epoch(program, where, where.scope_statements(call)) for where, call in callers
        )
    return bool(callers) and all(
        any(
            calls_set_epoch(program, where, up.body)
            for up in where.ancestors(call)
            if isinstance(up, ast.For | ast.While)
        )
        for where, call in callers
    )
