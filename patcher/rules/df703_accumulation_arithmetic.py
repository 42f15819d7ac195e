"""Gradient accumulation leaks, clips too often and all-reduces too often.

What         Micro-batches left over at the end of an epoch; a counter that is off by one, or reset
             on the way; clipping per micro-batch; the loss divided by the number of micro-batches
             whatever they hold, or by nothing (a note); an all-reduce for each of them; a limit
             meant for optimizer steps that counts micro-batches; an evaluation every n steps that
             stands beside the step.
At run time  Left-over gradients enter the next epoch's first step; clipping weighs micro-batches
             0.24 / 0.38 / 0.57 / 1.0 instead of alike; 4 all-reduces where 1 would do.
Example      if (nb_tr_steps + 1) % args.gradient_accumulation_steps == 0: optimizer.step()
Fix          The last micro-batch of an epoch steps too; clip once, before the step; weigh each
             micro-batch by its share of the examples; synchronise on the last one only, unless an
             attack on weights reads the gradients before. Only where the loop goes through a known
             loader, or takes the next batch of its cycle. Only reported for data that only
             iterate, whose number of batches is not known, and where several tests step.
Fix safety   Safe: with accumulation 1 every step stays the same, bit for bit.
Source       torch.nn.parallel.DistributedDataParallel.no_sync, which sets the same attribute
"""

import ast
from collections.abc import Iterator

from ..analysis.language.conditions import asked_value, is_equality, plain_test
from ..analysis.language.passed_arguments import argument_for_parameter
from ..analysis.models.wrapping import SHARED
from ..analysis.ranks.dealing import is_iterable_dataset
from ..analysis.training.accumulated_losses import adds_gradients_up, counts_on, loss_divisions
from ..analysis.training.program import Program
from ..analysis.training.remainders import asks_for_largest, asks_for_none_left, is_modulo
from ..analysis.training.train_loops import TrainLoop, is_optimizer_step
from ..editing.edits import Define, Edit, Guard, Insert, Rewrite
from ..findings import Finding, Safety, Severity
from ..fixes.micro_step_numbers import (
    NUMBER,
    accumulation_text,
    counts_own_steps,
    has_step_number,
    is_counter,
    is_one_pass,
    loop_range,
    micro_step_text,
)
from ..fixes.process_group import BATCH_SAMPLER
from ..fixes.read_gradients import reads_between_passes
from ..fixes.step_gates import gates_of_each_batch
from ..source.branches import is_in
from ..source.module import Module
from ..source.tree import (
    Function,
    below,
    bound_names,
    everywhere,
    is_inside,
    is_within,
    names_within,
    parameters,
    precedes,
    same_code,
    within,
)

CODE, SEVERITY, SAFETY = "DF703", Severity.DEGRADED, Safety.SAFE

LAST = "last_micro_step"
TOTAL = "micro_steps"


