"""There is one process group, all ranks make it, and the launcher starts them.

What              init_process_group runs once on each rank, before any collective, and
                  destroy_process_group behind the last one. The script spawns no ranks of its own
                  in a process of a launcher.
At run time       A second init_process_group raises; one that rank 0 alone calls waits for the
                  others until the time-out; a collective before it raises. A script that spawns
                  ranks, started once per card, starts N x N processes at one address.
How it is judged  Statements of one block that each process passes, and the functions that they
                  call, are read in their order. A call under `if not is_initialized()` is none too
                  many.
When unknown      The script spawns its ranks itself: right when it is started once, and wrong under
                  a launcher that starts one process per card. Or no call is seen of the function
                  that makes the group.
Source            torch.distributed.init_process_group, torch.multiprocessing.spawn
"""

import ast
from collections.abc import Iterator

from ..analysis.effects.effects import effects_of
from ..analysis.language.conditions import tests_before
from ..analysis.ranks.before_group import runs_before_group
from ..analysis.ranks.certain_reach import surely_on_every_rank
from ..analysis.ranks.rank_reach import RANKS, Role
from ..analysis.ranks.spawning import is_left_out_by_launchers
from ..analysis.training.program import Program
from ..analysis.training.run_again import runs_again
from ..source.module import Module
from ..source.tree import Function, everywhere, is_inside, mentions, within
from .ranks import callees, is_certain, is_managed, process_groups, ranked_loops, ranks_at
from .verdict import AuditVerdict, unknown, violated

CODE = "O10"
MAKE, END = "init_process_group", "destroy_process_group"
COLLECTIVES = {
    *("barrier", "all_reduce", "all_gather", "all_gather_object", "broadcast", "reduce"),
    *("broadcast_object_list", "DistributedDataParallel", "get_world_size", "get_rank"),
}
SHARES = ("DistributedSampler", "DistributedDataParallel", "DealtSampler", "DealtBatches")
Event = tuple[str, Module, ast.Call]


def verdicts(program: Program, original: Program | None) -> Iterator[AuditVerdict]:
    groups = process_groups(program)
    if not groups or is_managed(program):
        return
    for module, call in groups:
        roles = ranks_at(program, module, call)
        if roles and roles < RANKS:
            who = next(iter(roles)).value
            yield violated(module, call, f"only {who} makes the process group; the others never do")
        loop = runs_again(program, module, call)
        if isinstance(loop, ast.For | ast.While) and not may_be_new(module, call):
            because = f"the loop in line {loop.lineno} makes the process group again"
            yield violated(module, call, because)
    yield from made_by_nobody(program, groups)
    yield from spawned(program)
    yield from in_order(program)
    yield from asked_too_early(program)


def made_by_nobody(
    program: Program, groups: list[tuple[Module, ast.Call]]
) -> Iterator[AuditVerdict]:
    """The group of a program that trains for certain, where no call leads to what makes it."""
    for module, call in groups:
        maker = module.function(call)
        if maker is None or maker.decorator_list or isinstance(module.parents[maker], ast.ClassDef):
            return
        if program.callers(maker) or program.possible_callers(maker):
            return
    if any(
        surely_on_every_rank(program, each.module, each.steps) for each in ranked_loops(program)
    ):
        because = "nothing is seen to call this function: without a group each rank trains alone"
        yield unknown(*groups[0], because)


def may_be_new(module: Module, call: ast.Call) -> bool:
    """Whether a group is made where there is none, or ended by the function that makes it."""
    if any(mentions(test, "is_initialized") for test in tests_before(module, call)):
        return True
    function = module.function(call)
    return any(module.function(end) is function for end in module.calls_to(END))


def spawned(program: Program) -> Iterator[AuditVerdict]:
    """Calls by which the script starts its ranks itself."""
    for module in program.modules:
        calls = [
            *module.calls_to("spawn"),
            *module.calls_to("Process"),
            *module.calls_to("start_processes"),
        ]
        for call in calls:
            if is_left_out_by_launchers(module, call):
                continue
            targets = [*call.args, *(word.value for word in call.keywords)]
            for target in targets:
                found = (
                    program.resolve(module, target)
                    if isinstance(target, ast.Name | ast.Attribute)
                    else None
                )
                if (
                    found is not None
                    and isinstance(found[1], Function)
                    and makes_group(program, found[0], found[1], set())
                ):
                    yield unknown(
                        module,
                        call,
                        f"the script starts its ranks itself, by {found[1].name}():"
                        " under a launcher every process would start as many again",
                    )


