"""Training loops: their loader, step counter, gradient clipping and accumulation."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterator
from functools import cached_property

from ....record import record
from ...source.module import Module
from ...source.tree import (
    Function,
    argument,
    below,
    bound_names,
    everywhere,
    is_inside,
    precedes,
    within,
)
from ..language.call_graph import CallGraph
from ..language.conditions import plain_test
from ..language.name_flow import names_in, spread
from ..language.objects import class_of
from ..language.training_calls import calls_that_train
from .constructed_loaders import Loader
from .frameworks import OPTIMIZERS
from .loaders import SOURCE_NAMES, NextLoader, loader_of, next_loaders, trace_loader
from .loaders_in_lists import is_of_several, listed_loaders, loop_of_turns

# Calls that loop as their first argument does. The last two are methods of capabilities' Resumable.
PASSED_THROUGH = (
    *("tqdm", "enumerate", "list", "master_bar", "progress_bar", "track", "epochs", "steps"),
)
NUMBERS = ("range", "trange", "count")
MAX_CALLERS = 3  # functions between a step and its loop
CLIPPING = ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_")


@record
class TrainLoop:
    """A loop with a backward pass, in the function (or module) around it.

    ``backwards`` are its calls of ``backward()``, and of functions that go back and step.
    """

    module: Module
    steps: ast.For | ast.While
    epochs: ast.For | None
    loader: Loader | None
    backwards: tuple[ast.Call, ...]
    clips: tuple[ast.stmt, ...]
    step_test: ast.If | None  # the accumulation test around optimizer.step()
    accumulation: ast.expr | None  # the number of micro-batches per optimizer step in that test
    step_name: str  # the name of the micro-batch's number, from enumerate or range; or empty
    step_start: int = 0  # the first micro-batch's number
    steps_in_else: bool = False  # the accumulation test holds for all but the last micro-batch
    beside: tuple[Loader, ...] = ()  # of which each step takes a batch as well, by next()
    steps_in_function: bool = False  # a function that it calls steps the optimizer
    seen_from: ast.stmt | None = None  # a call of its function, in another one, of ``module``

    @property
    def place(self) -> ast.stmt:
        """The loop, or the call of its function from which it is seen."""
        return self.steps if self.seen_from is None else self.seen_from

    @property
    def scope(self) -> list[ast.stmt]:
        """The body of the function (or module) around the loop."""
        return self.module.scope_statements(self.place)

    @property
    def goes_back_elsewhere(self) -> bool:
        """Whether a function that the loop calls goes back and steps."""
        return not all(map(is_backward, self.backwards))

    @property
    def step_block(self) -> list[ast.stmt]:
        """The statements that run when the accumulation test lets an optimizer step through."""
        assert self.step_test is not None
        return self.step_test.orelse if self.steps_in_else else self.step_test.body

    @cached_property
    def drops_rest(self) -> bool:
        """Whether the batches of an epoch that are too few for a step may be left out.

        As drop_last asks for, unless something happens at the last batch, by its number.
        """
        if self.loader is None or not self.loader.drop_last or self.steps.orelse:
            return False
        return not any(
            isinstance(compare.ops[0], ast.Eq | ast.GtE) and is_in_terms_of(compare, self.step_name)
            for compare in within(self.steps.body, ast.Compare)
        )

    @cached_property
    def counters(self) -> set[str]:
        """Names that count optimizer steps: ``global_step += 1`` under the accumulation test."""
        if self.step_test is None:
            return set()
        return {
            node.target.id
            for node in within(self.step_block, ast.AugAssign)
            if isinstance(node.target, ast.Name)
            and isinstance(node.value, ast.Constant)
            and node.value.value == 1
        }


def is_in_terms_of(compare: ast.Compare, step: str) -> bool:
    """Whether a comparison of a step's number names another quantity, and no remainder."""
    if any(isinstance(node.op, ast.FloorDiv | ast.Mod) for node in everywhere(compare, ast.BinOp)):
        return False
    names = {node.id for node in everywhere(compare, ast.Name)}
    return step in names and len(names) > 1


def is_backward(call: ast.Call) -> bool:
    """Whether a call is ``loss.backward()``."""
    return isinstance(call.func, ast.Attribute) and call.func.attr == "backward"


def is_step(call: ast.Call) -> bool:
    """Whether a call may step an optimizer: ``step()``, ``step_and_update_lr()``."""
    if not isinstance(call.func, ast.Attribute):
        return False
    return call.func.attr == "step" or call.func.attr.startswith("step_")


