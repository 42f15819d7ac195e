"""Each rank copies or draws weights of its own.

What         A script seeds nothing, and copies a model that it trains before the ranks' weights
             are made equal: an average of the weights, a teacher, a target network. Or it draws the
             weights anew behind the wrapper: net.apply(weights_init). Or it draws a tensor once, of
             which all losses are made, such as a random projection. Or ranks average gradients by
             hand, and nothing broadcasts the weights.
At run time  The wrapper gives all ranks the model of rank 0, and each keeps a copy of the one that
             it drew. Losses that compare with the copy, and scores of an average, differ from
             rank to rank until it has forgotten how it began. Where all weights are drawn anew,
             each rank trains another model to its end, by gradients of all. Nothing warns.
Example      teacher = copy.deepcopy(student); student = DistributedDataParallel(student)
Fix          Ranks take rank 0's random numbers as soon as there is a group (draw_alike). Weights
             that are drawn behind the wrapper are broadcast from rank 0: cards draw for themselves.
Fix safety   Safe: one process draws as it did. Only reported where the copy is made above the
             process group, and in a script that had ranks, unless its samplers deal among them.
Source       torch.nn.parallel.DistributedDataParallel (broadcasts what it wraps, and nothing else)
"""

import ast
from collections.abc import Iterator

from ..analysis.batches.drawn_examples import ranks_draw_alike
from ..analysis.batches.drawn_for_steps import drawn_for_steps
from ..analysis.batches.global_seeds import has_seed
from ..analysis.models.drawn_weights import draws_behind_wrapper
from ..analysis.models.model_copies import copies_of_models
from ..analysis.models.wrapping import reduces_gradients
from ..analysis.training.program import Program, trains_on_several_devices
from ..editing.edits import Import, Insert
from ..findings import Finding, Safety, Severity
from ..fixes.drawn_alike import are_alike, draw_alike, is_above, lone_group
from ..source.module import Module
from ..source.tree import argument_values, mentions, precedes, same_code, within

CODE, SEVERITY, SAFETY = "DF316", Severity.DEGRADED, Safety.SAFE

MAX_CALLERS = 3
# What else may give all ranks the same weights.
GIVE_WEIGHTS = (
    *("broadcast", "broadcast_parameters", "broadcast_coalesced", "broadcast_object_list"),
    *("broadcast_params", "sync_params", "load_state_dict", "from_pretrained", "fully_shard"),
    *("FullyShardedDataParallel", "DistributedDataParallelCPU", "sync_initial_weights"),
)
EQUALS = ("DistributedDataParallel", "same_weights")  # behind these all ranks have rank 0's weights


def findings(program: Program) -> Iterator[Finding]:
    groups = program.calls_to("init_process_group")
    if not groups or not trains_on_several_devices(program):
        return
    yield from begun_apart(program)
    if has_seed(program, "torch"):
        return
    yield from drawn_anew(program)
    if any(are_alike(*group) for group in groups):
        return
    copy = next((each for each in copies_of_models(program) if not is_behind(program, *each)), None)
    drawn = next(drawn_for_steps(program), None)
    if copy is not None:
        module, call = copy
        because = f"{module.text(call.func)}() copies what each rank drew: nothing seeds torch"
    elif drawn is not None:
        module, call = drawn
        because = f"{module.text(call.func)}() draws on each rank what all its losses are made of"
    else:
        return
    group = lone_group(program)
    can_be = group is not None and not is_above(*group, module, call)
    edits = draw_alike(*group) if group is not None and can_be else ()
    severity = None if edits or copy is not None else Severity.NOTE
    yield Finding(module, call, because, edits, severity=severity)


def begun_apart(program: Program) -> Iterator[Finding]:
    """Gradients that are averaged by hand, of weights that each rank has drawn for itself."""
    if program.calls_to(*EQUALS, *GIVE_WEIGHTS) or ranks_draw_alike(program):
        return
    if any(is_seeded_alike(*each) for each in program.calls_to("manual_seed")):
        return
    reductions = [each for each in program.calls_to("all_reduce") if program.is_live(*each)]
    if any(reduces_weights(program, *each) for each in reductions):
        return
    for module, call in reductions:
        if reduces_gradients(program, module, call):
            because = "ranks average gradients of weights of their own: nothing broadcasts rank 0's"
            yield Finding(module, call, because)
            return


def is_seeded_alike(module: Module, call: ast.Call) -> bool:
    """``torch.manual_seed(seed - rank)`` behind ``seed += rank``, which is for other numbers."""
    if module.dotted(call.func) != "torch.manual_seed" or not call.args:
        return False
    match call.args[0]:
        case ast.BinOp(op=ast.Sub(), left=seed, right=rank):
            return any(
                isinstance(add.op, ast.Add)
                and module.text(add.target) == module.text(seed)
                and same_code(add.value, rank)
                and precedes(add, call)
                for add in within(module.scope_statements(call), ast.AugAssign)
            )
    return False


def reduces_weights(program: Program, module: Module, call: ast.Call) -> bool:
    """Whether an all-reduce is, or is called, of ``p.data`` as well: all begin by the mean."""
    function = module.function(call)
    values = [*argument_values(call)]
    for where, caller in [] if function is None else program.callers(function):
        for value in argument_values(caller):
            values += [value, *where.alternatives(value, value)]
    return any(mentions(value, "data") and not mentions(value, "grad") for value in values)


def drawn_anew(program: Program) -> Iterator[Finding]:
    """Weights that each rank draws behind the wrapper, with rank 0's for all."""
    for module, call, name in draws_behind_wrapper(program):
        stmt = module.statement(call)
        if any(precedes(stmt, each) for each in module.calls_to("broadcast")):
            continue
        code = (
            "if torch.distributed.is_initialized():\n"
            f"    for weight in {name}.parameters():  # which each rank has drawn for itself\n"
            "        torch.distributed.broadcast(weight.data, 0)"
        )
        because = f"{module.text(call)} draws other weights on each rank: nothing seeds torch"
        edits = (Insert(stmt, code, "after"), Import("torch"))
        is_alone = isinstance(stmt, ast.Expr) and stmt.value is call
        yield Finding(module, call, because, edits if is_alone else (), severity=Severity.ERROR)


def is_behind(program: Program, module: Module, copy: ast.Call, depth: int = 0) -> bool:
    """Whether the ranks' weights are made equal above a copy, or calls that lead to it."""
    function = module.function(copy)
    if any(
        module.function(each) is function and precedes(each, copy)
        for each in module.calls_to(*EQUALS)
    ):
        return True
    calls = [] if function is None or depth == MAX_CALLERS else program.callers(function)
    return bool(calls) and all(is_behind(program, *each, depth + 1) for each in calls)
