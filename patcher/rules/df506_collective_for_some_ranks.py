"""A collective that some ranks never reach.

What         A barrier, an all-reduce or a gather, a function that always calls one, or the training
             loop, under a test that only some ranks pass or after an exit that some ranks take; an
             exit from the training loop that each rank takes by its own loss, metric, clock or
             random number, or that all take by what rank 0 alone counts; or a step that a rank
             leaves out by these, or takes as often as these say. Barriers that rank 0 and the
             others each pass once ("rank 0 first") are a pair and fine; a collective of a group may
             be, and is a note.
At run time  The ranks that arrive wait for the others until the time-out, then the job dies.
Example      if args.local_rank not in [-1, 0]: torch.distributed.barrier()   # and none for rank 0
             if train_loss > best_loss: break
Fix          A lone barrier under a rank test is passed by every rank. What ranks decide by is made
             the mean over the ranks, or what rank 0 draws. An exit of rank 0 is taken by the others
             too, and what rank 0 counts is counted by all. Else by hand: let all ranks call it, as
             an evaluation that they share, and test the rank in it, where it writes.
Fix safety   Safe: in a lone process each edited line does what it did before, and a group never got
             past these places.
Source       https://docs.pytorch.org/docs/stable/distributed.html#collective-functions
"""

import ast
from collections import defaultdict
from collections.abc import Iterator

from ..analysis.batches.drawn_decisions import drawn_decisions
from ..analysis.batches.steps_apart import rounds_by_batches
from ..analysis.effects.written_paths import values_of
from ..analysis.language.first_rounds import first_round_comes_to
from ..analysis.ranks.certain_reach import may_never_hold
from ..analysis.ranks.counted_by_some import exits_by_counts
from ..analysis.ranks.left_early import is_answered_around, meets_those_who_stay
from ..analysis.ranks.rank_divergence import (
    RankDependentExit,
    clock_exits,
    conditional_exits,
    counted_by,
    in_lock_step,
    is_compared_with_more,
    is_number_test,
    rank_dependent_exits,
)
from ..analysis.ranks.rank_reach import (
    RANKS,
    UNKNOWN,
    Role,
    is_rank_test,
    roles_reaching,
    roles_reaching_in_function,
    value_for_role,
)
from ..analysis.training.frameworks import DIVIDES_WORK, calls_one_of
from ..analysis.training.program import Program
from ..analysis.training.train_loops import TrainLoop
from ..editing.edits import Define, Edit, Insert, Replace, Rewrite
from ..findings import Finding, Safety, Severity
from ..fixes.opened_gates import open_gate
from ..source.branches import exclusive
from ..source.module import Module
from ..source.tree import (
    Function,
    argument,
    bound_names,
    everywhere,
    is_elif,
    is_inside,
    is_plain_call,
    keyword,
    mentions,
    within,
)

CODE, SEVERITY, SAFETY = "DF506", Severity.ERROR, Safety.SAFE

COLLECTIVES = (
    "barrier",
    "monitored_barrier",
    "all_reduce",
    "all_gather",
    "all_gather_object",
    "all_gather_into_tensor",
    "broadcast",
    "broadcast_object_list",
    "reduce",
    "reduce_scatter",
    "gather_object",
    "scatter_object_list",
)
AGREED = ("mean_of_ranks", "on_any_rank", "gathered")  # of helper_code.py


def findings(program: Program) -> Iterator[Finding]:
    wrappers = collective_functions(program)
    for module in program.modules:
        yield from one_sided_calls(program, module, wrappers)
    if program.calls_to("init_process_group", "DistributedDataParallel"):
        hands_on = calls_one_of(program, DIVIDES_WORK)  # other processes run what rank 0 calls
        for loop in program.train_loops:
            if not hands_on:
                yield from one_sided_training(program, loop)
            yield from one_sided_exits(program, loop)
            for decision in rank_dependent_exits(program, loop, wrappers):
                yield decision_finding(program, decision)
            yield from decided_by_draws(program, loop)
            yield from exits_by_the_clock(program, loop, wrappers)
            yield from exits_by_rank_0(program, loop)
        own = (each for loop in program.train_loops for each in rounds_of_own(program, loop))
        yield from {each.at: each for each in own}.values()


