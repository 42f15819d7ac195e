"""Edits by which ranks share the batches that each step of a script draws at random.

All of them draw what they need together, from the random numbers of rank 0, and each takes its
part: ``share_of_drawn(torch.randint(0, len(data), (size * ranks,)))``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..analysis.batches.batch_counts import counts_data
from ..analysis.batches.batch_origins import refuse_order_of_sets
from ..analysis.batches.batch_taint import NotDealtError, refuse_turns_that_part
from ..analysis.batches.drawn_batches import DrawnBatch, drawn_batch, draws_one
from ..analysis.batches.own_decisions import refuse_own_decisions
from ..analysis.batches.random_draws import ALIKE, draws_below, refuse_apart
from ..analysis.batches.rates_by_batch import refuse_rates_by_batch
from ..analysis.language.name_flow import FILLING, names_in, spread
from ..analysis.language.passed_arguments import argument_for_parameter
from ..analysis.language.training_calls import is_without_gradients
from ..analysis.ranks.dealing import SHARE_OF_DRAWN
from ..analysis.training.possible_values import values_of
from ..analysis.training.program import Program
from ..analysis.training.train_loops import TrainLoop
from ..editing.edits import Define, Edit, Import, Insert, Rewrite
from ..source.module import Module
from ..source.tree import (
    FUNCTIONS,
    Function,
    bound_names,
    everywhere,
    is_inside,
    position,
    within,
)
from .process_group import NUMBER_OF_RANKS

ENVIRONMENTS = {"gym", "gymnasium", "gym_minigrid", "procgen", "atari_py", "dm_control"}
LENGTHS = ("shape", "size", "numel", "__len__")
MAX_STEPS = 4  # names and parameters between the end of a loop and a length

Place = tuple[Module, ast.Call]


def edits_to_share_draws(program: Program, loop: TrainLoop) -> list[tuple[Module, Edit]]:
    """Edits that give each rank a share of what each step draws. Raises NotDealtError."""
    module, steps = loop.module, loop.steps
    refuse_other_data(program, loop)
    refuse_order_of_sets(program)
    drawn = draws_of_steps(program, loop)
    refuse_changed_sources(program, loop, drawn)
    refuse_other_calls(program, loop, drawn)
    taken = names_taken(program, loop, drawn)
    taint = spread(steps.body, taken)
    refuse_turns_that_part(program, loop, taint)
    own = taint.names & (bound_names_of_steps(loop) | {each for each in taint.names if "." in each})
    refuse_own_decisions(program, module, steps, own)
    refuse_rates_by_batch(program, loop, taken)
    sizes = sizes_of(program, drawn)
    edits: dict[tuple[Module, Edit], None] = {}
    for each in drawn:
        where = each.module
        edits[where, Rewrite(each.whole, f"{SHARE_OF_DRAWN}({text_of_all(each)})")] = None
        edits[where, Define(SHARE_OF_DRAWN)] = None
        edits[where, Import("torch")] = None
    for where, count, text in fewer_steps(program, loop, sizes):
        edits[where, Rewrite(count, text)] = None
    first = first_to_draw(program, loop, drawn)
    refuse_apart(module, first)
    edits[module, Insert(first, f"{ALIKE}()")] = None
    edits[module, Define(ALIKE)] = None
    return [*edits]


def text_of_all(drawn: DrawnBatch) -> str:
    """The text of a draw of all ranks' examples."""
    where, whole, size = drawn.module, drawn.whole, drawn.size
    ends = [(each.end_lineno or 0, each.end_col_offset or 0) for each in (size, whole)]
    text = where.text(size)
    if not isinstance(size, ast.Name | ast.Attribute | ast.Constant | ast.Subscript | ast.Call):
        text = f"({text})"
    return (
        where.text_between((whole.lineno, whole.col_offset), (size.lineno, size.col_offset))
        + f"{text} * ({NUMBER_OF_RANKS})"
        + where.text_between(*ends)
    )


def refuse_other_data(program: Program, loop: TrainLoop) -> None:
    """Raise where something else may pick the examples, or no data lie before all ranks alike."""
    steps = loop.steps
    if program.unread:
        raise NotDealtError(f"{program.unread[0][2]} cannot be read")
    if loop.step_test is not None or loop.goes_back_elsewhere or steps.orelse:
        raise NotDealtError(f"what a step of line {steps.lineno} does cannot be followed")
    packages = set[str]().union(*(each.imported_packages for each in program.modules))
    if packages & ENVIRONMENTS:
        raise NotDealtError("its examples come from an environment, of which each rank has its own")
    numbers = bound_names(steps.target) if isinstance(steps, ast.For) else set[str]()
    known = spread(steps.body, numbers).names if numbers else frozenset[str]()
    for part in within(steps.body, ast.Subscript):
        if names_in(part.slice) & known and isinstance(part.ctx, ast.Load):
            raise NotDealtError(f"line {part.lineno} picks by the number of the step as well")


