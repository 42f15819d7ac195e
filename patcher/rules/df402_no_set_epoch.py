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
from ..analysis.language.literal_arguments import CallPlace
from ..analysis.language.passed_arguments import argument_for_parameter
from ..analysis.language.training_calls import calls_that_train
from ..analysis.ranks.rank_reach import RANKS, Role, roles_reaching
from ..analysis.training.constructed_loaders import Loader, makes_rank_sampler
from ..analysis.training.counting_loops import (
    CountingLoop,
    begins_again,
    counting_loop,
    counting_loops,
    endless_loop,
    rounds_around,
    serves_outer_loop,
)
from ..analysis.training.endless_batches import EndlessBatches, endless_batches
from ..analysis.training.frameworks import DEALT_BATCHES, RANK_SAMPLERS
from ..analysis.training.loaders import AROUND, trace_loader
from ..analysis.training.program import Program
from ..analysis.training.told_epochs import may_tell_sampler
from ..analysis.training.train_loops import TrainLoop
from ..editing.edits import Define, Edit, Import, Insert, Rewrite
from ..findings import Finding, Safety, Severity
from ..source.branches import is_in
from ..source.module import Module
from ..source.tree import (
    Function,
    argument,
    bound_names,
    everywhere,
    is_inside,
    is_within,
    mentions,
    only_argument,
    parameters,
    precedes,
    within,
)

CODE, SEVERITY, SAFETY = "DF402", Severity.DEGRADED, Safety.SAFE

NO_NUMBER = "there is no epoch loop to call it from"
UNTOLD = "no sampler is told the epoch, and whether one deals what this goes over cannot be told"
LOADER_NAMES = ("train_loader", "epoch_loader")  # for a loader without one
MAX_CALLERS = 4  # functions through which a loader is handed on


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
    for loop, all_loaders in loops:
        dealt = loop.loader and of_ranks(loop.loader)
        others = {each.name for each in all_loaders if each and each is not loop.loader}
        yield from told_by_round(program, loop, dealt)
        if is_told(program, loop, others) or deals_in_order(dealt):
            continue
        if any(is_inside(loop.steps, each.steps) and goes_over(each, dealt) for each, _ in loops):
            continue  # several steps of one batch
        if roles_reaching(program, loop.module, loop.steps) & RANKS == {Role.MAIN}:
            continue  # the others have left
        cycle = loop.loader.cycle if loop.loader is not None else None
        endless = cycle and endless_batches(program, program.module_of(cycle), cycle)
        if endless and dealt and (dealt.distributed_samplers or gets_rank_sampler(program, dealt)):
            yield from next_numbers(program, endless, dealt)
            continue
        if cycle is not None and not endless and keeps_first_epoch(loop, cycle):
            yield Finding(
                program.module_of(cycle),
                cycle,
                "cycle() keeps the first epoch's batches and deals them again, alone too",
                severity=Severity.NOTE,
            )
            continue
        above, again = begun_anew(program, loop)
        if again:
            yield from (next_number(program, loop, call) for call in (*above, *again))
            continue
        loader, place = loop.loader, epoch_loop(program, loop)
        if dealt and dealt.distributed_samplers and is_within(dealt.call, loop.steps.body):
            yield Finding(loop.module, loop.steps, NO_NUMBER, drawn_anew(loop))
            continue
        if (
            dealt
            and dealt.distributed_samplers
            and not place
            and (number := number_passed(program, loop))
        ):
            use = loop.module.statement(above[0]) if above else loop.steps
            yield told_before(loop, use, kind_of_sampler(dealt), number)
            continue
        if place is None and dealt and dealt.distributed_samplers and takes_turns(loop):
            yield told_before(
                loop, loop.steps, kind_of_sampler(dealt), f"{dealt.name}.sampler.epoch + 1"
            )
            continue
        if loader is None or place is None:
            if loader is None and any(each.attributes("set_epoch") for each in program.modules):
                continue  # of this loader, as far as can be told
            if is_told_by_callers(program, loop) or is_one_pass(program, loop):
                continue
            if loader is None:
                is_dealt = shuffles_by_rank(program)
            else:
                is_dealt = bool(loader.distributed_samplers or loop.module.calls_to(*RANK_SAMPLERS))
            if is_dealt and loader not in beside:
                because = UNTOLD if loader is None else NO_NUMBER
                yield Finding(loop.module, loop.steps, because, drawn_anew(loop))
            continue
        assert dealt is not None
        module, (epochs, number), name, use = place
        is_dealt = bool(dealt.distributed_samplers) or gets_rank_sampler(program, loader)
        if not is_dealt or calls_set_epoch(program, module, epochs.body):
            continue
        if loader in beside and is_made_under_test(loader, epochs):
            continue  # its name may be unbound, and its one iterator has begun
        kind = kind_of_sampler(dealt)
        sampler = f"{name}.sampler" if name else sampler_by_name(module, loader, epochs)
        if not loader.name and loader.listed_in:
            code = told_each(name, kind, number)
            is_bound_inside = reads_name_of(name, epochs) or not number
            insert = Insert(use, code) if is_bound_inside else Insert(epochs, code, "first")
            because = f"{name} are shuffled by a {kind} that never learns the epoch"
            yield Finding(module, epochs, because, (insert, *import_of(module, kind)))
            continue
        is_made_inside = reads_name_of(name, epochs)
        if not number and (is_made_inside or not sampler):
            yield Finding(loop.module, loop.steps, NO_NUMBER)
            continue
        if not sampler:
            yield Finding(
                module,
                epochs,
                f"each epoch makes a new {kind}, which deals the first epoch's order",
                name_loader(loop, kind, number),
            )
            continue
        if is_made_inside:
            counts = [count for _, count in counting_loops(module, use)]
            number = " + ".join(dict.fromkeys(reversed(counts)))
        elif serves_outer_loop(module, epochs, name) or begins_again(
            program, module, place[1], name
        ):
            number = f"{sampler}.epoch + 1"
        next_one = number or f"{sampler}.epoch + 1"
        code = f"if isinstance({sampler}, {kind}):\n    {sampler}.set_epoch({next_one})"
        is_tested = use not in epochs.body and is_made_under_test(loader, epochs)
        is_inside_epochs = is_made_inside or is_tested or not number
        insert = Insert(use, code) if is_inside_epochs else Insert(epochs, code, "first")
        yield Finding(
            module,
            epochs,
            f"{name or 'the loader'} is shuffled by a {kind} that never learns the epoch",
            (insert, *import_of(module, kind)),
        )


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


