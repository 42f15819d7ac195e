"""What a write goes to: memory, an open file, or a path that names the rank."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence

from ...source.module import Module
from ...source.tree import (
    Function,
    argument,
    below,
    bound_names,
    children,
    everywhere,
    parameters,
    within,
)
from ..language.name_flow import flows, names_in, roots, spread
from ..language.passed_arguments import argument_for_parameter
from ..ranks.dealing import deals, dealt_by_hand
from ..ranks.divergence_walk import enumerated_name
from ..ranks.manual_sharding import is_constant, manual_shards
from ..ranks.other_ranks import is_other_rank
from ..ranks.rank_reach import Role, value_for_role
from ..training.loaders import loader_of
from ..training.program import Program
from ..training.train_loops import calls_around, is_over_numbers
from .file_effects import is_null_device

MEMORY = ("BytesIO", "StringIO", "SpooledTemporaryFile", "TemporaryFile")
UNIQUE = (
    *("getpid", "uuid1", "uuid4", "mkdtemp", "mkstemp", "mktemp"),
    *("TemporaryDirectory", "NamedTemporaryFile"),
)
SECRETS = ("secrets.choice", "secrets.token_hex", "secrets.token_urlsafe", "os.urandom")
# Calls and methods whose text is made of their arguments' or their object's text.
TEXT_CALLS = frozenset(
    (
        *("join", "joinpath", "format", "str", "repr", "fspath", "Path", "PurePath", "PosixPath"),
        *("abspath", "realpath", "normpath", "expanduser", "dirname", "resolve", "absolute"),
        *("with_suffix", "with_name", "with_stem", "replace", "strip", "rstrip", "zfill", "open"),
    )
)
OF_A_RANK = re.compile(r"(^|_)rank$")
OPEN_FILE = re.compile(r"\b(\w*IO|\w*IOBase|Buffered\w+)\b")  # as annotations call it
LISTINGS = ("listdir", "scandir", "glob", "iglob", "rglob", "iterdir")
CLOCKS = ("strftime", "time", "ctime", "now", "utcnow", "today")
SPELLINGS = ("strftime", "isoformat", "timestamp")  # of a moment
PREPARING = ("prepare", "prepare_data_loader", "setup_dataloaders")  # of accelerate and Fabric
MAX_DEPTH = 4  # names that stand for names
Spelled = tuple[Module, ast.expr]
MAX_CALLERS = 3  # functions between a loop and what it writes


def is_of_listing(module: Module, path: ast.expr) -> bool:
    """Whether a path comes of what a folder holds, which another rank may have filled meanwhile."""
    body = module.scope_statements(path)
    listed = {
        name
        for targets, value in flows(body)
        if any(module.last_name(call.func) in LISTINGS for call in everywhere(value, ast.Call))
        for target in targets
        for name in roots(target)
    }
    return bool(listed) and not spread(body, listed).names.isdisjoint(names_in(path))


def is_memory(module: Module, target: ast.expr) -> bool:
    """Whether a value is memory, the null device, or a file that nobody else can name."""
    return any(
        is_null_device(module, value)
        or (isinstance(value, ast.Call) and module.last_name(value.func) in MEMORY)
        for value in (target, *values_of(module, target))
    ) or is_called_open(module, target)


def is_called_open(module: Module, target: ast.expr) -> bool:
    """Whether a function says of its parameter that it is an open file: ``file: IO[bytes]``."""
    function = module.function(target)
    if function is None or not isinstance(target, ast.Name):
        return False
    of = function.args
    return any(
        each.arg == target.id
        and each.annotation is not None
        and OPEN_FILE.search(module.text(each.annotation)) is not None
        for each in (*of.posonlyargs, *of.args, *of.kwonlyargs)
    )


def is_open_file(module: Module, target: ast.expr) -> bool:
    """Whether a value is a file that the function has opened, rather than a path."""
    return any(
        isinstance(value, ast.Call) and module.last_name(value.func) == "open"
        for value in values_of(module, target)
    ) or any(
        type(file := item.optional_vars) is type(target)
        and module.text(file) == module.text(target)
        for node in within(module.scope_statements(target), ast.With)
        for item in node.items
    )


def values_of(module: Module, target: ast.expr) -> list[ast.expr]:
    """What a name may stand for, also as ``with … as name``; or the expression itself."""
    if isinstance(target, ast.Attribute):
        return module.attribute_values.get(target.attr, [])
    if not isinstance(target, ast.Name):
        return [target]
    opened = [
        item.context_expr
        for node in within(module.scope_statements(target), ast.With)
        for item in node.items
        if isinstance(item.optional_vars, ast.Name) and item.optional_vars.id == target.id
    ]
    return [*module.alternatives(target, target), *opened]


def names_rank(
    program: Program,
    module: Module,
    path: ast.expr,
    depth: int = 0,
    *,
    unique: bool = True,
) -> bool:
    """Whether a path differs between ranks, so that each of them writes a file of its own.

    ``unique``: also where it may be in a temporary folder, which each process has another of.
    """
    if depth > MAX_DEPTH:
        return False
    for node in parts_of_text(module, path):
        attribute = node.attr if isinstance(node, ast.Attribute) else ""
        assigned = module.attribute_values.get(attribute, ())
        if unique and any(is_unique(module, value) for value in (node, *assigned)):
            return True
        if not isinstance(node, ast.expr) or isinstance(node, ast.IfExp):
            continue
        ranks = [name for name in everywhere(node, ast.Name) if OF_A_RANK.search(name.id)]
        if ranks and all(is_constant(program, module, name) for name in ranks):
            continue  # str(local_rank), where all calls pass 0
        first, second = (value_for_role(module, node, role) for role in (Role.MAIN, Role.OTHER))
        are_numbers = type(first) is int and type(second) is int  # neither unknown nor a test
        if (are_numbers and first != second) or is_called_rank(program, module, node):
            return True
        if any(
            names_rank(program, where, value, depth + 1, unique=unique)
            for where, value in made_elsewhere(program, module, node)
        ):
            return True
        if isinstance(node, ast.Name) and (
            is_given_rank(module, node)
            or any(
                names_rank(program, module, value, depth + 1, unique=unique)
                for value in module.alternatives(node, node)
            )
            or is_parameter_with_rank(program, module, node, depth)
        ):
            return True
    return False


def clock_in(program: Program, module: Module, path: ast.expr) -> Spelled | None:
    """The call by which a path has the time in it, which each process asks for itself."""
    return spelled_with(program, module, path, asked_clock)


def asked_clock(module: Module, node: ast.expr) -> ast.expr | None:
    """The call in an expression that asks for the time."""
    for call in everywhere(node, ast.Call):
        name = module.dotted(call.func)
        if name.startswith(("time.", "datetime.")) and module.last_name(call.func) in CLOCKS:
            return call
    return None


def spelled_with(
    program: Program,
    module: Module,
    path: ast.expr,
    wanted: Callable[[Module, ast.expr], ast.expr | None],
    depth: int = 0,
) -> Spelled | None:
    """What a path has of a kind in its text, also through names, arguments and results."""
    if depth > MAX_DEPTH + 2:  # the moment may be asked for in a method, and spelled in another
        return None
    for node in parts_of_text(module, path):
        if (spelled := wanted(module, node)) is not None:
            return module, spelled
        values = [*made_elsewhere(program, module, node)]
        if isinstance(node, ast.Call) and module.last_name(node.func) in SPELLINGS:
            values += [(module, part) for part in children(node.func) if isinstance(part, ast.expr)]
        if isinstance(node, ast.Name):
            values += [(module, each) for each in module.alternatives(node, node)]
            function = module.function(node)
            if function is not None and node.id in parameters(function):
                for where, call in program.callers(function):
                    value = argument_for_parameter(module, function, call, node.id)
                    values += [(where, value)] if value is not None else []
        elif isinstance(node, ast.Attribute) and module.text(node.value) != "self":
            values += [
                (where, value)
                for where in program.modules
                for value in where.attribute_values.get(node.attr, ())
            ]
        for where, value in values:
            if found := spelled_with(program, where, value, wanted, depth + 1):
                return found
    return None


def made_elsewhere(
    program: Program, module: Module, node: ast.expr
) -> Iterator[tuple[Module, ast.expr]]:
    """What functions of the program return to a call, and what an attribute of self is given.

    Of ``paths()[0]`` the part at that place, where they return a list as it stands.
    """
    match node:
        case ast.Subscript(value=ast.Call() as call, slice=ast.Constant(value=int(place))):
            for where, value in made_elsewhere(program, module, call):
                for made in where.alternatives(value, value) or [value]:
                    if isinstance(made, ast.Tuple | ast.List) and place < len(made.elts):
                        yield where, made.elts[place]
        case ast.Call():
            for where, function in program.callees(module, node):
                for result in within(function.body, ast.Return):
                    if result.value is not None:
                        yield where, result.value
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            yield from ((module, value) for value in module.attribute_values.get(name, ()))


def is_unique(module: Module, node: ast.expr) -> bool:
    """Whether a value is one that each process has another of, such as ``tempfile.mkdtemp()``."""
    if isinstance(node, ast.Attribute) and node.attr in ("hex", "int"):
        node = node.value  # uuid4().hex
    if isinstance(node, ast.Attribute) and node.attr == "name" and isinstance(node.value, ast.Name):
        return any(is_unique(module, made) for made in bound_to(module, node.value))
    if isinstance(node, ast.Name):
        return any(
            isinstance(module.parents[made], ast.withitem) and is_unique(module, made)
            for made in bound_to(module, node)
        )
    if not isinstance(node, ast.Call):
        return False
    if module.last_name(node.func) == "join":  # "".join(secrets.choice(letters) for _ in range(8))
        return any(is_unique(module, each) for each in everywhere(node, ast.Call) if each != node)
    return module.last_name(node.func) in UNIQUE or module.dotted(node.func) in SECRETS


def bound_to(module: Module, name: ast.Name) -> Iterator[ast.expr]:
    """What a name is bound to in its function, also by ``with``."""
    for store in module.stores.get((module.function(name), name.id), ()):
        match module.parents[store]:
            case ast.Assign(value=value) | ast.withitem(context_expr=value):
                yield value


def parts_of_text(module: Module, path: ast.expr) -> Iterator[ast.expr]:
    """The expressions whose text is part of a path's: not what else made a value in it.

    The score in a checkpoint's name comes from a model that was wrapped for a rank's card, and says
    nothing of the rank.
    """
    yield path
    parts: Sequence[ast.AST] = ()
    match path:
        case ast.Call(func=ast.Attribute(value=ast.expr() as owner)) if _makes_text(module, path):
            parts = (owner, *path.args, *(word.value for word in path.keywords))
        case ast.Call() if _makes_text(module, path):
            parts = (*path.args, *(word.value for word in path.keywords))
        case ast.JoinedStr() | ast.FormattedValue() | ast.BinOp() | ast.Tuple() | ast.List():
            parts = list(children(path))
        case ast.Starred() | ast.NamedExpr() | ast.IfExp():
            parts = list(children(path))
        case ast.Attribute(value=ast.Call() as made):  # uuid.uuid4().hex
            parts = (made,)
        case ast.Subscript(value=made, slice=ast.Slice()):  # str(uuid.uuid4())[:8]
            parts = (made,)
    for part in parts:
        if isinstance(part, ast.expr):
            yield from parts_of_text(module, part)


def _makes_text(module: Module, call: ast.Call) -> bool:
    return module.last_name(call.func) in TEXT_CALLS


def is_given_rank(module: Module, name: ast.Name) -> bool:
    """Whether the function of a name makes its process group with it: ``rank=gpu``."""
    function = module.function(name)
    return function is not None and any(
        module.function(call) is function
        and (rank := argument(call, 3, "rank")) is not None
        and any(isinstance(part, ast.Name) and part.id == name.id for part in below(rank))
        for call in module.calls_to("init_process_group")
    )


def is_called_rank(program: Program, module: Module, node: ast.expr) -> bool:
    """Whether a value is called a rank, by a launcher or a library that is not read.

    Of all ranks or of a group: ``get_data_parallel_rank()``. Not one that a loop counts in, such as
    the place of a result.
    """
    match node:
        case ast.Call():
            return bool(OF_A_RANK.search(module.last_name(node.func)))
        case ast.Attribute(attr=name):
            return bool(OF_A_RANK.search(name)) and not is_other_rank(
                module, node, program.defaults
            )
        case ast.Name(id=name) if OF_A_RANK.search(name):
            stores = module.stores.get((module.function(node), name), [])
            return (
                bool(stores)
                and all(isinstance(module.statement(store), ast.Assign) for store in stores)
                and not is_other_rank(module, node)
                and not is_constant(program, module, node)
            )
    return False


def is_parameter_with_rank(program: Program, module: Module, name: ast.Name, depth: int) -> bool:
    """Whether a call of the function passes a path with the rank for this parameter.

    Others may pass a file of rank 0's alone.
    """
    function = module.function(name)
    if function is None or name.id not in parameters(function):
        return False
    passed = [
        (where, argument_for_parameter(module, function, call, name.id))
        for where, call in program.callers(function)
    ]
    return any(
        value is not None and names_rank(program, where, value, depth + 1)
        for where, value in passed
    )


def is_of_one_example(module: Module, call: ast.Call, path: ast.expr) -> bool:
    """Whether a data set writes a file for one of its examples, by the name of that example."""
    owner, function = module.enclosing_class(call), module.function(call)
    if owner is None or function is None:
        return False
    gets = any(isinstance(each, Function) and each.name == "__getitem__" for each in owner.body)
    if not gets or runs_in_constructor(module, function):
        return False
    names: set[str] = set()
    unseen = {name.id for name in everywhere(path, ast.Name)}
    while unseen:
        names |= unseen
        stores = [store for name in unseen for store in module.stores.get((function, name), ())]
        values = [getattr(module.statement(store), "value", store) for store in stores]
        unseen = {name.id for value in values for name in everywhere(value, ast.Name)} - names
    return bool(names & parameters(function) - {"self"})


def runs_in_constructor(module: Module, function: Function, depth: int = 0) -> bool:
    """Whether only the constructor of its class comes to a method, itself or by other methods."""
    if function.name == "__init__":
        return True
    graph, owner = module.graph, module.enclosing_class(function)
    if graph is None or depth == MAX_CALLERS or graph.possible_callers(function):
        return False
    callers = [(where, where.function(call)) for where, call in graph.callers(function)]
    return bool(callers) and all(
        caller is not None
        and where.enclosing_class(caller) is owner
        and runs_in_constructor(where, caller, depth + 1)
        for where, caller in callers
    )


def is_named_by_share(
    program: Program,
    module: Module,
    call: ast.expr,
    path: ast.expr,
    depth: int = 0,
    *,
    in_training: bool = True,
    is_known: bool = True,
) -> bool:
    """Whether a file is called after an example of what a loader deals to this rank alone.

    The example may have come through calls of functions. ``in_training``: also of a training loop,
    where a checkpoint may be called after the loss. Without ``is_known`` also of a loop that goes
    over what cannot be told.
    """
    trained = [] if in_training else [loop.steps for loop in program.train_loops]
    if any(
        loop not in trained and names_in(path) & spread([loop], examples_of(module, loop)).names
        for loop in dealt_loops(program, module, call, is_known=is_known)
    ):
        return True
    function = module.function(call)
    if function is None or depth == MAX_CALLERS:
        return False
    kept = [
        value
        for name in names_in(path)
        for value in module.attribute_values.get(name.removeprefix("self."), ())
        if name.startswith("self.") and value is not path
    ]
    if any(
        module.enclosing_class(value) is module.enclosing_class(call)
        and is_named_by_share(
            program, module, value, value, depth + 1, in_training=in_training, is_known=is_known
        )
        for value in kept
    ):
        return True
    return any(
        (passed := argument_for_parameter(module, function, at, name)) is not None
        and is_named_by_share(
            program, where, at, passed, depth + 1, in_training=in_training, is_known=is_known
        )
        for name in parameters(function)
        if names_in(path) & spread(function.body, {name}).names
        for where, at in program.callers(function)
    )


def may_be_named_by_share(program: Program, module: Module, call: ast.Call, path: ast.expr) -> bool:
    """Whether that cannot be told of a program that deals examples by hand somewhere."""
    return bool(dealt_by_hand(program)) and is_named_by_share(
        program, module, call, path, in_training=False, is_known=False
    )


def dealt_loops(
    program: Program, module: Module, call: ast.expr, *, is_known: bool = True
) -> Iterator[ast.For]:
    """The loops around a call over loaders that deal by rank, or over a rank's stride."""
    for loop in module.ancestors(call):
        if isinstance(loop, ast.For):
            if is_prepared(module, loop) or is_over_stride(program, module, loop):
                yield loop
                continue
            loader = loader_of(program, module, loop)
            may_deal = not is_known and goes_over_unknown(module, loop)
            if deals(program, loader) if loader is not None else may_deal:
                yield loop


