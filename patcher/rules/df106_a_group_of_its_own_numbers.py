"""The process group is made with an address or with numbers that no launcher gave.

What         The script sets MASTER_ADDR, MASTER_PORT, RANK or WORLD_SIZE itself, or makes the
             group with a fixed world size, one from an option, all cards for ranks, a fixed tcp://
             address, or a file and no rank.
At run time  Right where each process is started by hand. Under torchrun the ranks wait for a store
             at a port where none listens, until the time-out, or each of them is rank 0 of a group
             of one and trains alone.
Example      os.environ["MASTER_PORT"] = "12355"
             dist.init_process_group("nccl", rank=args.local_rank, world_size=1)
Fix          What a launcher has set is kept, and the script's own is for a process without one.
Fix safety   Safe: where no launcher has set the variable, the script's own value is used as before.
Source       https://docs.pytorch.org/docs/stable/elastic/run.html (environment variables)
"""

import ast
from collections.abc import Iterator

from ..analysis.ranks.counted_ranks import counts_cards
from ..analysis.ranks.spawning import spawned_ranks
from ..analysis.training.possible_values import Place, values_of
from ..analysis.training.program import Program
from ..editing.edits import Edit, Import, Replace, Rewrite
from ..findings import Finding, Safety, Severity
from ..fixes.behind_binding import behind_binding
from ..source.branches import exclusive
from ..source.module import Module
from ..source.tree import argument, everywhere, mentions, position, precedes
from .df102_world_size_by_option import option_passed, reads_environment

CODE, SEVERITY, SAFETY = "DF106", Severity.DEGRADED, Safety.SAFE

ADDRESS = ("MASTER_ADDR", "MASTER_PORT")
READ_NUMBER = """\
if 'LOCAL_RANK' in os.environ and '{name}' in os.environ:  # torchrun, accelerate launch
    {args}.{option} = int(os.environ['{name}'])"""
FROM_OUTSIDE = ("environ", "getenv", "get_rank", "Get_rank", "Get_size", "bcast", "subprocess")
OWN_STORES = ("HashStore", "FakeStore")  # in the memory of one process
SCHEDULERS = ("SLURM_", "OMPI_", "PMI_")  # variables of Slurm and of MPI
MAX_DEPTH = 4  # names between a number and where it is from


def findings(program: Program) -> Iterator[Finding]:
    groups = [
        (module, call)
        for module, call in program.calls_to("init_process_group")
        if module.dotted(call.func).startswith("torch.distributed.")
        and program.is_live(module, call)
        and not lacks_launcher(module, call)
        and not is_for_want_of_another(program, module, call)
    ]
    if not groups or not program.is_training_program or any(spawned_ranks(program)):
        return
    for module in program.modules:
        yield from overwritten(program, module)
    for module, call in groups:
        yield from own_numbers(program, module, call)
        yield from own_address(program, module, call)


def lacks_launcher(module: Module, call: ast.Call) -> bool:
    """Whether a group is for a lone process: made where a launcher's variables are missing.

    So is one whose store is in the memory of its process.
    """
    store = argument(call, 5, "store")
    if isinstance(store, ast.Call) and module.last_name(store.func) in OWN_STORES:
        return True
    return any(
        isinstance(up, ast.ExceptHandler)
        and up.type is not None
        and module.last_name(up.type) == "KeyError"
        and any(each.value in ("RANK", "WORLD_SIZE") for each in tried(module.parents[up]))
        for up in module.ancestors(call)
    )


def is_for_want_of_another(program: Program, module: Module, call: ast.Call) -> bool:
    """Whether a group of one is made where there is no other: ``if not dist.is_initialized():``.

    Or where another branch makes one of the launcher's numbers.
    """
    world = argument(call, 3, "world_size")
    if not (isinstance(world, ast.Constant) and world.value == 1):
        return False
    if len(program.calls_to("init_process_group")) == 1:
        return False
    if any(
        exclusive(call, other) and argument(other, 3, "world_size") is None
        for other in module.calls_to("init_process_group")
        if other is not call
    ):
        return True
    return any(
        isinstance(up, ast.If)
        and isinstance(up.test, ast.UnaryOp)
        and isinstance(up.test.op, ast.Not)
        and mentions(up.test, "is_initialized")
        for up in module.ancestors(call)
    )


