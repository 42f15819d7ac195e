"""Each training loop that several ranks reach averages their gradients, once.

What              Every loop that back-propagates and steps on rank 0 and on the others averages the
                  gradients of its model over the ranks, once: by DDP, FSDP, fully_shard, apex's
                  wrapper, an all-reduce of the gradients by hand, or a library that does it.
At run time       Without it every rank trains a model of its own, and the one that saves last wins.
                  Nothing warns: the losses fall all the same.
How it is judged  Per loop. A wrap counts if both rank 0 and the others come to it before the loop
                  and its value can get there: in the same function, in one that calls it, or
                  returned or kept by another. It does not count if the loop calls the bare model.
                  Each of several models that it trains needs one. An object that was made of the
                  bare model must not go back through it. What average_gradients() averages must
                  not be clipped before.
When unknown      The wrapper is passed on as a value, or a module that cannot be read may wrap; or
                  nothing wraps, and gradients are reduced where the loop is not seen to come; or
                  they are summed by hand, and nothing is divided by the number of ranks; or a model
                  is loaded whole behind the wrapper, under its name.
Source            torch.nn.parallel.DistributedDataParallel, torch.distributed.fsdp
"""

import ast
from collections.abc import Iterator

from ..analysis.batches.clipped_gradients import clipped_before_average
from ..analysis.language.conditions import tests_that_hold
from ..analysis.models.held_models import models_held_bare
from ..analysis.models.loaded_over import loaded_over
from ..analysis.models.thrown_away import is_thrown_away
from ..analysis.models.trained_models import left_bare, lone_tensors
from ..analysis.models.wrapped_elsewhere import stays_in_another_class
from ..analysis.models.wrapper_attributes import is_gradless
from ..analysis.models.wrapping import AVERAGE, REDUCTIONS, averages_otherwise, reduces_gradients
from ..analysis.ranks.certain_reach import is_barred, surely_on_every_rank
from ..analysis.ranks.rank_reach import RANKS, Role
from ..analysis.ranks.undivided_gradients import undivided_sum
from ..analysis.training.program import Program
from ..analysis.training.train_loops import TrainLoop
from ..editing.helpers import helper_names
from ..source.branches import exclusive
from ..source.module import Module
from ..source.tree import (
    argument,
    everywhere,
    is_false,
    is_inside,
    mentions,
    names_within,
    parameters,
    precedes,
    within,
)
from .ranks import (
    callers_above,
    functions_below,
    is_certain,
    is_managed,
    ranked_loops,
    ranks_at,
)
from .verdict import AuditVerdict, unknown, violated

CODE = "O2"
DDP = "DistributedDataParallel"
WRAPPERS = (DDP, "FullyShardedDataParallel", "fully_shard", "replicate")
KEEPING = (ast.Return, ast.Yield, ast.Attribute, ast.Subscript, ast.List, ast.Dict, ast.Tuple)

Wrap = tuple[Module, ast.Call]


def verdicts(program: Program, original: Program | None) -> Iterator[AuditVerdict]:
    if is_managed(program):
        return
    wraps = [
        (module, call)
        for module, call in program.calls_to(*WRAPPERS)
        if program.is_live(module, call)
        and not copies_to_cards(module, call)
        and not (module.last_name(call.func) == DDP and is_thrown_away(module, call))
    ]
    for loop in ranked_loops(program):
        if reduces_by_hand(program, loop):
            yield from summed_by_hand(program, loop)
            continue
        yield from judge(program, loop, wraps)
        if original is not None and not original.calls_to(*WRAPPERS):
            yield from behind_an_option(program, loop, wraps)
    if not averages_otherwise(program):
        for held in models_held_bare(program):
            because = f"`{held.holder}.{held.method}()` goes back past the wrapper that comes below"
            yield violated(held.home, held.made, f"{because}: its gradients are not averaged")
    yield from wrapped_twice(program, wraps)
    for module, call in wraps:
        for stmt in loaded_over(module, call):
            because = (
                "what is loaded here is in no wrapper, and trains on each rank alone from then on"
            )
            yield unknown(module, stmt, f"{because}: load it above line {call.lineno}")
    for module, clip, average in clipped_before_average(program):
        if module.last_name(average.func) == AVERAGE:
            yield violated(module, clip, "gradients are clipped before they are averaged")