def is_prepared(module: Module, loop: ast.For) -> bool:
    """``for x in loader``, where ``loader = accelerator.prepare(loader)`` has it deal by rank."""
    return any(name in PREPARING for name, _ in calls_around(module, loop.iter)) or any(
        isinstance(value, ast.Call) and module.last_name(value.func) in PREPARING
        for name in everywhere(loop.iter, ast.Name)
        for store in module.stores.get((module.function(loop), name.id), ())
        for value in [getattr(module.statement(store), "value", None)]
    )


def is_over_stride(program: Program, module: Module, loop: ast.For) -> bool:
    """``for name in names``, where ``names = names[rank::world_size]``."""
    strides = [
        value
        for value in (loop.iter, *module.alternatives(loop.iter, loop.iter))
        if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice)
    ]
    return bool(strides) and any(shard in strides for shard in manual_shards(program, module))


def goes_over_unknown(module: Module, loop: ast.For) -> bool:
    """Whether a loop's source is not told by what its function gets, nor by numbers."""
    function, source = module.function(loop), loop.iter
    is_given = isinstance(source, ast.Name) and function and source.id in parameters(function)
    is_zip = isinstance(source, ast.Call) and module.last_name(source.func) == "zip"
    return not (is_given or is_zip or is_over_numbers(module, loop))


def examples_of(module: Module, loop: ast.For) -> set[str]:
    """The names of what a loop takes of its loader, without the number of the batch."""
    return bound_names(loop.target) - {enumerated_name(module, loop)}