def tried(stmt: ast.AST) -> list[ast.Constant]:
    """The constants in the body of a ``try``."""
    body = stmt.body if isinstance(stmt, ast.Try) else []
    return [node for each in body for node in everywhere(each, ast.Constant)]


def overwritten(program: Program, module: Module) -> Iterator[Finding]:
    """``os.environ["MASTER_PORT"] = "12355"``, with nothing from outside in it or around it."""
    for stmt in module.nodes(ast.Assign):
        target = stmt.targets[0]
        if not (
            len(stmt.targets) == 1
            and isinstance(target, ast.Subscript)
            and module.dotted(target.value) == "os.environ"
            and isinstance(target.slice, ast.Constant)
        ):
            continue
        name = str(target.slice.value)
        if not program.is_live(module, stmt) or is_asked_for(module, stmt):
            continue
        if reads_scheduler(module, stmt):
            continue
        if (
            not is_from_outside(program, module, stmt.value)
            if name in ADDRESS
            else name in ("RANK", "WORLD_SIZE") and is_own_text(program, module, stmt.value)
        ):
            code = f"os.environ.setdefault({module.text(target.slice)}, {module.text(stmt.value)})"
            code = code.replace("os.environ", module.text(target.value), 1)
            yield Finding(
                module, stmt, f"a launcher's {name} is overwritten", (Replace(stmt, code),)
            )


def reads_scheduler(module: Module, stmt: ast.stmt) -> bool:
    """Whether the function of a statement takes its numbers from the scheduler that started it."""
    return any(
        isinstance(text.value, str) and text.value.startswith(SCHEDULERS)
        for each in module.scope_statements(stmt)
        for text in everywhere(each, ast.Constant)
    )


def own_numbers(program: Program, module: Module, call: ast.Call) -> Iterator[Finding]:
    """``init_process_group(rank=0, world_size=1)``; what comes from options is DF102's."""
    in_options = is_by_options(program, module, call)
    is_own_world = in_options
    for name, place in (("WORLD_SIZE", 3), ("RANK", 4)):
        value = argument(call, place, name.lower())
        if value is None:
            continue
        text = module.text(value)
        if name == "RANK" and is_own_world and module.last_name(value) == "local_rank":
            because = f"{text} is the number on one machine, and not the RANK"
            edit = Rewrite(value, f"int(os.environ.get('RANK', {text}))")
            yield Finding(module, value, because, (edit, Import("os")))
        elif name == "WORLD_SIZE" and (counted := count_of_cards(program, module, value)):
            is_own_world = True
            where, count = counted
            code = f"int(os.environ.get('{name}', {where.text(count)}))"
            because = f"{text}, all cards, is not the {name} that a launcher gives"
            yield Finding(where, count, because, (Rewrite(count, code), Import("os")))
        elif is_own(program, module, value) and not (
            in_options and isinstance(value, ast.Attribute)
        ):
            is_own_world = True
            because = f"{text} is not the {name} that a launcher gives"
            edits = number_from_launcher(program, module, value, name)
            if edits:
                yield Finding(module, value, because, edits)
            else:
                because += f": let {text} be int(os.environ['{name}']) under one"
                yield Finding(module, value, because, severity=Severity.ERROR)