def number_passed(program: Program, loop: TrainLoop) -> str:
    """The parameter by which all calls that train pass the number of their epoch; or empty."""
    module = loop.module
    function = module.function(loop.steps)
    if function is None or loop.loader is None or not loop.loader.name:
        return ""
    calls = calls_that_train(program, module, function, program.callers(function))
    numbers = [next((n for _, n in counting_loops(where, call)), "") for where, call in calls]
    for name in parameters(function) if calls and all(numbers) else ():
        passed = [
            (where, argument_for_parameter(module, function, call, name)) for where, call in calls
        ]
        texts = ["" if value is None else where.text(value) for where, value in passed]
        if texts == numbers and (function, name) not in module.stores:
            return name
    return ""


def told_before(loop: TrainLoop, use: ast.stmt, kind: str, number: str) -> Finding:
    """The finding of steps whose function gets the number of the epoch, and may be called twice."""
    name = "" if loop.loader is None else loop.loader.name
    code = f"if isinstance({name}.sampler, {kind}):\n    {name}.sampler.set_epoch({number})"
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


def drawn_anew(loop: TrainLoop) -> tuple[Edit, ...]:
    """Edits by which rank 0 draws the order where a function makes a loader in each call.

    As rank 0 draws on from call to call, no number is needed.
    """
    module, loader = loop.module, loop.loader
    if loader is None or len(loader.distributed_samplers) != 1 or loader.batch_size is None:
        return ()
    (sampler,) = loader.distributed_samplers
    is_made_here = loader.module is module and module.function(loader.call) is not None
    is_made_here &= module.function(loader.call) is module.function(loop.steps)
    data = only_argument(sampler, "dataset")
    if not is_made_here or data is None or module.last_name(sampler.func) != "DistributedSampler":
        return ()
    drawn = f"torch.utils.data.RandomSampler({module.text(data)})"
    dealt = f"{DEALT_BATCHES}({drawn}, {module.text(loader.batch_size)})"
    return (Rewrite(sampler, dealt), Define(DEALT_BATCHES), Import("torch"))


def sampler_by_name(module: Module, loader: Loader, epochs: ast.stmt) -> str:
    """The name of the sampler of a loader that is made above the epochs and has lost its own name.

    As by ``loader = tqdm(loader)``, whose bar has no sampler.
    """
    sampler = argument(loader.call, 3, "sampler")
    is_above = loader.module is module and precedes(loader.call, epochs)
    if not isinstance(sampler, ast.Name) or not is_above:
        return ""
    return sampler.id if module.function(sampler) is module.function(epochs) else ""


def kind_of_sampler(loader: Loader) -> str:
    """The name of the class that deals a loader's examples to ranks, as its module spells it."""
    if not loader.distributed_samplers:
        return "DistributedSampler"
    kind = loader.module.text(loader.distributed_samplers[0].func)
    if kind == "DealtSampler" or kind.rpartition(".")[2] not in RANK_SAMPLERS:
        return "DistributedSampler"
    return kind


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