def is_step_of_inputs(module: Module, call: ast.Call) -> bool:
    """Whether a call steps an optimizer that its function makes of tensors: ``SGD([delta])``."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    made = module.definition(owner, call) if isinstance(owner, ast.Name) else None
    if not isinstance(made, ast.Call) or module.last_name(made.func) not in OPTIMIZERS:
        return False
    function = module.function(made)
    return is_of_inputs(made) and function is module.function(call) and function is not None


def is_of_inputs(optimizer: ast.Call) -> bool:
    """Whether an optimizer gets tensors that have names: ``SGD([delta])``."""
    tensors = argument(optimizer, 0, "params")
    return isinstance(tensors, ast.List) and all(
        isinstance(each, ast.Name) for each in tensors.elts
    )


def loop_around(module: Module, node: ast.AST) -> ast.For | ast.While | None:
    """The innermost loop around ``node`` in its own function."""
    for up in module.ancestors(node):
        if isinstance(up, ast.For | ast.While | Function):
            return None if isinstance(up, Function) else up
    return None


def step_loop_around(
    graph: CallGraph, module: Module, backward: ast.Call
) -> ast.For | ast.While | None:
    """The loop around a backward pass whose passes are the micro-batches.

    It is the innermost one; or the one around it that goes over data and steps behind a loop that
    does neither: an attack of several passes on each batch, or the parts of a batch.
    """
    inner = loop_around(module, backward)
    loop = inner
    while isinstance(loop, ast.For) and not any(map(is_step, within(loop.body, ast.Call))):
        outer = loop_around(module, loop)
        if not isinstance(outer, ast.For) or loader_of(graph, module, loop) is not None:
            break
        steps = any(
            is_step(call) and call.lineno > (loop.end_lineno or 0)
            for call in within(outer.body, ast.Call)
        )
        if steps:
            is_over_data = loader_of(graph, module, outer) is not None or (
                is_over_numbers(module, loop) and not is_over_numbers(module, outer)
            )
            return outer if is_over_data else inner
        loop = outer
    return inner


def is_over_numbers(module: Module, loop: ast.For) -> bool:
    """``for epoch in trange(3):``, also through a variable."""
    return any(name in NUMBERS for name, _ in calls_around(module, loop.iter))


def train_loops(graph: CallGraph) -> list[TrainLoop]:
    """The training loops of a program: the innermost loops around each backward pass.

    Where a function goes back and steps, those around its calls are.
    """
    owners: dict[tuple[Module, ast.For | ast.While], list[ast.Call]] = defaultdict(list)
    once: dict[Function, Module] = {}  # functions that go back, not in a loop of their own
    for module in graph.modules:
        for call in module.calls_to("backward"):
            loop, function = step_loop_around(graph, module, call), module.function(call)
            if is_backward(call) and loop is not None:
                owners[module, loop].append(call)
            elif is_backward(call) and function is not None:
                once[function] = module
    for function, module in once.items():
        for where, loop, call in _loops_around_calls(graph, module, function, frozenset()):
            if call not in owners[where, loop]:
                owners[where, loop].append(call)
            for inside in [key for key in owners if key[0].function(key[1]) is function]:
                del owners[inside]  # a part of the step, such as that of an attack
    for key in [key for key in owners if _is_part_of_steps(graph, *key, owners)]:
        del owners[key]
    order = {module: index for index, module in enumerate(graph.modules)}
    return [
        _train_loop(graph, module, loop, backwards)
        for (module, loop), backwards in sorted(owners.items(), key=lambda item: order[item[0][0]])
    ]


def loops_that_go_back(graph: CallGraph, module: Module, function: Function) -> list[TrainLoop]:
    """The loops of a function with a backward pass and no step of a model, such as an attack."""
    if any(
        is_step(call) and not is_step_of_inputs(module, call)
        for call in within(function.body, ast.Call)
    ):
        return []
    backwards = [each for each in within(function.body, ast.Call) if is_backward(each)]
    around = [(loop_around(module, each), each) for each in backwards]
    return [_train_loop(graph, module, loop, [each]) for loop, each in around if loop is not None]


def _is_part_of_steps(
    graph: CallGraph,
    module: Module,
    loop: ast.For | ast.While,
    owners: Collection[tuple[Module, ast.For | ast.While]],
) -> bool:
    """Whether a loop goes back and steps no model, in a function that training loops call.

    An attack on each batch: it wants the gradients of its input.
    """
    function = module.function(loop)
    if function is None or any(
        is_step(call) and not is_step_of_inputs(module, call)
        for call in within(function.body, ast.Call)
    ):
        return False
    around = [*_places_above(graph, function, frozenset())]
    is_passed_on = bool(graph.possible_callers(function))
    return any(each in owners for each in around) and None not in around and not is_passed_on


def _places_above(
    graph: CallGraph, function: Function, seen: frozenset[Function]
) -> Iterator[tuple[Module, ast.For | ast.While] | None]:
    """The loops around a function's calls, also through functions; None for a call in no loop."""
    if function in seen or len(seen) > MAX_CALLERS:
        yield None
        return
    for where, call in graph.callers(function):
        loop, caller = loop_around(where, call), where.function(call)
        if loop is not None:
            yield where, loop
        elif caller is not None:
            yield from _places_above(graph, caller, seen | {function})
        else:
            yield None