def count_of_cards(program: Program, module: Module, value: ast.expr) -> Place | None:
    """Where what stands for the number of ranks is counted, once: ``n = device_count()``."""
    place: Place = module, value
    for _ in range(MAX_DEPTH):
        where, node = place
        if not isinstance(node, ast.Name | ast.Attribute):
            break
        if (
            isinstance(node, ast.Attribute)
            and sum(times_set(each, node.attr) for each in program.modules) != 1
        ):
            return None
        values = list(dict.fromkeys(values_of(program, where, node)))
        if len(values) != 1:
            return None
        place = values[0]
    return place if place[1] is not value and counts_cards(place[0], place[1]) else None


def is_by_options(program: Program, module: Module, call: ast.Call) -> bool:
    """Whether DF102 has options read the environment that the call gets its numbers from."""
    return bool(option_passed(program, module, call, 3, "world_size")) and not any(
        map(reads_environment, program.modules)
    )


def number_from_launcher(
    program: Program, module: Module, value: ast.expr, name: str
) -> tuple[Edit, ...]:
    """Edits of an option, which other lines read too, or of a number that stands in the call."""
    if isinstance(value, ast.Attribute):
        if any(times_set(each, value.attr) for each in program.modules):
            return ()
        if len(program.parse_sites) != 1:
            return ()
        where, stmt, args = program.parse_sites[0]
        if where is not program.script:
            return ()
        code = READ_NUMBER.format(args=args, option=value.attr, name=name)
        return (*behind_binding(where, stmt, args, code), Import("os"))
    if any(everywhere(value, ast.Name)) and not counts_cards(module, value):
        return ()
    return (Rewrite(value, f"int(os.environ.get('{name}', {module.text(value)}))"), Import("os"))


def own_address(program: Program, module: Module, call: ast.Call) -> Iterator[Finding]:
    """``init_method="tcp://localhost:23456"``, as it is or as an option's default."""
    method = argument(call, 1, "init_method")
    if method is None or is_asked_for(module, call):
        return
    address = ""
    if is_by_options(program, module, call) and not isinstance(method, ast.Constant | ast.IfExp):
        # Only a rank 0 that is started by hand makes a store there; DF102 sees to an option.
        is_option_alone = bool(option_passed(program, module, call, 1, "init_method"))
        address = "" if is_option_alone else module.text(method)
    elif isinstance(method, ast.Attribute):
        if is_option(program, module, method) and not any(
            times_set(each, method.attr) for each in program.modules
        ):
            address = tcp_address(program.options[method.attr].default)
    elif isinstance(method, ast.Constant):
        address = tcp_address(method.value)
        if str(method.value).startswith("file:") and argument(call, 4, "rank") is None:
            address = str(method.value)  # which torch of today asks for the rank, too
    else:
        address = composed_address(program, module, method)
    if address:
        text = f"'env://' if 'MASTER_PORT' in os.environ else {module.text(method)}"
        because = f"a launcher's store is not at {address}"
        yield Finding(module, method, because, (Rewrite(method, text), Import("os")))


def tcp_address(value: object) -> str:
    """The text of an address such as ``tcp://localhost:23456``; empty for anything else."""
    return str(value) if str(value).startswith("tcp://") else ""


def composed_address(program: Program, module: Module, method: ast.expr) -> str:
    """``"tcp://" + args.ip + ":" + args.port``, also under a name, with nothing from outside."""
    values = [method]
    if isinstance(method, ast.Name):
        stores = module.stores.get((module.function(method), method.id), ())
        if any(isinstance(module.parents[store], ast.AugAssign) for store in stores):
            return ""  # address += ip + ":" + port
        values = [value for where, value in values_of(program, module, method) if where is module]
    for value in values:
        texts = [each for each in everywhere(value, ast.Constant) if isinstance(each.value, str)]
        first = min(texts, key=position, default=None)
        if first is None or not tcp_address(first.value):
            return ""
        if any(is_asked_for(module, node) for node in (value, first)):
            return ""
        if is_from_outside(program, module, value):
            return ""
    return module.text(values[0]) if values else ""