def one_sided_calls(program: Program, module: Module, wrappers: set[str]) -> Iterator[Finding]:
    """Collectives that only rank 0 reaches, or only the other ranks."""
    per_scope: dict[Function | None, list[ast.Call]] = defaultdict(list)
    for call in collective_calls(program, module, wrappers):
        per_scope[module.function(call)].append(call)
    for scope, calls in per_scope.items():
        # What a function does on all ranks that enter it is reported where it is called.
        roles = {
            call: roles_reaching(program, module, call) & RANKS
            for call in calls
            if scope is None
            or not program.callers(scope)
            or not roles_reaching_in_function(module, call) >= RANKS
        }
        one_sided = {call: next(iter(some)) for call, some in roles.items() if len(some) == 1}
        barriers = {
            call: role
            for call, role in one_sided.items()
            if module.dotted(call.func).endswith("barrier")
        }
        paired = paired_barriers(module, barriers)
        for call, role in one_sided.items():
            if meets_those_who_stay(module, call) or is_answered_around(program, module, call):
                continue
            if call not in paired and not has_partner(program, module, call, one_sided):
                name = module.last_name(call.func)
                because = f"only {role.value} can reach it"
                if name in wrappers:
                    because = f"only {role.value} calls {name}(), where ranks wait for each other"
                if is_of_some_ranks(module, call):
                    because += ", unless its group is of ranks that all do"
                    yield Finding(module, call, because, severity=Severity.NOTE)
                    continue
                edits = open_barrier_gate(program, module, call) if call in barriers else ()
                yield Finding(module, call, because, edits)


def is_of_some_ranks(module: Module, call: ast.Call) -> bool:
    """Whether a collective is told a group, and not one that surely holds all ranks."""
    named = keyword(call, "group")
    group = named.value if named is not None else None
    if group is None and module.last_name(call.func) in ("barrier", "monitored_barrier"):
        group = call.args[0] if call.args else None
    if group is None:  # by its place behind the tensors: dist.all_reduce(x, op, self.group)
        group = next((each for each in call.args[1:] if names_group(module, each)), None)
    if group is None or (isinstance(group, ast.Constant) and group.value is None):
        return False
    return not any(holds_all_ranks(module, each) for each in (group, *values_of(module, group)))


def names_group(module: Module, node: ast.expr) -> bool:
    """``group``, ``self.pp_group`` and ``get_group()``."""
    node = node.func if isinstance(node, ast.Call) else node
    is_named = isinstance(node, ast.Name | ast.Attribute)
    return is_named and module.last_name(node).lower().endswith("group")


def holds_all_ranks(module: Module, group: ast.expr) -> bool:
    """``dist.group.WORLD``, and ``dist.new_group(backend="gloo")`` of no ranks in particular."""
    if isinstance(group, ast.Attribute):
        return group.attr == "WORLD"
    if not isinstance(group, ast.Call) or module.last_name(group.func) != "new_group":
        return False
    return argument(group, 0, "ranks") is None


def has_partner(
    program: Program, module: Module, call: ast.Call, one_sided: dict[ast.Call, Role]
) -> bool:
    """Whether the other branch of a test calls the same: rank 0 sends, the others receive."""
    (missing,) = RANKS - {one_sided[call]}
    function = module.function(call)
    may_enter = function is not None and bool(program.possible_callers(function))
    return any(
        other is not call
        and module.function(other) is module.function(call)
        and (
            one_sided.get(other) is missing
            or (exclusive(call, other) and missing in roles_reaching(program, module, other))
            or (
                may_enter  # by calls on objects of classes that are not known
                and exclusive(call, other)
                and missing in roles_reaching_in_function(module, other)
            )
        )
        and any(
            other in one_sided or value_for_role(module, up.test, missing) is not UNKNOWN
            for up in module.ancestors(call)
            if isinstance(up, ast.If) and up in module.ancestors(other)
        )
        for other in module.calls_to(module.last_name(call.func))
    )


