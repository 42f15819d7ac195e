"""The schedule counts micro-batches, the loop counts optimizer steps.

What         A horizon, warm-up, save or logging interval is computed from len(train_dataloader), or
             from that divided by the accumulation and rounded down, while the counter it is
             compared with advances once per optimizer step, also for what is left of an epoch. Or
             that length, which is a rank's own, is divided by the number of ranks.
At run time  With accumulation 4 the learning rate ends at 30 % of its peak, still warming up, and
             the first evaluation and the first checkpoint never come.
Example      args.max_steps = args.epoch * len(train_dataloader)
Fix          Count optimizer steps: len(train_dataloader) / accumulation, rounded up; rounded down
             where the loader drops its last batch. What counts examples times ranks counts steps;
             whatever divides all examples of the loader by one rank's batch is divided by the
             number of ranks, too, also in a function that gets both.
Fix safety   Safe: with accumulation 1 the numbers are the same.
Source       transformers.get_linear_schedule_with_warmup (num_training_steps)
"""

import ast
import re
from collections.abc import Iterator

from ...record import replace
from ..analysis.batches.batches_of_all import BatchCount, batches_of_all
from ..analysis.batches.example_counts import (
    counts_listed_cards,
    has_world_size,
    holds_batch_size,
    is_dataset_length,
    is_divided_later,
    is_example_count,
    is_loader_length,
    resolve,
    sizes_of_batches,
)
from ..analysis.batches.micro_batches import (
    STEPS,
    accumulation_text,
    counted_besides,
    is_accumulation,
    micro_batch_terms,
)
from ..analysis.ranks.rank_reach import is_world_size
from ..analysis.training.loop_of_caller import loop_of_caller
from ..analysis.training.program import Program
from ..analysis.training.scheduler_steps import steps_with_micro_batches
from ..analysis.training.schedules import constructs_schedule, takes_horizon
from ..analysis.training.step_quantities import (
    computed_from,
    drawn_by,
    method_bodies,
    numbers_of_draws,
    restart_intervals,
    step_quantities,
)
from ..analysis.training.train_loops import TrainLoop
from ..editing.edits import Edit, Import, Insert, Replace, Rewrite
from ..findings import Finding, Safety, Severity
from ..fixes.process_group import NUMBER_OF_RANKS
from ..fixes.ranks_counted import number_of_ranks
from ..source.module import Module
from ..source.tree import (
    below,
    bound_names,
    everywhere,
    is_inside,
    is_within,
    parameters,
    precedes,
    within,
)
from .df703_accumulation_arithmetic import leaves_rest

CODE, SEVERITY, SAFETY = "DF702", Severity.DEGRADED, Safety.SAFE

WORLD = "world_size"


def findings(program: Program) -> Iterator[Finding]:
    for loop in program.train_loops:
        told: set[ast.AST] = set()
        for each in (loop, *as_called(program, loop)):
            found = [*example_counts(each)]
            found += horizons_of_all_ranks(each, {finding.at for finding in found})
            told |= {finding.at for finding in found}
            yield from found
        yield from divided_elsewhere(program, loop, told)
        yield from divided_again(program, loop)
        if loop.accumulation is None or loop.loader is None:
            continue
        counted = [*steps_miscounted(program, loop)]
        yield from counted
        if (seen := loop_of_caller(program, loop)) is not None:
            told = {finding.at for finding in counted}  # in other methods of one class
            yield from (each for each in steps_miscounted(program, seen) if each.at not in told)


def steps_miscounted(program: Program, loop: TrainLoop) -> Iterator[Finding]:
    """What counts micro-batches, or leaves out steps, in the function around a loop or a call."""
    quantities = step_quantities(loop)
    parts = computed_from(loop, quantities) - quantities
    yield from steps_rounded_down(program, loop, parts)
    yield from resumed_by_floor(program, loop)
    for scope in method_bodies(loop):
        yield from micro_batch_counts(program, loop, scope, quantities)


