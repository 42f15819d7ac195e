"""Each rank decides by the loss of its own batches.

What         A schedule steps by the loss of the training, as ReduceLROnPlateau does, or the epoch
             loop is left by it; or the script sets or lowers its rate, loads or keeps the best
             weights, or comes to an evaluation in which ranks wait for each other, by it; also in a
             function that it tells the loss. The loss is that of one rank's batches. So does LBFGS,
             by what its closure returns. An exit in the function of the training loop itself is
             DF506's. A warning where weights are kept by it; a note where such a script knows
             ranks: it may mean rank 0's.
At run time  Ranks lower their learning rate in different epochs. From then on their weights part,
             although the gradients are averaged: DistributedDataParallel compares no weights. A
             rank that leaves alone makes its peers wait until the time-out. The best epoch is that
             of rank 0's part of the data, and another one than that of all examples.
Example      loss = train(model, loader); scheduler.step(loss)
Fix          Decide by the mean over the ranks, which is what is printed from then on, too; of what
             is no number, let all evaluate where one rank would. Only reported for LBFGS.
Fix safety   Safe: in a lone process the mean is the number itself.
Source       torch.optim.lr_scheduler.ReduceLROnPlateau, torch.nn.parallel.DistributedDataParallel
"""

import ast
from collections.abc import Iterator

from ...record import replace
from ..analysis.effects.own_meetings import meets_others
from ..analysis.ranks.rank_divergence import (
    Decision,
    Matters,
    changes_by_own_batches,
    changes_rate_otherwise,
    changes_training,
    counted_by,
    decisions_by,
    in_lock_step,
    is_number_test,
    keeps_weights,
    own_steps_and_results,
    rates_by_own_batches,
    walk_of_result,
    walk_of_training,
)
from ..analysis.ranks.rank_reach import RANKS, roles_reaching
from ..analysis.ranks.told_losses import told_losses
from ..analysis.training.program import Program
from ..analysis.training.train_loops import TrainLoop
from ..editing.edits import Define, Edit, Insert, Rewrite
from ..findings import Finding, Safety, Severity
from ..fixes.drawn_apart import knew_no_ranks
from ..source.module import Module
from ..source.tree import (
    FUNCTIONS,
    Function,
    argument_values,
    bound_names,
    everywhere,
    is_number,
    mentions,
    only_argument,
    within,
)

CODE, SEVERITY, SAFETY = "DF510", Severity.ERROR, Safety.SAFE

MEANS = ("item", "float", "mean", "round", "sum", "avg", "average")
MEAN_ATTRIBUTES = ("avg", "average", "mean", "val")
MAX_NAMES = 3
METRICS = ("metrics", "metric")
REDUCING = ("all_reduce", "reduce", "all_gather", "all_gather_object", "gather", "synchronize")
HELPERS = ("gathered", "mean_of_ranks", "on_any_rank", "with_other_ranks")


def findings(program: Program) -> Iterator[Finding]:
    if not program.calls_to("init_process_group", "DistributedDataParallel"):
        return
    walked: set[tuple[Module, Function | None]] = set()  # a function with several loops, once
    agreed = reducing_functions(program)
    for loop in program.train_loops:
        scope = loop.module, loop.module.function(loop.steps)
        if loop.loader is None or scope in walked or not program.is_live(scope[0], loop.steps):
            continue
        walked.add(scope)
        steps, results = own_steps_and_results(program, loop, agreed)
        for call in steps:
            if is_schedule(loop.module, call):
                yield stepped(program, loop, call)
        yield from handed_on(program, loop, results, agreed)
        yield from changed(program, loop, agreed)
        yield from rated(program, loop, agreed)
        yield from searched(loop)


def acts_on_training(program: Program, loop: TrainLoop) -> Matters:
    """A test for statements that change the training, or in which ranks wait for each other."""

    def matters(module: Module, stmt: ast.stmt) -> bool:
        return changes_training(module, stmt) or (
            loop.steps not in module.ancestors(stmt) and meets_others(program, module, stmt)
        )

    return matters


