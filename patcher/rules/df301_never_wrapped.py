"""Ranks train, and nothing keeps their models alike.

What         A process group is created, and the model is never wrapped in DistributedDataParallel,
             or only in apex's class of that name, which is a warning; or the wrapper is thrown
             away, as in model == DDP(model); or a teacher is wrapped, and the model that is trained
             is not; or a tensor is trained that no model has.
At run time  Every rank trains a model of its own on its part of the data; the last one to save
             wins. apex's wrapper is an ImportError where apex is not installed.
Example      torch.distributed.init_process_group(backend="nccl")   # and no DDP anywhere
Fix          torch's DistributedDataParallel: behind the place where a lone process would use
             DataParallel, or in the place of apex's. Without a DataParallel to show where the
             model is complete, the model's call in a training step goes through it, by the helper
             over_ranks of DF204. What was thrown away is bound to the model's name. A model left
             out beside wrapped ones is only reported. Where
             DataParallel wraps a part of a model, or something else than what is trained, ranks
             keep it, each on its own card, and average the gradients before each step.
Fix safety   Safe: only a rank of a process group reaches the line. Where a step does more than call
             one model once, and go back through it once, it is only reported.
Source       torch.nn.parallel.DistributedDataParallel; hazards counted in 65 of 134 scripts
"""

import ast
from collections.abc import Iterator

from ..analysis.language.binding_tests import binding_test, is_outer
from ..analysis.language.passed_arguments import argument_for_parameter
from ..analysis.models.made_bare import model_made_bare
from ..analysis.models.thrown_away import thrown_away, wrapped_name
from ..analysis.models.trained_models import (
    left_bare,
    lone_tensors,
    made_anew,
    trained_beside_wrapped,
)
from ..analysis.models.wrapping import averages_otherwise, is_wrapped, loops_that_step, takes_steps
from ..analysis.ranks.rank_reach import (
    RANKS,
    UNKNOWN,
    roles_reaching,
    roles_reaching_in_function,
    value_for_role,
)
from ..analysis.training.frameworks import COLLECTIVES
from ..analysis.training.program import Program
from ..editing.edits import Edit, Import, Insert, Replace, Rewrite
from ..findings import Finding, Safety, Severity
from ..fixes.chosen_cards import NotShareableError
from ..fixes.data_parallel import (
    Wrap,
    drawn_behind,
    hands_over,
    place_behind,
)
from ..fixes.data_parallel_by_hand import (
    averaged_beside,
    test_for_some,
    to_own_card,
    training_wraps,
    why_no_ddp,
    why_not_by_hand,
)
from ..fixes.lone_training import averaged_gradients
from ..fixes.process_group import WRAP, card_and_group_test, ddp_options
from ..source.module import Module
from ..source.tree import (
    Function,
    bound_names,
    everywhere,
    is_elif,
    is_inside,
    only_argument,
    parameters,
    position,
    precedes,
    within,
)

APEX_OPTIONS = {  # when apex sends what, and in how many parts; the average stays the same
    *("message_size", "delay_allreduce", "shared_param", "allreduce_trigger_params", "prof"),
    *("retain_allreduce_buffers", "allreduce_always_fp32", "num_allreduce_streams"),
    *("allreduce_communicators", "gradient_predivide_factor", "gradient_average_split_factor"),
}

CODE, SEVERITY, SAFETY = "DF301", Severity.ERROR, Safety.SAFE

GROUP = "torch.distributed.is_initialized()"
GOES_PAST = "a step computes past the wrapper"