def micro_batch_counts(
    program: Program, loop: TrainLoop, scope: list[ast.stmt], quantities: set[str]
) -> Iterator[Finding]:
    """Quantities that are computed from the loader's length and compared with optimizer steps."""
    module = loop.module
    name = name_of_steps(module, scope)
    defines_steps = name in bound_names(scope)
    defined: list[ast.stmt] = []  # statements before which an edit defines it
    for stmt in dict.fromkeys(map(module.statement, module.calls_to("len"))):
        if not isinstance(stmt, ast.Assign) or not is_within(stmt, scope):
            continue
        creates_schedule = constructs_schedule(module, stmt.value)
        if creates_schedule and steps_with_micro_batches(loop, module, stmt.value):
            continue
        if not creates_schedule and not any(module.text(t) in quantities for t in stmt.targets):
            continue
        terms = micro_batch_terms(program, loop, stmt.value)
        if terms is None and (other := counted_besides(program, loop, stmt.value)):
            because = f"{module.text(stmt.targets[0])} counts micro-batches of {other}"
            because += f": divide it by {accumulation_text(loop)}"
            yield Finding(module, stmt, because)
        if terms is None or is_divided_behind(loop, stmt):
            continue
        ratios = everywhere(stmt.value, ast.BinOp)
        is_divided = any(steps_rounded_up(program, loop, each) for each in ratios)
        if is_divided and leaves_rest(program, loop):
            continue
        because = f"{module.text(stmt.targets[0])} leaves out the last step of an epoch"
        if not is_divided:
            counters = " and ".join(sorted(loop.counters)) or "the scheduler"
            because = (
                f"{module.text(stmt.targets[0])} counts micro-batches, {counters} optimizer steps"
            )
        if is_bound_below(loop, stmt):
            because += f": move the line that binds {accumulation_text(loop)} above this one"
            yield Finding(module, stmt, because)
            continue
        steps = (
            f"{terms.length} // {terms.accumulation}"
            if loop.drops_rest
            else f"-(-{terms.length} // {terms.accumulation})"
        )
        is_definition = any(module.text(target) == name for target in stmt.targets)
        word = steps if is_definition else name
        edits: list[Edit] = [
            Rewrite(node, re.sub(rf"\b{STEPS}\b", word, text)) for node, text in terms.rewrites
        ]
        if not defines_steps and not any(is_behind(module, stmt, place) for place in defined):
            defined.append(insertion_point(loop, stmt))
            edits.append(Insert(defined[-1], f"{name} = {steps}  # optimizer steps"))
        yield Finding(module, stmt, because, tuple(edits))


def is_bound_below(loop: TrainLoop, stmt: ast.stmt) -> bool:
    """Whether the accumulation is a name that the lines below a statement bind first."""
    module, name = loop.module, loop.accumulation
    if not isinstance(name, ast.Name):
        return False
    stores = module.stores.get((module.function(stmt), name.id), ())
    return bool(stores) and not any(precedes(store, stmt) for store in stores)


def is_divided_behind(loop: TrainLoop, stmt: ast.Assign) -> bool:
    """Whether a line behind divides the quantity: ``every = every // accumulation``."""
    module = loop.module
    names = set(map(module.text, stmt.targets))
    return any(
        isinstance(each.op, ast.Div | ast.FloorDiv)
        and module.text(each.left) in names
        and is_accumulation(loop, each.right)
        for later in within(module.scope_statements(stmt), ast.Assign)
        if precedes(stmt, later) and names & set(map(module.text, later.targets))
        for each in everywhere(later.value, ast.BinOp)
    ) or any(
        isinstance(later.op, ast.Div | ast.FloorDiv)
        and module.text(later.target) in names
        and is_accumulation(loop, later.value)
        for later in within(module.scope_statements(stmt), ast.AugAssign)
        if precedes(stmt, later)
    )