def copies_to_cards(module: Module, call: ast.Call) -> bool:
    """Whether a call is that of DataParallel's own replicate(), not torch.distributed's."""
    name = module.dotted(call.func)
    return name.endswith("replicate") and not name.startswith("torch.distributed")


def judge(program: Program, loop: TrainLoop, wraps: list[Wrap]) -> Iterator[AuditVerdict]:
    module, steps = loop.module, loop.steps
    near = [wrap for wrap in wraps if may_get_to(program, wrap, loop)]
    good = [wrap for wrap in near if ranks_at(program, *wrap) >= RANKS]
    if not good:
        if is_passed_on(program):
            yield unknown(
                module,
                steps,
                "a wrapper is passed on as a value; whether this loop gets it could not be told",
            )
        elif near and (switch := switched_off(*near[0])) is not None:
            text = " ".join(near[0][0].text(switch).split())
            yield violated(
                near[0][0],
                switch,
                f"with `{text}` no rank wraps the model that it trains: make that True",
            )
        elif near:
            roles = ranks_at(program, *near[0])
            who = next(iter(roles)).value if roles else "a lone process"
            yield violated(
                *near[0],
                f"only {who} wraps the model of the loop in line {steps.lineno}:"
                " the ranks' gradients are not averaged",
            )
        elif program.unread and not wraps:
            name = program.unread[0][2]
            yield unknown(
                module, steps, f"nothing wraps its model, unless {name} does, which cannot be read"
            )
        elif not wraps and averages_otherwise(program):
            yield unknown(
                module,
                steps,
                "nothing wraps its model, unless it is for it that gradients are reduced",
            )
        else:
            yield violated(
                module, steps, "several ranks train here, and nothing averages their gradients"
            )
        return
    if bare := left_bare(program):
        yield violated(
            module, steps, f"`{bare}` is trained here as well, and nothing averages its gradients"
        )
    for where, tensor in lone_tensors(program):
        because = (
            f"`{where.text(tensor)}` is trained, is in no model, and nothing averages its gradients"
        )
        yield violated(where, tensor, because)
    yield from past_the_wrapper(program, loop, good)
    if all(in_no_sync(loop, call) for call in loop.backwards):
        yield violated(
            module,
            loop.backwards[0],
            "each backward stands under no_sync(): gradients are never averaged",
        )


def switched_off(module: Module, node: ast.AST) -> ast.Assign | None:
    """``distributed = False``, of the test around a place, by which no process comes to it."""
    for test in tests_that_hold(module, node):
        parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else []
        for name in (test, *parts):
            values = module.alternatives(name, name) if isinstance(name, ast.Name) else []
            stmt = module.parents[values[0]] if len(values) == 1 else None
            if isinstance(stmt, ast.Assign) and is_false(stmt.value):
                return stmt
    return None


def behind_an_option(
    program: Program, loop: TrainLoop, wraps: list[Wrap]
) -> Iterator[AuditVerdict]:
    """A loop that all ranks come to, whose wrappers of the patch an option has to turn on."""
    near = [wrap for wrap in wraps if may_get_to(program, wrap, loop)]
    helpers = [module.function(call) for module, call in near]
    if (
        near
        and not any(function and function.name in helper_names() for function in helpers)
        and surely_on_every_rank(program, loop.module, loop.steps)
        and not any(surely_on_every_rank(program, *wrap) for wrap in near)
        and all(is_behind_tests(program, *wrap) for wrap in near)
    ):
        because = "an option has to turn this on, and without it each rank trains a model alone"
        yield violated(*near[0], because)


