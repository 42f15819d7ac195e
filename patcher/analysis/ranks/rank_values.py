"""The value of an expression for each kind of process: the only one, rank 0, the other ranks.

A test such as ``args.local_rank in [-1, 0] and args.do_eval`` is unknown before the run, but its
rank part is known for a given role: a partial evaluation, with UNKNOWN as the third answer.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from typing import Any

from ...source.branches import is_in
from ...source.module import Module, cached_per_module, cached_per_program
from ...source.tree import argument, below, everywhere, mentions
from ..training.frameworks import MAIN_PROCESS_NAMES
from .other_ranks import is_other_rank
from .role_bindings import attribute_by_class, callee, name_values, returned_values
from .roles import ALL_UNKNOWN, ROLES, UNKNOWN, Role, Values

ROLE_INDEX = {role: index for index, role in enumerate(ROLES)}


# Names of a process's rank. Without a process group scripts set them to -1.
RANK_NAMES = {"local_rank", "global_rank", "rank", "node_rank", "LOCAL_RANK", "RANK"}
RANK_OF_ROLE = {Role.SINGLE: -1, Role.MAIN: 0, Role.OTHER: 1}
WORLD_SIZE_OF_ROLE = {Role.SINGLE: 1, Role.MAIN: 2, Role.OTHER: 2}
RANK_OF_EACH, WORLD_OF_EACH = tuple(RANK_OF_ROLE.values()), tuple(WORLD_SIZE_OF_ROLE.values())
# Attributes of accelerate's and Lightning's objects; a lone process has number 0.
PROCESS_NUMBERS = {"process_index", "local_process_index"}
IS_MAIN: Values = (True, True, False)
ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
LAUNCHERS = {"WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
ENVIRONMENT_VARIABLES = RANK_NAMES | LAUNCHERS
# What srun and mpirun set, which may start one process as well.
OF_OTHER_LAUNCHERS: dict[object, Values] = {
    **dict.fromkeys(("SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"), (UNKNOWN, 0, 1)),
    **dict.fromkeys(("SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"), (UNKNOWN, 2, 2)),
}
# What functions of torch.distributed return for each role.
QUERIES: dict[str, Values] = {
    "get_rank": (0, 0, 1),
    "get_node_local_rank": (0, 0, 1),
    "get_world_size": WORLD_OF_EACH,
    "is_initialized": (False, True, True),
    "is_torchelastic_launched": (False, True, True),
}
OF_A_MACHINE = re.compile(
    r"gpus?_?per_?node|nprocs?_?per_?node|device_count|LOCAL_WORLD_SIZE", re.I
)
OF_A_GROUP = re.compile(r"dist|ddp|parallel", re.I)
OF_GROUPS = re.compile(r"(^|_)(distributed|dist|ddp|parallel)(_|$)", re.I)
MAX_NAMES = 3  # through which the number of a rank is followed
MAX_DEPTH = 60  # of an expression with all that its names stand for
COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, container: item in container,
    ast.NotIn: lambda item, container: item not in container,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}


def value_for_role(module: Module, node: ast.expr, role: Role) -> Any:
    """The value of ``node`` in a process of this role, or UNKNOWN."""
    return values_by_role(module, node)[ROLE_INDEX[role]]


def is_world_size(module: Module, node: ast.expr) -> bool:
    """Whether an expression is the number of processes, which is 1 in a lone one."""
    return values_by_role(module, node) == WORLD_OF_EACH


def values_by_role(module: Module, node: ast.expr) -> Values:
    """The value of ``node`` for each role, in one walk. Cached."""
    return _values(module, node, 0)


def _values(module: Module, node: ast.expr, depth: int) -> Values:
    known = module.role_values.get(node)
    if known is not None:
        return known
    evaluate = EVALUATE.get(type(node))
    if evaluate is None or depth > MAX_DEPTH:
        return ALL_UNKNOWN
    module.role_values[node] = ALL_UNKNOWN  # where its value depends on itself
    known = evaluate(module, node, depth)
    if known == ALL_UNKNOWN:
        known = ALL_UNKNOWN  # the one that callers ask for
    module.role_values[node] = known
    return known


def _constant(module: Module, node: ast.Constant, depth: int) -> Values:
    return (node.value,) * 3


def _unary(module: Module, node: ast.UnaryOp, depth: int) -> Values:
    inner = _values(module, node.operand, depth + 1)
    return (
        ALL_UNKNOWN
        if inner is ALL_UNKNOWN
        else tuple([_apply_unary(node.op, item) for item in inner])
    )


def _apply_unary(op: ast.unaryop, item: Any) -> Any:
    if isinstance(op, ast.Not):
        return UNKNOWN if item is UNKNOWN else not item
    return -item if isinstance(op, ast.USub) and isinstance(item, int | float) else UNKNOWN


def _display(module: Module, node: ast.List | ast.Tuple | ast.Set, depth: int) -> Values:
    parts = [_values(module, item, depth + 1) for item in node.elts]
    columns = zip(*parts, strict=True) if parts else [(), (), ()]
    return tuple([UNKNOWN if UNKNOWN in items else list(items) for items in columns])


def _connective(module: Module, node: ast.BoolOp, depth: int) -> Values:
    parts = [_values(module, item, depth + 1) for item in node.values]
    if all(part is ALL_UNKNOWN for part in parts):
        return ALL_UNKNOWN
    if ALL_UNKNOWN in parts and _called(node, "get_rank"):
        parts = [
            _guard_of_group(module, item) if part is ALL_UNKNOWN else part
            for item, part in zip(node.values, parts, strict=True)
        ]
    decisive = isinstance(node.op, ast.Or)  # one operand with this truth value decides
    return tuple([_connected(items, decisive) for items in zip(*parts, strict=True)])


def _called(node: ast.AST, name: str) -> list[ast.expr]:
    """The functions of that name that are called in an expression."""
    called = (call.func for call in everywhere(node, ast.Call))
    return [each for each in called if getattr(each, "attr", getattr(each, "id", "")) == name]


def _guard_of_group(module: Module, item: ast.expr) -> Values:
    """``self.distributed`` beside ``dist.get_rank()``, which fails where there is no group."""
    is_not = isinstance(item, ast.UnaryOp) and isinstance(item.op, ast.Not)
    flag = item.operand if isinstance(item, ast.UnaryOp) and is_not else item
    if isinstance(flag, ast.Name | ast.Attribute) and OF_GROUPS.search(module.last_name(flag)):
        return is_not, not is_not, not is_not
    return ALL_UNKNOWN


def _connected(items: tuple[object, ...], decisive: bool) -> Any:
    known = [bool(item) for item in items if item is not UNKNOWN]
    if decisive in known:
        return decisive
    return UNKNOWN if len(known) < len(items) else not decisive


def _comparison(module: Module, node: ast.Compare, depth: int) -> Values:
    sides = [node.left, *node.comparators]
    if isinstance(node.left, ast.Constant) and node.left.value in ENVIRONMENT_VARIABLES:
        is_in = isinstance(node.ops[0], ast.In)  # "LOCAL_RANK" in os.environ
        return not is_in, is_in, is_in
    known = [_values(module, side, depth + 1) for side in sides]
    if any(values is ALL_UNKNOWN for values in known):
        return ALL_UNKNOWN
    results = [
        tuple(
            [_compare_values(COMPARE[type(op)], *pair) for pair in zip(first, second, strict=True)]
        )
        for op, first, second in zip(node.ops, known, known[1:], strict=False)
    ]
    return tuple([_connected(items, decisive=False) for items in zip(*results, strict=True)])


def _compare_values(compare: Callable[[Any, Any], Any], first: Any, second: Any) -> Any:
    if first is UNKNOWN or second is UNKNOWN:
        return UNKNOWN
    if isinstance(second, str) and type(first) is int:
        first = str(first)  # os.environ["RANK"] == "0"
    elif isinstance(second, list) and type(first) is int and all(type(x) is str for x in second):
        first = str(first)
    try:
        return compare(first, second)
    except TypeError:
        return UNKNOWN


def _arithmetic(module: Module, node: ast.BinOp, depth: int) -> Values:
    first = _values(module, node.left, depth + 1)
    second = _values(module, node.right, depth + 1)
    if isinstance(node.op, ast.Mod):
        # Rank 1 stands for all others: its remainder says something of them for the world size,
        # and for the ranks of a machine, of which the first is taken for rank 0.
        if second == WORLD_OF_EACH and first[1:] == (0, 1):
            return first
        is_of_machine = first[1:] == (0, 1) and counts_a_machine(module, node.right)
        return (UNKNOWN, 0, 1) if is_of_machine else ALL_UNKNOWN
    operate = ARITHMETIC.get(type(node.op))
    if operate is None:
        return ALL_UNKNOWN
    return tuple(
        [
            operate(*pair) if all(type(item) is int for item in pair) and pair[1] else UNKNOWN
            for pair in zip(first, second, strict=True)
        ]
    )


def counts_a_machine(module: Module, node: ast.expr) -> bool:
    """Whether a number sounds of the processes or the cards of one machine."""
    return bool(OF_A_MACHINE.search(module.text(node)))


def _walrus(module: Module, node: ast.NamedExpr, depth: int) -> Values:
    return _values(module, node.value, depth + 1)


def _conditional(module: Module, node: ast.IfExp, depth: int) -> Values:
    tests = _values(module, node.test, depth + 1)
    body, orelse = (_values(module, part, depth + 1) for part in (node.body, node.orelse))
    return tuple(
        [
            (first if first == second else UNKNOWN)
            if test is UNKNOWN
            else first
            if test
            else second
            for test, first, second in zip(tests, body, orelse, strict=True)
        ]
    )


def _name(module: Module, node: ast.Name, depth: int) -> Values:
    if node.id in RANK_NAMES and (module.function(node), node.id) not in module.stores:
        if node.id == "rank" and is_other_rank(module, node):
            return ALL_UNKNOWN
        return RANK_OF_EACH  # a parameter; a local variable may be the rank of something else
    known = _unpacked_variable(module, node) or name_values(_evaluator(depth), module, node)
    if any(type(item) is list for item in known) and not _is_only_compared(module, node):
        return ALL_UNKNOWN
    if node.id == "n_gpu" and not n_gpu_counts_ranks(module):
        return known[0], 1, 1  # one GPU per process of a group
    if node.id in ("n_gpu", "world_size"):
        return _with_defaults(known, WORLD_OF_EACH)
    if known is ALL_UNKNOWN and node.id in MAIN_PROCESS_NAMES and not _is_bound(module, node):
        return IS_MAIN
    return known


@cached_per_module
def n_gpu_counts_ranks(module: Module) -> bool:
    """Whether n_gpu is the number of processes: ``n_gpu = int(os.environ["WORLD_SIZE"])``."""
    stores: list[ast.Name | ast.Attribute] = [*module.occurrences("n_gpu")]
    return any(
        isinstance(stmt := module.statement(store), ast.Assign)
        and store in stmt.targets
        and any(
            (isinstance(part, ast.Constant) and part.value == "WORLD_SIZE")
            or (isinstance(part, ast.Call) and module.last_name(part.func) == "get_world_size")
            for part in below(stmt.value)
        )
        for store in stores
        if isinstance(store.ctx, ast.Store)
    )


def _unpacked_variable(module: Module, node: ast.Name) -> Values | None:
    """``rank, world = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE"))``, or by map."""
    stores = module.stores.get((module.function(node), node.id), [])
    holder = module.parents[stores[0]] if len(stores) == 1 else None
    if not isinstance(holder, ast.Tuple | ast.List):
        return None
    stmt = module.parents[holder]
    if not isinstance(stmt, ast.Assign) or stmt.targets != [holder]:
        return None
    match stmt.value:
        case (
            ast.GeneratorExp(elt=read, generators=[ast.comprehension(iter=names, ifs=[])])
            | ast.ListComp(elt=read, generators=[ast.comprehension(iter=names, ifs=[])])
        ):
            pass
        case ast.Call(func=ast.Name(id="map"), args=[read, names]):
            pass
        case _:
            return None
    asks = any(
        module.dotted(each) in ("os.environ", "os.environ.get", "os.getenv")
        for each in (*everywhere(read, ast.Attribute), *everywhere(names, ast.Attribute))
    )
    if isinstance(names, ast.GeneratorExp | ast.ListComp):  # map(int, (os.environ[x] for x in …))
        names = names.generators[0].iter
    if not asks or not isinstance(names, ast.Tuple | ast.List):
        return None
    name = dict(zip(holder.elts, names.elts, strict=False)).get(stores[0])
    return _environment_variable(name.value) if isinstance(name, ast.Constant) else None