def findings(program: Program) -> Iterator[Finding]:
    groups = program.calls_to("init_process_group")
    if not groups or not program.train_loops:
        return
    wraps = program.calls_to("DistributedDataParallel")
    if lost := thrown_away(program):
        yield from kept(lost)
        return
    if any(not module.dotted(call.func).startswith("apex.") for module, call in wraps):
        yield from unwrapped_loops(program)
        yield from left_out(program)
        return
    if averages_otherwise(program):
        return
    if wraps and trained_beside_wrapped(program):
        yield from left_out(program)
        return
    for module in dict.fromkeys(module for module, _ in wraps):
        calls = [call for where, call in wraps if where is module]
        torchs = replace_apex_ddp(program, module, calls)
        because = "the only wrapper is apex's"
        if not torchs:
            because += ": import it from torch.nn.parallel, and wrap a model that is on its card"
        yield Finding(module, calls[0], because, torchs, severity=Severity.DEGRADED)
    if not wraps:
        places = training_wraps(program)
        averaged = averaged_beside(program)
        seen: set[Module] = set()
        for module, wrap in places:
            because, edits = beside_data_parallel(program, places, module, wrap)
            if averaged:
                averaging = averaged.get(module, []) if module not in seen else []
                is_of_ranks = roles_reaching_in_function(module, wrap.call) & RANKS
                edits = (*averaging, *(to_own_card(module, wrap.call) if is_of_ranks else ()))
            elif edits:
                edits = (*edits, *opened_gates(program, module, wrap))
            seen.add(module)
            yield Finding(module, wrap.stmt, because, edits)
        for module in averaged.keys() - seen:
            because = "gradients of a model in DataParallel are stepped here"
            yield Finding(module, module.tree.body[0], because, tuple(averaged[module]))
        if not places:
            yield from never_wrapped(program, *groups[0])


def kept(lost: list[tuple[Module, ast.Call]]) -> Iterator[Finding]:
    """Wrappers that are thrown away as they are made, each bound to the name of its model."""
    for module, call in lost:
        model, stmt = wrapped_name(module, call), module.statement(call)
        because = "the wrapper is made and thrown away, and the model is trained without it"
        edits = (Replace(stmt, f"{model} = {module.text(call)}"),) if model else ()
        yield Finding(module, stmt, because, edits)


def beside_data_parallel(
    program: Program, places: list[tuple[Module, Wrap]], module: Module, wrap: Wrap
) -> tuple[str, tuple[Edit, ...]]:
    """What is wrong where a lone process wraps a model for training, and edits that wrap it."""
    why, way_out = why_no_ddp(program, places, module, wrap)
    if averaged_beside(program):
        return f"{why or GOES_PAST}: ranks average the gradients by hand", ()
    if why:
        neither = why_not_by_hand(program, places)
        return f"{why}{neither and f', and by hand, {neither}'}: {way_out}", ()
    because = "DataParallel is for one process, and nothing wraps the model for ranks"
    edits = add_ddp(program, module, wrap)
    if not edits and not roles_reaching_in_function(module, wrap.stmt) & RANKS:
        because += (
            f": bind {wrap.target} to the model on every path above this line, so that"
            " DistributedDataParallel can wrap it below"
        )
    return because, edits


def opened_gates(program: Program, module: Module, wrap: Wrap) -> Iterator[Edit]:
    """``if args.parallel: reader.parallelize()``: ranks wrap whatever the option says.

    Not where an option decides whether there is a model at all, ``elif kind == "gan": Gan()``.
    """
    function = module.function(wrap.stmt)
    if function is None or function.name == "__init__":
        return
    below = {function, *(each for _, each in program.functions_below(module, function))}
    if any(loop.module.function(loop.steps) in below for loop in program.train_loops):
        return  # it trains as well as it wraps
    if wrap.target.isidentifier() and not is_handed_out(module, function, wrap.target):
        return  # what else it does needs its wrapper, and nothing behind it
    for where, call in program.callers(function):
        stmt = where.statement(call)
        gate = where.parents[stmt]
        if (
            isinstance(gate, ast.If)
            and gate.body == [stmt]
            and not gate.orelse
            and not is_elif(where.parents[gate], gate)
            and any(value_for_role(where, gate.test, role) is UNKNOWN for role in RANKS)
        ):
            yield Rewrite(gate.test, f"{where.operand(gate.test)} or {GROUP}")
            yield Import("torch")