def changed(program: Program, loop: TrainLoop, agreed: set[str]) -> Iterator[Finding]:
    """The findings for a rate, weights that are taken back or kept, or an evaluation, by a test."""
    told: set[ast.If] = set()
    for matters in (acts_on_training(program, loop), changes_rate_otherwise, keeps_weights):
        for stmt, test, names in changes_by_own_batches(program, loop, matters, agreed):
            if test not in told:
                told.add(test)
                edits = agreement(program, loop, stmt, test, names)
                because = f"line {test.lineno} decides by the loss of this rank's batches"
                yield of_kind(program, matters, Finding(loop.module, stmt, because, edits))
    yield from decided_below(program, loop, agreed)


def decided_below(program: Program, loop: TrainLoop, agreed: set[str]) -> Iterator[Finding]:
    """The findings for a function that is told the loss, and keeps the best weights by it."""
    module = loop.module
    walk = walk_of_training(program, loop, frozenset(agreed))
    for call, value in told_losses(program, walk, keeps_weights, agreed):
        edits: tuple[Edit, ...] = ()
        if (
            is_a_number(module, value)
            and in_lock_step(loop, module.statement(call))
            and loop.steps not in module.ancestors(call)
            and roles_reaching(program, module, call) >= RANKS
        ):
            text = f"mean_of_ranks({module.text(value)})"
            edits = (Rewrite(value, text), Define("mean_of_ranks"))
        because = f"{module.text(call.func)}() decides by the loss of this rank's batches"
        yield of_kind(program, keeps_weights, Finding(module, call, because, edits))


def agreement(
    program: Program, loop: TrainLoop, stmt: ast.stmt, test: ast.If, names: frozenset[str]
) -> tuple[Edit, ...]:
    """Edits that let a test decide alike: by the mean over the ranks of the numbers ``names``.

    By what any rank finds, where it asks for no number, and ranks meet in the statement.
    """
    module = loop.module
    if not (
        in_lock_step(loop, test)
        and loop.steps not in module.ancestors(test)
        and roles_reaching(program, module, test) >= RANKS
        and isinstance(module.parents[test], ast.For | ast.While)
    ):
        return ()
    is_number = names and is_number_test(module, test.test, names)
    if is_number and all(name.isidentifier() for name in names):
        at, numbers = counted_by(module, test, names) or (test, names)
        lines = "\n".join(f"{name} = mean_of_ranks({name})" for name in sorted(numbers))
        return Insert(at, lines), Define("mean_of_ranks")
    if meets_others(program, module, stmt):
        code = f"on_any_rank({module.text(test.test)})"
        return Rewrite(test.test, code), Define("on_any_rank")
    return ()


def rated(program: Program, loop: TrainLoop, agreed: set[str]) -> Iterator[Finding]:
    """The findings for a rate that is made of a loss: ``group["lr"] = lr * min(1, total)``."""
    module = loop.module
    for stmt in rates_by_own_batches(program, loop, agreed):
        edits: tuple[Edit, ...] = ()
        around = next((up for up in module.ancestors(stmt) if isinstance(up, ast.For)), stmt)
        is_of_groups = isinstance(around, ast.For) and mentions(around.iter, "param_groups")
        place = around if is_of_groups and isinstance(around, ast.For) else stmt
        values = [stmt.value] if isinstance(stmt, ast.Assign) else []
        if isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call):
            passed = argument_values(stmt.value)
            values = [
                each
                for each in passed
                if not isinstance(each, ast.Constant) and is_a_number(module, each)
            ]
        if (
            values
            and in_lock_step(loop, place)
            and isinstance(module.parents[place], ast.For | ast.While | ast.Module | Function)
            and roles_reaching(program, module, place) >= RANKS
        ):
            means = [Rewrite(each, f"mean_of_ranks({module.text(each)})") for each in values]
            edits = (*means, Define("mean_of_ranks"))
        because = "the rate is made of the loss of this rank's batches"
        yield Finding(module, stmt, because, edits, severity=severity_of(program))


