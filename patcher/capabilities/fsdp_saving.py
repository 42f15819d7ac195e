"""Let rank 0 save a sharded model alone: all ranks gather it above the test that lets rank 0 in."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..analysis.language.conditions import tests_before
from ..analysis.ranks.rank_reach import (
    ALL_UNKNOWN,
    RANKS,
    rank_gates,
    roles_reaching_in_function,
    values_by_role,
)
from ..analysis.training.program import Program
from ..audit.meeting import asks_for_file, sounds_of_the_first
from ..audit.ranks import ranks_at
from ..editing.edits import Insert
from ..source.module import Module
from ..source.tree import Function, bound_names, everywhere, is_inside
from .errors import CannotError
from .models import DdpWrap
from .optimizers import StepOptimizer

GATHER = "gather_weights"
SAVING = ("state_dict", "save_pretrained")
PLAIN_STATES = ("sched", "scaler", "token", "process", "config", "extractor")


def saving_edits(
    program: Program, wrap: DdpWrap, optimizer: StepOptimizer | None
) -> Iterator[Insert]:
    """Edits that gather the weights above each test in which rank 0 alone saves them.

    Raises CannotError where a save has no such test, or where that would be once per step.
    """
    gates: dict[ast.If, set[str]] = {}
    for module, call in gated_saves(program):
        for gate in gates_of(program, wrap, module, call, frozenset()):
            assert isinstance(call.func, ast.Attribute)
            gates.setdefault(gate, set()).add(module.text(call.func.value))
    for gate, owners in gates.items():
        if is_gathered_above(wrap.module, gate):
            continue
        optimizer_name = ""
        if any("opt" in owner.lower() for owner in owners):
            if optimizer is None or optimizer.module is not wrap.module:
                raise CannotError(wrap.module, gate, "rank 0 alone saves an optimizer's state here")
            optimizer_name = optimizer.name
        tests = [wrap.module.text(test) for test in schedule_tests(program, wrap.module, gate)]
        code = f"{GATHER}({optimizer_name})"
        yield Insert(gate, f"if {' and '.join(tests)}:\n    {code}" if tests else code)


def gated_saves(program: Program) -> Iterator[tuple[Module, ast.Call]]:
    """The calls by rank 0 alone that take the weights of a model, or an optimizer's states."""
    for module, call in program.calls_to(*SAVING):
        if not isinstance(call.func, ast.Attribute) or not program.is_live(module, call):
            continue
        owner = module.text(call.func.value).lower()
        if any(word in owner for word in PLAIN_STATES):
            continue
        if ranks_at(program, module, call) != RANKS:
            yield module, call


def gates_of(
    program: Program, wrap: DdpWrap, module: Module, call: ast.Call, seen: frozenset[Function]
) -> Iterator[ast.If]:
    """The tests that let rank 0 alone come to a call, in its function or in those that call it."""
    gates = rank_gates(module, call)
    function = module.function(call)
    name = module.last_name(call.func)
    if gates:
        gate = gates[-1]
        if because := reason_against(program, wrap, module, gate):
            raise CannotError(module, call, f"only rank 0 comes to {name}(), and {because}")
        yield gate
        return
    callers = [] if function is None or function in seen else program.callers(function)
    callers = [(where, each) for where, each in callers if program.is_live(where, each)]
    here = roles_reaching_in_function(module, call) >= RANKS
    if not callers or function is None or not here:  # an exit above it keeps the others away
        raise CannotError(module, call, f"only rank 0 comes to {name}(), by no test that is seen")
    for where, each in callers:
        if ranks_at(program, where, each) != RANKS:
            yield from gates_of(program, wrap, where, each, seen | {function})


def reason_against(program: Program, wrap: DdpWrap, module: Module, gate: ast.If) -> str:
    """Why ranks cannot gather above a test; "" if they can."""
    above = module.parents[gate]
    if module is not wrap.module:
        return "the model is wrapped in another module"
    if isinstance(above, ast.If) and above.orelse == [gate]:
        return f"line {gate.lineno} is an elif"
    if ranks_at(program, module, gate) != RANKS:
        return f"not all ranks come to line {gate.lineno}"
    for test in tests_before(module, gate):
        unknown = values_by_role(module, test) is ALL_UNKNOWN
        if asks_for_file(module, test) or (unknown and sounds_of_the_first(program, test)):
            return f"it is not known who comes to line {gate.lineno}"
    for loop in program.train_loops:
        if is_inside(gate, loop.steps) and not is_rare(program, module, gate, loop.steps):
            return f"line {gate.lineno} is come to in each step"
    return ""


def is_rare(program: Program, module: Module, gate: ast.If, steps: ast.stmt) -> bool:
    """Whether a place in a step loop is come to every so many steps, and not in each."""
    tests = schedule_tests(program, module, gate)
    for up in module.ancestors(gate):
        if up is steps:
            break
        if isinstance(up, ast.If) and not rank_gates(module, up):
            tests.append(up.test)
    return any(
        isinstance(node.op, ast.Mod) and "accum" not in module.text(node)
        for test in tests
        for node in everywhere(test, ast.BinOp)
    )


def schedule_tests(program: Program, module: Module, gate: ast.If) -> list[ast.expr]:
    """The parts of a test that all ranks answer alike: of options, and of counters of steps."""
    test = gate.test
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else []
    return [
        part
        for part in parts
        if values_by_role(module, part) is ALL_UNKNOWN
        and not everywhere(part, ast.Call)
        and all(is_alike(program, module, name) for name in everywhere(part, ast.Name))
    ]


def is_alike(program: Program, module: Module, name: ast.Name) -> bool:
    """Whether a name is the parsed arguments, or counts on all ranks."""
    if name.id in program.argument_names:
        return True
    stores = module.stores.get((module.function(name), name.id), [])
    return bool(stores) and all(
        counts(module, store) and not rank_gates(module, store) for store in stores
    )


def counts(module: Module, store: ast.AST) -> bool:
    """Whether a name is bound as a counter is: by a loop, ``+= 1``, a constant, or a checkpoint."""
    stmt = module.statement(store)
    match stmt:
        case ast.For():
            return not isinstance(store, ast.Name) or store.id in bound_names(stmt.target)
        case ast.AugAssign(value=ast.Constant()) | ast.Assign(value=ast.Constant()):
            return True
        case ast.Assign(value=ast.Tuple(elts=items)):
            return all(isinstance(item, ast.Constant) for item in items)
        case ast.Assign(value=ast.Call(func=ast.Attribute(value=ast.Name(id="resumable")))):
            return True
    return False


def is_gathered_above(module: Module, gate: ast.If) -> bool:
    """Whether the statement above a test gathers the weights."""
    body = module.body(gate)
    number = body.index(gate)
    return number > 0 and any(
        module.last_name(call.func) == GATHER for call in everywhere(body[number - 1], ast.Call)
    )