def paired_barriers(module: Module, barriers: dict[ast.Call, Role]) -> set[ast.Call]:
    """Barriers of rank 0 and of the others that meet: equally many, or two in one block."""
    roles = list(barriers.values())
    if roles.count(Role.MAIN) == roles.count(Role.OTHER):
        return set(barriers)
    unpaired_in_block: dict[int, list[ast.Call]] = defaultdict(list)
    paired: set[ast.Call] = set()
    for call, role in barriers.items():
        gate = module.parents[module.statement(call)]
        block = id(module.body(gate)) if isinstance(gate, ast.If) else id(gate)
        unpaired = unpaired_in_block[block]
        if unpaired and barriers[unpaired[-1]] is not role:
            paired |= {unpaired.pop(), call}
        else:
            unpaired.append(call)
    return paired


def open_barrier_gate(program: Program, module: Module, call: ast.Call) -> tuple[Edit, ...]:
    """Edits that let all ranks pass a barrier under a rank test that a lone process fails."""
    gate = module.parents[module.statement(call)]
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    if (
        owner is None
        or not isinstance(gate, ast.If)
        or gate.orelse
        or len(gate.body) > 1
        or not is_rank_test(module, gate.test)
        or value_for_role(module, gate.test, Role.SINGLE)
        or not roles_reaching(program, module, gate) >= RANKS
        or any(isinstance(up, ast.For | ast.While | ast.Try) for up in module.ancestors(gate))
    ):
        return ()
    return (Rewrite(gate.test, f"{module.text(owner)}.is_initialized()"),)


def one_sided_training(program: Program, loop: TrainLoop) -> Iterator[Finding]:
    """A training loop that only one kind of rank enters, although all average its gradients."""
    roles = roles_reaching(program, loop.module, loop.steps) & RANKS
    if len(roles) == 1:
        (role,) = roles
        yield Finding(loop.module, loop.steps, f"only {role.value} can reach the training loop")


def one_sided_exits(program: Program, loop: TrainLoop) -> Iterator[Finding]:
    """Exits from the training loop that only one kind of rank takes."""
    module = loop.module
    exit_roles = {
        stmt: roles_reaching_in_function(module, stmt) & RANKS for stmt in conditional_exits(loop)
    }
    for stmt, roles in exit_roles.items():
        gate = module.parents[stmt]
        if len(roles) != 1 or not isinstance(gate, ast.If):
            continue
        # The others may leave in another branch of the same test.
        exits_of_others = [
            other
            for other, others in exit_roles.items()
            if others and not others & roles and type(other) is type(stmt)
        ]
        if any(
            up in module.ancestors(other)
            for other in exits_of_others
            for up in if_chain(module, gate)
        ):
            continue
        (role,) = roles
        provable = in_lock_step(loop, gate) and not holds_evaluation(program, module, gate)
        edits = exit_on_all_ranks(module, gate, stmt) if provable else ()
        because = f"only {role.value} can leave the training loop here"
        severity = Severity.DEGRADED if may_never_hold(program, module, gate.test) else None
        yield Finding(module, stmt, because, edits, severity=severity)


def holds_evaluation(program: Program, module: Module, gate: ast.If) -> bool:
    """Whether an evaluation stands under the gate: DF501 opens it, and the exit with it."""
    return any(
        caller is module and gate in module.ancestors(entry)
        for evaluation in program.evaluations
        for caller, entry in program.entries(evaluation)
    )