def _is_only_compared(module: Module, node: ast.Name) -> bool:
    """Whether a list's name is read in comparisons alone: what else has it may add to the list."""
    return all(
        isinstance(module.parents[name], ast.Compare)
        for name in module.occurrences(node.id)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Load)
    )


def _is_bound(module: Module, node: ast.Name) -> bool:
    """Whether the file binds a name other than by an import or as a parameter."""
    return (module.function(node), node.id) in module.stores or (None, node.id) in module.stores


def _evaluator(depth: int) -> Callable[[Module, ast.expr], Values]:
    return lambda module, node: _values(module, node, depth + 1)


def _with_defaults(known: Values, defaults: Values) -> Values:
    pairs = zip(known, defaults, strict=True)
    return tuple([default if item is UNKNOWN else item for item, default in pairs])


def _attribute(module: Module, node: ast.Attribute, depth: int) -> Values:
    if node.attr in ("global_rank", "rank") or node.attr in _ranks_of_groups(module):
        return _rank_attribute(module, node, depth)
    if node.attr in RANK_NAMES:
        return RANK_OF_EACH
    if node.attr == "world_size" or (node.attr == "n_gpu" and n_gpu_counts_ranks(module)):
        return WORLD_OF_EACH
    if node.attr in PROCESS_NUMBERS:
        return QUERIES["get_rank"]
    if node.attr == "n_gpu":
        return UNKNOWN, 1, 1
    known = attribute_by_class(_evaluator(depth), module, node)
    if not _tells_ranks_apart(known):
        known = _assigned_attribute(module, node, depth)
    of_trainer = node.attr == "should_save" and module.text(node.value).endswith("args")
    if known is ALL_UNKNOWN and (of_trainer or node.attr in MAIN_PROCESS_NAMES):
        return IS_MAIN
    if known is ALL_UNKNOWN and node.attr in _gates_of_groups(module):
        return QUERIES["is_initialized"]
    return known