def is_behind_tests(program: Program, module: Module, node: ast.AST) -> bool:
    """Whether each way to a place passes a test; not where it is unknown who calls its function.

    ``self.build()`` in the constructor of a base class, which has another ``build``.
    """
    seen: set[ast.AST] = set()
    pending = [(module, node)]
    while pending:
        where, place = pending.pop()
        function = where.function(place)
        if is_barred(program, where, place, with_options=False) or function in seen:
            continue
        if function is None:
            return False
        seen.add(function)
        callers = [*program.callers(function), *program.possible_callers(function)]
        if not callers:
            return False
        pending += callers
    return True


def summed_by_hand(program: Program, loop: TrainLoop) -> Iterator[AuditVerdict]:
    """Gradients that are added over the ranks, where nothing makes them a mean."""
    steps = (loop.module, loop.steps)
    found = undivided_sum(program, [steps, *functions_below(program, *steps)])
    if found is not None:
        because = (
            "gradients are summed over the ranks, and nothing divides them by their number: with N"
            " ranks a step is N times as long, unless each loss is divided by the batch of all"
        )
        yield unknown(*found, because)


def reduces_by_hand(program: Program, loop: TrainLoop) -> bool:
    """Whether the loop, or what it calls, reduces gradients or parameters."""
    body: ast.AST = loop.epochs or loop.steps
    places: list[tuple[Module, ast.AST]] = [(loop.module, body)]
    places += functions_below(program, loop.module, body)
    function = loop.module.function(loop.steps)
    if function is not None:  # hooks that it registers
        places.append((loop.module, function))
        places += functions_below(program, loop.module, function.body)
    for module, node in places:
        reductions = [
            call for call in everywhere(node, ast.Call) if module.last_name(call.func) in REDUCTIONS
        ]
        if reductions and any(
            mentions(node, word) for word in ("grad", "parameters", "flat_grads", "grads")
        ):
            return True
        if any(reduces_gradients(program, module, call) for call in reductions):
            return True
        if any(mentions(node, word) for word in ("register_hook", "register_comm_hook")):
            return True
    return False


def may_get_to(program: Program, wrap: Wrap, loop: TrainLoop) -> bool:
    """Whether a wrapped model can be the one that a loop trains."""
    module, call = wrap
    home, place = module.function(call), loop.module.function(loop.steps)
    if home is None:  # a function of the same file may be above the lines that call it
        return (
            place is not None
            or loop.module is not module
            or call.lineno < (loop.steps.end_lineno or 0)
        )
    if home is place:
        outer = loop.epochs or loop.steps
        return call.lineno < (outer.end_lineno or 0)
    if home in callers_above(program, place):
        return True
    if stays_in_another_class(program, module, call, loop):
        return False
    return escapes(module, call)


def escapes(module: Module, call: ast.Call) -> bool:
    """Whether a wrapped model leaves the function that wraps it."""
    stmt = module.statement(call)
    if not (isinstance(stmt, ast.Assign) and len(stmt.targets) == 1):
        return True
    target = stmt.targets[0]
    function = module.function(call)
    if not isinstance(target, ast.Name) or function is None:
        return True
    for name in names_within(function.body, {target.id}):
        if not isinstance(name.ctx, ast.Load) or is_inside(name, stmt):
            continue
        parent = module.parents[name]
        if isinstance(parent, ast.Attribute) or (
            isinstance(parent, ast.Call) and parent.func is name
        ):
            continue  # model.parameters(), model(batch)
        return True
    return any(target.id in each.names for each in within(function.body, ast.Global))


def is_passed_on(program: Program) -> bool:
    """Whether a wrapper's class is used other than by calling it."""
    for module in program.modules:
        for node in module.occurrences(*WRAPPERS, "DDP", "FSDP"):
            parent = module.parents[node]
            called = isinstance(parent, ast.Call) and parent.func is node
            tested = any(
                isinstance(up, ast.Call) and module.last_name(up.func) in ("isinstance", "type")
                for up in module.ancestors(node)
            )
            known = called or tested or isinstance(parent, ast.Attribute)
            if isinstance(node.ctx, ast.Load) and not known:
                return True
    return False