def import_of(module: Module, kind: str) -> tuple[Edit, ...]:
    """The import that a test for a sampler's class needs."""
    if kind in module.aliases:
        return ()
    return (Import("torch.utils.data.distributed", "DistributedSampler"),)


def begun_anew(program: Program, loop: TrainLoop) -> tuple[list[ast.Call], list[ast.Call]]:
    """Calls ``iter(loader)`` above the steps, and those that steps or a test in the epochs come to.

    None of a loader that the loop itself goes over, once in each epoch. Where there are the second,
    the first need a number as well: each epoch would begin with the last one's order.
    """
    module, loader = loop.module, loop.loader
    if loader is None or not loader.distributed_samplers:
        return [], []
    own = (
        trace_loader(program, module, loop.steps.iter) if isinstance(loop.steps, ast.For) else None
    )
    if own is not None and own.is_same(loader):
        return [], []
    around = loop.epochs or loop.steps
    above: list[ast.Call] = []
    again: list[ast.Call] = []
    for call in within(loop.scope, ast.Call):
        source = begun_by(module, call)
        found = None if source is None else trace_loader(program, module, source)
        if found is None or not found.is_same(loader):
            continue
        tests = [up for up in module.ancestors(call) if isinstance(up, ast.If)]
        is_tested = any(is_inside(test, around) for test in tests)
        if is_within(call, loop.steps.body) or is_tested:
            again.append(call)
        elif is_repeated(module, call):
            above.append(call)
    return above, again


def begun_by(module: Module, call: ast.Call) -> ast.expr | None:
    """The loader of ``iter(loader)``, and of ``batches = enumerate(loader)``."""
    match call:
        case ast.Call(
            func=ast.Name(id="iter" | "enumerate" as name),
            args=[
                ast.Name()
                | ast.Attribute()
                | ast.Subscript(slice=ast.Constant() | ast.Name()) as source,
            ],
        ):
            is_kept = isinstance(module.parents[call], ast.Assign | ast.Tuple)
            return source if name == "iter" or is_kept else None
    return None


def is_repeated(module: Module, node: ast.AST) -> bool:
    """Whether a loop of its function is around a place, or its function may be called again."""
    return module.function(node) is not None or any(
        isinstance(up, ast.For | ast.While) for up in module.ancestors(node)
    )


def next_number(program: Program, loop: TrainLoop, call: ast.Call) -> Finding:
    """The finding of a loader that begins anew, with an order of its own each time."""
    module, loader = loop.module, loop.loader
    assert loader is not None
    kind, sampler = kind_of_sampler(loader), f"{module.text(call.args[0])}.sampler"
    code = f"if isinstance({sampler}, {kind}):\n    {sampler}.set_epoch({sampler}.epoch + 1)"
    edits: tuple[Edit, ...] = (Insert(module.statement(call), code), *import_of(module, kind))
    if is_in_comprehension(module, call):
        found = trace_loader(program, module, call.args[0])
        if found is None or not found.listed_in:
            edits = ()
        else:
            told = told_each(found.listed_in, kind, "")
            edits = (Insert(module.statement(call), told), *import_of(module, kind))
    because = f"a {kind} deals the same order each time that it begins anew"
    return Finding(module, call, because, edits)


def is_in_comprehension(module: Module, call: ast.Call) -> bool:
    """Whether a call is made for each element of a comprehension, which may bind its argument."""
    kinds = ast.ListComp | ast.GeneratorExp | ast.DictComp | ast.SetComp
    return any(isinstance(up, kinds) for up in module.ancestors(call))


def told_each(loaders: str, kind: str, number: str) -> str:
    """The code that tells the samplers of all loaders of a list the epoch."""
    sampler = "each_loader.sampler"
    return (
        f"for each_loader in {loaders}:\n"
        f"    if isinstance({sampler}, {kind}):\n"
        f"        {sampler}.set_epoch({number or f'{sampler}.epoch + 1'})"
    )


def next_numbers(program: Program, again: EndlessBatches, dealt: Loader) -> Iterator[Finding]:
    """The findings of a generator that begins its loader anew, without end."""
    where, name = again.module, again.loader
    kind = kind_of_sampler(dealt) if where is dealt.module else "DistributedSampler"
    sampler = f"{again.text}.sampler"
    arguments = [
        (module, argument_for_parameter(where, again.function, call, name))
        for module, call in program.callers(again.function)
    ]
    goes_over_loaders = all(
        passed is not None and trace_loader(program, module, passed) is not None
        for module, passed in arguments
    )
    code = f"if isinstance({sampler}, {kind}):\n    {sampler}.set_epoch({sampler}.epoch + 1)"
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


