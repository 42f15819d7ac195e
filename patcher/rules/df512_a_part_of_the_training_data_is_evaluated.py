"""An evaluation goes over this rank's part of the training data.

What         An evaluation goes over the training's loader, whose sampler deals the examples to the
             ranks, and nothing brings the parts together. So does a loop beside the training that
             counts or adds up what is in the batches, such as how often each class comes, one that
             keeps what a model gives for them, or its squared gradients, one that runs a model for
             nothing but the averages of its batch norm, as update_bn() does, and one over several
             loaders in turn, the training's among them; and a comprehension that collects something
             of the batches, such as what a model gives for them, or their labels.
At run time  The training accuracy that is printed is that of 1/N of the examples, of others in each
             epoch, and another one on each rank. A rank that stops, or keeps the best model, by it
             leaves its peers waiting. Class weights and means differ from rank to rank.
Example      print("train:", accuracy(model, train_loader))
Fix          Let the loop go over all examples in order, on each rank, and divide by the number of
             all their batches. Of evaluations only those that compute no gradients, or are
             functions that get the loader. Averages of batch norm are only noted, as they need
             mixed batches: let all ranks take the mean of theirs, or go through a loader of all
             examples that shuffles. So are gradients of batches that are drawn beside the training,
             as pruning does: average them before they are read.
Fix safety   Safe: a loader that deals nothing is left as it is, as every loader of a lone process.
Source       torch.utils.data.distributed.DistributedSampler
"""

import ast
import builtins
import re
from collections.abc import Iterator

from ..analysis.batches.collected_batches import collections_of_batches
from ..analysis.batches.drawn_beside import drawn_for_gradients
from ..analysis.language.name_flow import FILLING, names_in, spread
from ..analysis.language.passed_arguments import argument_for_parameter
from ..analysis.models.wrapper_attributes import is_gradless
from ..analysis.models.wrapping import keeps_gradients, takes_steps
from ..analysis.ranks.evaluating_ranks import combines, combines_parts
from ..analysis.training.constructed_loaders import Loader
from ..analysis.training.evaluations import Evaluation
from ..analysis.training.evaluations import is_gradless as is_gradless_function
from ..analysis.training.loaders import loader_of, trace_loader
from ..analysis.training.loaders_in_lists import loaders_in_turn
from ..analysis.training.program import Program
from ..analysis.training.train_loops import is_backward
from ..editing.edits import Define, Edit, Insert, Rewrite
from ..findings import Finding, Safety, Severity
from ..source.module import Module
from ..source.tree import (
    argument,
    argument_values,
    bound_names,
    everywhere,
    is_inside,
    mentions,
    parameters,
    precedes,
    within,
)

CODE, SEVERITY, SAFETY = "DF512", Severity.DEGRADED, Safety.SAFE

LIBRARIES = ("torch", "numpy", "scipy", "sklearn", "collections", "itertools", "math", "tqdm")
WHOLE = "over_all_examples"  # of helper_code.py
TRAINS = re.compile("step|train|fit|learn|update|optim|closure", re.IGNORECASE)


def findings(program: Program) -> Iterator[Finding]:
    seen: set[ast.AST] = set()  # a function with two loops is told of once
    several = list(loops_in_turn(program))
    for module, loop, name in several:
        because = f"{name} may be the training's loader, which deals this rank a part of the data"
        first = next(stmt for stmt in loop.body if mentions(stmt, name))
        edits = (Insert(first, f"{name} = {WHOLE}({name})"), Define(WHOLE))
        yield Finding(module, loop, because, edits)
    for evaluation in program.evaluations:
        scope = evaluation.function or evaluation.loop
        if scope in seen or goes_over_all(evaluation, scope):
            continue
        if drops_outputs(evaluation.module, evaluation.loop):
            continue
        if any(is_inside(evaluation.loop, loop) for _, loop, _ in several):
            continue
        place = training_loader_place(program, evaluation)
        if place is None or combines_parts(program, evaluation):
            continue
        seen.add(scope)
        because = f"{evaluation.name} goes over this rank's part of the training data"
        yield Finding(*place, because, go_over_all(evaluation))
    yield from averages_of_a_part(program)
    yield from gradients_of_a_part(program)
    for module, node in counting_loops(program):
        if not has_helper(module, node) and not is_read_by_step(program, module, node):
            because = "what this counts is in this rank's part of the training data alone"
            yield Finding(module, node, because, count_all(module, node.iter))
    for module, iterated in collected_parts(program):
        if is_read_by_step(program, module, module.statement(iterated)):
            continue
        because = "what this collects is of this rank's part of the training data alone"
        yield Finding(module, iterated, because, count_all(module, iterated))