def searched(loop: TrainLoop) -> Iterator[Finding]:
    """Steps by which LBFGS searches: it goes on, and stops, by the loss that a closure returns."""
    module = loop.module
    for call in within(loop.steps.body, ast.Call):
        if not (isinstance(call.func, ast.Attribute) and call.func.attr == "step" and call.args):
            continue
        made = module.definition(call.func.value, call)
        if isinstance(made, ast.Call) and module.last_name(made.func) == "LBFGS":
            because = (
                "LBFGS goes on and stops by the loss that the closure returns, this rank's own"
            )
            yield Finding(module, call, because)


def is_schedule(module: Module, call: ast.Call) -> bool:
    """Whether ``x.step(value)`` is that of a schedule, and not of a trainer or an environment."""
    if not isinstance(call.func, ast.Attribute) or only_argument(call, *METRICS) is None:
        return False
    owner = call.func.value
    made = module.definition(owner, call)
    if made is None and isinstance(owner, ast.Attribute):
        made = next(iter(module.attribute_values.get(owner.attr, ())), None)
    if isinstance(made, ast.Call) and module.last_name(made.func) == "ReduceLROnPlateau":
        return True
    return "sched" in module.text(owner).lower()


def reducing_functions(program: Program) -> set[str]:
    """The names of functions that reduce or gather: what these return is the same on all ranks.

    Not those that train, which may reduce gradients.
    """
    functions = {module.function(call) for module, call in program.calls_to(*REDUCING)}
    functions -= {loop.module.function(loop.steps) for loop in program.train_loops}
    return {each.name for each in functions if each is not None}


def severity_of(program: Program) -> Severity | None:
    """No error where the program reduces or gathers itself: its loss may be that of all ranks."""
    own = [
        function is None or function.name not in HELPERS
        for module, call in program.calls_to(*REDUCING)
        for function in [module.function(call)]
    ]
    return Severity.DEGRADED if any(own) else None


def of_kind(program: Program, matters: Matters, finding: Finding) -> Finding:
    """A finding, as severe as what hangs on the decision.

    No step hangs on weights that are kept, and a script that knows ranks may mean rank 0's.
    """
    severity = severity_of(program)
    edits = finding.edits
    if matters is changes_rate_otherwise:
        severity = severity if edits else Severity.DEGRADED
    elif matters is keeps_weights:
        severity = Severity.DEGRADED if knew_no_ranks(program) else Severity.NOTE
        edits = edits if knew_no_ranks(program) else ()
    return replace(finding, edits=edits, severity=severity)


def stepped(program: Program, loop: TrainLoop, call: ast.Call) -> Finding:
    """The finding for a schedule that steps in the function of the training loop."""
    module, value = loop.module, only_argument(call, *METRICS)
    edits: tuple[Edit, ...] = ()
    if (
        value is not None
        and is_a_number(module, value)
        and in_lock_step(loop, module.statement(call))
        and roles_reaching(program, module, call) >= RANKS
    ):
        text = f"mean_of_ranks({module.text(value)})"
        edits = (Rewrite(value, text), Define("mean_of_ranks"))
    because = "it steps by the loss of this rank's batches"
    return Finding(module, call, because, edits, severity=severity_of(program))


def handed_on(
    program: Program, loop: TrainLoop, results: list[ast.Return], agreed: set[str]
) -> Iterator[Finding]:
    """The findings for what the function of a training loop returns, and its callers decide by."""
    function = loop.module.function(loop.steps)
    if not results or function is None:
        return
    for module, call in program.callers(function):
        if not program.is_live(module, call):
            continue
        for matters in (acts_on_training(program, loop), changes_rate_otherwise, keeps_weights):
            places = places_by(program, module, loop, call, matters, agreed)
            if not places:
                continue
            because = (
                f"{function.name} returns the loss of this rank's batches, and line "
                f"{places[0][0].lineno} decides by it"
            )
            edits = mean_behind(program, loop, results, module, call, [by for _, by in places])
            yield of_kind(program, matters, Finding(module, call, because, edits))
            break