def findings(program: Program) -> Iterator[Finding]:
    for loop in program.train_loops:
        test = loop.step_test
        if test is None or loop.accumulation is None:
            continue
        if only_iterates(program, loop):
            because = "its data set only iterates, and how many batches an epoch has is not known"
            yield Finding(loop.module, test, because)
            continue
        if {each.id for each in everywhere(loop.accumulation, ast.Name)} & bound_names(loop.steps):
            because = "how many micro-batches a step waits for is bound within the steps"
            yield Finding(loop.module, test, because)
            continue
        if other := asks_for_accumulation(loop, test):
            because = f"line {other.lineno} asks first whether steps wait for several micro-batches"
            yield Finding(loop.module, test, because)
            continue
        if elsewhere := steps_elsewhere(loop, test):
            because = f"line {elsewhere.lineno} steps under another test"
            yield Finding(loop.module, test, because, severity=Severity.NOTE)
            continue
        edits: tuple[Edit, ...] = ()
        compare = remainder_test(loop, test)
        if compare is not None:
            edits = step_on_last(loop, compare)
            if not edits and counts_own_steps(loop, compare):
                continue
            is_told = bool(edits) or counts_loop_steps(loop, compare)
            severity = None if is_told else Severity.NOTE
            yield Finding(loop.module, test, reason(loop, compare, edits), edits, severity=severity)
        steps_at_end = defines_last(loop) or any(isinstance(edit, Insert) for edit in edits)
        if steps_at_end:
            yield from early_clipping(loop, test)
            yield from repeated_tests(loop, compare)
            yield from gates(loop)
        elif asks_for_epochs_end(loop, test) or (
            compare is not None and counts_own_steps(loop, compare)
        ):
            yield from early_clipping(loop, test, loop.module.text(test.test))
        if has_step_number(loop):
            yield from synchronization(program, loop)
            # Micro-batches that wait for the next epoch's are as much of a step as any other.
            waits = not steps_at_end and (compare is not None or asks_for_none_left(loop, test))
            if waits and compare is None:
                because = "micro-batches left at the end of an epoch are stepped in the next one"
                yield Finding(loop.module, test, because)
            if not waits and not has_batches_of_its_own(loop):
                yield from equal_shares(loop)
        if adds_gradients_up(program, loop):
            number = loop.module.text(loop.accumulation)
            because = (
                f"no loss is divided by {number}, so that a step grows with it: leave it as it is"
                " for more ranks, and lower the batch of each"
            )
            yield Finding(loop.module, test, because, severity=Severity.NOTE)


def leaves_rest(program: Program, loop: TrainLoop) -> bool:
    """Whether the last, short round of an epoch takes no step, and no edit lets it take one."""
    test = loop.step_test
    if test is None or loop.accumulation is None:
        return False
    compare = remainder_test(loop, test)
    if compare is None or compare is not plain_test(loop.module, test.test)[0]:
        return False  # it asks for more, such as for the last batch
    stays = only_iterates(program, loop) or asks_for_accumulation(loop, test)
    if stays or steps_elsewhere(loop, test):
        return is_modulo(loop, compare)
    edits = step_on_last(loop, compare)
    return is_modulo(loop, compare) and not any(isinstance(edit, Insert) for edit in edits)


def steps_elsewhere(loop: TrainLoop, test: ast.If) -> ast.Call | None:
    """A step beside the accumulation test, which may then begin a round of micro-batches.

    ``if i % n == 0: optimizer.zero_grad() … elif i % n == n - 1: optimizer.step()``.
    """
    block = test.orelse if loop.steps_in_else else test.body
    calls = within(loop.steps.body, ast.Call)
    steps = [call for call in calls if is_optimizer_step(loop.module, call)]
    return next((call for call in steps if not is_within(call, block)), None)


def asks_for_accumulation(loop: TrainLoop, test: ast.If) -> ast.If | None:
    """``if n > 1:`` around the accumulation test, beside which each batch may have a step.

    There ``n`` may be 0.
    """
    assert loop.accumulation is not None
    wanted = loop.accumulation
    around = [up for up in loop.module.ancestors(test) if is_inside(up, loop.steps)]
    return next(
        (
            up
            for up in around
            if isinstance(up, ast.If)
            and any(same_code(each, wanted) for each in everywhere(up.test, type(wanted)))
        ),
        None,
    )


def only_iterates(program: Program, loop: TrainLoop) -> bool:
    """Whether ``len(loader)`` may raise: an IterableDataset has no number of examples."""
    loaders = () if loop.loader is None else (loop.loader, *loop.loader.others)
    return any(is_iterable_dataset(program, each.module, each.dataset) for each in loaders)


def has_batches_of_its_own(loop: TrainLoop) -> bool:
    """Whether a batch_sampler other than torch's may make the batches, of whatever size."""
    for each in () if loop.loader is None else (loop.loader, *loop.loader.others):
        if any(word.arg is None for word in each.call.keywords):
            return True  # DataLoader(data, **options)
        if each.batch_sampler is None:
            continue
        made = each.module.definition(each.batch_sampler, each.call) or each.batch_sampler
        calls = {each.module.last_name(call.func) for call in everywhere(made, ast.Call)}
        if not calls & {"BatchSampler", BATCH_SAMPLER}:
            return True
    return False