def name_loader(loop: TrainLoop, kind: str, number: str) -> tuple[Edit, ...]:
    """Edits of ``for batch in DataLoader(…)`` that give the loader a name to set its epoch by.

    So are those of ``bar = tqdm(DataLoader(…))`` above the loop, and of a function that makes one.
    """
    module, loader = loop.module, loop.loader
    if loader is None or not isinstance(loop.steps, ast.For):
        return ()
    where, call = loader.made_by[-1] if loader.made_by else (loader.module, loader.call)
    if where is not module:
        return ()
    place = module.statement(call)
    is_above = isinstance(place, ast.Assign) and place in module.body(loop.steps)
    free = [name for name in LOADER_NAMES if name not in names_of(module)]
    if not (is_in(call, loop.steps.iter) or is_above) or not free:
        return ()
    name = free[0]
    code = (
        f"{name} = {module.text(call)}\n"
        f"if isinstance({name}.sampler, {kind}):\n    {name}.sampler.set_epoch({number})"
    )
    return (Insert(place, code), Rewrite(call, name), *import_of(module, kind))


def names_of(module: Module) -> set[str]:
    """All names that a module binds or reads."""
    return {name.id for name in module.nodes(ast.Name)}


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
        for node in module.attributes("set_epoch")
    )


def is_told_by_callers(program: Program, loop: TrainLoop) -> bool:
    """Whether a function that calls the loop's, perhaps for other loaders too, tells the epoch."""
    function = loop.module.function(loop.steps)
    return function is not None and any(
        calls_set_epoch(program, where, where.scope_statements(call))
        for where, call in program.callers(function)
    )


def is_one_pass(program: Program, loop: TrainLoop) -> bool:
    """Whether the program goes over the batches once: no loop is around, nor around the calls."""
    module: Module = loop.module
    place: ast.AST = loop.steps
    for _ in range(MAX_CALLERS):
        if any(isinstance(up, ast.For | ast.While) for up in module.ancestors(place)):
            return False
        function = module.function(place)
        if function is None:
            return isinstance(loop.steps, ast.For)
        callers = program.callers(function)
        if len(callers) != 1:
            return False
        module, place = callers[0]
    return False


def epoch_loop(
    program: Program, loop: TrainLoop
) -> tuple[Module, CountingLoop, str, ast.stmt] | None:
    """The loop that counts epochs, its module, and the name that the loader has there.

    The loop stands around the steps, or around the only call that trains of their function, or of
    the function around that. Last comes the statement that it holds of these. A loop that counts
    in no name, ``while not done:``, has an empty one.
    """
    module, loader = loop.module, loop.loader
    if loader is None:
        return None
    name = loader.name or loader.listed_in
    use: ast.stmt = loop.steps
    place: ast.AST = use
    for _ in range(MAX_CALLERS):
        epochs = counting_loop(module, place) or endless_loop(module, place)
        if epochs is not None:
            return module, epochs, name, use
        function = module.function(place)
        if function is None:
            return None
        calls = calls_that_train(program, module, function, program.callers(function))
        if len(calls) != 1:
            return None
        caller, call = calls[0]
        name = name_at_call(module, function, calls[0], name or parameter_in_bar(loop))
        if not name:
            return None
        module, place, use = caller, call, caller.statement(call)
    return None


def parameter_in_bar(loop: TrainLoop) -> str:
    """The parameter whose name a bar around it has taken, ``loader = tqdm(loader)``; or empty."""
    module, steps = loop.module, loop.steps
    function = module.function(steps)
    for name in everywhere(steps.iter, ast.Name) if isinstance(steps, ast.For) else ():
        bar = module.definition(name, name)
        inside = argument(bar, 0, "iterable") if isinstance(bar, ast.Call) else None
        is_around = isinstance(bar, ast.Call) and module.last_name(bar.func) in AROUND
        if function is not None and is_around and isinstance(inside, ast.Name):
            return inside.id if inside.id in parameters(function) else ""
    return ""


def name_at_call(module: Module, function: Function, place: CallPlace, name: str) -> str:
    """What a name of a function is called where the function is; empty where it has no name."""
    caller, call = place
    first, dot, rest = name.partition(".")
    value = argument_for_parameter(module, function, call, first)
    if value is not None and first in parameters(function):
        return caller.text(value) + dot + rest
    if first == "self" and isinstance(call.func, ast.Attribute):
        return caller.text(call.func.value) + dot + rest
    if caller is not module or (function, first) in module.stores:
        return ""
    scope = module.function(call)  # which a function inside of it shares its names with
    is_shared = (
        scope is not None and is_inside(function, scope) and first not in parameters(function)
    )
    return name if is_shared or (None, first) in module.stores else ""