def is_behind(module: Module, stmt: ast.stmt, place: ast.stmt) -> bool:
    """Whether every way to ``stmt`` passes the line above ``place``."""
    return any(
        module.body(place) is module.body(up) and not precedes(up, place)
        for up in (stmt, *module.ancestors(stmt))
        if isinstance(up, ast.stmt)
    )


def steps_rounded_down(program: Program, loop: TrainLoop, parts: set[str]) -> Iterator[Finding]:
    """``per_epoch = len(loader) // accumulation``, from which a horizon is computed.

    What is left of an epoch makes a step as well.
    """
    module = loop.module
    if loop.drops_rest or leaves_rest(program, loop):
        return
    for stmt in within(loop.scope, ast.Assign):
        value = inside_max(module, stmt.value)
        rounded_up = steps_rounded_up(program, loop, value)
        if rounded_up and any(module.text(target) in parts for target in stmt.targets):
            because = f"{module.text(stmt.targets[0])} leaves out the last step of an epoch"
            yield Finding(module, stmt, because, (Rewrite(value, rounded_up),))


def resumed_by_floor(program: Program, loop: TrainLoop) -> Iterator[Finding]:
    """``global_step // (len(loader) // accumulation)``, the epochs before a run is resumed."""
    module = loop.module
    if loop.drops_rest or leaves_rest(program, loop):
        return
    for stmt in within(loop.scope, ast.Assign):
        for node in everywhere(stmt.value, ast.BinOp):
            done, steps = node.left, inside_max(module, node.right)
            rounded_up = steps_rounded_up(program, loop, steps)
            if (
                rounded_up
                and isinstance(node.op, ast.FloorDiv | ast.Mod)
                and isinstance(done, ast.Name)
                and done.id in loop.counters
            ):
                because = f"{done.id} counts the last step of an epoch, which that leaves out"
                yield Finding(module, stmt, because, (Rewrite(node.right, rounded_up),))


def steps_rounded_up(program: Program, loop: TrainLoop, steps: ast.expr) -> str:
    """``len(loader) // accumulation``, with the last, short step of an epoch; else empty."""
    if (
        isinstance(steps, ast.BinOp)
        and isinstance(steps.op, ast.FloorDiv)
        and is_loader_length(program, loop, steps.left)
        and is_accumulation(loop, steps.right)
    ):
        module = loop.module
        return f"-(-{module.text(steps.left)} // {module.operand(steps.right)})"
    return ""


def inside_max(module: Module, node: ast.expr) -> ast.expr:
    """The number in ``max(number, 1)``; any other expression itself."""
    if not isinstance(node, ast.Call) or module.dotted(node.func) != "max" or node.keywords:
        return node
    others = [each for each in node.args if not isinstance(each, ast.Constant)]
    return others[0] if len(node.args) == 2 and len(others) == 1 else node


def name_of_steps(module: Module, scope: list[ast.stmt]) -> str:
    """The name for the steps of an epoch: another one where the script's own has another value."""
    own = [
        stmt
        for stmt in within(scope, ast.Assign)
        if any(isinstance(target, ast.Name) and target.id == STEPS for target in stmt.targets)
    ]
    counted = [
        stmt.value.operand if isinstance(stmt.value, ast.UnaryOp) else stmt.value for stmt in own
    ]
    are_counts = all(
        isinstance(value, ast.BinOp)
        and isinstance(value.op, ast.FloorDiv)
        and any(module.last_name(call.func) == "len" for call in everywhere(value, ast.Call))
        for value in counted
    )
    is_bound = STEPS in bound_names(scope)
    return STEPS if not is_bound or (own and are_counts) else f"optimizer_{STEPS}"