def remainder_test(loop: TrainLoop, test: ast.If) -> ast.Compare | None:
    """The comparison that the accumulation test asks for; None where it is right as it is."""
    if isinstance(test.test, ast.Name) and test.test.id == LAST:
        return None
    plain = plain_test(loop.module, test.test)[0]
    if isinstance(plain, ast.BoolOp):
        plain = next((each for each in plain.values if asks_of_short_epochs(loop, each)), plain)
    return plain if isinstance(plain, ast.Compare) and is_inside(plain, loop.steps) else None


def asks_of_short_epochs(loop: TrainLoop, compare: ast.expr) -> bool:
    """Whether an epoch's last micro-batch is asked for beside a remainder, in short epochs only.

    ``(step + 1) % n == 0 or (len(loader) <= n and step + 1 == len(loader))``.
    """
    whole = loop.module.parents[compare]
    return (
        isinstance(compare, ast.Compare)
        and is_modulo(loop, compare)
        and isinstance(whole, ast.BoolOp)
        and isinstance(whole.op, ast.Or)
        and all(each is compare or ends_epoch_under_test(loop, each) for each in whole.values)
    )


def ends_epoch_under_test(loop: TrainLoop, test: ast.expr) -> bool:
    """``… and step + 1 == len(loader)``."""
    return (
        isinstance(test, ast.BoolOp)
        and isinstance(test.op, ast.And)
        and any(is_epochs_end(loop, part) for part in test.values)
    )


def asks_for_epochs_end(loop: TrainLoop, test: ast.If) -> bool:
    """``(step + 1) % n == 0 or step + 1 == len(loader)``, of numbers that the body leaves alone."""
    plain = plain_test(loop.module, test.test)[0]
    if not (isinstance(plain, ast.BoolOp) and isinstance(plain.op, ast.Or)):
        return False
    others = [
        each
        for each in plain.values
        if not (isinstance(each, ast.Compare) and is_modulo(loop, each))
    ]
    asked = {name.id for name in everywhere(plain, ast.Name)}
    return (
        0 < len(others) < len(plain.values)
        and all(is_epochs_end(loop, each) for each in others)
        and not any(asked & bound_names(stmt) for stmt in loop.steps.body)
    )


def is_epochs_end(loop: TrainLoop, test: ast.expr) -> bool:
    """``step + 1 == len(loader)``."""
    if not isinstance(loop.steps, ast.For):
        return False
    batches = {name.id for name in everywhere(loop.steps.iter, ast.Name)}
    batches.add("" if loop.loader is None else loop.loader.name)
    return (
        isinstance(test, ast.Compare)
        and len(test.ops) == 1
        and isinstance(test.ops[0], ast.Eq)
        and loop.step_name in {name.id for name in everywhere(test, ast.Name)}
        and any(
            loop.module.last_name(call.func) == "len"
            and isinstance(call.args[0], ast.Name)
            and call.args[0].id in batches
            for call in everywhere(test, ast.Call)
            if call.args
        )
    )


def equal_shares(loop: TrainLoop) -> Iterator[Finding]:
    """Losses that are divided by the accumulation, however many examples a micro-batch has."""
    assert loop.loader is not None
    assert loop.accumulation is not None
    step, accumulation = micro_step_text(loop), loop.module.text(loop.accumulation)
    share = f"loss_share({step}, {loop.loader.name}, {accumulation})"
    if counter := counts_on(loop):
        for division in loss_divisions(loop):
            because = f"steps of fewer micro-batches divide by it too: {counter} counts over epochs"
            yield Finding(loop.module, division, because)
        return
    for division in loss_divisions(loop):
        loss = loop.module.text(division.left)
        if isinstance(division.left, ast.BinOp | ast.IfExp):
            loss = f"({loss})"
        yield Finding(
            loop.module,
            division,
            "the last micro-batches of an epoch are fewer or shorter than that",
            (Rewrite(division, f"{loss} * {share}"), Define("loss_share")),
        )