@cached_per_program
def _gates_of_groups(module: Module) -> set[str]:
    """Attributes that tell whether there is a process group: each is made under one of them.

    ``if cfg.MODEL.DIST_TRAIN: dist.init_process_group("nccl")``, in whatever file.
    """
    modules = [module] if module.graph is None else module.graph.modules
    made = [(where, call) for where in modules for call in where.calls_to("init_process_group")]
    gates = [
        {
            up.test.attr
            for up in where.ancestors(call)
            if isinstance(up, ast.If)
            and isinstance(up.test, ast.Attribute)
            and any(is_in(call, stmt) for stmt in up.body)
            and OF_A_GROUP.search(up.test.attr)
        }
        for where, call in made
    ]
    return set().union(*gates) if all(gates) else set()


def _assigned_attribute(module: Module, node: ast.Attribute, depth: int) -> Values:
    """``args.is_main`` by its only value; a constant may be one of several, as of an option."""
    found = None if module.graph is None else module.graph.resolve(module, node)
    if found is not None and isinstance(found[1], ast.expr):
        return _values(found[0], found[1], depth + 1)
    values = module.attribute_values.get(node.attr, [])
    known = _values(module, values[0], depth + 1) if len(values) == 1 else ALL_UNKNOWN
    if known is not ALL_UNKNOWN and _is_set_for_ranks(module, values[0]):
        return UNKNOWN, *known[1:]
    is_of_group = UNKNOWN not in known and known[0] != known[1]  # args.distributed
    return known if is_of_group or _tells_ranks_apart(known) else ALL_UNKNOWN


