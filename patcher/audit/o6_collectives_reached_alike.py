"""Each collective is reached by all ranks alike.

What              Barriers, reductions, gathers, and the steps of a wrapped model, which reduce
                  gradients, are reached by every rank or by none, through calls and exits, and
                  under no test that ranks may answer differently.
At run time       The ranks that arrive wait for the others until the time-out, by default 10 or 30
                  minutes, and the job dies without a word about the line.
How it is judged  For each place it is worked out which kinds of process come to it: through the
                  tests around it, the exits above it, and all callers. Two barriers of one
                  function, one for rank 0 and one for the others, are a pair; what exchanges
                  anything between them is a violation. An exit from training that each rank takes
                  by its own loss is a violation, as is an evaluation in which ranks meet and to
                  which each comes by its own loss, and a collective behind a
                  test whether a file exists that the same branch writes.
When unknown      A test that sounds as if it asked for the rank, and that cannot be evaluated; a
                  test whether a file exists that the branch does not write; an exit by an option,
                  or by what nothing sets; a call of a value, which may be a function that meets;
                  an attack, in a function of the step, that a rank leaves by its own batch.
Source            https://docs.pytorch.org/docs/stable/distributed.html#collective-functions
"""

import ast
from collections.abc import Iterator

from ..analysis.batches.random_draws import OF_TORCH
from ..analysis.effects.deciding_scores import JOINED, what_hangs_on_it
from ..analysis.effects.effects import (
    Kind,
    Reached,
    direct_effects,
    effects_of,
    effects_of_call,
    is_collective,
)
from ..analysis.effects.own_meetings import meetings_by_own_batches
from ..analysis.language.conditions import tests_before
from ..analysis.models.model_results import forward_of
from ..analysis.ranks.barrier_turns import BARRIERS, turns
from ..analysis.ranks.certain_reach import may_never_hold
from ..analysis.ranks.counted_by_some import exits_by_counts
from ..analysis.ranks.left_early import is_answered_around, meets_those_who_stay
from ..analysis.ranks.own_tests import own_test_around, tests_around
from ..analysis.ranks.rank_divergence import (
    clock_exits,
    is_left_out,
    leaves_training,
    own_parameters_of,
    rank_dependent_exits,
)
from ..analysis.ranks.rank_reach import ALL_UNKNOWN, RANKS, Role, roles_reaching, values_by_role
from ..analysis.ranks.spawning import is_started, is_started_beside_launchers
from ..analysis.training.program import Program
from ..analysis.training.train_loops import TrainLoop, loops_that_go_back
from ..editing.helpers import helper_names
from ..source.module import Module
from ..source.tree import (
    Function,
    everywhere,
    is_inside,
    keyword,
    mentions,
    parameters,
    precedes,
    within,
)
from .meeting import asks_for_file, sounds_of_the_first
from .ranks import functions_below, has_several_ranks, is_managed, ranked_loops, ranks_at
from .verdict import AuditVerdict, unknown, violated

CODE = "O6"
Place = tuple[Module, ast.Call]


def verdicts(program: Program, original: Program | None) -> Iterator[AuditVerdict]:
    if not has_several_ranks(program):
        return
    places = list(collectives(program))
    reported = set()
    for module, call in places:
        for verdict in judge_place(program, module, call, places):
            reported.add(call)
            yield verdict
    yield from decided_by_draws(program)
    yield from met_in_turns(program)
    yield from calls_of_some(program, reported)
    yield from calls_of_passed(program)
    if is_managed(program):
        return
    for loop in program.train_loops:
        yield from trained_by_some(program, loop)
    for loop in ranked_loops(program):
        yield from exits(program, loop)
        yield from met_by_own_data(program, loop)
        for module, stmt, by in meetings_by_own_batches(program, loop):
            text = " ".join(module.text(by).split())
            because = f"ranks wait for each other here, and come here by `{text}`, each by its own"
            yield violated(module, stmt, f"{because} batches")


def collectives(program: Program) -> Iterator[Place]:
    """The collectives that are written in the program."""
    for module in program.modules:
        for found in direct_effects(program, module).values():
            for each in found:
                node = each.effect.node
                if is_collective(each.effect) and program.is_live(module, node):
                    assert isinstance(node, ast.Call)
                    yield module, node