def _loops_around_calls(
    graph: CallGraph, module: Module, function: Function, seen: frozenset[Function]
) -> Iterator[tuple[Module, ast.For | ast.While, ast.Call]]:
    """The loops around the calls of a function that steps, also through functions without one."""
    if function in seen or len(seen) > MAX_CALLERS:
        return
    below = {*seen, function}
    steps = any(is_step(call) for each in below for call in within(each.body, ast.Call))
    called = [*graph.callers(function), *_calls_of_overridden(graph, function)]
    called += _steps_by_closure(graph, function)
    for where, call in calls_that_train(graph, module, function, called):
        loop, caller = loop_around(where, call), where.function(call)
        if loop is not None:
            if steps or any(is_step(each) for each in within(loop.body, ast.Call)):
                yield where, loop, call
        elif caller is not None:
            yield from _loops_around_calls(graph, where, caller, seen | {function})


def _calls_of_overridden(graph: CallGraph, function: Function) -> Iterator[tuple[Module, ast.Call]]:
    """The calls ``self.step(…)`` in the classes above, which run the step of a class below."""
    for where, place in graph.possible_callers(function):
        if (
            isinstance(place, ast.Call)
            and isinstance(place.func, ast.Attribute)
            and isinstance(place.func.value, ast.Name)
            and class_of(graph, where, place.func.value) is not None
        ):
            yield where, place


def _steps_by_closure(graph: CallGraph, function: Function) -> Iterator[tuple[Module, ast.Call]]:
    """The calls ``optimizer.step(closure)``, which run a function that goes back."""
    for where, place in graph.possible_callers(function):
        call = where.parents[place]
        if isinstance(call, ast.Call) and place in call.args and is_optimizer_step(where, call):
            yield where, call


def backward_calls(graph: CallGraph, loop: TrainLoop) -> list[tuple[Module, ast.Call]]:
    """The calls of ``backward()`` in a loop, and in the functions by which it goes back."""
    found: list[tuple[Module, ast.Call]] = []
    seen: set[Function] = set()
    pending = [(loop.module, call) for call in loop.backwards]
    while pending:
        module, call = pending.pop(0)
        if is_backward(call):
            found.append((module, call))
            continue
        for where, function in graph.callees(module, call):
            if function not in seen:
                seen.add(function)
                pending += [(where, each) for each in within(function.body, ast.Call)]
    return found


def drawn_below(graph: CallGraph, module: Module, loop: ast.For | ast.While) -> list[NextLoader]:
    """The one batch that a function of each step draws from a generator without end.

    ``for step in range(n): train(step)``, and in ``train`` ``next(batches)``.
    """
    if isinstance(loop, ast.For) and not is_over_numbers(module, loop):
        return []
    drawn = [
        each
        for where, function in graph.functions_below(module, *loop.body)
        for each in next_loaders(graph, where, function.body)
    ]
    return drawn if len(drawn) == 1 and drawn[0][1].cycle is not None else []