def is_asked_for(module: Module, node: ast.AST) -> bool:
    """Whether a test around a place asks what is set, as in ``if "RANK" not in os.environ``."""
    return any(
        isinstance(up, ast.If | ast.IfExp) and mentions_outside(module, up.test)
        for up in module.ancestors(node)
    )


def mentions_outside(module: Module, node: ast.AST) -> bool:
    """Whether an expression reads the environment, or asks another program."""
    texts = [each.id for each in everywhere(node, ast.Name)]
    texts += [each.attr for each in everywhere(node, ast.Attribute)]
    return any(name in FROM_OUTSIDE for name in texts)


def is_from_outside(program: Program, module: Module, node: ast.expr, depth: int = 0) -> bool:
    """Whether a value may come from the environment."""
    if mentions_outside(module, node) or depth == MAX_DEPTH:
        return True
    if isinstance(node, ast.Attribute) and is_option(program, module, node):
        return False
    parts: list[ast.expr] = [*everywhere(node, ast.Name), *everywhere(node, ast.Attribute)]
    parts += everywhere(node, ast.Call)
    return any(
        is_from_outside(program, where, value, depth + 1)
        for part in parts
        for where, value in values_of(program, module, part)
    )


def is_own_text(program: Program, module: Module, value: ast.expr) -> bool:
    """``str(n)`` or ``"1"``."""
    if isinstance(value, ast.Call) and module.dotted(value.func) == "str" and value.args:
        value = value.args[0]
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return value.value.isdigit()
    return is_own(program, module, value)


def is_own(program: Program, module: Module, node: ast.expr, depth: int = 0) -> bool:
    """Whether a number is surely fixed in the script, counted from cards, or an option's."""
    if depth == MAX_DEPTH:
        return False
    if isinstance(node, ast.Constant):
        return type(node.value) is int
    if counts_cards(module, node):
        return not depth  # of a name: right on one machine, and no edit is known
    if isinstance(node, ast.BinOp):
        sides = (node.left, node.right)
        return all(is_own(program, module, side, depth + 1) for side in sides)
    if isinstance(node, ast.Attribute):
        if node.attr == "local_rank":
            return False  # DF101 and DF104 see to it
        if not any(times_set(each, node.attr) for each in program.modules):
            return is_option(program, module, node)
    if not isinstance(node, ast.Name | ast.Attribute):
        return False
    values = list(values_of(program, module, node))
    if isinstance(node, ast.Attribute) and len(values) < sum(
        times_set(each, node.attr) for each in program.modules
    ):
        return False  # one is bound otherwise, as in a tuple
    if isinstance(node, ast.Name) and any(unpacked_above(module, node)):
        return False
    return bool(values) and all(is_own(program, *each, depth + 1) for each in values)


def unpacked_above(module: Module, name: ast.Name) -> Iterator[ast.Name]:
    """Where a name above may get what nobody reads here: ``rank, size = ask()``."""
    for store in module.stores.get((module.function(name), name.id), ()):
        if precedes(store, name) and not exclusive(store, name):
            stmt = module.statement(store)
            if isinstance(module.parents[store], ast.Tuple | ast.List) and not (
                isinstance(stmt, ast.Assign) and isinstance(stmt.value, ast.Tuple | ast.List)
            ):
                yield store


def times_set(module: Module, attribute: str) -> int:
    """How often a module binds an attribute of this name."""
    return sum(isinstance(node.ctx, ast.Store) for node in module.attributes(attribute))


def is_option(program: Program, module: Module, node: ast.Attribute) -> bool:
    """Whether an attribute is an option's value."""
    return node.attr in program.options and are_arguments(program, module, node.value)


def are_arguments(program: Program, module: Module, node: ast.expr, depth: int = 0) -> bool:
    """Whether an expression is what ``parse_args()`` returns, also through functions."""
    if any(args == module.last_name(node) for _, _, args in program.parse_sites):
        return True
    return depth < MAX_DEPTH and any(
        are_arguments(program, where, value, depth + 1)
        for where, value in values_of(program, module, node)
    )
