"""A distributed run saves nothing.

What         Weights are saved under a test that only a lone process passes, local_rank == -1.
At run time  A run on several cards leaves no such checkpoint, and says nothing: what would resume
             from it starts anew, and hours of training are lost.
Example      if args.local_rank == -1: torch.save(model.state_dict(), last)
Fix          Take the rank out of the test. DF601, DF602 and DF607 leave the files to rank 0.
Fix safety   Safe: for a lone process these tests hold. Only reported where more than files hangs on
             the test.
Source       torch.nn.parallel.DistributedDataParallel (all ranks have the same weights)
"""

import ast
from collections.abc import Iterator

from ..analysis.language.conditions import condition
from ..analysis.ranks.rank_reach import Role, rank_gates, roles_reaching, value_for_role
from ..analysis.training.program import Program, trains_on_several_devices
from ..editing.edits import Edit
from ..findings import Finding, Safety, Severity
from ..fixes.opened_gates import open_gate
from ..source.module import Module
from ..source.tree import argument, is_within, within

CODE, SEVERITY, SAFETY = "DF603", Severity.DEGRADED, Safety.SAFE

SAVES = ("save", "save_pretrained")
OF_FILES = {
    *SAVES,
    *("state_dict", "save_vocabulary", "to_json_file", "dump", "dumps", "open", "write"),
    *("makedirs", "mkdir", "exists", "isdir", "join", "dirname", "basename", "Path", "rmtree"),
    *("format", "str", "int", "float", "round", "len", "hasattr", "getattr", "isinstance"),
    *("print", "info", "warning", "debug", "vars", "items"),
}
"""What a block calls that does nothing but write files."""
MAX_DEPTH = 2
"""How far above a save the test may stand, in calls."""


def findings(program: Program) -> Iterator[Finding]:
    if program.only_evaluates or not trains_on_several_devices(program):
        return
    seen: set[ast.If] = set()
    for module, call in program.calls_to(*SAVES):
        if not holds_weights(module, call) or not program.is_live(module, call):
            continue
        if roles_reaching(program, module, call) != {Role.SINGLE} or is_one_of_two(program, call):
            continue
        for where, gate, place in lone_gates(program, module, call):
            if gate not in seen:
                seen.add(gate)
                because = f"no rank saves in line {call.lineno}"
                yield Finding(where, gate, because, edits_of(where, gate, place))


def holds_weights(module: Module, call: ast.Call) -> bool:
    """Whether what is saved has the weights of a model."""
    if module.last_name(call.func) == "save_pretrained":
        return "token" not in module.text(call.func).lower()
    saved = argument(call, 0, "obj")
    if module.dotted(call.func) != "torch.save" or saved is None:
        return False
    values = [saved, *module.alternatives(saved, saved)]
    return any("state_dict" in module.text(value) for value in values)


def is_one_of_two(program: Program, save: ast.Call) -> bool:
    """Whether ranks save by another line in the same function."""
    module = program.module_of(save)
    return any(
        module.function(other) is module.function(save)
        and Role.MAIN in roles_reaching(program, module, other)
        and Role.SINGLE not in roles_reaching(program, module, other)
        for other in module.calls_to(*SAVES)
        if holds_weights(module, other)
    )


def lone_gates(
    program: Program, module: Module, call: ast.Call, depth: int = 0
) -> Iterator[tuple[Module, ast.If, ast.Call]]:
    """The tests that keep all ranks from a call, here or where its function is called."""
    gates = [
        gate
        for gate in rank_gates(module, call)
        for asked in [condition(module, gate)]
        if is_within(call, asked.body)
        and value_for_role(module, asked.test, Role.MAIN) is False
        and value_for_role(module, asked.test, Role.SINGLE) is not False
    ]
    function = module.function(call)
    for gate in gates:
        yield module, gate, call
    if not gates and function is not None and depth < MAX_DEPTH:
        for where, caller in program.callers(function):
            yield from lone_gates(program, where, caller, depth + 1)


def edits_of(module: Module, gate: ast.If, place: ast.Call) -> tuple[Edit, ...]:
    """Edits that let all ranks come to files, and to nothing else."""
    called = [call for call in within(condition(module, gate).body, ast.Call) if call is not place]
    if any(module.last_name(call.func) not in OF_FILES for call in called):
        return ()
    return open_gate(module, gate)