def _train_loop(
    graph: CallGraph, module: Module, loop: ast.For | ast.While, backwards: list[ast.Call]
) -> TrainLoop:
    test, modulo, in_else = _accumulation(module, loop)
    if not all(map(is_backward, backwards)):
        test, modulo, in_else = None, None, False  # what its losses are divided by is elsewhere
    outer = loop_around(module, loop)
    loader = loader_of_steps(graph, module, loop) if isinstance(loop, ast.For) else None
    if isinstance(loop, ast.For) and (turns := loop_of_turns(graph, module, loop, loader)):
        outer = loop_around(module, turns)
    elif loader is not None and isinstance(loop, ast.For) and is_of_several(graph, module, loop):
        loader = None  # to deal one of them would leave the others as they are
    if (
        loader is None
        and isinstance(loop, ast.For)
        and isinstance(outer, ast.For)
        and repeats(module, loop, outer)
    ):
        loader = loader_of(graph, module, outer)
        if loader is not None:  # several steps on each of its batches
            outer = loop_around(module, outer)
    drawn = [*zipped_loaders(graph, module, loop), *next_loaders(graph, module, loop.body)]
    if loader is None:
        drawn = drawn or drawn_below(graph, module, loop)
        loader = drawn[0][1] if drawn else None
    name, start = _step_number(module, loop)
    return TrainLoop(
        module,
        loop,
        outer if isinstance(outer, ast.For) else None,
        loader,
        tuple(backwards),
        tuple(
            module.statement(call)
            for call in within(loop.body, ast.Call)
            if module.last_name(call.func) in CLIPPING
        ),
        test,
        modulo,
        name,
        start,
        in_else,
        tuple(drawn_beside(module, loop, loader, drawn, backwards)),
        any(
            is_optimizer_step(where, call)
            for where, function in graph.functions_below(module, *loop.body)
            for call in within(function.body, ast.Call)
        ),
    )


def loader_of_steps(graph: CallGraph, module: Module, loop: ast.For) -> Loader | None:
    """The loader of a loop that steps, also of ``islice(loader, n)``: each rank takes n steps."""
    loader = loader_of(graph, module, loop)
    for name, call in calls_around(module, loop.iter) if loader is None else ():
        if name == "islice" and call.args:
            return trace_loader(graph, module, call.args[0])
    return loader


def repeats(module: Module, loop: ast.For, outer: ast.For) -> bool:
    """Whether a loop goes over numbers, or the same scales, for each element of the loop around."""
    given = spread(outer.body, bound_names(outer.target)).names
    return is_over_numbers(module, loop) or given.isdisjoint(names_in(loop.iter))


def zipped_loaders(
    graph: CallGraph, module: Module, loop: ast.For | ast.While
) -> Iterator[NextLoader]:
    """The loaders of ``for x, y in zip(first, second):``, also in ``enumerate`` or by a name."""
    if not isinstance(loop, ast.For):
        return
    named = (module.definition(each, each) for each in everywhere(loop.iter, ast.Name))
    parts = [loop.iter, *(each for each in named if isinstance(each, ast.Call))]
    for call in (call for part in parts for call in everywhere(part, ast.Call)):
        for value in call.args if module.dotted(call.func) == "zip" else ():
            if isinstance(value, ast.Starred):
                yield from ((call, each) for each in listed_loaders(graph, module, value.value))
            elif (loader := trace_loader(graph, module, value)) is not None:
                yield call, loader


def drawn_beside(
    module: Module,
    loop: ast.For | ast.While,
    loader: Loader | None,
    drawn: list[NextLoader],
    backwards: list[ast.Call],
) -> Iterator[Loader]:
    """The other loaders of which steps take a batch to train with, and not only to look at.

    One that is taken under a test, such as of an option, is trained with if a loss gets something
    of it: not behind the last loss, under names that the next step gives to its own batch.
    """
    seen = {(x.call, x.made_by) for x in (loader, *loader.others)} if loader else set()
    losses = set().union(*map(names_in, backwards))
    for call, other in drawn:
        around = module.ancestors(call)
        inside = around[: around.index(loop)] if loop in around else []  # above: zipped by a name
        if (other.call, other.made_by) in seen:
            continue  # one function may make several
        if any(isinstance(up, ast.If | ast.With) for up in inside):
            batch = bound_names(module.statement(call))
            trained = [name for name in batch if spread(loop.body, [name]).names & losses]
            if all(is_taken_behind(module, loop, inside[-1], name, backwards) for name in trained):
                continue
        seen.add((other.call, other.made_by))
        yield other


def is_taken_behind(
    module: Module, loop: ast.For | ast.While, block: ast.AST, name: str, backwards: list[ast.Call]
) -> bool:
    """Whether a block binds a name behind the losses of a step, which does itself ahead of them."""
    behind = all(is_inside(call, loop) and precedes(call, block) for call in backwards)
    return behind and any(
        is_inside(store, loop)
        and all(precedes(store, call) for call in backwards)
        and not any(
            isinstance(up, ast.If | ast.For | ast.While) and up is not loop and is_inside(up, loop)
            for up in module.ancestors(store)
        )
        for store in module.stores.get((module.function(loop), name), ())
    )