def judge_place(
    program: Program, module: Module, call: ast.Call, places: list[Place]
) -> Iterator[AuditVerdict]:
    name = module.last_name(call.func)
    roles = ranks_at(program, module, call)
    if len(roles) == 1:
        if meets_those_who_stay(module, call) or is_answered_around(program, module, call):
            return
        if not has_partner(program, module, call, next(iter(roles)), places):
            who = next(iter(roles)).value
            for where, use, its_name in callers_of_helper(program, module, call):
                because = f"only {who} can come to {its_name}(); the other side waits"
                yield violated(where, use, because)
        return
    for test in tests_before(module, call):
        if asks_for_file(module, test) and len(roles) == 2:
            branch = module.parents[test]
            if isinstance(branch, ast.If) and is_inside(call, branch):
                because = f"{name}() stands behind a test whether a file exists"
                if writes_before(program, module, branch, call):
                    yield violated(
                        module,
                        call,
                        f"{because}, which its branch writes: a rank that asks later"
                        " does not come to it",
                    )
                else:
                    yield unknown(module, call, f"{because}: ranks may answer it differently")
                return
    if (text := untold_gate(program, module, call, set())) and len(roles) > 1:
        yield unknown(
            module,
            call,
            f"whether all ranks come to {name}() hangs on `{text}`, which could not be told",
        )


def met_in_turns(program: Program) -> Iterator[AuditVerdict]:
    """What exchanges something between barriers that let rank 0 come first."""
    for module in program.modules:
        calls = [call for turn in turns(program, module) for call in within(turn, ast.Call)]
        for call in calls:
            for reached in effects_of_call(program, module, call):
                effect = reached.effect
                if effect.kind is not Kind.COLLECTIVE or not isinstance(effect.node, ast.Call):
                    continue
                name = effect.module.last_name(effect.node.func)
                if name not in (*BARRIERS, "destroy_process_group") and Role.MAIN in reached.roles:
                    because = (
                        f"rank 0 comes to {name}() in line {effect.node.lineno} while the others"
                        " wait at a barrier for it to be through"
                    )
                    yield violated(module, call, because)
                    break


def untold_gate(program: Program, module: Module, node: ast.AST, seen: set[Function]) -> str:
    """A test that sounds of the first rank, and cannot be told, on every way to a place; or empty.

    In the function around it, or in all that call that.
    """
    for test in tests_before(module, node):
        if values_by_role(module, test) is ALL_UNKNOWN and sounds_of_the_first(program, test):
            return " ".join(module.text(test).split())
    function = module.function(node)
    if function is None or function in seen:
        return ""
    seen.add(function)
    gates = [untold_gate(program, *caller, seen) for caller in program.callers(function)]
    return gates[0] if gates and all(gates) else ""


def callers_of_helper(
    program: Program, module: Module, call: ast.Call
) -> Iterator[tuple[Module, ast.Call, str]]:
    """Where the program calls a helper that a patch has brought, and its name; else the call."""
    function = module.function(call)
    callers = program.callers(function) if function and function.name in helper_names() else []
    if function is None or not callers:
        yield module, call, module.last_name(call.func)
        return
    for where, caller in callers:
        yield from callers_of_helper(program, where, caller)


def has_partner(
    program: Program, module: Module, call: ast.Call, role: Role, places: list[Place]
) -> bool:
    """Whether the other side passes the same collective elsewhere in the function."""
    function, name = module.function(call), module.last_name(call.func)
    same = [
        ranks_at(program, where, other)
        for where, other in places
        if where is module
        and where.function(other) is function
        and where.last_name(other.func) == name
    ]
    mine = sum(roles == {role} for roles in same)
    others = sum(len(roles) == 1 and role not in roles for roles in same)
    return mine == others


def writes_before(program: Program, module: Module, branch: ast.If, call: ast.Call) -> bool:
    """Whether the branch of a test writes what that asks for before it comes to a call."""
    scope = module.function(call) or module.tree
    asked = words_of(module, branch.test)
    return any(
        each.effect.kind in (Kind.WRITE, Kind.MAKE_FOLDER)
        and (each.path is None or not asked.isdisjoint(words_of(module, each.path)))
        and is_inside(each.effect.node, branch)
        and not precedes(call, each.effect.node)
        for each in direct_effects(program, module).get(scope, ())
    )


def words_of(module: Module, node: ast.expr) -> set[object]:
    """The names, attributes and texts in an expression, and in what its names stand for."""
    values = [node]
    for name in everywhere(node, ast.Name):
        values += module.alternatives(name, name)
    words: set[object] = set()
    for value in values:
        plain = [
            each
            for each in everywhere(value, ast.Name)
            if not isinstance(module.parents[each], ast.Attribute)
        ]
        words |= {each.id for each in plain}
        words |= {each.attr for each in everywhere(value, ast.Attribute)}
        words |= {each.value for each in everywhere(value, ast.Constant)}
    return words - {"os", "path", "exists", "isfile", "isdir", "join"}