def if_chain(module: Module, gate: ast.If) -> Iterator[ast.If]:
    """``gate`` and the tests of which it is an ``elif``, or in whose ``else`` it stands."""
    above: ast.AST = gate
    while isinstance(above, ast.If):
        yield above
        gate, above = above, module.parents[above]
        if isinstance(above, ast.If) and gate not in above.orelse:
            return


def exit_on_all_ranks(module: Module, gate: ast.If, leaving: ast.stmt) -> tuple[Edit, ...]:
    """Edits that take an exit out of ``if rank == 0 and …:``, so that every rank takes it."""
    test = gate.test
    if gate.orelse or not isinstance(test, ast.BoolOp) or not isinstance(test.op, ast.And):
        return ()
    ranks = [part for part in test.values if is_rank_test(module, part)]
    others = [part for part in test.values if part not in ranks]
    is_pure = not any(within(part, ast.Call) or within(part, ast.NamedExpr) for part in others)
    if not ranks or not others or not is_pure or gate.body[-1] is not leaving:
        return ()
    if isinstance(leaving, ast.Return) and leaving.value is not None:
        return ()
    if any(mentions(part, name) for part in others for name in bound_names(gate.body)):
        return ()
    texts = [module.conjunct(part) for part in others]
    if not all(value_for_role(module, part, Role.SINGLE) for part in ranks):
        texts.insert(0, "torch.distributed.is_initialized()")
    test_of_all = " and ".join(texts)
    if len(gate.body) == 1:
        return (Rewrite(test, test_of_all),)
    code = f"if {test_of_all}:\n    {module.text(leaving)}"
    return (Replace(leaving, ""), Insert(gate, code, "after"))


def decision_finding(program: Program, decision: RankDependentExit) -> Finding:
    """The finding for an exit or a step that each rank takes by its own data."""
    loop, test = decision.loop, decision.test
    module = loop.module
    names = ", ".join(sorted(decision.names)) or "what it has seen"
    # Evaluations are repaired first: the decision may depend on nothing else.
    is_partial = any(
        e.loader and e.loader.distributed_samplers and program.is_live(e.module, e.loop)
        for e in program.evaluations
    )
    provable = in_lock_step(loop, test) and roles_reaching(program, module, test) >= RANKS
    edits: tuple[Edit, ...] = ()
    if provable and decision.names and not is_partial:
        in_backward = any(
            mentions(call, name if name.startswith("self.") else name.partition(".")[0])
            for call in loop.backwards
            for name in decision.names
        )
        steps = isinstance(decision.exit, ast.Call)
        if not (in_backward or steps) and is_number_test(module, test.test, decision.names):
            counted = counted_by(module, test, decision.names)
            at, numbers = counted or (test, decision.names)
            means = "\n".join(f"{name} = mean_of_ranks({name})" for name in sorted(numbers))
            edits = (Insert(at, means), Define("mean_of_ranks"))
            if counted is not None and is_compared_with_more(loop, at, numbers):
                asked = f"on_any_rank({module.text(test.test)})"
                edits = (Rewrite(test.test, asked), Define("on_any_rank"))
        elif (size := size_of_loss(decision)) is not None and in_backward:
            mean = f"mean_of_ranks({module.text(size)})"
            edits = (Rewrite(size, mean), Define("mean_of_ranks"))
        elif (code := test_of_all(decision, in_backward)) is not None:
            edits = (Rewrite(test.test, code), Define("on_any_rank"))
    return Finding(
        module,
        decision.exit,
        f"each rank decides by its own {names} in line {test.lineno}",
        edits,
    )