def is_handed_out(module: Module, function: Function, name: str) -> bool:
    """Whether a function returns what a local name holds, or has the name from outside."""
    return is_outer(function, name) or any(
        hands_over(module, value.value, name)
        for value in within(function.body, ast.Return)
        if value.value is not None
    )


def never_wrapped(program: Program, module: Module, group: ast.Call) -> Iterator[Finding]:
    """A process group, and no wrapper of any kind: the step's forward pass gets one."""
    because, may_be_apart = "no model is wrapped after it", False
    loops = loops_that_step(program)
    if program.calls_to("no_sync") and "no_sync" not in program.functions_by_name:
        because = (
            "nothing that is read wraps a model after it, and a step calls no_sync(), which only a"
            " wrapper has: see that what makes the model returns one"
        )
        yield Finding(module, group, because, severity=Severity.DEGRADED)
        return
    parts: list[tuple[Module, Edit]] = []
    try:
        if loops:
            are_copies = bool(program.calls_to("DataParallel"))
            parts = averaged_gradients(program, loops, are_copies=are_copies)
    except NotShareableError as error:
        because += f", and {error}"
        # Ranks may then have work of their own: a search of settings, each with a model.
        may_be_apart = all(loop.loader is None for loop in loops)
    if not parts:
        because += (
            ": behind the line that moves the model to its device add "
            "model = torch.nn.parallel.DistributedDataParallel(model)"
        )
        severity = Severity.DEGRADED if may_be_apart else None
        yield Finding(module, group, because, severity=severity)
        return
    yield Finding(parts[0][0], loops[0].steps, because, tuple(edit for _, edit in parts))


def unwrapped_loops(program: Program) -> Iterator[Finding]:
    """Training loops that no wrapper serves, in a program that wraps a model for another loop."""
    if averages_otherwise(program):
        return
    alone = [
        loop
        for loop in program.train_loops
        if takes_steps(loop)
        and program.is_live(loop.module, loop.steps)
        and roles_reaching(program, loop.module, loop.steps) >= RANKS
        and not is_wrapped(program, loop)
    ]
    places = training_wraps(program) if alone else []
    for loop in alone:
        function = loop.module.function(loop.steps)
        here = [wrap for module, wrap in places if module.function(wrap.stmt) is function]
        for wrap in here[:1]:
            edits = add_ddp(program, loop.module, wrap)
            yield Finding(loop.module, wrap.stmt, "ranks get no wrapper", edits)
        if not here:
            because = "the wrapper of another training loop does not serve this one"
            yield Finding(loop.module, loop.steps, because)


def left_out(program: Program) -> Iterator[Finding]:
    """A model that is trained beside others, which alone are wrapped."""
    if averages_otherwise(program):
        return
    for where, tensor in lone_tensors(program):
        name = where.text(tensor)
        because = (
            f"{name} is trained, and is in no wrapped model: its gradients are not averaged;"
            f" make it a parameter of the model, or average {name}.grad before each step"
        )
        yield Finding(where, tensor, because)
    for where, wrap in program.calls_to("DistributedDataParallel"):
        stmt = where.statement(wrap)
        for target in stmt.targets if isinstance(stmt, ast.Assign) else ():
            name = where.text(target)
            if anew := made_anew(program, where, stmt, name):
                because = f"{name} is another model from here on, which is trained in no wrapper"
                yield Finding(where, anew, because)
    for loop in loops_that_step(program):
        if (bare := model_made_bare(program, loop)) is not None:
            because = f"{bare.id} is made in this function and trained, and nothing wraps it"
            yield Finding(loop.module, bare, because)
    model = left_bare(program)
    if not model:
        return
    module, call = program.calls_to("DistributedDataParallel")[0]
    because = (
        f"{model} is trained, and its gradients are not averaged: below this line add "
        f"{model} = torch.nn.parallel.DistributedDataParallel({model})"
    )
    severity = None
    if meets_ranks_itself(program, model):
        because += ", unless each rank holds a part of its own: it exchanges with other ranks"
        severity = Severity.DEGRADED
    yield Finding(module, module.statement(call), because, severity=severity)