def _is_set_for_ranks(module: Module, value: ast.expr) -> bool:
    """``if "LOCAL_RANK" in os.environ: args.distributed = True``, and nothing else in a test."""
    block = module.parents[module.statement(value)]
    return (
        isinstance(block, ast.If)
        and mentions(block.test, "environ")
        and module.statement(value) in block.body
        and values_by_role(module, block.test) == (False, True, True)
    )


def _tells_ranks_apart(known: Values) -> bool:
    return UNKNOWN not in known[1:] and known[1] != known[2]


@cached_per_module
def _ranks_of_groups(module: Module) -> set[str]:
    """Attributes that a process group gets as its rank: ``init_process_group(rank=opt.number)``."""
    ranks = [argument(call, 3, "rank") for call in module.calls_to("init_process_group")]
    return {rank.attr for rank in ranks if isinstance(rank, ast.Attribute)}


@cached_per_module
def _counted_up(module: Module) -> set[str]:
    """Attributes that are added to, ``args.rank += card``: no assignment has their value."""
    changed = [stmt.target for stmt in module.nodes(ast.AugAssign)]
    return {target.attr for target in changed if isinstance(target, ast.Attribute)}


def _rank_attribute(module: Module, node: ast.Attribute, depth: int) -> Values:
    """``args.global_rank``: 0 in a single process too, if it is assigned from ``get_rank()``."""
    assigned = module.attribute_values.get(node.attr, [])
    if node.attr in _counted_up(module):
        return RANK_OF_EACH
    if node.attr == "rank" and is_other_rank(module, node):
        return ALL_UNKNOWN
    known = _values(module, assigned[0], depth + 1) if len(assigned) == 1 else ALL_UNKNOWN
    asks = bool(assigned) and all(_asks_group(module, value) for value in assigned)
    return _with_defaults(known, QUERIES["get_rank"] if asks else RANK_OF_EACH)