def reason(loop: TrainLoop, test: ast.Compare, edits: tuple[Edit, ...]) -> str:
    """Why the accumulation test is wrong."""
    if not edits and loop.loader is not None and loop.step_name and not loop.loader.name:
        return "the last steps of an epoch cannot be told: no name here holds the loader itself"
    if not edits and not counts_loop_steps(loop, test):
        return "what it counts is not the loop's own step number"
    if counts_loop_steps(loop, test):
        return "micro-batches left at the end of an epoch are stepped in the next one"
    dividend = asked_value(test)
    return f"{loop.module.text(dividend)} is not the number of the micro-batch in its epoch"


def counts_loop_steps(loop: TrainLoop, test: ast.Compare) -> bool:
    names = everywhere(asked_value(test), ast.Name)
    return loop.step_name in {name.id for name in names}


def defines_last(loop: TrainLoop) -> bool:
    """Whether the loop binds the name that marks the last micro-batch of a step."""
    return bool(loop.module.occurrences(LAST)) and LAST in bound_names(loop.steps)


def repeated_tests(loop: TrainLoop, first: ast.Compare | None) -> Iterator[Finding]:
    """Further tests of the accumulation, such as before saving."""
    module = loop.module
    for compare in within(loop.steps.body, ast.Compare):
        if compare is not first and is_modulo(loop, compare):
            stmt = module.statement(compare)
            is_test = isinstance(stmt, ast.Assign) and stmt.value is compare
            if isinstance(stmt, ast.If) or (is_test and bound_names(stmt) != {LAST}):
                because = f"{module.text(compare)} asks again whether a step was taken"
                yield Finding(module, compare, because, (ask_for_last(compare),))


def gates(loop: TrainLoop) -> Iterator[Finding]:
    """Saving and evaluating every n optimizer steps, on each micro-batch of such a step."""
    for gate in gates_of_each_batch(loop, LAST):
        if any(is_modulo(loop, each) for each in everywhere(gate, ast.Compare)):
            continue  # repeated_tests() puts the name there
        test = loop.module.conjunct(gate)
        because = f"{test} holds for all micro-batches of a step"
        edits: tuple[Edit, ...] = (Rewrite(gate, f"{test} and {LAST}"),)
        if loop.step_test and is_read_besides(loop, loop.module.statement(gate), loop.step_test):
            edits, because = (), f"{because}, and other lines read what it binds"
        yield Finding(loop.module, gate, because, edits)


def early_clipping(loop: TrainLoop, test: ast.If, guard: str = LAST) -> Iterator[Finding]:
    module = loop.module
    for clip in loop.clips:
        if not any(is_step_test(module, up, test) for up in module.ancestors(clip)):
            edits = () if is_read_besides(loop, clip, test) else (Guard(clip, guard),)
            yield Finding(module, clip, "clips after every micro-batch", edits)


def is_read_besides(loop: TrainLoop, clip: ast.stmt, test: ast.If) -> bool:
    """Whether what a statement binds, and none above it, is read on other micro-batches as well."""
    module = loop.module
    names = bound_names(clip)
    above = [*module.ancestors(clip)]
    bound = {
        name
        for name in names
        for store in module.stores.get((module.function(clip), name), ())
        if precedes(store, clip) and module.parents[module.statement(store)] in above
    }
    return any(
        isinstance(use.ctx, ast.Load)
        and not is_inside(use, clip)
        and not any(is_step_test(module, up, test) for up in module.ancestors(use))
        for use in names_within(loop.scope, names - bound)
    )


def is_step_test(module: Module, up: ast.AST, test: ast.If) -> bool:
    if not isinstance(up, ast.If):
        return False
    (asked, holds, _), (wanted, also, _) = (plain_test(module, each.test) for each in (up, test))
    is_same = same_code(asked, wanted) and holds is also
    return is_same or (isinstance(up.test, ast.Name) and up.test.id == LAST)