def collected_parts(program: Program) -> Iterator[tuple[Module, ast.expr]]:
    """What comprehensions go over that collect something of a training's dealt loader."""
    if not any(each.distributed_samplers for each in program.training_loaders):
        return
    others = steps_and_evaluations(program)
    for module in program.modules:
        for made, part in collections_of_batches(module):
            if (
                program.is_live(module, made)
                and others.isdisjoint(module.ancestors(made))
                and not has_helper(module, made)
                and any(
                    deals_training(program, loader)
                    for where, passed in gone_over(program, module, part)
                    for loader in passed_loaders(program, where, passed)
                )
                and only_looks(program, module, made)
            ):
                yield module, part.iter


def has_helper(module: Module, node: ast.AST) -> bool:
    """Whether the function around a node goes over all examples already."""
    function = module.function(node)
    return any(module.function(call) is function for call in module.calls_to(WHOLE))


def is_read_by_step(program: Program, module: Module, stmt: ast.stmt) -> bool:
    """Whether a training step takes what a statement has kept of the batch with its own number.

    ``cache[step]``, which is of this rank's batch as long as both go over the same ones.
    """
    if isinstance(stmt, ast.For):
        calls = within(stmt.body, ast.Call)
        kept = [
            names_in(call.func.value)
            for call in calls
            if isinstance(call.func, ast.Attribute) and call.func.attr in FILLING
        ]
    else:
        kept = [names_in(target) for target in getattr(stmt, "targets", [])]
    names = set[str]().union(*kept)
    return any(
        isinstance(each.slice, ast.Name)
        and each.slice.id == loop.step_name
        and names_in(each.value) & names
        for loop in program.train_loops
        if loop.module is module and loop.step_name
        for each in within(loop.steps.body, ast.Subscript)
    )


def steps_and_evaluations(program: Program) -> set[ast.AST]:
    """The loops of training steps, and those of evaluations."""
    steps: set[ast.AST] = {each.steps for each in program.train_loops}
    return steps | {each.loop for each in program.evaluations}


def gradients_of_a_part(program: Program) -> Iterator[Finding]:
    """Loops that go back without a step, and add up what the gradients are; and such draws."""
    for loop in program.train_loops:
        is_dealt = loop.loader is not None and deals_training(program, loop.loader)
        if is_dealt and not takes_steps(loop) and keeps_gradients(loop):
            because = "what this keeps of gradients is of this rank's part of the training data"
            yield Finding(loop.module, loop.steps, because, severity=Severity.NOTE)
    for module, drawn_from in drawn_for_gradients(program):
        loaders = passed_loaders(program, module, drawn_from)
        if any(deals_training(program, loader) for loader in loaders):
            because = "gradients of a batch that is drawn here are of this rank's own batch"
            yield Finding(module, drawn_from, because, severity=Severity.NOTE)


