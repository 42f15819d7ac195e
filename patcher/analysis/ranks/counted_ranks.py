"""How a script that starts its own ranks counts them, and which of its options it counts with."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ....record import record
from ...source.module import Module
from ...source.tree import argument, same_code
from ..training.possible_values import Place
from ..training.program import Program
from .started_workers import (
    NotLaunchableError,
    StartedWorker,
    is_number_of,
    is_setting,
    origins,
    unconverted,
)

LOCAL_SIZE = "int(os.environ['LOCAL_WORLD_SIZE'])"
MACHINES = f"int(os.environ['WORLD_SIZE']) // {LOCAL_SIZE}"
MACHINE = f"int(os.environ['RANK']) // {LOCAL_SIZE}"


@record
class Counts:
    """How the script counts: the options that launchers set, whether on one machine alone."""

    options: dict[str, str]
    is_for_one_machine: bool


def counted(program: Program, started: StartedWorker) -> Counts:
    """How ranks and their number are made for the process group."""
    groups = groups_of(program)
    if not groups:
        raise NotLaunchableError("where the group is made cannot be told")
    options: dict[str, str] = {}
    is_for_one = False
    for module, group in groups:
        is_alone = False
        rank = argument(group, 4, "rank")
        size = argument(group, 3, "world_size")
        ranks = [(module, rank)] if rank is not None else variables(program, "RANK")
        sizes = [(module, size)] if size is not None else variables(program, "WORLD_SIZE")
        if not ranks or not sizes:
            raise NotLaunchableError(
                f"what rank and world_size are in line {group.lineno} cannot be told"
            )
        for place in ranks:
            is_alone |= rank_of(program, started, place, options)
        for place in sizes:
            is_alone |= size_of(program, started, place, options, is_alone=is_alone)
        is_for_one |= is_alone
    return Counts(options, is_for_one)


def groups_of(program: Program) -> list[tuple[Module, ast.Call]]:
    return [
        (module, call)
        for module, call in program.calls_to("init_process_group")
        if module.dotted(call.func).startswith("torch.distributed.")
        and program.is_live(module, call)
    ]


def variables(program: Program, name: str) -> list[Place]:
    """What the script sets a variable of the environment to."""
    return [
        (module, stmt.value)
        for module in program.modules
        for stmt in module.nodes(ast.Assign)
        for target in stmt.targets
        if isinstance(target, ast.Subscript)
        and module.dotted(target.value) == "os.environ"
        and isinstance(target.slice, ast.Constant)
        and target.slice.value == name
    ]


def rank_of(
    program: Program, started: StartedWorker, place: Place, options: dict[str, str]
) -> bool:
    """Whether a rank is right on one machine alone; ``options`` gets that of the machine's number.

    Raises NotLaunchableError where a rank is made in another way.
    """
    module, node = place
    found = [*added_to(program, started, module, node)] or [
        each for each in origins(program, started, module, node) if not is_option(program, each)
    ]
    is_for_one = False
    for where, value in found:
        if is_number_of(started, where, value):
            is_for_one = True
            continue
        machine = number_of_machine(program, started, where, value)
        if machine is None:
            break
        of_machine = list(origins(program, started, *machine))
        named = [each for each in of_machine if is_option(program, each)]
        if named:
            options[attribute(named[0])] = MACHINE
        elif all(is_constant(each, 0) for each in of_machine):
            is_for_one = True
        else:
            break
    else:
        if found:
            return is_for_one
    raise NotLaunchableError(
        f"how {module.text(node)} in line {node.lineno} of {module.source.file} is made of the"
        " number of a process cannot be told"
    )


def added_to(
    program: Program, started: StartedWorker, module: Module, node: ast.expr
) -> Iterator[Place]:
    """``args.rank += gpu`` behind ``args.rank = machine * cards``, as one sum."""
    if not isinstance(node, ast.Attribute):
        return
    for where in program.modules:
        for add in where.nodes(ast.AugAssign):
            if (
                isinstance(add.target, ast.Attribute)
                and add.target.attr == node.attr
                and isinstance(add.op, ast.Add)
                and any(
                    is_number_of(started, *each)
                    for each in origins(program, started, where, add.value)
                )
            ):
                for other in program.modules:
                    for value in other.attribute_values.get(node.attr, ()):
                        total = ast.BinOp(value, ast.Add(), add.value)
                        yield other, ast.copy_location(total, value)


def number_of_machine(
    program: Program, started: StartedWorker, module: Module, node: ast.expr
) -> Place | None:
    """``machine`` of ``machine * cards + number``."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Add):
        return None
    for one, other in ((node.left, node.right), (node.right, node.left)):
        if not any(is_number_of(started, *each) for each in origins(program, started, module, one)):
            continue
        if is_constant((module, other), 0):
            return module, other
        for where, product in (
            [(module, other)]
            if isinstance(other, ast.BinOp)
            else list(origins(program, started, module, other))
        ):
            if is_constant((where, product), 0):
                return where, product
            machine = other_factor(program, started, where, product)
            if machine is not None:
                return machine
    return None