def step_on_last(loop: TrainLoop, compare: ast.Compare) -> tuple[Edit, ...]:
    """Edits that compute the test at the head of the loop, true for an epoch's last micro-batch."""
    if not (is_modulo(loop, compare) and steps_on_multiples(loop, compare)):
        return ()
    if asks_for_largest(loop, compare) and not has_step_number(loop):
        return ()
    if loop.loader is None or not loop.loader.name:
        return fix_off_by_one(loop, compare)
    if loop.loader.cycle is not None:
        return step_on_last_of_cycle(loop, compare) or fix_off_by_one(loop, compare)
    if not is_one_pass(loop):
        return fix_off_by_one(loop, compare)
    module, loader = loop.module, loop.loader.name
    whole = module.parents[compare]
    edits: list[Edit] = [ask_for_last(compare)]
    if isinstance(whole, ast.BoolOp) and asks_of_short_epochs(loop, compare):
        edits = [Rewrite(whole, LAST)]
    name = loop.step_name
    if not name:
        if not isinstance(loop.steps, ast.For) or "step" in bound_names(loop.scope):
            return ()
        name = "step"
        target = module.text(loop.steps.target)
        target = f"({target})" if isinstance(loop.steps.target, ast.Tuple) else target
        edits += [
            Rewrite(loop.steps.target, f"{name}, {target}"),
            Rewrite(loop.steps.iter, f"enumerate({module.text(loop.steps.iter)})"),
        ]
    after = name if loop.step_start else f"{name} + 1"
    dividend = after if loop.step_start else f"({after})"
    per_step = accumulation_text(loop)
    is_last = f"{LAST} = {dividend} % {per_step} == 0"
    if loop.drops_rest:
        before = f"{name} - 1" if loop.step_start else name
        lines = (
            f"if {before} >= len({loader}) // {per_step} * {per_step}:\n"
            f"    break  # too few are left for an optimizer step: drop_last\n{is_last}"
        )
        return (*edits, Insert(loop.steps, lines, "first"))
    return (*edits, Insert(loop.steps, f"{is_last} or {after} == len({loader})", "first"))


def steps_on_multiples(loop: TrainLoop, compare: ast.Compare) -> bool:
    """Whether an optimizer step is taken where the remainder is 0, and not where it is another."""
    assert loop.step_test is not None
    _, holds, _ = plain_test(loop.module, loop.step_test.test)
    return is_equality(compare) is (holds is not loop.steps_in_else)


def ask_for_last(compare: ast.Compare) -> Rewrite:
    """The edit that asks for the last micro-batch of a step in place of a remainder."""
    return Rewrite(compare, LAST if is_equality(compare) else f"not {LAST}")


def fix_off_by_one(loop: TrainLoop, test: ast.Compare) -> tuple[Edit, ...]:
    """Edits of ``(step + 1) % n`` below ``step += 1``, which steps one batch early."""
    remainder = asked_value(test)
    assert isinstance(remainder, ast.BinOp)
    dividend = remainder.left
    if not (
        isinstance(dividend, ast.BinOp)
        and isinstance(dividend.op, ast.Add)
        and isinstance(dividend.left, ast.Name)
        and is_counter(loop, dividend.left.id)
    ):
        return ()
    counter = dividend.left.id
    increment = next(stmt for stmt in loop.steps.body if counter in bound_names(stmt))
    if precedes(test, increment):
        return ()
    return (Rewrite(remainder, f"{counter} % {accumulation_text(loop)}"),)


def step_on_last_of_cycle(loop: TrainLoop, compare: ast.Compare) -> tuple[Edit, ...]:
    """Edits that count a cycle's batches within their epoch, and take as many as the steps need.

    The cycle gets a name of its own, so that the loader keeps its length and batch size.
    """
    module, loader = loop.module, loop.loader
    assert loader is not None
    assert loader.cycle is not None
    limit = loop_range(loop)
    if limit is None or not loop.step_name or module.parents.get(loader.cycle) is None:
        return ()
    stmt = module.statement(loader.cycle)
    inner = loader.cycle.args[0]
    if not (
        isinstance(stmt, ast.Assign)
        and stmt.value is loader.cycle
        and isinstance(stmt.targets[0], ast.Name)
        and isinstance(inner, ast.Name)
        and module.function(stmt) is module.function(loop.steps)
    ):
        return ()
    edits: list[Edit] = []
    name = stmt.targets[0].id
    if name == inner.id:
        uses = [
            use
            for use in within(loop.scope, ast.Name)
            if use.id == name and precedes(stmt, use) and isinstance(use.ctx, ast.Load)
        ]
        if not all(is_next_argument(module, use) for use in uses):
            return ()
        edits += [Rewrite(use, "batches") for use in (stmt.targets[0], *uses)]
    per_step = accumulation_text(loop)
    if not counts_micro_batches(loop, limit):
        total = f"{TOTAL}({module.text(limit)}, {inner.id}, {per_step})"
        edits += [Rewrite(limit, total), Define(TOTAL)]
    lines = (
        f"{NUMBER} = {loop.step_name} % len({inner.id})\n"
        f"{LAST} = ({NUMBER} + 1) % {per_step} == 0 or {NUMBER} + 1 == len({inner.id})"
    )
    return (
        *edits,
        ask_for_last(compare),
        Insert(loop.steps, lines, "first"),
    )