def averages_of_a_part(program: Program) -> Iterator[Finding]:
    """Where a model gets the averages of its batch norm, of a part of the training data."""
    if not any(each.distributed_samplers for each in program.training_loaders):
        return
    because = "averages of batch norm come of this rank's part of the training data"
    passes = [
        (module, loader)
        for module, call in program.calls_to("update_bn", "bn_update")  # of torch and torchcontrib
        if (loader := argument(call, 0, "loader")) and not program.callees(module, call)
    ]
    others: set[ast.AST] = {each.steps for each in program.train_loops}
    for module in program.modules:
        for loop in module.nodes(ast.For):
            if drops_outputs(module, loop) and others.isdisjoint({loop, *module.ancestors(loop)}):
                passes += gone_over(program, module, loop)
    for module, loader in passes:
        if not mentions(loader, WHOLE) and any(
            deals_training(program, each) for each in passed_loaders(program, module, loader)
        ):
            yield Finding(module, loader, because, severity=Severity.NOTE)


def drops_outputs(module: Module, loop: ast.For) -> bool:
    """Whether a loop runs a model on its batches, and lets go what comes out: ``model(x)``."""
    function = module.function(loop)
    bound = parameters(function) if function is not None else []
    for stmt in loop.body:
        match stmt:
            case ast.Expr(value=ast.Call(func=ast.Name(id=name)) as call):
                is_bound = name in bound or (function, name) in module.stores
                batch = spread([loop], bound_names(loop.target)).names if is_bound else set[str]()
                if any(names_in(value) & batch for value in argument_values(call)):
                    return not any(map(is_backward, within(loop, ast.Call)))
    return False


def gone_over(
    program: Program, module: Module, loop: ast.For | ast.comprehension
) -> Iterator[tuple[Module, ast.expr]]:
    """What a loop goes over, or what calls of its function pass for that."""
    function = module.function(loop.iter)
    names = names_in(loop.iter) & set(parameters(function)) if function is not None else set()
    if function is None or not names:
        yield module, loop.iter
        return
    for where, call in program.callers(function):
        passed = argument_for_parameter(module, function, call, min(names))
        if passed is not None:
            yield where, passed


def goes_over_all(evaluation: Evaluation, scope: ast.AST) -> bool:
    """Whether the helper is called where an evaluation is written."""
    return any(is_inside(call, scope) for call in evaluation.module.calls_to(WHOLE))


def training_loader_place(
    program: Program, evaluation: Evaluation
) -> tuple[Module, ast.expr | ast.stmt] | None:
    """Where an evaluation gets a loader that a training deals: a caller's argument, or its loop."""
    module, function, name = evaluation.module, evaluation.function, evaluation.loader.name
    if function is None or name not in parameters(function):
        is_dealt = deals_training(program, evaluation.loader)
        return (module, evaluation.loop) if is_dealt else None
    for where, call in program.callers(function):
        passed = argument_for_parameter(module, function, call, name)
        if passed is not None and any(
            deals_training(program, loader) for loader in passed_loaders(program, where, passed)
        ):
            return where, passed
    return None


def passed_loaders(program: Program, module: Module, passed: ast.expr) -> Iterator[Loader]:
    """The loaders that an argument may be, also each of those that a loop goes through."""
    loader = trace_loader(program, module, passed)
    if loader is not None:
        yield loader
    for up in module.ancestors(passed) if isinstance(passed, ast.Name) else ():
        if isinstance(up, ast.For) and names_in(passed) & bound_names(up.target):
            yield from loaders_in_turn(program, module, up)


def deals_training(program: Program, loader: Loader) -> bool:
    """Whether a loader is that of a training, and deals its examples."""
    return bool(loader.distributed_samplers) and any(
        each.is_same(loader) for each in program.training_loaders
    )


def go_over_all(evaluation: Evaluation) -> tuple[Edit, ...]:
    """Edits by which an evaluation goes over all examples of the loader that it gets or names."""
    function, name = evaluation.function, evaluation.loader.name
    if function is None or name not in parameters(function):
        module, loop = evaluation.module, evaluation.loop
        is_named = module.text(inner_of(loop.iter)) == name and is_gradless(module, loop)
        return count_all(module, loop.iter) if is_named else ()
    first = next(stmt for stmt in function.body if mentions(stmt, name))
    return (Insert(first, f"{name} = {WHOLE}({name})"), Define(WHOLE))