def meets_ranks_itself(program: Program, model: str) -> bool:
    """Whether the class of a model calls collectives, as one parted among the ranks does."""
    made = [
        program.resolve(where, stmt.value.func)
        for where in program.modules
        for stmt in where.nodes(ast.Assign)
        if isinstance(stmt.value, ast.Call) and model in map(where.text, stmt.targets)
    ]
    return any(
        home.dotted(call.func).startswith("torch.distributed.")
        for home, definition in filter(None, made)
        if isinstance(definition, ast.ClassDef)
        for call in everywhere(definition, ast.Call)
        if home.last_name(call.func) in COLLECTIVES
    )


def asks_for_wrapper(module: Module, wrap: ast.stmt) -> bool:
    """Whether a wrap stands under ``not hasattr(model, "module")``: it may be come to again."""
    return any(
        isinstance(up, ast.If)
        and any(
            module.last_name(call.func) in ("hasattr", "isinstance")
            for call in everywhere(up.test, ast.Call)
        )
        for up in module.ancestors(wrap)
    )


def add_ddp(program: Program, module: Module, wrap: Wrap) -> tuple[Edit, ...]:
    """Edits that wrap a rank's model in DDP, behind the DataParallel of a lone process."""
    if roles_reaching_in_function(module, wrap.stmt) & RANKS:
        return ()  # DF303 leaves it to a lone process first
    model, place = wrap.target, place_behind(module, wrap.stmt, wrap.target)
    if place is wrap.stmt or test_for_some(module, place) is not None:
        return ()
    if drawn_behind(module, place, (model, wrap.inner)) is not None:
        return ()
    card, group = card_and_group_test(program, module, place)
    bound = binding_test(module, place, model) if model.isidentifier() else ""
    if bound is None:
        return ()
    options = ddp_options(program, card, model)
    group = f"{bound} and {group}" if bound else group
    if asks_for_wrapper(module, wrap.stmt):
        group += f" and not hasattr({model}, 'module')"
    code = WRAP.format(group=group, model=model, options=options)
    if not is_on_device(program, module, place, model):
        # DataParallel moves a model, or asks for one on the first card: its ranks need it as well.
        test = options[options.index(" if ") + 4 : options.index(" else ")]
        head, wrapping = code.split("\n")
        code = f"{head}\n    if {test}:\n        {model}.cuda()\n{wrapping}"
    imports = [] if "args" in group else [Import("torch")]
    return (Insert(place, code, "after"), *imports)


def is_on_device(
    program: Program,
    module: Module,
    node: ast.AST,
    model: str,
    seen: frozenset[ast.AST] = frozenset(),
) -> bool:
    """Whether the model is moved to its device above ``node``, or above all calls that pass it."""
    if is_created_on_device(module, node, model) or any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr in ("to", "cuda")
        and module.text(call.func.value) == model
        and stands_before(call, node)
        for call in within(module.scope_statements(node), ast.Call)
    ):
        return True
    function = module.function(node)
    if function is None or function in seen or model not in parameters(function):
        return False
    arguments = [
        (caller, call, argument_for_parameter(module, function, call, model))
        for caller, call in program.callers(function)
    ]
    return bool(arguments) and all(
        value is not None
        and is_on_device(program, caller, call, caller.text(value), seen | {function})
        for caller, call, value in arguments
    )


def stands_before(move: ast.expr | ast.stmt, node: ast.AST) -> bool:
    """Whether a move is done before ``node`` ends; of an expression, before its statement."""
    if isinstance(node, ast.stmt):
        return position(move) < (node.end_lineno or 0, node.end_col_offset or 0)
    return precedes(move, node)