def draws_of_steps(program: Program, loop: TrainLoop) -> list[DrawnBatch]:
    """The draws of a step, all of which are of as many examples as it trains on."""
    found: dict[ast.expr, DrawnBatch] = {}
    others: list[Place] = []
    for stmt in loop.steps.body:
        for module, call in draws_below(program, loop.module, stmt):
            drawn = drawn_batch(module, call)
            if drawn is not None:
                found[drawn.whole] = drawn
            elif not draws_one(module, call):
                others.append((module, call))
    picks = {each.module.text(each.size) for each in found.values() if each.picks}
    for each in found.values():
        if each.module.text(each.size) not in picks:
            others += [(each.module, call) for call in everywhere(each.whole, ast.Call)[:1]]
    if not picks:
        raise NotDealtError("no draw of its batches could be found")
    for module, call in others:
        raise NotDealtError(
            f"a step draws at random, by {module.text(call.func)}() in line {call.lineno} of"
            f" {module.source.path.name}, not as many as there are examples in its batch"
        )
    for each in found.values():
        if is_without_gradients(each.module, each.whole):
            raise NotDealtError(f"line {each.whole.lineno} draws its batch without gradients")
    return [*found.values()]


def refuse_changed_sources(program: Program, loop: TrainLoop, drawn: list[DrawnBatch]) -> None:
    """Raise where a step changes what it draws from, as one that collects examples does."""
    blocks = [(loop.module, loop.steps.body)]
    blocks += [
        (where, function.body)
        for where, function in program.functions_below(loop.module, *loop.steps.body)
    ]
    filled: set[str] = set()
    for where, body in blocks:
        for call in within(body, ast.Call):
            if isinstance(call.func, ast.Attribute) and call.func.attr in (*FILLING, "push"):
                filled.add(where.last_name(call.func.value))
        for stmt in within(body, ast.AugAssign):
            filled.add(where.last_name(stmt.target))
    for each in drawn:
        size = names_in(each.size)
        read = {name.rpartition(".")[2] for name in names_in(each.whole) - size}
        is_here = each.module is loop.module
        is_here &= each.module.function(each.whole) is loop.module.function(loop.steps)
        bound = bound_names_of_steps(loop) if is_here else set[str]()
        if changed := sorted(read & (filled | bound)):
            raise NotDealtError(
                f"line {each.whole.lineno} draws from {changed[0]}, which the steps change"
            )


def bound_names_of_steps(loop: TrainLoop) -> set[str]:
    """The names that a step binds."""
    return set[str]().union(*(bound_names(stmt) for stmt in loop.steps.body))


def functions_that_draw(program: Program, drawn: list[DrawnBatch]) -> dict[Function, Module]:
    """The functions in which batches are drawn."""
    return {
        function: each.module
        for each in drawn
        if (function := each.module.function(each.whole)) is not None
    }


def refuse_other_calls(program: Program, loop: TrainLoop, drawn: list[DrawnBatch]) -> None:
    """Raise where a function that draws batches of the steps is called for something else.

    Without gradients it draws the examples of all ranks, on each of them: an evaluation is right.
    """
    pending = [*functions_that_draw(program, drawn)]
    pending = [each for each in pending if each is not loop.module.function(loop.steps)]
    seen: set[Function] = set()
    while pending:
        function = pending.pop()
        if function in seen:
            continue
        seen.add(function)
        if program.possible_callers(function):
            raise NotDealtError(f"who calls {function.name}() cannot be told")
        for where, call in program.callers(function):
            caller = where.function(call)
            if is_without_gradients(where, call) or is_of_another(program, loop, where, call):
                continue
            if where is loop.module and caller is loop.module.function(loop.steps):
                if is_inside(call, loop.steps) or is_prefetch(where, call, loop):
                    continue
            elif caller is not None and any(
                caller is below
                for _, below in program.functions_below(loop.module, *loop.steps.body)
            ):
                pending.append(caller)
                continue
            raise NotDealtError(
                f"line {call.lineno} of {where.source.path.name} draws by {function.name}() as well"
            )


def is_of_another(program: Program, loop: TrainLoop, module: Module, call: ast.Call) -> bool:
    """Whether another training loop draws by a call, of which the same is to be asked."""
    return any(
        other.steps is not loop.steps and other.module is module and is_inside(call, other.steps)
        for other in program.train_loops
        if other.loader is None
    )


def is_prefetch(module: Module, call: ast.Call, loop: TrainLoop) -> bool:
    """Whether the first batch is drawn ahead of the loop, whose steps draw the next ones."""
    names = bound_names(module.statement(call))
    return position(call) < position(loop.steps) and bool(names & bound_names_of_steps(loop))


