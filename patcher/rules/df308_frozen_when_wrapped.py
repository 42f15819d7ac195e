"""Parameters that are frozen when the model is wrapped are never synchronised.

What         Parameters are frozen for the first epochs and trained from then on, and
             DistributedDataParallel wraps the model while they are frozen, or without
             find_unused_parameters although the set of parameters in use will change, or although
             some are frozen behind it. Or a model gets a new part between trainings, and is not
             wrapped anew.
At run time  DistributedDataParallel knows the parameters that require gradients when it wraps.
             The others get no all-reduce, not even once they are thawed: each rank trains them on
             its own examples, the models drift apart, nothing warns, and rank 0's is saved. Frozen
             behind the wrapping instead, the second step is a RuntimeError: expected to have
             finished reduction in the prior iteration.
Example      for p in model.encoder.parameters(): p.requires_grad = False
             model = torch.nn.parallel.DistributedDataParallel(model)
             ... if epoch == 2: for p in model.module.encoder.parameters(): p.requires_grad = True
Fix          Let all parameters require gradients while the model is wrapped, and freeze them again
             behind it; find_unused_parameters=True, as which ones are used changes. None for a new
             part: wrap the model anew behind it.
Fix safety   Safe: only a rank of a process group wraps. A frozen parameter keeps no gradient, as in
             one process; its buckets are reduced all the same.
Source       torch.nn.parallel.DistributedDataParallel (parameters that do not require gradients
             are not registered; find_unused_parameters)
"""

import ast
from collections.abc import Iterator

from ..analysis.language.passed_arguments import argument_for_parameter
from ..analysis.models.frozen_parameters import FreezeSwitch, constant_bool, freeze_switches
from ..analysis.models.new_parts import new_parts
from ..analysis.training.between_trainings import (
    is_reached_in_training,
    training_loops,
    trainings_beside,
)
from ..analysis.training.program import Program
from ..analysis.training.train_loops import is_backward
from ..editing.edits import Edit, Insert, Rewrite
from ..findings import Finding, Safety, Severity
from ..source.module import Module
from ..source.tree import (
    argument,
    is_inside,
    keyword,
    last_argument,
    mentions,
    parameters,
    precedes,
    same_code,
    within,
)

CODE, SEVERITY, SAFETY = "DF308", Severity.ERROR, Safety.SAFE

THAW = """\
{frozen} = [parameter for parameter in {model}.parameters() if not parameter.requires_grad]
for parameter in {frozen}:
    parameter.requires_grad_(True)  # else ranks would never synchronise them"""
FREEZE = """\
for parameter in {frozen}:
    parameter.requires_grad_(False)"""


def findings(program: Program) -> Iterator[Finding]:
    wraps = [
        (module, call)
        for module, call in program.calls_to("DistributedDataParallel")
        if module.dotted(call.func).startswith("torch.") and argument(call, 0, "module") is not None
    ]
    if not wraps:
        return
    loops = training_loops(program)
    yield from behind_the_wrapper(program, wraps, loops)
    switches = list(freeze_switches(program))
    switches = [each for each in switches if not is_for_a_while(program, each, switches)]
    of_all = [each for each in switches if is_of_whole_models(program, wraps, each)]
    whole = of_all
    if all(each.thaws is True for each in whole):
        whole = []  # no two players that take turns
    thawing = [
        switch
        for switch in switches
        if switch.thaws is not False
        and switch not in whole
        and not any(is_redone_before(program, switch, *wrap) for wrap in wraps)
        and is_reached_in_training(program, loops, switch.module, switch.stmt)
    ]
    freezing = [switch for switch in switches if switch.thaws is not True]
    if not thawing or not (freezing or is_built_frozen(program)):
        yield from frozen_behind(wraps, [each for each in switches if each not in of_all])
        return
    early = [
        switch
        for switch in freezing
        if not is_reached_in_training(program, loops, switch.module, switch.stmt, exclusively=True)
    ]
    first = thawing[0]
    for module, call in wraps:
        edits = [*find_unused_edits(call)]
        is_early = not freezing or not all(is_behind(switch, module, call) for switch in early)
        wraps_frozen = is_early and not is_thawed_above(module, module.statement(call))
        if wraps_frozen:
            edits += thaw_around_wrap(module, call)
        if edits or wraps_frozen:
            file = "" if first.module is module else f"{first.module.source.file} "
            because = f"{file}line {first.stmt.lineno} thaws parameters in training"
            yield Finding(module, call, because, tuple(edits))