def other_factor(
    program: Program, started: StartedWorker, module: Module, node: ast.expr
) -> Place | None:
    """What the count of a machine's processes is multiplied by."""
    node = unconverted(module, node)
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return None
    for one, other in ((node.left, node.right), (node.right, node.left)):
        if is_count(program, started, module, one):
            return module, other
    return None


def size_of(
    program: Program,
    started: StartedWorker,
    place: Place,
    options: dict[str, str],
    *,
    is_alone: bool,
) -> bool:
    """Whether a world's size is right on one machine alone; ``options`` gets what counts machines.

    ``is_alone``: ranks are those of one machine, so that whatever counts machines is 1.
    Raises NotLaunchableError where it is made in another way.
    """
    module, node = place
    if isinstance(node, ast.Constant):
        return True
    found = list(origins(program, started, module, node))
    made = [each for each in found if not is_option(program, each)]
    if is_count(program, started, module, node) and not any(
        other_factor(program, started, *each) for each in made
    ):
        return True
    if not made and len(found) == 1:
        options[attribute(found[0])] = "int(os.environ['WORLD_SIZE'])"
        return False
    is_for_one = False
    for where, value in made:
        machines = other_factor(program, started, where, value)
        if machines is None:
            break
        of_machines = list(origins(program, started, *machines))
        named = [each for each in of_machines if is_option(program, each)]
        if named:
            options[attribute(named[0])] = MACHINES
        elif is_alone or all(is_constant(each, 1) for each in of_machines):
            is_for_one = True
        else:
            break
    else:
        return is_for_one
    raise NotLaunchableError(
        f"how {module.text(node)} in line {node.lineno} of {module.source.file} counts the ranks"
        " cannot be told"
    )


def is_count(program: Program, started: StartedWorker, module: Module, node: ast.expr) -> bool:
    """Whether an expression is the number of processes that are started."""
    node = unconverted(module, node)
    if isinstance(node, ast.Attribute) and same_code(node, started.count):
        return True
    counts = list(origins(program, started, started.module, started.count))
    return any(
        any(is_same(module, one, *each) for each in counts)
        for where, one in origins(program, started, module, node)
        for module in (where,)
    )


def is_same(module: Module, node: ast.expr, where: Module, other: ast.expr) -> bool:
    """Whether two expressions are one place, one option, or both count the cards."""
    if node is other:
        return True
    if isinstance(node, ast.Attribute) and isinstance(other, ast.Attribute):
        return node.attr == other.attr
    if isinstance(node, ast.Constant) and isinstance(other, ast.Constant):
        return module.statement(node) is where.statement(other) and node.value == other.value
    return counts_cards(module, node) and counts_cards(where, other)


def counts_cards(module: Module, node: ast.expr) -> bool:
    """``torch.cuda.device_count()``."""
    return isinstance(node, ast.Call) and module.dotted(node.func) == "torch.cuda.device_count"


def is_option(program: Program, place: Place) -> bool:
    """Whether an expression is an option's value, or a setting's."""
    return isinstance(place[1], ast.Attribute) and is_setting(program, place[1])


def attribute(place: Place) -> str:
    assert isinstance(place[1], ast.Attribute)
    return place[1].attr


def is_constant(place: Place, value: int) -> bool:
    return isinstance(place[1], ast.Constant) and place[1].value == value