def calls_of_some(program: Program, reported: set[ast.Call]) -> Iterator[AuditVerdict]:
    """Calls by one side only of functions that always pass a collective, which others call too."""
    for module in program.modules:
        for function in module.all_functions:
            always = [each for each in effects_of(program, function) if must_meet(each)]
            always = [each for each in always if each.effect.node not in reported]
            if not always:
                continue
            callers = program.callers(function)
            for where, call in callers:
                roles = ranks_at(program, where, call)
                if len(roles) != 1 or not program.is_live(where, call):
                    continue
                scope = where.function(call)
                partner = any(
                    other is not call
                    and where.function(other) is scope
                    and ranks_at(program, place, other) == RANKS - roles
                    for place, other in callers
                )
                inner = [
                    one
                    for one in always
                    if len(ranks_at(program, one.effect.module, one.effect.node)) == 2
                ]
                if inner and not partner:
                    effect = inner[0].effect
                    assert isinstance(effect.node, ast.Call)
                    yield violated(
                        where,
                        call,
                        f"only {next(iter(roles)).value} calls {function.name}(), which comes to"
                        f" {effect.module.last_name(effect.node.func)}() in line"
                        f" {effect.node.lineno}",
                    )


def is_passed_on(program: Program, module: Module, use: ast.expr) -> bool:
    """Whether a function or class is used as a value: not called, and no ``super(Class, self)``.

    Nor by what starts processes, in a script that starts its own ranks where no launcher does.
    """
    up = module.parents[use]
    is_asked = isinstance(up, ast.Call) and module.last_name(up.func) in ("super", "isinstance")
    if isinstance(use, ast.Call) or is_asked:
        return False
    return not (is_started(program, module, use) or is_started_beside_launchers(module, use))


def calls_of_passed(program: Program) -> Iterator[AuditVerdict]:
    """Calls by one side of what is no known function, where one that meets others is a value."""
    meeting = [
        function.name
        for module in program.modules
        for function in module.all_functions
        if any(must_meet(each) for each in effects_of(program, function))
        and any(is_passed_on(program, *use) for use in program.possible_callers(function))
    ]
    for module in program.modules if meeting else ():
        for call in module.nodes(ast.Call):
            function, name = module.function(call), call.func
            if function is None or program.callees(module, call):
                continue
            if isinstance(name, ast.Attribute) and isinstance(name.value, ast.Name):
                is_value = name.value.id == "self"
            else:
                is_value = isinstance(name, ast.Name) and name.id in parameters(function)
            roles = ranks_at(program, module, call) if is_value else RANKS
            if len(roles) == 1 and program.is_live(module, call):
                who, text = next(iter(roles)).value, module.text(name)
                because = f"only {who} calls {text}(), which may be {meeting[0]}() and wait for all"
                yield unknown(module, call, because)


def must_meet(reached: Reached) -> bool:
    """Whether every rank that enters the function comes to this collective."""
    return is_collective(reached.effect) and reached.always and reached.roles >= RANKS


def trained_by_some(program: Program, loop: TrainLoop) -> Iterator[AuditVerdict]:
    """A training loop with a wrapped model to which some ranks never come."""
    roles = ranks_at(program, loop.module, loop.steps)
    if len(roles) != 1 or not program.is_live(loop.module, loop.steps):
        return
    wraps = program.calls_to("DistributedDataParallel", "FullyShardedDataParallel")
    function = loop.module.function(loop.steps)
    if any(ranks_at(program, *w) >= RANKS and w[0].function(w[1]) is function for w in wraps):
        yield violated(
            loop.module,
            loop.steps,
            f"only {next(iter(roles)).value} trains the wrapped model, whose steps wait for all",
        )


def exits(program: Program, loop: TrainLoop) -> Iterator[AuditVerdict]:
    """Exits from a training loop that ranks take differently."""
    module = loop.module
    leaving: list[ast.Break | ast.Continue | ast.Return] = []
    around: ast.AST = loop.epochs or loop.steps
    for kind in (ast.Break, ast.Continue, ast.Return):
        leaving += within(around, kind)
    told: set[ast.stmt] = set()
    for each in exits_by_counts(program, loop):
        if program.is_live(each.module, each.exit):
            told.add(each.exit)
            because = (
                f"rank 0 alone counts {each.name}, by which each rank leaves the training here"
            )
            yield violated(each.module, each.exit, because)
    for stmt in leaving:
        roles = roles_reaching(program, module, stmt) & RANKS
        if len(roles) == 1 and leaves_training(loop, stmt):
            told.add(stmt)
            gate = module.parents[stmt]
            says = violated
            if isinstance(gate, ast.If) and may_never_hold(program, module, gate.test):
                says = unknown
            yield says(
                module,
                stmt,
                f"only {next(iter(roles)).value} leaves the training here; the others"
                " wait in their next step",
            )
    for reached in direct_effects(program, module).get(
        module.function(loop.steps) or module.tree, ()
    ):
        node = reached.effect.node
        if reached.effect.kind is Kind.EXIT and is_inside(node, around):
            roles = ranks_at(program, module, node)
            if len(roles) == 1:
                yield violated(
                    module,
                    node,
                    f"only {next(iter(roles)).value} ends here; the others wait in their next step",
                )
    for exit_ in rank_dependent_exits(program, loop, agreeing_functions(program)):
        if exit_.exit not in told:
            names = ", ".join(sorted(exit_.names)) or "its own data"
            does = (
                "leaves out a step" if isinstance(exit_.exit, ast.Call) else "leaves the training"
            )
            yield violated(
                module,
                exit_.test,
                f"each rank {does} by its own {names}; the others wait in their next step",
            )
    for where, _, test in clock_exits(program, loop, agreeing_functions(program)):
        because = (
            "each rank leaves the training by its own clock; the others wait in their next step"
        )
        yield violated(where, test, because)
    yield from passes_by_own_data(program, loop)