def _step_number(module: Module, loop: ast.For | ast.While) -> tuple[str, int]:
    """The name that numbers the loop's micro-batches, and the first number."""
    unknown = "", 0
    if not isinstance(loop, ast.For):
        return unknown
    target = loop.target
    for function, call in calls_around(module, loop.iter):
        if function == "enumerate":
            first = argument(call, 1, "start")
            start = 0 if first is None else getattr(first, "value", None)
            if isinstance(target, ast.Tuple) and start in (0, 1):
                name = target.elts[0]
                return (name.id, start) if isinstance(name, ast.Name) else unknown
            break
        if function in ("range", "trange") and len(call.args) == 1:
            return (target.id, 0) if isinstance(target, ast.Name) else unknown
    return unknown


def calls_around(module: Module, iterable: ast.expr | None) -> Iterator[tuple[str, ast.Call]]:
    """The calls around what a loop iterates over, outermost first, each with its function's name.

    ``enumerate`` and ``tqdm`` of ``enumerate(tqdm(loader))``; variables are followed, and the bar
    of ``with tqdm(loader) as bar``.
    """
    for _ in range(5):
        if isinstance(iterable, ast.Name):
            bars = [
                item.context_expr
                for up in module.ancestors(iterable)
                for item in (up.items if isinstance(up, ast.With) else ())
                if isinstance(item.optional_vars, ast.Name) and item.optional_vars.id == iterable.id
            ]
            iterable = bars[0] if bars else module.definition(iterable, iterable)
        elif isinstance(iterable, ast.Call):
            name = module.last_name(iterable.func)
            yield name, iterable
            first = argument(iterable, 0, *SOURCE_NAMES)
            iterable = first if name in PASSED_THROUGH else None


def _accumulation(
    module: Module, loop: ast.For | ast.While
) -> tuple[ast.If | None, ast.expr | None, bool]:
    """The test around ``optimizer.step()``, and the number of micro-batches that it waits for.

    The last value tells whether the step is in the test's ``else``.
    """
    found: tuple[ast.If, ast.expr, bool] | None = None
    for call in within(loop.body, ast.Call):
        if not is_optimizer_step(module, call):
            continue
        test = _test_of_step(module, loop, call)
        if test is None and not _is_tested(module, loop, call):
            return None, None, False  # it steps with every batch, whatever else waits
        found = found or test
    if found is not None:
        return found
    return None, None, False


def _test_of_step(
    module: Module, loop: ast.For | ast.While, call: ast.Call
) -> tuple[ast.If, ast.expr, bool] | None:
    """The test around a step of an optimizer, its divisor, and whether the step is in its else."""
    child: ast.AST = call
    for up in module.ancestors(call):
        if up is loop:
            break
        divisor = _divisor(_test_in(module, loop, up)) if isinstance(up, ast.If) else None
        if isinstance(up, ast.If) and divisor is not None:
            return up, divisor, any(child is item for item in up.orelse)
        child = up
    return None


def _is_tested(module: Module, loop: ast.For | ast.While, call: ast.Call) -> bool:
    """Whether a step stands under any test in its loop, such as one of the precision."""
    return any(isinstance(up, ast.If) and is_inside(up, loop) for up in module.ancestors(call))


def is_optimizer_step(module: Module, call: ast.Call) -> bool:
    """Whether a call is ``optimizer.step()`` or a scaler's, and not that of a schedule."""
    if not (isinstance(call.func, ast.Attribute) and call.func.attr == "step"):
        return False
    owner = call.func.value
    if "sched" in module.text(owner).lower():
        return False
    made = module.definition(owner, call) if isinstance(owner, ast.Name) else None
    if not isinstance(made, ast.Call):
        return True
    name = module.dotted(made.func)
    return "lr_scheduler" not in name and "schedule" not in name.lower()


def _test_in(module: Module, loop: ast.For | ast.While, stmt: ast.If) -> ast.expr:
    """What an ``if`` of a loop asks; a name stands for its test where that is in the loop, too."""
    plain = plain_test(module, stmt.test)[0]
    if isinstance(plain, ast.Name):  # ``last = (step + 1) % n == 0 or …``, bound more than once
        for assign in within(loop.body, ast.Assign):
            if bound_names(assign) == {plain.id} and _divisor(assign.value) is not None:
                return assign.value
    return plain if is_inside(plain, loop) else stmt.test


def _divisor(test: ast.expr) -> ast.expr | None:
    """``n`` of the first ``… % n`` in an expression."""
    for node in below(test):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            return node.right
    return None