def _asks_group(module: Module, value: ast.expr, depth: int = 0) -> bool:
    """Whether a value is made of ``get_rank()``, which a process without a group cannot call."""
    if any(module.last_name(call.func) == "get_rank" for call in everywhere(value, ast.Call)):
        return True
    return depth < MAX_NAMES and any(
        _asks_group(module, source, depth + 1)
        for name in everywhere(value, ast.Name)
        for source in module.alternatives(name, name)
    )


def _environment_variable(name: object) -> Values:
    """The values that a launcher sets an environment variable to."""
    if name == "WORLD_SIZE":
        return WORLD_OF_EACH
    if name in RANK_NAMES:
        return RANK_OF_EACH
    return OF_OTHER_LAUNCHERS.get(name, ALL_UNKNOWN)


def _subscript(module: Module, node: ast.Subscript, depth: int) -> Values:
    return (
        _environment_variable(node.slice.value)
        if isinstance(node.slice, ast.Constant)
        else ALL_UNKNOWN
    )


def _call(module: Module, node: ast.Call, depth: int) -> Values:
    name = module.last_name(node.func)
    found = callee(module, node)
    if found is not None:
        known = returned_values(_evaluator(depth), *found)
        if UNKNOWN in known[1:] and name in MAIN_PROCESS_NAMES and not node.args:
            return IS_MAIN
        if known != ALL_UNKNOWN:
            return known
    if name in QUERIES:
        return QUERIES[name]
    if name == "is_available" and "dist" in module.dotted(node.func):
        return True, True, True
    if found is not None:
        return IS_MAIN if name in MAIN_PROCESS_NAMES and not node.args else ALL_UNKNOWN
    if name in ("int", "bool", "str") and len(node.args) == 1:
        inner = _values(module, node.args[0], depth + 1)
        if name == "bool":
            return tuple([UNKNOWN if item is UNKNOWN else bool(item) for item in inner])
        return inner
    if name in ("rank", "local_rank", "size") and module.dotted(node.func).startswith("horovod."):
        return WORLD_OF_EACH if name == "size" else QUERIES["get_rank"]
    key = argument(node, 0, "key") if name in ("get", "getenv") else None
    if isinstance(key, ast.Constant):
        from_launcher = _environment_variable(key.value)
        if from_launcher is not ALL_UNKNOWN:
            return from_launcher
    return IS_MAIN if name in MAIN_PROCESS_NAMES and not node.args else ALL_UNKNOWN


EVALUATE: dict[type[ast.expr], Callable[[Module, Any, int], Values]] = {
    ast.Constant: _constant,
    ast.UnaryOp: _unary,
    ast.List: _display,
    ast.Tuple: _display,
    ast.Set: _display,
    ast.BoolOp: _connective,
    ast.Compare: _comparison,
    ast.IfExp: _conditional,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.Call: _call,
    ast.BinOp: _arithmetic,
    ast.NamedExpr: _walrus,
}


def differs_by_role(module: Module, test: ast.expr) -> bool:
    """Whether a test differs between rank 0, the other ranks and a single process."""
    alone, main, other = values_by_role(module, test)
    return not alone is main is other and len({str(alone), str(main), str(other)}) > 1


def is_rank_test(module: Module, test: ast.expr) -> bool:
    """Whether a test is known for every role and not the same for all."""
    results = values_by_role(module, test)
    return UNKNOWN not in results and len({bool(result) for result in results}) > 1