def counts_micro_batches(loop: TrainLoop, limit: ast.expr) -> bool:
    """Whether the script makes a number of steps one of micro-batches itself.

    ``steps * accumulation``, or ``examples / (batch_size // accumulation)``.
    """
    module = loop.module
    divides = (ast.FloorDiv, ast.Div)
    for value in module.alternatives(limit, limit) or [limit]:
        for part in below(value):
            up = module.parents[part]
            if not (
                isinstance(part, ast.expr)
                and isinstance(up, ast.BinOp)
                and module.text(part) == accumulation_text(loop)
            ):
                continue
            if isinstance(up.op, ast.Mult):
                return True
            if isinstance(up.op, divides) and any(
                isinstance(outer, ast.BinOp)
                and isinstance(outer.op, divides)
                and is_in(up, outer.right)
                for outer in module.ancestors(up)
            ):
                return True
    return False


def is_next_argument(module: Module, use: ast.Name) -> bool:
    call = module.parents[use]
    return isinstance(call, ast.Call) and module.dotted(call.func) == "next"


def synchronization(program: Program, loop: TrainLoop) -> Iterator[Finding]:
    """All-reduces for every micro-batch, in a loop that knows which one is the last of a step."""
    if not defines_last(loop):
        return
    definitions = [stmt for stmt in loop.steps.body if bound_names(stmt) == {LAST}]
    attributes = {node.attr for node in within(loop.steps.body, ast.Attribute)}
    is_set = bool(attributes & {"require_backward_grad_sync", "no_sync"})
    if not definitions or is_set or reads_between_passes(program, loop):
        return  # an attack on weights reads the average of each micro-batch
    for model in ddp_models(program, loop):
        edit = Insert(definitions[0], f"{model}.require_backward_grad_sync = {LAST}", "after")
        yield Finding(loop.module, loop.steps, "an all-reduce per micro-batch", (edit,))


def ddp_models(program: Program, loop: TrainLoop) -> list[str]:
    """Names of DDP's wrappers that the loop uses: another one, of a teacher, may not be bound."""
    module = loop.module
    function = module.function(loop.steps)
    used_names = {name.id for name in within(loop.steps, ast.Name)}
    models = set(ddp_names(module, function)) & used_names
    used = {module.text(node) for node in within(loop.steps.body, ast.Attribute)}
    for method in module.all_functions:
        models |= {name for name in ddp_names(module, method) if name.startswith("self.")} & used
    if function is not None:
        for caller, call in program.callers(function):
            names = ddp_names(caller, caller.function(call))
            for parameter in parameters(function) & used_names:
                value = argument_for_parameter(module, function, call, parameter)
                if value is not None and caller.text(value) in names:
                    models.add(parameter)
    models |= {
        module.text(call) for call in within(loop.steps.body, ast.Call) if is_shared(module, call)
    }
    return sorted(models)


def is_shared(module: Module, call: ast.Call) -> bool:
    return module.last_name(call.func) == SHARED


def ddp_names(module: Module, function: Function | None) -> set[str]:
    """The text of each target to which a function assigns a DDP wrapper."""
    return {
        module.text(target)
        for call in module.calls_to("DistributedDataParallel")
        if module.function(call) is function
        for stmt in [module.statement(call)]
        if isinstance(stmt, ast.Assign)
        for target in stmt.targets
    }
