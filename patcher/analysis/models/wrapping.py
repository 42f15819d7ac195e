"""Which training loops have their gradients averaged over the ranks, and by what."""

from __future__ import annotations

import ast
import re

from ...source.module import Module, cached_per_module
from ...source.tree import (
    FUNCTIONS,
    Function,
    argument_values,
    everywhere,
    mentions,
    precedes,
    within,
)
from ..language.call_graph import reachable_functions
from ..training.frameworks import AVERAGES_GRADIENTS, DIVIDES_WORK, OWNS_LOOP, calls_one_of
from ..training.program import Program
from ..training.train_loops import (
    TrainLoop,
    is_optimizer_step,
    is_over_numbers,
    is_step,
    loop_around,
)
from .wrapped_elsewhere import stays_in_another_class

TORCH_WRAPPER = "torch.nn.parallel.DistributedDataParallel"
ABOUT_CARDS = re.compile("gpu|cuda|device|parallel", re.IGNORECASE)
# Of helper_code.py: a model for one call, which stays what it is; gradients before a step.
SHARED, AVERAGE = "over_ranks", "average_gradients"
# torch's calls that bring gradients together, each rank's or each rank's part of them.
REDUCTIONS = ("all_reduce", "all_reduce_coalesced", "reduce_scatter", "reduce_scatter_tensor")
OTHER_WAYS = AVERAGES_GRADIENTS - {TORCH_WRAPPER, "apex.parallel.DistributedDataParallel"}


def averages_otherwise(program: Program) -> bool:
    """Whether a framework, or an all-reduce of gradients by hand, does what DDP would do."""
    if calls_one_of(program, OTHER_WAYS | OWNS_LOOP | DIVIDES_WORK):
        return True
    if any(divides_tensors(module) or hands_wrapper_on(module) for module in program.modules):
        return True
    return any(
        reduces_gradients(program, module, call)
        for module, call in program.calls_to("allreduce", *REDUCTIONS)
    )


@cached_per_module
def divides_tensors(module: Module) -> bool:
    """Whether ranks share each weight: ``from_pretrained(…, tp_plan="auto")``, a device mesh."""
    return any(
        word.arg in ("tp_plan", "tp_size", "device_mesh") for word in module.nodes(ast.keyword)
    )


def chosen_to_call(call: ast.Call) -> list[ast.expr]:
    """The two of which a call takes one: ``(first if test else second)(x)``."""
    return [call.func.body, call.func.orelse] if isinstance(call.func, ast.IfExp) else []


@cached_per_module
def hands_wrapper_on(module: Module) -> bool:
    """Whether DistributedDataParallel goes somewhere as a value: ``partial(DDP, device_ids=…)``.

    Or is one of two that are called, ``(DDP if is_distributed else Plain)(net)``.
    """
    name = TORCH_WRAPPER.rpartition(".")[2]
    return module.spells(name) and any(
        module.last_name(value) == name
        for call in module.nodes(ast.Call)
        if module.last_name(call.func) not in ("isinstance", "issubclass")
        for value in (*argument_values(call), *chosen_to_call(call))
    )


def reduces_gradients(program: Program, module: Module, call: ast.Call) -> bool:
    """Whether an all-reduce is of gradients: by its words, or by what its function gets."""
    if mentions(call, "grad") or mentions(module.statement(call), "gradients"):
        return True
    if any(are_gradients(module, value) for value in argument_values(call)):
        return True
    around = {up for up in module.ancestors(call) if isinstance(up, FUNCTIONS)}
    return any(
        are_gradients(where, value)
        for function in around
        for where, caller in program.callers(function)
        for value in argument_values(caller)
    )


def are_gradients(module: Module, value: ast.expr, depth: int = 0) -> bool:
    """Whether a value is made of ``p.grad``, also through local names, and lists of them."""
    return mentions(value, "grad") or (
        depth < 3
        and any(
            are_gradients(module, source, depth + 1)
            for name in everywhere(value, ast.Name)
            for source in (*module.alternatives(name, name), *appended_to(module, name))
        )
    )


def appended_to(module: Module, name: ast.Name) -> list[ast.expr]:
    """What the function of a name appends to its list: ``all_grads.append(p.grad.view(-1))``."""
    return [
        call.args[0]
        for call in module.calls_to("append")
        if call.args
        and isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == name.id
        and module.function(call) is module.function(name)
    ]


def wraps_for_good(program: Program, *wrappers: str) -> bool:
    """Whether the program keeps a model in one of the wrappers, and not only for a call of it."""
    return any(
        function is None or function.name != SHARED
        for module, call in program.calls_to(*wrappers)
        for function in [module.function(call)]
    )


def takes_steps(loop: TrainLoop) -> bool:
    """Whether a loop changes weights: an attack on a model only asks for gradients."""
    if loop.goes_back_elsewhere or loop.steps_in_function:
        return True
    return any(is_step(call) for call in within(loop.steps.body, ast.Call)) or steps_behind(loop)


def steps_behind(loop: TrainLoop) -> bool:
    """Whether a loop draws the micro-batches of one step, which the loop around takes behind it."""
    around = loop_around(loop.module, loop.steps)
    return steps_behind_all(loop) or (
        loop.loader is not None
        and isinstance(loop.steps, ast.For)
        and is_over_numbers(loop.module, loop.steps)
        and around is not None
        and any(
            is_step(call) and precedes(loop.steps, call) for call in within(around.body, ast.Call)
        )
    )