def loops_in_turn(program: Program) -> Iterator[tuple[Module, ast.For, str]]:
    """Loops over several loaders, a training's dealt one among them, that do not train by them.

    Each with the name that it gives the loader: ``for loader in [train_loader, dev_loader]``, with
    a loop over that in it.
    """
    if not any(each.distributed_samplers for each in program.training_loaders):
        return
    for module in program.modules:
        for loop in module.nodes(ast.For):
            name = loader_gone_over(loop)
            if (
                name
                and takes_training_loader(program, module, loop)
                and program.is_live(module, loop)
                and not any(is_inside(call, loop) for call in module.calls_to(WHOLE))
                and not goes_back(program, module, loop)
                and not combines(program, module, module.scope_statements(loop))
            ):
                yield module, loop, name


def loader_gone_over(loop: ast.For) -> str:
    """The name that a loop binds, and over which, or what is made of it, another one goes in it."""
    iterated = {name for inner in within(loop.body, ast.For) for name in names_in(inner.iter)}
    found = [
        name
        for name in (bound_names(loop.target) if iterated else ())
        if iterated & spread(loop.body, [name]).names
    ]
    return found[0] if len(found) == 1 else ""


def takes_training_loader(program: Program, module: Module, loop: ast.For) -> bool:
    """Whether the training's loader, which deals its examples, is one of those of a loop."""
    return any(deals_training(program, each) for each in loaders_in_turn(program, module, loop))


def goes_back(program: Program, module: Module, loop: ast.stmt) -> bool:
    """Whether a statement computes gradients, itself or in a function that it calls."""
    code = [loop, *(function for _, function in program.functions_below(module, loop))]
    return any(is_backward(call) for part in code for call in everywhere(part, ast.Call))


def counting_loops(program: Program) -> Iterator[tuple[Module, ast.For]]:
    """Loops over a training's dealt loader that only count what is in the batches.

    Or that keep what comes of them without gradients.
    """
    dealt = {each.call for each in program.training_loaders if each.distributed_samplers}
    if not dealt:
        return
    others = steps_and_evaluations(program)
    for module in program.modules:
        for loop in module.nodes(ast.For):
            if others & {loop, *module.ancestors(loop)}:
                continue
            if not (counts_alone(module, loop) or keeps_results(program, module, loop)):
                continue
            if is_combined(program, module, loop):
                continue
            loader = loader_of(program, module, loop)
            if loader is not None and loader.call in dealt and program.is_live(module, loop):
                yield module, loop


def is_combined(program: Program, module: Module, loop: ast.For) -> bool:
    """Whether what a loop adds up is brought together behind it: ``dist.all_reduce(count)``."""
    body = module.scope_statements(loop)
    sums = set[str]().union(*(names_in(each.target) for each in within(loop.body, ast.AugAssign)))
    summed = spread([stmt for stmt in body if precedes(loop, stmt)], sums).names
    return any(
        precedes(loop, call)
        and not summed.isdisjoint(names_in(call))
        and combines(program, module, [module.statement(call)])
        for call in within(body, ast.Call)
    )


def keeps_results(program: Program, module: Module, loop: ast.For) -> bool:
    """Whether a loop adds up or keeps, without gradients, what a model gives for all batches."""
    function = module.function(loop)
    is_function = function is not None and is_gradless_function(module, function)
    if not (is_function or is_gradless(module, loop)) or within(loop.body, ast.Break):
        return False
    own = bound_names(loop.target)
    kept = [names_in(each.target) for each in within(loop.body, ast.AugAssign)]
    kept += [
        names_in(call.func.value)
        for call in within(loop.body, ast.Call)
        if isinstance(call.func, ast.Attribute) and call.func.attr in FILLING
    ]
    kept += kept_again(loop)
    return (
        any(names - own for names in kept)
        and not goes_back(program, module, loop)
        and not combines(program, module, module.scope_statements(loop))
    )


