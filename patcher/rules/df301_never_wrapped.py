"""Ranks train, and nothing keeps their models alike.

What         A process group is created, and the model is never wrapped in DistributedDataParallel,
             or only in apex's class of that name, which is a warning; or a teacher is wrapped, and
             the model that is trained is not.
At run time  Every rank trains a model of its own on its part of the data; the last one to save
             wins. apex's wrapper is an ImportError where apex is not installed.
Example      torch.distributed.init_process_group(backend="nccl")   # and no DDP anywhere
Fix          torch's DistributedDataParallel: behind the place where a lone process would use
             DataParallel, or in the place of apex's. Without a DataParallel to show where the
             model is complete, the model's call in a training step goes through it, by the helper
             over_ranks of DF204. A model left out beside wrapped ones is only reported.
Fix safety   Safe: only a rank of a process group reaches the line. Where a step does more than call
             one model once, and go back through it once, it is only reported.
Source       torch.nn.parallel.DistributedDataParallel; hazards counted in 65 of 134 scripts
"""

import ast
from collections.abc import Iterator

from ..analysis.binding_tests import binding_test
from ..analysis.kept_graphs import kept_graph
from ..analysis.passed_arguments import argument_for_parameter
from ..analysis.penalties import lone_penalty
from ..analysis.program import Program
from ..analysis.rank_reach import (
    RANKS,
    UNKNOWN,
    roles_reaching,
    roles_reaching_in_function,
    value_for_role,
)
from ..analysis.teachers import only_teaches
from ..analysis.trained_models import (
    last_part,
    left_bare,
    models_handed_over,
    trained_beside_wrapped,
    trained_models,
    trained_without,
)
from ..analysis.wrapped_parts import model_with_more_parts
from ..analysis.wrapping import ABOUT_CARDS, averages_otherwise, is_wrapped, takes_steps
from ..editing.edits import Edit, Import, Insert, Replace, Rewrite
from ..findings import Finding, Safety, Severity
from ..fixes.averaged_by_hand import average_before_steps
from ..fixes.chosen_cards import NotShareableError
from ..fixes.data_parallel import (
    Wrap,
    drawn_behind,
    is_part,
    place_behind,
    serves_training,
    wrap_in,
)
from ..fixes.lone_training import forward_through_ddp, refuse_other_work
from ..fixes.process_group import WRAP, card_and_group_test, ddp_options
from ..fixes.statements import main_guard
from ..source.module import Module
from ..source.tree import (
    Function,
    bound_names,
    everywhere,
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


def findings(program: Program) -> Iterator[Finding]:
    groups = program.calls_to("init_process_group")
    if not groups or not program.train_loops:
        return
    wraps = program.calls_to("DistributedDataParallel")
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
        places = data_parallel_calls(program)
        targets = [wrap.target for _, wrap in places]
        alone = trained_without(program, targets)
        for module, wrap in places:
            because = "DataParallel is for one process, and nothing wraps the model for ranks"
            edits: tuple[Edit, ...] = ()
            if alone and alone != wrap.target.rpartition(".")[0]:
                trained = [*trained_models(program), *models_handed_over(program)]
                is_trained = last_part(wrap.target) in map(last_part, trained)
                because = f"{alone} is trained, and nothing wraps it: wrap {alone} " + (
                    "as well" if is_trained else f"instead of {wrap.target}"
                )
            elif whole := model_with_more_parts(program, module, wrap.call):
                because = (
                    f"only a part of {whole} is wrapped, and ranks train the rest apart: wrap the"
                    f" {whole} where it is made, instead of {wrap.target}"
                )
            elif is_part(wrap.target):
                whole = wrap.target.rpartition(".")[0]
                because = (
                    f"only a part of the model is wrapped, and ranks train the rest apart: wrap "
                    f"{whole} instead of {wrap.target}"
                )
            elif targets.count(wrap.target) > 1 and not each_of_a_function(places, wrap.target):
                because = (
                    f"{wrap.target} is wrapped in several places: leave one "
                    f"{wrap.target} = DataParallel({wrap.target}) before the training"
                )
            elif penalty := lone_penalty(program):
                because = (
                    f"line {penalty[1].lineno} of {penalty[0].source.file} may go back through a"
                    " penalty on gradients alone, and DistributedDataParallel then waits for the"
                    " other parameters: add 0 * the model's output to that loss, or one backward"
                )
            elif kept := kept_graph(program):
                yield from averaged_by_hand(program, module, wrap, *kept)
                return
            else:
                edits = add_ddp(program, module, wrap)
                place = place_behind(module, wrap.stmt, wrap.target)
                test = test_for_some(module, place)
                drawn = drawn_behind(module, place, (wrap.target, wrap.inner))
                if drawn is not None:
                    because += (
                        f": line {drawn.lineno} draws or converts weights behind it, and ranks"
                        " train apart then: do that before the model is wrapped"
                    )
                elif test is not None and not edits:
                    because += (
                        f": ranks may not pass `{module.text(test)}`, and the lines behind it there"
                        " need the wrapper: wrap the model outside of that test"
                    )
                elif not edits and not roles_reaching_in_function(module, wrap.stmt) & RANKS:
                    because += (
                        f": bind {wrap.target} to the model on every path above this line, so "
                        "that DistributedDataParallel can wrap it below"
                    )
            yield Finding(module, wrap.stmt, because, edits)
        if not places:
            yield from never_wrapped(program, *groups[0])


def averaged_by_hand(
    program: Program, module: Module, wrap: Wrap, where: Module, call: ast.Call
) -> Iterator[Finding]:
    """A step that goes back several times through one forward pass: no wrapper is right for it."""
    because = (
        f"line {call.lineno} of {where.source.file} keeps its graph for another backward pass,"
        " which DistributedDataParallel does not average"
    )
    loops = [
        loop
        for loop in program.train_loops
        if takes_steps(loop) and program.is_live(loop.module, loop.steps)
    ]
    parts: dict[Module, list[Edit]] = {}
    try:
        for home, edit in average_before_steps(program, loops):
            parts.setdefault(home, []).append(edit)
    except NotShareableError as error:
        because += f", and {error}: add the losses, and go back once"
    if not parts:
        yield Finding(module, wrap.stmt, because)
    for home, edits in parts.items():
        at = wrap.stmt if home is module else loops[0].steps if home is loops[0].module else None
        yield Finding(home, at or home.tree.body[0], because, tuple(edits))


def never_wrapped(program: Program, module: Module, group: ast.Call) -> Iterator[Finding]:
    """A process group, and no wrapper of any kind: the step's forward pass gets one."""
    because, may_be_apart = "no model is wrapped after it", False
    loops = [
        loop
        for loop in program.train_loops
        if takes_steps(loop) and program.is_live(loop.module, loop.steps)
    ]
    parts: list[tuple[Module, Edit]] = []
    try:
        if loops:
            refuse_other_work(program, loops)
            parts = forward_through_ddp(program, loops)
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
    places = data_parallel_calls(program) if alone else []
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
    model = left_bare(program)
    if not model or averages_otherwise(program):
        return
    module, call = program.calls_to("DistributedDataParallel")[0]
    because = (
        f"{model} is trained, and its gradients are not averaged: below this line add "
        f"{model} = torch.nn.parallel.DistributedDataParallel({model})"
    )
    yield Finding(module, module.statement(call), because)


def data_parallel_calls(program: Program) -> list[tuple[Module, Wrap]]:
    """Where a lone process wraps a model in DataParallel to train it."""
    return [
        (module, wrap)
        for module, call in program.calls_to("DataParallel")
        if program.evaluation_of(module, call) is None and program.is_live(module, call)
        if module is program.script or main_guard(module) not in module.ancestors(call)
        for wrap in [wrap_in(module, call)]
        if wrap is not None
        and serves_training(program, module, wrap)
        and not only_teaches(program, module, wrap.stmt)
    ]


def each_of_a_function(places: list[tuple[Module, Wrap]], target: str) -> bool:
    """Whether what is wrapped under one name is another model in each place: one of a function."""
    functions = [module.function(wrap.stmt) for module, wrap in places if wrap.target == target]
    return target.isidentifier() and all(
        function is not None
        and functions.count(function) == 1
        and target not in parameters(function)
        and not any(target in each.names for each in within(function.body, ast.Global))
        for function in functions
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
    code = WRAP.format(group=group, model=model, options=options)
    if not is_on_device(program, module, place, model):
        # DataParallel moves a model, or asks for one on the first card: its ranks need it as well.
        test = options[options.index(" if ") + 4 : options.index(" else ")]
        head, wrapping = code.split("\n")
        code = f"{head}\n    if {test}:\n        {model}.cuda()\n{wrapping}"
    imports = [] if "args" in group else [Import("torch")]
    return (Insert(place, code, "after"), *imports)


def test_for_some(module: Module, place: ast.stmt) -> ast.expr | None:
    """A test of cards around a place, in its function, that ranks may not pass."""
    child: ast.AST = place
    for up in module.ancestors(place):
        if isinstance(up, Function):
            return None
        if isinstance(up, ast.If) and ABOUT_CARDS.search(module.text(up.test)):
            holds = any(stmt is child for stmt in up.body)
            answers = [value_for_role(module, up.test, role) for role in RANKS]
            if any(answer is UNKNOWN or bool(answer) is not holds for answer in answers):
                return up.test
        child = up
    return None


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
    return tuple(edits)


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