def behind_the_wrapper(
    program: Program, wraps: list[tuple[Module, ast.Call]], loops: set[ast.AST]
) -> Iterator[Finding]:
    """Wraps of models that get a new part between two trainings, and are not wrapped again."""
    for where, stmt in new_parts(program):
        if not program.is_live(where, stmt) or not is_reached_in_training(
            program, loops, where, stmt
        ):
            continue
        changes = places_of(program, where, stmt)
        if any(
            one is other
            and one.function(change) is other.function(wrapping)
            and precedes(change, wrapping)
            for one, change in changes
            for module, call in wraps
            for other, wrapping in places_of(program, module, call)
        ):
            continue
        module, call = wraps[0]
        file = "" if where is module else f"{where.source.file} "
        because = f"{file}line {stmt.lineno} puts a part into a model between trainings"
        yield Finding(module, call, f"{because}: wrap it anew behind that")
        return


def places_of(program: Program, module: Module, node: ast.AST) -> list[tuple[Module, ast.AST]]:
    """A place, and the calls of the function around it."""
    function = module.function(node)
    return [(module, node), *(program.callers(function) if function is not None else ())]


def frozen_behind(
    wraps: list[tuple[Module, ast.Call]], switches: list[FreezeSwitch]
) -> Iterator[Finding]:
    """Wraps behind which parameters of the wrapped model are frozen for good."""
    for module, call in wraps:
        stmt = module.statement(call)
        target = stmt.targets[0] if isinstance(stmt, ast.Assign) else None
        edits = tuple(find_unused_edits(call))
        if not isinstance(target, ast.Name) or not edits or keyword(call, "static_graph"):
            continue
        for switch in switches:
            if (
                switch.thaws is False
                and is_behind(switch, module, call)
                and mentions(frozen_part(switch), target.id)
                and not any(
                    precedes(other.stmt, stmt)
                    and same_code(frozen_part(other), frozen_part(switch))
                    for other in switches
                    if other.module is module
                )
            ):
                because = f"line {switch.stmt.lineno} freezes parameters behind it"
                yield Finding(module, call, because, edits)
                break


def frozen_part(switch: FreezeSwitch) -> ast.AST:
    """What a statement freezes: the model's part whose parameters it goes over, or itself."""
    loop = switch.module.parents[switch.stmt]
    while isinstance(loop, ast.If):
        loop = switch.module.parents[loop]
    if not isinstance(loop, ast.For):
        return switch.stmt
    match loop:  # for p, q in zip(model.parameters(), average.parameters()): q.requires_grad = …
        case ast.For(target=ast.Tuple(elts=names), iter=ast.Call(func=ast.Name("zip"), args=parts)):
            pairs = zip(names, parts, strict=False)
            frozen = [part for name, part in pairs if mentions(switch.stmt, switch_text(name))]
            return frozen[0] if len(frozen) == 1 else loop.iter
    return loop.iter


def switch_text(name: ast.expr) -> str:
    """The plain name in a loop's target; empty for anything else."""
    return name.id if isinstance(name, ast.Name) else ""


def is_behind(switch: FreezeSwitch, module: Module, wrap: ast.Call) -> bool:
    """Whether parameters are switched below a wrap in its function, where no loop comes back."""
    stmt = switch.stmt
    return (
        switch.module is module
        and module.function(stmt) is module.function(wrap)
        and precedes(wrap, stmt)
        and not any(
            isinstance(up, ast.For | ast.While) and is_inside(stmt, up)
            for up in module.ancestors(wrap)
        )
    )


def is_of_whole_models(
    program: Program, wraps: list[tuple[Module, ast.Call]], switch: FreezeSwitch
) -> bool:
    """Whether all parameters of a wrapped model are switched at once, as two players take turns.

    Then either all of its gradients are reduced, or none.
    """
    wrapped = {
        module.text(target)
        for module, call in wraps
        for stmt in [module.statement(call)]
        if isinstance(stmt, ast.Assign)
        for target in stmt.targets
    }
    module, loop = switch.module, switch.module.parents[switch.stmt]
    if (
        not isinstance(loop, ast.For)
        or not isinstance(loop.iter, ast.Call)
        or not isinstance(loop.iter.func, ast.Attribute)
        or loop.iter.func.attr != "parameters"
    ):
        return False
    model, function = module.text(loop.iter.func.value), module.function(loop)
    if function is None or model not in parameters(function):
        return model in wrapped
    passed = [
        (where, argument_for_parameter(module, function, call, model))
        for where, call in program.callers(function)
    ]
    return bool(passed) and all(
        value is not None and where.text(value) in wrapped for where, value in passed
    )