def kept_again(loop: ast.For) -> list[set[str]]:
    """The names that a loop makes of themselves: ``most = max(most, x.max())``."""
    return [
        names_in(target) & names_in(each.value)
        for each in within(loop.body, ast.Assign)
        for target in each.targets
    ]


def only_looks(program: Program, module: Module, node: ast.expr) -> bool:
    """Whether the calls of a comprehension can train nothing."""
    if goes_back(program, module, module.statement(node)):
        return False
    for call in everywhere(node, ast.Call):
        if not program.callees(module, call) and TRAINS.search(module.last_name(call.func)):
            return False
    return True


def counts_alone(module: Module, loop: ast.For) -> bool:
    """Whether a loop adds something up, and calls nothing but libraries, builtins and the batch."""
    batch = spread([loop], bound_names(loop.target)).names
    own = {each.id for each in everywhere(loop.target, ast.Name)}
    sums = [names_in(each.target) for each in within(loop.body, ast.AugAssign)]
    sums += kept_again(loop)
    adds = any(not names <= own for names in sums)
    for call in within(loop.body, ast.Call):
        owner: ast.expr = call.func
        while isinstance(owner, ast.Attribute | ast.Subscript | ast.Call):
            owner = owner.func if isinstance(owner, ast.Call) else owner.value
        fills = isinstance(call.func, ast.Attribute) and call.func.attr in FILLING
        name = owner.id if isinstance(owner, ast.Name) else ""
        is_of_batch = name in batch or (isinstance(owner, ast.BinOp) and names_in(owner) <= batch)
        is_library = module.aliases.get(name, "").partition(".")[0] in LIBRARIES
        if not (fills or is_library or is_of_batch or hasattr(builtins, name)):
            return False
        adds |= fills
    return adds


def count_all(module: Module, iterated: ast.expr) -> tuple[Edit, ...]:
    """Edits by which such a loop goes over all examples of the loader that it names."""
    source = inner_of(iterated)
    if not isinstance(source, ast.Name | ast.Attribute):
        return ()
    whole = f"{WHOLE}({module.text(source)})"
    counted = [Rewrite(each, whole) for each in divisors(module, iterated, module.text(source))]
    return (Rewrite(source, whole), *counted, Define(WHOLE))


def divisors(module: Module, iterated: ast.expr, loader: str) -> Iterator[ast.expr]:
    """The loader in ``len(loader)`` that divides what comes of going over it."""
    stmt = module.statement(iterated)
    made = {name for each in getattr(stmt, "targets", []) for name in bound_names(each)}
    if isinstance(stmt, ast.For):
        sums = [names_in(each.target) for each in within(stmt.body, ast.AugAssign)]
        made = set().union(*sums, *kept_again(stmt))
    for call in module.calls_to("len"):
        if len(call.args) != 1 or module.text(call.args[0]) != loader:
            continue
        for up in module.ancestors(call):
            match up:
                case ast.BinOp(left=divided, op=ast.Div() | ast.FloorDiv(), right=divisor):
                    pass
                case ast.AugAssign(target=divided, op=ast.Div() | ast.FloorDiv(), value=divisor):
                    pass
                case _:
                    continue
            if (call is divisor or is_inside(call, divisor)) and (
                is_inside(iterated, divided) or (names_in(divided) & made and precedes(stmt, up))
            ):
                yield call.args[0]


def inner_of(iterated: ast.expr) -> ast.expr:
    """``loader`` of ``enumerate(tqdm(loader))``."""
    while isinstance(iterated, ast.Call) and iterated.args:
        iterated = iterated.args[0]
    return iterated