def steps_behind_all(loop: TrainLoop) -> bool:
    """Whether the batches of a loop add up to one step right behind it, as in gradient descent."""
    if loop.loader is None:
        return False
    block = loop.module.body(loop.steps)
    for stmt in block[block.index(loop.steps) + 1 :]:
        calls = within(stmt, ast.Call) if isinstance(stmt, ast.Expr | ast.Assign) else []
        if isinstance(stmt, ast.For | ast.While) or any(map(empties, calls)):
            return False
        if any(is_step(call) and is_optimizer_step(loop.module, call) for call in calls):
            return True
    return False


def empties(call: ast.Call) -> bool:
    """``optimizer.zero_grad()``."""
    return isinstance(call.func, ast.Attribute) and call.func.attr == "zero_grad"


def loops_that_step(program: Program) -> list[TrainLoop]:
    """The training loops that change weights, and that the program comes to."""
    return [
        loop
        for loop in program.train_loops
        if takes_steps(loop) and program.is_live(loop.module, loop.steps)
    ]


def stepping_loops(program: Program) -> set[ast.For | ast.While]:
    """The training loops that change weights. Cached."""
    known = program.script.program_answers
    if stepping_loops not in known:
        known[stepping_loops] = {each.steps for each in program.train_loops if takes_steps(each)}
    found: set[ast.For | ast.While] = known[stepping_loops]
    return found


def never_steps(program: Program, loop: TrainLoop) -> bool:
    """Whether nothing around a loop or below it steps: its gradients are only looked at.

    Only where all of the program is read, and another loop is seen to step; or where the loop adds
    up what it makes of the gradients of each batch, and drops them for the next one's.
    """
    if drops_gradients(loop) and keeps_gradients(loop) and not takes_steps(loop):
        return True
    if program.unread or loop.goes_back_elsewhere or not stepping_loops(program) - {loop.steps}:
        return False
    called = {loop.module.last_name(call.func) for call in within(loop.steps.body, ast.Call)}
    functions = functions_leading_to(program, loop) | reachable_functions(program, called)
    bodies = [loop.scope, *(function.body for function in functions)]
    return not any(is_step(call) for body in bodies for call in within(body, ast.Call))


def drops_gradients(loop: TrainLoop) -> bool:
    """Whether each batch of a loop begins with no gradients: ``model.zero_grad()`` in its body."""
    return any(
        isinstance(stmt, ast.Expr)
        and isinstance(stmt.value, ast.Call)
        and loop.module.last_name(stmt.value.func) == "zero_grad"
        for stmt in loop.steps.body
    )


def keeps_gradients(loop: TrainLoop) -> bool:
    """Whether a loop adds gradients up for later, ``fisher[name] += p.grad ** 2``."""
    return any(
        each.attr == "grad" and isinstance(each.ctx, ast.Load)
        for add in within(loop.steps.body, ast.AugAssign)
        for each in everywhere(add.value, ast.Attribute)
    )


def is_wrapped(program: Program, loop: TrainLoop) -> bool:
    """Whether a model that DistributedDataParallel wraps may be the one that a loop trains.

    It is not where all wrapped models stay in functions that do not lead to the loop, or in objects
    of other classes than the loop's.
    """
    leading = functions_leading_to(program, loop)
    for module, call in program.calls_to("DistributedDataParallel"):
        function = module.function(call)
        if stays_in_another_class(program, module, call, loop):
            continue
        if function is None or function in leading or leaves_function(module, function, call):
            return True
    return False


def functions_leading_to(program: Program, loop: TrainLoop) -> set[Function]:
    """The function around a loop, and all that call it, also through others."""
    start = loop.module.function(loop.steps)
    leading: set[Function] = set()
    pending = [] if start is None else [start]
    while pending:
        function = pending.pop()
        if function in leading:
            continue
        leading.add(function)
        places = [*program.callers(function), *program.possible_callers(function)]
        callers = [where.function(place) for where, place in places]
        pending += [caller for caller in callers if caller is not None]
    return leading


def leaves_function(module: Module, function: Function, call: ast.Call) -> bool:
    """Whether a wrapped model may be used outside of the function that wraps it."""
    stmt = module.statement(call)
    if not isinstance(stmt, ast.Assign) or stmt.value is not call:
        return True
    names = set()
    for target in stmt.targets:
        if not isinstance(target, ast.Name):
            return True
        names.add(target.id)
    if any(set(each.names) & names for each in within(function.body, ast.Global)):
        return True
    results: list[ast.AST] = [*within(function.body, ast.Return)]
    results += within(function.body, ast.Yield)
    results += [
        each.value
        for each in within(function.body, ast.Assign)
        if any(isinstance(target, ast.Subscript | ast.Attribute) for target in each.targets)
    ]
    return any(mentions(node, name) for node in results for name in names)


def is_whatever_cards(module: Module, wrap: ast.AST) -> bool:
    """Whether a lone process comes to a DataParallel without a test of its cards.

    Then what it saves and loads has the wrapper's keys, which begin with ``module.``.
    """
    tests = [module.text(up.test) for up in module.ancestors(wrap) if isinstance(up, ast.If)]
    return not any(map(ABOUT_CARDS.search, tests))


def one_process_wraps(program: Program) -> bool:
    """Whether a lone process has its model in DataParallel, whatever the number of its cards."""
    return any(is_whatever_cards(*each) for each in program.calls_to("DataParallel"))