def met_by_own_data(program: Program, loop: TrainLoop) -> Iterator[AuditVerdict]:
    """Collectives of a training step to which a rank comes by what it has of its own batches."""
    module = loop.module
    here = direct_effects(program, module).get(module.function(loop.steps) or module.tree, ())
    direct = {each.effect.node for each in here if is_collective(each.effect)}
    for call in within(loop.steps.body, ast.Call):
        _, tests = tests_around(program, module, call)
        if not tests or not (call in direct or meets_all(program, module, call)):
            continue
        test = own_test_around(program, module, call)
        if test is not None and is_left_out(loop, call, test):
            name = module.last_name(call.func)
            because = f"ranks come to {name}() by the test of line {test.lineno}, of their own data"
            yield violated(module, call, because)


def meets_all(program: Program, module: Module, call: ast.Call) -> bool:
    """Whether a call runs a function in which every rank comes to a collective."""
    return any(
        must_meet(each)
        for _, function in program.callees(module, call)
        for each in effects_of(program, function)
    )


def passes_by_own_data(program: Program, loop: TrainLoop) -> Iterator[AuditVerdict]:
    """Exits from loops that only go back, as attacks do, in functions that the training calls."""
    for call in within(loop.steps.body, ast.Call):
        for module, function in program.callees(loop.module, call):
            for inner in loops_that_go_back(program, module, function):
                own = own_parameters_of(program, loop, call, module, function)
                for exit_ in rank_dependent_exits(program, inner, set(), own):
                    names = ", ".join(sorted(exit_.names)) or "data"
                    yield unknown(
                        module,
                        exit_.test,
                        f"each rank leaves this loop by its own {names}; if its backward passes go"
                        " through the wrapped model, the others wait in their next one",
                    )


def decided_by_draws(program: Program) -> Iterator[AuditVerdict]:
    """Evaluations by all ranks for which each draws random numbers, and by which it decides."""
    for evaluation in program.evaluations:
        module, loop = evaluation.module, evaluation.loop
        if not program.is_live(module, loop) or not roles_reaching(program, module, loop) >= RANKS:
            continue
        reason = what_hangs_on_it(program, evaluation)
        drawn = next(draws_of(program, module, loop), None) if reason not in ("", JOINED) else None
        if drawn is not None:
            where, call = drawn
            yield unknown(
                module,
                loop,
                f"{where.text(call.func)}() of {where.source.path.name} draws on each rank what it"
                f" evaluates with, and {reason}: ranks may decide it differently",
            )


def draws_of(program: Program, module: Module, loop: ast.For) -> Iterator[Place]:
    """The draws of torch in a loop and what it calls, past what only a training does."""
    models = [forward_of(program, module, call.func) for call in within(loop.body, ast.Call)]
    code: list[tuple[Module, ast.AST]] = [(module, loop), *filter(None, models)]
    code += [below for where, node in code for below in functions_below(program, where, node)]
    for where, node in code:
        for call in everywhere(node, ast.Call):
            if (
                where.last_name(call.func) in OF_TORCH
                and where.dotted(call.func).startswith("torch.")
                and keyword(call, "generator") is None
                and not any(mentions(test, "training") for test in tests_before(where, call))
                and not (isinstance(node, Function) and node.name.startswith(("__init__", "reset")))
            ):
                yield where, call


def agreeing_functions(program: Program) -> set[str]:
    """Names of functions that always pass a collective: what they return is taken as agreed."""
    return {
        function.name
        for module in program.modules
        for function in module.all_functions
        if isinstance(function, Function)
        and any(must_meet(each) for each in effects_of(program, function))
    }