def decided_by_draws(program: Program, loop: TrainLoop) -> Iterator[Finding]:
    """``if random.random() < 0.1: continue`` where ranks draw other numbers."""
    module = loop.module
    for leaving, test, draw in drawn_decisions(program, loop):
        is_first = not isinstance(test.test, ast.BoolOp) and not is_elif(module.parents[test], test)
        home = module.statement(draw)
        alike = all(
            in_lock_step(loop, each) and roles_reaching(program, module, each) >= RANKS
            for each in (test, home)
        )
        edits: tuple[Edit, ...] = ()
        if is_first and alike and not (set(ifs_around(module, home)) - {test}):
            edits = (
                Rewrite(draw, f"what_rank_0_has({module.text(draw)})"),
                Define("what_rank_0_has"),
                Define("onto_own_card"),
            )
        because = f"each rank decides by what it draws itself in line {draw.lineno}"
        yield Finding(module, leaving, because, edits)


def ifs_around(module: Module, node: ast.AST) -> list[ast.If]:
    """The tests around a place in its function, and itself if it is one."""
    found: list[ast.If] = []
    for up in (node, *module.ancestors(node)):
        if isinstance(up, Function):
            break
        if isinstance(up, ast.If) and "__name__" not in module.text(up.test):
            found.append(up)
    return found


def rounds_of_own(program: Program, loop: TrainLoop) -> Iterator[Finding]:
    """``for _ in range(n): loss.backward()`` where each rank has an ``n`` of its own batch."""
    module = loop.module
    if not program.is_live(module, loop.steps):
        return
    for rounds, together in rounds_by_batches(program, loop):
        calls = within(module.body(rounds), ast.Call)
        if not any(module.last_name(call.func) in (*COLLECTIVES, *AGREED) for call in calls):
            because = f"each rank comes to line {together.lineno} as often as its own batch says"
            yield Finding(module, rounds, because)


def exits_by_the_clock(program: Program, loop: TrainLoop, wrappers: set[str]) -> Iterator[Finding]:
    """``if time.time() - start > limit: break``, which one rank does an epoch before another."""
    told: set[ast.If] = set()
    for module, leaving, test in clock_exits(program, loop, wrappers):
        if test in told or not program.is_live(module, leaving):
            continue
        told.add(test)
        edits: tuple[Edit, ...] = ()
        is_first = not is_elif(module.parents[test], test)
        if (
            is_first
            and is_passed_alike(module, test)
            and roles_reaching(program, module, test) >= RANKS
        ):
            edits = (
                Rewrite(test.test, f"on_any_rank({module.text(test.test)})"),
                Define("on_any_rank"),
            )
        because = f"each rank leaves the training by its own clock in line {test.lineno}"
        yield Finding(module, leaving, because, edits)


def exits_by_rank_0(program: Program, loop: TrainLoop) -> Iterator[Finding]:
    """``if score > best and rank == 0: bad = 0``, where all ranks leave by ``bad``."""
    for each in exits_by_counts(program, loop):
        module, gate = each.module, each.gate
        if not program.is_live(module, each.exit):
            continue
        edits = () if holds_evaluation(program, module, gate) else count_on_all_ranks(module, gate)
        because = f"{each.name} is counted on rank 0 alone, in line {gate.lineno}"
        yield Finding(module, each.exit, because, edits)


def count_on_all_ranks(module: Module, gate: ast.If) -> tuple[Edit, ...]:
    """Edits that take the rank out of a test under which rank 0 counts."""
    if not gate.orelse:
        return open_gate(module, gate)
    if not isinstance(gate.test, ast.BoolOp) or not isinstance(gate.test.op, ast.And):
        return ()
    ranks = [part for part in gate.test.values if is_rank_test(module, part)]
    others = [part for part in gate.test.values if part not in ranks]
    if not others or not all(value_for_role(module, part, Role.SINGLE) for part in ranks):
        return ()
    return (Rewrite(gate.test, " and ".join(map(module.conjunct, others))),)


def is_passed_alike(module: Module, stmt: ast.stmt) -> bool:
    """Whether a statement is in loops only, and in what is tried for all of them."""
    for up in module.ancestors(stmt):
        if isinstance(up, Function):
            return True
        tried = isinstance(up, ast.Try) and any(is_inside(stmt, each) for each in up.body)
        if not (tried or isinstance(up, ast.For | ast.While | ast.With | ast.Module)):
            return False
    return True