def past_the_wrapper(
    program: Program, loop: TrainLoop, wraps: list[Wrap]
) -> Iterator[AuditVerdict]:
    """A loop that calls the module inside its wrapper, or the model that was wrapped elsewhere."""
    module = loop.module
    function = module.function(loop.steps)
    calls = within(loop.steps.body, ast.Call)
    called = {call.func.id for call in calls if isinstance(call.func, ast.Name)}
    inner = [
        call
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and call.func.attr == "module"
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id not in called
        and not is_gradless(module, call)
    ]
    local = [wrap for wrap in wraps if wrap[0] is module and module.function(wrap[1]) is function]
    names = {wrapped_name(*wrap) for wrap in local}
    for call in inner:
        assert isinstance(call.func, ast.Attribute)
        name = module.text(call.func.value)
        if name in names or (function is not None and name in parameters(function)):
            yield violated(
                module,
                call,
                f"`{name}.module` is called past the wrapper: gradients are not averaged",
            )
    if len(local) != len(wraps) or len(local) != 1:
        return
    _, wrap = local[0]
    target = wrapped_name(*local[0])
    bare = argument(wrap, 0, "module")
    if (
        target
        and isinstance(bare, ast.Name)
        and bare.id != target
        and bare.id in called
        and all(
            isinstance(module.parents[name], ast.Attribute)
            for name in names_within(loop.steps.body, {target})
        )
        and not any(
            isinstance(stmt.value, ast.Name) and stmt.value.id == target
            for stmt in within(module.scope_statements(loop.steps), ast.Assign)
        )
    ):
        at = next(c for c in calls if isinstance(c.func, ast.Name) and c.func.id == bare.id)
        yield violated(
            module,
            at,
            f"`{bare.id}` is called, and the wrapped model is `{target}`: gradients are"
            " not averaged",
        )


def wrapped_name(module: Module, call: ast.Call) -> str:
    """The plain name that a wrapped model is bound to, or the empty string."""
    stmt = module.statement(call)
    if isinstance(stmt, ast.Assign) and stmt.value is call and len(stmt.targets) == 1:
        target = stmt.targets[0]
        return target.id if isinstance(target, ast.Name) else ""
    return ""


def in_no_sync(loop: TrainLoop, call: ast.Call) -> bool:
    """Whether a backward always stands under ``with model.no_sync():``."""
    for up in loop.module.ancestors(call):
        if up is loop.steps:
            return False
        if isinstance(up, ast.With):
            for item in up.items:
                context = item.context_expr
                if isinstance(context, ast.Call) and loop.module.last_name(context.func) == (
                    "no_sync"
                ):
                    return True
    return False


def wrapped_twice(program: Program, wraps: list[Wrap]) -> Iterator[AuditVerdict]:
    """A model that the same process wraps a second time."""
    for number, (module, second) in enumerate(wraps):
        if module.last_name(second.func) == "fully_shard":
            continue
        inside = argument(second, 0, "module")
        if isinstance(inside, ast.Call) and module.last_name(inside.func) in WRAPPERS[:2]:
            yield violated(module, second, "the model is wrapped twice")
            continue
        for where, first in wraps[:number]:
            if (
                where is module
                and module.function(first) is module.function(second)
                and wrapped_name(module, first)
                and isinstance(inside, ast.Name)
                and inside.id == wrapped_name(module, first) == wrapped_name(module, second)
                and len(module.stores.get((module.function(first), inside.id), ())) <= 3
                and not exclusive(first, second)
                and all(is_certain(module, call, Role.OTHER) for call in (first, second))
                and not rebound_between(module, first, second, inside.id)
            ):
                yield violated(
                    module, second, f"`{inside.id}` is wrapped already, in line {first.lineno}"
                )


def rebound_between(module: Module, first: ast.Call, second: ast.Call, name: str) -> bool:
    """Whether a name gets another value between two calls."""
    stores = module.stores.get((module.function(first), name), ())
    return any(
        precedes(first, store) and precedes(store, second)
        for store in stores
        if module.statement(store) not in (module.statement(first), module.statement(second))
    )