def names_taken(program: Program, loop: TrainLoop, drawn: list[DrawnBatch]) -> set[str]:
    """The names of a step that get something of what it draws."""
    wholes = {each.whole for each in drawn}
    losses = set[str]().union(*map(names_in, loop.backwards))
    names: set[str] = set()
    for call in within(loop.steps.body, ast.Call):
        draws = draws_below(program, loop.module, call)
        if not any(wholes & {each, where.parents[each]} for where, each in draws):
            continue
        stmt = loop.module.statement(call)
        own = set[str]()
        if isinstance(stmt, ast.Assign):
            own = own.union(*(bound_names(target) for target in stmt.targets))
        if not losses & spread(loop.steps.body, own).names:
            raise NotDealtError(
                f"line {call.lineno} draws examples that it does not train on: do that under"
                " torch.no_grad()"
            )
        names |= own
    return names


def sizes_of(program: Program, drawn: list[DrawnBatch]) -> set[str]:
    """What the size of a batch is called where it is drawn, and where it is passed."""
    sizes: set[str] = set()
    for each in drawn:
        sizes.add(each.module.text(each.size))
        function = each.module.function(each.size)
        if function is not None and isinstance(each.size, ast.Name):
            for where, call in program.callers(function):
                passed = argument_for_parameter(each.module, function, call, each.size.id)
                if passed is not None:
                    sizes.add(where.text(passed))
    return sizes


def fewer_steps(
    program: Program, loop: TrainLoop, sizes: set[str]
) -> Iterator[tuple[Module, ast.expr, str]]:
    """Numbers of steps that are so many batches of data, each with its text for a rank's share."""
    found: dict[ast.expr, tuple[Module, str]] = {}
    ends: list[ast.expr] = [
        each.iter if isinstance(each, ast.For) else each.test
        for each in (loop.steps, *loop.module.ancestors(loop.steps))
        if isinstance(each, ast.For | ast.While)
    ]
    pending: list[tuple[Module, ast.expr, int]] = [(loop.module, end, 0) for end in ends]
    seen: set[ast.expr] = set()
    while pending:
        where, node, steps = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        whole = [
            each
            for kind in (ast.BinOp, ast.Call)
            for each in everywhere(node, kind)
            if counts_batches(where, each, sizes)
        ]
        inside = {part for each in whole for part in ast.walk(each)}
        for each in whole:
            found[each] = where, shared_count(where, each)
        names = [*everywhere(node, ast.Name), *everywhere(node, ast.Attribute)]
        for name in names:
            if name in inside:
                continue
            if where.text(name) in sizes or (isinstance(name, ast.Name) and name.id == "len"):
                raise NotDealtError(f"line {node.lineno} counts steps by the length of its data")
            if isinstance(name, ast.Attribute) and name.attr in LENGTHS:
                raise NotDealtError(f"line {node.lineno} counts steps by the length of its data")
            if steps < MAX_STEPS:
                pending += [(*each, steps + 1) for each in values_of(program, where, name)]
    for module in program.modules:
        for division in module.nodes(ast.BinOp):
            is_mean = isinstance(division.op, ast.Div) and module.text(division.right) in sizes
            is_count = is_mean and counts_data(module, division.left)
            is_count = is_count or counts_batches(module, division, sizes)
            if is_count and not any(
                each is division or is_inside(division, each) for each in found
            ):
                raise NotDealtError(
                    f"line {division.lineno} of {module.source.path.name} counts batches as well"
                )
    yield from ((where, each, text) for each, (where, text) in found.items())


def counts_batches(module: Module, node: ast.expr, sizes: set[str]) -> bool:
    """``n // size``, also in ``int(n / size)`` or ``math.ceil(n / size)``."""
    match node:
        case ast.BinOp(op=ast.FloorDiv(), right=right):
            return module.text(right) in sizes
        case ast.Call(args=[ast.BinOp(op=ast.Div(), right=right)]):
            return module.last_name(node.func) in ("int", "ceil") and module.text(right) in sizes
    return False


def shared_count(module: Module, count: ast.expr) -> str:
    """The text of a number of batches, of which ranks take their share at once."""
    text = module.text(count)
    if isinstance(count, ast.Call) and module.last_name(count.func) == "ceil":
        return f"-(-{text} // ({NUMBER_OF_RANKS}))"
    return f"({text} // ({NUMBER_OF_RANKS}))"


def first_to_draw(program: Program, loop: TrainLoop, drawn: list[DrawnBatch]) -> ast.stmt:
    """The statement ahead of which ranks begin to draw alike: of the loops, or of a first batch."""
    module = loop.module
    place: ast.stmt = loop.steps
    for up in module.ancestors(loop.steps):
        if isinstance(up, FUNCTIONS):
            break
        if isinstance(up, ast.For | ast.While):
            place = up
    for function in functions_that_draw(program, drawn):
        for where, call in program.callers(function):
            if where is module and is_prefetch(where, call, loop):
                stmt = module.statement(call)
                if stmt in module.body(place) and position(stmt) < position(place):
                    place = stmt
    return place