def makes_group(program: Program, module: Module, function: Function, seen: set[Function]) -> bool:
    """Whether a function makes a process group, also through others."""
    if function in seen:
        return False
    seen.add(function)
    for call in within(function.body, ast.Call):
        if module.last_name(call.func) == MAKE:
            return True
        for where, callee in callees(program, module, call):
            if makes_group(program, where, callee, seen):
                return True
    return False


def in_order(program: Program) -> Iterator[AuditVerdict]:
    """Groups made twice, and collectives before there is a group or after its end."""
    script = program.script
    told: set[ast.Call] = set()
    scopes: list[tuple[Module, list[ast.stmt]]] = [(script, script.tree.body)]
    scopes += [(m, f.body) for m in program.modules for f in m.all_functions]
    for module, body in scopes:
        if not mentions_group(program, module, body):
            continue
        events = list(certain_events(program, module, body, set()))
        made: Event | None = None
        ended: Event | None = None
        if not any(kind == MAKE for kind, _, _ in events):
            continue
        for event in events:
            kind, where, call = event
            if kind == MAKE:
                if made is not None and ended is None and call not in told:
                    told.add(call)
                    yield violated(
                        where, call, f"the process group exists since line {made[2].lineno}"
                    )
                made, ended = made or event, None
            elif kind == END:
                ended = event
            elif call not in told and kind in COLLECTIVES:
                if made is None:
                    told.add(call)
                    yield violated(where, call, f"{kind} runs before the process group is made")
                elif ended is not None:
                    told.add(call)
                    yield violated(
                        where, call, f"{kind} runs after line {ended[2].lineno} has ended the group"
                    )


def asked_too_early(program: Program) -> Iterator[AuditVerdict]:
    """Shares and wrappers under ``is_initialized()`` where no group is made yet: none get any."""
    for module, call in program.calls_to("is_initialized"):
        if not program.is_live(module, call) or not runs_before_group(program, module, call):
            continue
        gate = next(
            (up for up in module.ancestors(call) if isinstance(up, ast.If | ast.IfExp)), None
        )
        if gate is None or not is_inside(call, gate.test):
            continue
        calls = everywhere(gate, ast.Call)
        shares = [each for each in calls if module.last_name(each.func) in SHARES]
        if shares and not any(module.last_name(each.func) == MAKE for each in calls):
            name = module.last_name(shares[0].func)
            because = f"the process group is made later: no rank comes to {name}()"
            yield violated(module, call, because)


def mentions_group(program: Program, module: Module, body: list[ast.stmt]) -> bool:
    """Whether statements make a process group, or functions do that they call."""
    owner = module.parents[body[0]] if body else None
    function = owner if isinstance(owner, Function) else None
    if function is None and module is not program.script:
        return False
    return any(
        isinstance(each.effect.node, ast.Call)
        and each.effect.module.last_name(each.effect.node.func) == MAKE
        for each in effects_of(program, function)
    )


def certain_events(
    program: Program, module: Module, body: list[ast.stmt], seen: set[Function]
) -> Iterator[Event]:
    """Makings, collectives and ends that another rank passes for certain, in order."""
    for call in sorted(within(body, ast.Call), key=lambda c: (c.end_lineno, c.end_col_offset)):
        if not is_certain(module, call, Role.OTHER) or is_guarded(module, call):
            continue
        name = module.last_name(call.func)
        full = module.dotted(call.func)
        if name in (MAKE, END) or (
            name in COLLECTIVES
            and (full.startswith("torch.") or name in ("DistributedDataParallel",))
        ):
            yield name, module, call
            continue
        for where, function in callees(program, module, call):
            if function not in seen:  # once: a chain of calls has as many ways as 2 ** n
                seen.add(function)
                yield from certain_events(program, where, function.body, seen)


def is_guarded(module: Module, call: ast.Call) -> bool:
    """Whether a test before a call asks whether there is a group, or something fails quietly."""
    return any(
        mentions(test, word)
        for test in tests_before(module, call)
        for word in ("is_initialized", "is_available")
    ) or any(isinstance(up, ast.Try) for up in module.ancestors(call))