def example_counts(loop: TrainLoop) -> Iterator[Finding]:
    """``len(data) * world_size // global_batch``, although ``len(data)`` counts all examples."""
    module, loader = loop.module, loop.loader
    if loader is None or loader.dataset is None or not loader.distributed_samplers or loader.cycle:
        return
    for stmt in assignments_behind_loader(loop):
        for node in everywhere(stmt.value, ast.BinOp):
            left, right = node.left, node.right
            if (
                isinstance(node.op, ast.Mult)
                and is_dataset_length(loop, left)
                and is_world_size(module, right)
            ):
                because = f"{module.text(node)}: every rank has all examples already"
                yield Finding(module, stmt, because, (Rewrite(node, module.text(left)),))
            elif (
                isinstance(node.op, ast.FloorDiv)
                and loader.drop_last
                and is_example_count(loop, resolve(module, left))
                and holds_batch_size(loop, resolve(module, right))
            ):
                steps = f"len({loader.name})"
                steps += f" // {accumulation_text(loop)}" if loop.accumulation is not None else ""
                because = f"{module.text(node)}: ranks may take another number of steps"
                is_known = loader.name in bound_above(module, stmt)
                edits = (Rewrite(node, steps),) if is_known else ()
                yield Finding(module, stmt, because, edits)


def bound_above(module: Module, stmt: ast.stmt) -> set[str]:
    """The names and attributes that a statement finds bound: a loader may be made below it."""
    function = module.function(stmt)
    names = set() if function is None else parameters(function)
    for (owner, name), stores in module.stores.items():
        if owner is None or (owner is function and any(precedes(each, stmt) for each in stores)):
            names.add(name)
    return names | {f"self.{name}" for name in module.attribute_values}


def assignments_behind_loader(loop: TrainLoop) -> Iterator[ast.Assign]:
    """The assignments of the loop's function, and of the method that makes the loader it has."""
    yield from within(loop.scope, ast.Assign)
    assert loop.loader is not None
    made, module = loop.loader.call, loop.module
    if loop.loader.module is module and loop.loader.name.startswith("self."):
        for scope in method_bodies(loop)[1:]:
            for stmt in within(scope, ast.Assign):
                if module.function(stmt) is module.function(made) and precedes(made, stmt):
                    yield stmt


def as_called(program: Program, loop: TrainLoop) -> Iterator[TrainLoop]:
    """The loop as the epoch loop that calls its function, next to the loader and the schedule."""
    function, loader = loop.module.function(loop.steps), loop.loader
    if function is None or loader is None:
        return
    for module, call in program.callers(function):
        around = [each for each in module.ancestors(call) if isinstance(each, ast.For)]
        if around and module.function(call) is module.function(loader.call) is not function:
            yield replace(loop, module=module, steps=around[0], step_test=None)
            return


def horizons_of_all_ranks(loop: TrainLoop, told: set[ast.AST]) -> Iterator[Finding]:
    """``len(data) // batch`` for a schedule, although each rank takes a batch in every step.

    ``told`` are statements that have a finding already.
    """
    module, loader = loop.module, loop.loader
    if loader is None or loader.dataset is None or not loader.distributed_samplers or loader.cycle:
        return
    if loader.module is not module:  # its batch size has another module's names
        return
    size = loader.batch_size
    if size is None or has_world_size(module, size):
        return
    drawn = numbers_of_draws(loop)
    quantities = step_quantities(loop) | set(restart_intervals(loop)) | drawn
    quantities = computed_from(loop, quantities)
    name = f"({NUMBER_OF_RANKS})" if module.occurrences(WORLD) else WORLD
    assigned = [each for scope in method_bodies(loop) for each in within(scope, ast.Assign)]
    for stmt in (*assigned, *((loop.steps,) if drawn else ())):
        value = stmt.value if isinstance(stmt, ast.Assign) else drawn_by(stmt)
        if isinstance(stmt, ast.Assign):
            is_counted = any(module.text(target) in quantities for target in stmt.targets)
            if not is_counted and not takes_horizon(module, value):
                continue
        for node in everywhere(value, ast.BinOp) if stmt not in told else ():
            if sizes := sizes_of_batches(loop, node):
                if (
                    has_world_size(module, value)
                    or (isinstance(stmt, ast.Assign) and is_divided_later(loop, stmt))
                    or counts_listed_cards(module, value)
                ):
                    break  # all look far and wide
                ranks: tuple[Edit, ...] = (
                    (Insert(stmt, f"{WORLD} = {NUMBER_OF_RANKS}"),) if name == WORLD else ()
                )
                factors = [Rewrite(each, f"({module.operand(each)} * {name})") for each in sizes]
                edits = (*ranks, *factors, Import("torch"))
                because = f"{module.text(node)} counts the batches of all ranks, which step at once"
                yield Finding(module, stmt, because, edits)
                return  # the next round sees others