def is_created_on_device(module: Module, node: ast.AST, model: str) -> bool:
    """``model = Model().to(device)`` above ``node``."""
    return any(
        isinstance(stmt.value, ast.Call)
        and isinstance(stmt.value.func, ast.Attribute)
        and stmt.value.func.attr in ("to", "cuda")
        and model in map(module.text, stmt.targets)
        and stands_before(stmt, node)
        for stmt in within(module.scope_statements(node), ast.Assign)
    )


def replace_apex_ddp(program: Program, module: Module, calls: list[ast.Call]) -> tuple[Edit, ...]:
    """Edits that replace apex's class by torch's, in its imports and in all of its calls."""
    local = module.text(calls[0].func)
    imports = [
        stmt
        for stmt in module.nodes(ast.ImportFrom)
        if stmt.module == "apex.parallel" and bound_names(stmt) == {local}
    ]
    targets = [alone_in_try(module, stmt) for stmt in imports]
    name = "DistributedDataParallel"
    line = f"from torch.nn.parallel import {name}" + (f" as {local}" if local != name else "")
    edits: list[Edit] = [Replace(target, line) for target in targets if target is not None]
    if not imports or len(edits) < len(imports):
        return ()
    for call in calls:
        model = only_argument(call, "module") or model_with_apex_options(call)
        if model is None or module.text(call.func) != local or not is_moved(module, call, model):
            return ()
        card, _ = card_and_group_test(program, module, call)
        options = f", {ddp_options(program, card, module.text(model))}"
        last = call.keywords[-1] if call.args and call.keywords else None
        edits.append(Rewrite(model, options, last, after=True))
        if not any(is_imported_for(module, stmt, call) for stmt in imports):
            edits.append(Insert(module.statement(call), line))
    return tuple(edits)


def is_imported_for(module: Module, stmt: ast.ImportFrom, call: ast.Call) -> bool:
    """Whether a class is imported above a call of it, or for the whole file."""
    function = module.function(stmt)
    return function is None or (function is module.function(call) and precedes(stmt, call))


def is_moved(module: Module, wrap: ast.Call, model: ast.expr) -> bool:
    """Whether a model may be on its card when it is wrapped: apex does not ask for that.

    A name that is bound to a new model has to be moved between that line and the wrapper.
    """
    if not isinstance(model, ast.Name):
        return True
    made = [
        store
        for store in module.stores.get((module.function(wrap), model.id), [])
        if precedes(store, wrap)
        and not any(
            name.id == model.id and isinstance(name.ctx, ast.Load)  # of amp.initialize(model, …)
            for name in everywhere(module.statement(store), ast.Name)
        )
    ]
    last = made[-1] if made else None
    stmt = None if last is None else module.statement(last)
    return last is None or any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr in ("to", "cuda")
        and (is_inside(call, stmt) or module.text(call.func.value) == model.id)
        and (is_inside(call, stmt) or precedes(last, call))
        and precedes(call, wrap)
        for call in within(module.scope_statements(wrap), ast.Call)
        if stmt is not None
    )


def alone_in_try(module: Module, stmt: ast.ImportFrom) -> ast.stmt | None:
    """An import, or the ``try`` around it alone; None where that tries something else as well."""
    attempt = module.parents[stmt]
    if not isinstance(attempt, ast.Try):
        return stmt
    is_alone = attempt.body == [stmt] and not attempt.orelse and not attempt.finalbody
    return attempt if is_alone else None


def model_with_apex_options(call: ast.Call) -> ast.expr | None:
    """The model of ``DDP(model, delay_allreduce=True)``: options of apex's speed alone."""
    if len(call.args) != 1 or isinstance(call.args[0], ast.Starred):
        return None
    return call.args[0] if all(word.arg in APEX_OPTIONS for word in call.keywords) else None