def is_built_frozen(program: Program) -> bool:
    """Whether a model is made with ``nn.Parameter(torch.tensor(0.1), requires_grad=False)``."""
    return any(
        (asks := argument(call, 1, "requires_grad")) is not None and constant_bool(asks) is False
        for module, call in program.calls_to("Parameter")
        if module.enclosing_class(call) is not None
    )


def is_for_a_while(program: Program, switch: FreezeSwitch, switches: list[FreezeSwitch]) -> bool:
    """Whether a function freezes parameters and thaws the same below, or this is the latter.

    An evaluation does so, and trains nothing between.
    """
    module, loop = switch.module, switch.module.parents[switch.stmt]
    function = module.function(loop)
    if not isinstance(loop, ast.For) or function is None:
        return False
    if any(is_backward(call) for call in within(function.body, ast.Call)) or trainings_beside(
        program, module, loop
    ):
        return False
    pair = [
        other
        for other in switches
        if other.module is module
        and module.function(other.stmt) is function
        and isinstance(around := module.parents[other.stmt], ast.For)
        and module.body(around) is module.body(loop)
        and same_code(around.iter, loop.iter)
    ]
    pair.sort(key=lambda each: each.stmt.lineno)
    return [each.thaws for each in pair] == [False, True]


def is_redone_before(
    program: Program, switch: FreezeSwitch, module: Module, wrap: ast.Call
) -> bool:
    """Whether a function thaws above where it wraps: each call of it wraps anew."""
    function = module.function(wrap)
    places: list[tuple[Module, ast.expr]] = [(module, wrap)]
    places += [] if function is None else program.callers(function)
    return any(
        switch.module is where
        and where.function(switch.stmt) is where.function(place)
        and precedes(switch.stmt, place)
        and not any(
            isinstance(up, ast.For | ast.While) and up in where.ancestors(switch.stmt)
            for up in where.ancestors(place)
        )
        for where, place in places
    )


def find_unused_edits(call: ast.Call) -> Iterator[Edit]:
    """The edit that sets find_unused_parameters, if it is not set."""
    word, static = keyword(call, "find_unused_parameters"), keyword(call, "static_graph")
    if word is not None:
        if isinstance(word.value, ast.Constant) and word.value.value is not True:
            yield Rewrite(word.value, "True")
    elif static is not None:  # the graph changes when parameters are thawed
        yield Rewrite(static, "find_unused_parameters=True")
    elif not any(each.arg is None for each in call.keywords):  # **options may tell it
        last = last_argument(call)
        assert last is not None
        yield Rewrite(last, ", find_unused_parameters=True", after=True)


def thaw_around_wrap(module: Module, call: ast.Call) -> tuple[Edit, ...]:
    """Edits that wrap a model while all of it is thawed; none where the wrapper has no name."""
    stmt = module.statement(call)
    model = argument(call, 0, "module")
    if not isinstance(stmt, ast.Assign) or not isinstance(model, ast.Name | ast.Attribute):
        return ()
    names = {name.id for name in within(module.scope_statements(call), ast.Name)}
    texts = {
        "model": module.text(model),
        "frozen": "frozen_parameters" if "frozen" in names else "frozen",
    }
    return (Insert(stmt, THAW.format(**texts)), Insert(stmt, FREEZE.format(**texts), "after"))


def is_thawed_above(module: Module, stmt: ast.stmt) -> bool:
    """Whether the statement right above ``stmt`` is a loop that thaws."""
    block = module.body(stmt)
    above = block[: block.index(stmt)]
    return (
        bool(above)
        and isinstance(above[-1], ast.For)
        and any(
            module.last_name(call.func) == "requires_grad_" and constant_bool(value)
            for call in within(above[-1].body, ast.Call)
            if (value := argument(call, 0, "requires_grad")) is not None
        )
    )