def size_of_loss(decision: RankDependentExit) -> ast.expr | None:
    """The number of a rank's own in a test that compares nothing else: ``if loss.item() > 5:``.

    The mean of the ranks' losses is that of all examples, by which one process decides.
    """
    test = decision.test.test
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1):
        return None
    if not isinstance(test.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE):
        return None
    sides = (test.left, test.comparators[0])
    own = [side for side in sides if any(mentions(side, name) for name in decision.names)]
    return own[0] if len(own) == 1 and is_one_number(own[0]) else None


def is_one_number(node: ast.expr) -> bool:
    """``loss``, ``loss.item()``, ``loss.detach().item()`` and ``float(loss)``."""
    if is_plain_call(node, "float") or is_plain_call(node, "abs"):
        return len(node.args) == 1 and is_one_number(node.args[0])
    while isinstance(node, ast.Call | ast.Attribute):
        if isinstance(node, ast.Call) and not node.args and not node.keywords:
            node = node.func
        elif isinstance(node, ast.Attribute) and node.attr in ("item", "detach", "cpu", "data"):
            node = node.value
        else:
            return False
    return isinstance(node, ast.Name)


def test_of_all(decision: RankDependentExit, by_loss: bool) -> str | None:
    """A test that all ranks answer alike: they leave where one does, and step where all may.

    None for a step by the size of the loss that goes back: no rank's answer is that of one process.
    """
    test, module = decision.test, decision.loop.module
    text = module.text(test.test)
    steps_here = isinstance(decision.exit, ast.Call)
    if (
        steps_here
        and by_loss
        and any(
            isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE)
            for compare in everywhere(test.test, ast.Compare)
            for op in compare.ops
        )
    ):
        return None
    if not steps_here or not any(is_inside(decision.exit, stmt) for stmt in test.body):
        return f"on_any_rank({text})"
    if isinstance(test.test, ast.UnaryOp) and isinstance(test.test.op, ast.Not):
        return f"not on_any_rank({module.text(test.test.operand)})"
    return f"not on_any_rank(not {module.operand(test.test)})"


def collective_calls(program: Program, module: Module, wrappers: set[str]) -> list[ast.Call]:
    """Calls of torch.distributed's collectives and of functions that always run one."""
    direct = [
        call
        for call in module.calls_to(*COLLECTIVES)
        if module.dotted(call.func).startswith(("torch.distributed.", "dist."))
    ]
    return direct + [
        call
        for call in module.calls_to(*wrappers)
        if isinstance(call.func, ast.Name)
        # not one of that name that is imported from elsewhere
        and (call.func.id not in module.aliases or program.resolve(module, call.func) is not None)
    ]


def collective_functions(program: Program) -> set[str]:
    """Names of functions in which every rank of a group reaches a collective."""
    wrappers: set[str] = set()
    while True:
        found = {
            function.name
            for module in program.modules
            for call in collective_calls(program, module, wrappers)
            for function in [module.function(call)]
            if function is not None
            and roles_reaching_in_function(module, call) >= RANKS
            and is_always_reached(module, call, function)
        }
        if found <= wrappers:
            return wrappers
        wrappers |= found


def is_always_reached(module: Module, call: ast.Call, function: Function) -> bool:
    """Whether every rank that enters the function passes the call."""
    for parent in module.ancestors(call):
        if parent is function:
            return True
        if isinstance(parent, ast.If) and not is_group_test(module, parent.test):
            return False
        may_skip = isinstance(parent, ast.For | ast.While | ast.Try | ast.IfExp)
        if may_skip and not first_round_comes_to(module, parent, call):
            return False
    return False


def is_group_test(module: Module, test: ast.expr) -> bool:
    """``if torch.distributed.is_initialized():``."""
    return isinstance(test, ast.Call) and module.dotted(test.func).endswith("is_initialized")
