"""Scripts that shard their examples by hand, without a DistributedSampler.

They select by ``i % world_size == rank``, ``lines[rank::world_size]``,
``range(rank, n, world_size)`` or ``array_split(lines, world_size)[rank]``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...editing.helpers import helper_names
from ...source.module import Module
from ...source.tree import argument_values, everywhere, parameters
from ..language.conditions import condition
from ..language.passed_arguments import argument_for_parameter
from ..training.program import Program
from .other_ranks import is_other_rank
from .rank_reach import RANK_OF_ROLE, WORLD_SIZE_OF_ROLE, Role, value_for_role

# Names of the number of processes, which nothing that is read may say more of.
WORLD_NAMES = (
    *("world_size", "worldsize", "nranks", "n_ranks", "num_ranks", "num_replicas"),
    *("nprocs", "n_procs", "num_procs", "num_processes"),
)
OWNERS = (ast.FunctionDef, ast.ClassDef)


def manual_shards(program: Program, module: Module) -> Iterator[ast.expr]:
    """The expressions that select a rank's examples, except in helpers that patching inserted."""
    for node in selections_by_rank(program, module):
        owners = [up.name for up in module.ancestors(node) if isinstance(up, OWNERS)]
        if not any(name in helper_names() for name in owners):
            yield node


def selections_by_rank(program: Program, module: Module) -> Iterator[ast.expr]:
    """All expressions that select a rank's examples."""
    if "rank" not in module.source.text and "RANK" not in module.source.text:
        return
    for side in module.nodes(ast.BinOp):
        if not isinstance(side.op, ast.Mod):
            continue
        node = module.parents[side]
        if not (isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq)):
            continue  # rank < n % world_size counts
        left, right = node.left, node.comparators[0]
        other = right if side is left else left
        if (
            side in (left, right)
            and looks_like_world_size(program, module, side.right)
            and looks_like_rank(program, module, other)
        ):
            yield node
    for cut in module.nodes(ast.Slice):
        part = module.parents[cut]
        if (
            isinstance(part, ast.Subscript)
            and cut.lower is not None
            and cut.step is not None
            and looks_like_world_size(program, module, cut.step)
            and begins_at_rank(program, module, cut.lower)
        ):
            yield part
    for pick in module.nodes(ast.Subscript):
        if (
            isinstance(pick.value, ast.Call)
            and deals_parts(program, module, pick.value)
            and looks_like_rank(program, module, pick.slice)
        ):
            yield pick
    for call in module.calls_to("range"):
        if (
            len(call.args) == 3
            and looks_like_rank(program, module, call.args[0])
            and looks_like_world_size(program, module, call.args[2])
        ):
            yield call


def begins_at_rank(program: Program, module: Module, node: ast.expr) -> bool:
    """Whether a begin differs by rank: ``rank``, or ``(rank + offset) % world_size``."""
    match node:
        case ast.BinOp(left=ast.BinOp(op=ast.Add(), left=left, right=right), op=ast.Mod()):
            sides = (left, right)
            return looks_like_world_size(program, module, node.right) and any(
                looks_like_rank(program, module, side) for side in sides
            )
    return looks_like_rank(program, module, node)


def deals_parts(program: Program, module: Module, call: ast.Call) -> bool:
    """``array_split(lines, world_size)``: a function that is no tensor's, and gets their number."""
    func = call.func
    owner = func.value if isinstance(func, ast.Attribute) else func
    return (
        isinstance(owner, ast.Name)
        and (owner is func or owner.id in module.aliases)
        and not module.dotted(func).startswith("torch.")
        and len(values := [*argument_values(call)]) > 1
        and any(looks_like_world_size(program, module, value) for value in values)
    )


def looks_like_rank(program: Program, module: Module, node: ast.expr) -> bool:
    """Whether an expression is 0 on rank 0 and 1 on rank 1, by its value or by its name."""
    names = {name.id for name in everywhere(node, ast.Name)}
    if isinstance(node, ast.Call) and module.last_name(node.func) == "Get_rank":
        return True  # of an MPI communicator
    if isinstance(node, ast.Name | ast.Attribute) and is_other_rank(module, node, program.defaults):
        return False
    if isinstance(node, ast.Name) and names & {"local_rank", "rank", "global_rank"}:
        return not is_constant(program, module, node)
    return [value_for_role(module, node, role) for role in (Role.MAIN, Role.OTHER)] == [
        RANK_OF_ROLE[Role.MAIN],
        RANK_OF_ROLE[Role.OTHER],
    ]


def looks_like_world_size(program: Program, module: Module, node: ast.expr) -> bool:
    """Whether an expression is the number of processes, by its value or by its name."""
    if isinstance(node, ast.Name) and node.id in WORLD_NAMES:
        return not is_constant(program, module, node)
    if isinstance(node, ast.Attribute):  # which an object may set to -1 first
        values = [node, *module.attribute_values.get(node.attr, ())]
        return any(is_number_of_processes(module, value) for value in values)
    return is_number_of_processes(module, node)


def is_number_of_processes(module: Module, node: ast.expr) -> bool:
    """Whether an expression is the world size for every rank, and not for a lone process."""
    several = WORLD_SIZE_OF_ROLE[Role.OTHER]
    if isinstance(node, ast.Call) and module.last_name(node.func) == "Get_size":
        return True  # of an MPI communicator
    alone, among = (value_for_role(module, node, role) for role in (Role.SINGLE, Role.OTHER))
    return bool(among == several != alone)  # a constant 2 is as much for both


def is_constant(program: Program, module: Module, name: ast.Name) -> bool:
    """Whether a name gets only literals, from its function or as a parameter from all callers."""
    function = module.function(name)
    if function is not None and name.id in parameters(function):
        values = [
            (where, argument_for_parameter(module, function, call, name.id))
            for where, call in program.callers(function)
        ]
        if any(not isinstance(place, ast.Call) for _, place in program.possible_callers(function)):
            return False  # another may call it, such as one that spawns processes
        return bool(values) and all(
            isinstance(value, ast.Constant)
            or (isinstance(value, ast.Name) and is_constant(program, where, value))
            for where, value in values
        )
    stores = module.stores.get((module.function(name), name.id), [])
    holders = [module.parents[store] for store in stores]
    return bool(holders) and all(
        isinstance(holder, ast.Assign) and isinstance(holder.value, ast.Constant)
        for holder in holders
    )


def single_process_tests(module: Module) -> Iterator[tuple[ast.If, bool]]:
    """Tests like ``if args.local_rank == -1: local_rank, world_size = 0, 1`` with an else.

    Whether the lone process takes the first branch comes with each.
    """
    for stmt in module.nodes(ast.If):
        asked = condition(module, stmt)
        if value_for_role(module, asked.test, Role.SINGLE) is not True or not asked.orelse:
            continue
        if value_for_role(module, asked.test, Role.OTHER) is not False:
            continue
        single, several = assignments(asked.body), assignments(asked.orelse)
        if single is None or several is None or set(single) != set(several):
            continue
        literals = {item.value for item in single.values() if isinstance(item, ast.Constant)}
        if literals == {0, 1} and len(single) == 2:
            yield stmt, asked.body is stmt.body


def assignments(body: list[ast.stmt]) -> dict[str, ast.expr] | None:
    """The names and values of a block that only assigns plain names; None for other blocks."""
    values: dict[str, ast.expr] = {}
    for stmt in body:
        if not (isinstance(stmt, ast.Assign) and isinstance(stmt.targets[0], ast.Name)):
            return None
        values[stmt.targets[0].id] = stmt.value
    return values