def divided_elsewhere(program: Program, loop: TrainLoop, told: set[ast.AST]) -> Iterator[Finding]:
    """What divides all examples by one rank's batch, also in a function that gets both."""
    found: dict[ast.stmt, list[BatchCount]] = {}
    for count in batches_of_all(program, loop):
        found.setdefault(count.module.statement(count.at), []).append(count)
    for stmt, counts in found.items():
        module = counts[0].module
        if stmt in told:
            continue
        is_plain = isinstance(stmt, ast.Assign | ast.Return | ast.Expr) and not any(
            isinstance(up, ast.For | ast.While) for up in module.ancestors(stmt)
        )
        makes_name = is_plain and is_free(module, stmt, WORLD)
        ranks, needed = number_of_ranks(program, module, stmt)
        name = WORLD if makes_name else f"({ranks})"
        edits: list[Edit] = [Insert(stmt, f"{WORLD} = {ranks}")] if makes_name else []
        sizes = [size for count in counts for size in count.sizes]
        edits += [Rewrite(each, f"({module.operand(each)} * {name})") for each in sizes]
        because = f"{module.text(counts[0].at)} counts the batches of all ranks, which step at once"
        yield Finding(module, stmt, because, (*edits, needed))


def is_free(module: Module, stmt: ast.stmt, name: str) -> bool:
    """Whether nothing in the function of a statement has a name, or no other code at its level."""
    function = module.function(stmt)
    found = module.occurrences(name)
    if function is not None:
        return not any(is_inside(each, function) for each in found)
    return all((module.function(each), name) in module.stores for each in found)


def divided_again(program: Program, loop: TrainLoop) -> Iterator[Finding]:
    """``steps = steps // world_size``, of a number made of a loader that deals by rank already."""
    module, loader = loop.module, loop.loader
    if loader is None or not loader.distributed_samplers:
        return
    quantities = computed_from(loop, step_quantities(loop))
    for stmt in within(loop.scope, ast.Assign):
        value, name = stmt.value, module.text(stmt.targets[0])
        if (
            isinstance(value, ast.BinOp)
            and isinstance(value.op, ast.FloorDiv | ast.Div)
            and name in quantities
            and is_world_size(module, value.right)
            and isinstance(value.left, ast.Name)
            and value.left.id == name
            and (counted := module.definition(value.left, value.left)) is not None
            and any(is_loader_length(program, loop, each) for each in expressions(counted))
        ):
            gate = module.parents[stmt]
            is_alone = isinstance(gate, ast.If) and gate.body == [stmt] and not gate.orelse
            because = f"{name} counts a rank's batches already, and is divided by the ranks again"
            edit = Replace(gate if is_alone and isinstance(gate, ast.If) else stmt, "")
            yield Finding(module, stmt, because, (edit,))


def expressions(node: ast.expr) -> Iterator[ast.expr]:
    """An expression and all within."""
    return (each for each in below(node) if isinstance(each, ast.expr))


def insertion_point(loop: TrainLoop, stmt: ast.stmt) -> ast.stmt:
    """The statement around ``stmt`` in the block of the loader, so that all branches pass it."""
    module, loader = loop.module, loop.loader
    if loader is None or loader.module is not module:
        return stmt
    construction = module.statement(loader.call)
    block = module.body(construction)
    outer = next((up for up in (stmt, *module.ancestors(stmt)) if up in block), stmt)
    is_below = isinstance(outer, ast.stmt) and precedes(construction, outer)
    return outer if isinstance(outer, ast.stmt) and is_below else stmt