def places_by(
    program: Program,
    module: Module,
    loop: TrainLoop,
    call: ast.Call,
    matters: Matters,
    agreed: set[str],
) -> list[Decision]:
    """Where the function of a call decides by what it returns: schedules, exits and changes."""
    decided = [
        (each, by)
        for each, by in decisions_by(program, module, loop, call, matters, agreed)
        if not isinstance(each, ast.Call) or is_schedule(module, each)
    ]
    walk = walk_of_result(program, module, loop, call, frozenset(agreed))
    return [*decided, *told_losses(program, walk, matters, agreed)]


def mean_behind(
    program: Program,
    loop: TrainLoop,
    results: list[ast.Return],
    module: Module,
    call: ast.Call,
    deciding: list[ast.expr],
) -> tuple[Edit, ...]:
    """Edits that make what a call returns the mean over the ranks, where it is one number.

    Of several results those by which the expressions decide, where each reads such a number.
    """
    stmt = module.statement(call)
    if not isinstance(stmt, ast.Assign) or stmt.value is not call or len(stmt.targets) != 1:
        return ()
    target = stmt.targets[0]
    if len(within(loop.scope, ast.Return)) != 1 or results[0].value is None:
        return ()
    value = results[0].value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        pairs = list(zip(target.elts, value.elts, strict=False))
    else:
        pairs = [(target, value)]
    numbers = [
        name.id
        for name, made in pairs
        if isinstance(name, ast.Name) and is_a_number(loop.module, made)
    ]
    is_whole = len(numbers) == len(bound_names(stmt))
    if not is_whole:
        read = [
            {name.id for name in everywhere(by, ast.Name)} & bound_names(stmt) for by in deciding
        ]
        is_whole = all(each and each <= set(numbers) for each in read)
        numbers = [name for name in numbers if any(name in each for each in read)]
    by_all = roles_reaching(program, module, call) >= RANKS and runs_alike(module, stmt)
    if not is_whole or not by_all:
        return ()
    lines = "\n".join(f"{name} = mean_of_ranks({name})" for name in numbers)
    return (Insert(stmt, lines, "after"), Define("mean_of_ranks"))


def runs_alike(module: Module, stmt: ast.stmt) -> bool:
    """Whether only loops are around a statement in its function, and what is tried for all."""
    below: ast.AST = stmt
    for up in module.ancestors(stmt):
        if isinstance(up, FUNCTIONS):
            return True
        is_tried_whole = isinstance(up, ast.Try) and isinstance(below, ast.For) and below in up.body
        is_unsure = isinstance(up, ast.If | ast.Try | ast.While) and not is_tried_whole
        if is_unsure and not is_guard(module, up):
            return False
        below = up
    return True


def is_guard(module: Module, node: ast.AST) -> bool:
    """``if __name__ == "__main__":``."""
    return isinstance(node, ast.If) and "__name__" in module.text(node.test)


def is_a_number(module: Module, node: ast.expr, depth: int = 0) -> bool:
    """Whether a value is certainly one number, or a tensor of one."""
    match node:
        case ast.BinOp(op=ast.Div(), left=left):
            return is_a_number(module, left, depth)
        case ast.BinOp(left=left, right=right):
            return is_a_number(module, left, depth) and is_a_number(module, right, depth)
        case ast.Call():
            return module.last_name(node.func) in MEANS
        case ast.Attribute():
            return node.attr in MEAN_ATTRIBUTES
        case ast.Constant():
            return is_number(node)
        case ast.Name():
            values = module.alternatives(node, node) if depth < MAX_NAMES else []
            return bool(values) and all(is_a_number(module, each, depth + 1) for each in values)
    return False
