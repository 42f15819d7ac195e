"""Tell what a script's options mean by where their values go in the program.

An option is the training batch because its value reaches the ``batch_size`` of a loader that a
training loop uses, not because of its name. Names of the usual kind decide only between several
options that reach the same place, and where the place cannot be seen.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ....recipes.flag_names import ROLES, flag_for, normalize_flag
from ....recipes.script_flags import Option
from ....record import record
from ...source.module import Module
from ...source.tree import argument, below, everywhere, mentions, parameters, within
from ..language.passed_arguments import argument_for_parameter, default_value
from ..training.constructed_loaders import Loader, loader_calls, loader_from_call
from ..training.frameworks import OPTIMIZERS
from ..training.program import Program
from .constant_members import members

MOST_STEPS = 12  # assignments and calls that a value is followed through

SEEDING = ("manual_seed", "manual_seed_all", "set_seed", "seed_everything", "fix_seed")
TOKENIZER_LENGTHS = ("max_length", "max_seq_length", "max_seq_len", "block_size")
WRITERS = (
    *("save", "save_pretrained", "save_model", "save_state", "makedirs", "mkdir"),
    *("save_on_main", "SummaryWriter"),
)
RANK_COUNTS = ("world_size", "ngpus_per_node", "nprocs", "nproc_per_node", "hvd.size()")
NOT_SIZES = ("n_gpu", "ngpu", "world_size", "gpus", "num_gpus", "ngpus_per_node", "device_count")


@record
class FlagRole:
    """An option's role: its spellings, and the line where its value is used for it.

    `path` is the file of the line, and `line` is 0 where the name alone decides.
    """

    role: str
    spellings: tuple[str, ...]
    default: object
    path: str
    line: int

    @property
    def flag(self) -> str:
        """The spelling to pass: the first one that begins with two dashes, else the first."""
        long = (one for one in self.spellings if one.startswith("--"))
        return next(long, self.spellings[0])


def flag_roles(program: Program) -> dict[str, FlagRole]:
    """The option of each role of `recipes.flag_names.ROLES`, where one can be told."""
    found: dict[str, FlagRole] = {}
    uses = role_places(program)
    for role in ROLES:
        reached: dict[str, tuple[Module, ast.AST]] = {}
        for module, expr in uses.get(role, ()):
            for dest in options_in(program, module, expr):
                if not program.options[dest].is_switch:  # all roles take values
                    reached.setdefault(dest, (module, expr))
        chosen = _choose(role, [one for one in reached if not _is_taken(one, found, program)])
        if chosen is not None:
            module, node = reached[chosen]
            option, line = program.options[chosen], getattr(node, "lineno", 0)
            found[role] = FlagRole(role, option.spellings, option.default, module.source.name, line)
    for role in ROLES.keys() - found.keys():
        named = _by_name(program, role, found)
        if named is not None:
            path = program.script.source.name
            found[role] = FlagRole(role, named.spellings, named.default, path, 0)
    return found


def divides_batch(program: Program) -> bool:
    """Whether the training batch is divided by the number of ranks: the option is that of all."""
    return any(
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Div | ast.FloorDiv)
        and any(name in ast.unparse(node.right) for name in RANK_COUNTS)
        for module, expr in role_places(program).get("train_batch", ())
        for node in _reaching(program, module, expr)
    )


def options_in(program: Program, module: Module, expr: ast.expr) -> list[str]:
    """The attributes that options set whose values reach ``expr``, in the order of finding."""
    found: dict[str, None] = {}
    for node in _reaching(program, module, expr):
        if isinstance(node, ast.Attribute) and node.attr in program.options:
            found.setdefault(node.attr)
    return list(found)


def role_places(program: Program) -> dict[str, list[tuple[Module, ast.expr]]]:
    """The expressions that decide each role: a batch size, a seed, a learning rate, a path."""
    uses: dict[str, list[tuple[Module, ast.expr]]] = {role: [] for role in ROLES}
    training = [loop.loader for loop in program.train_loops if loop.loader]
    for loader in training:
        uses["train_batch"] += _batch_sizes(loader)
    for loader in _other_loaders(program, training):
        uses["eval_batch"] += _batch_sizes(loader)
    for loop in program.train_loops:
        if loop.accumulation is not None:
            uses["accumulation"].append((loop.module, loop.accumulation))
        uses["accumulation"] += [(loop.module, n) for n in _loss_divisors(loop.module, loop.steps)]
        if loop.epochs is not None:
            uses["epochs"].append((loop.module, loop.epochs.iter))
        else:
            uses["epochs"] += _callers_ranges(program, loop.module, loop.steps)
    for role, found in (
        ("learning_rate", _learning_rates(program)),
        ("seed", _arguments_of(program, SEEDING, 0)),
        ("sequence_length", _lengths(program)),
        ("output", _written_paths(program)),
    ):
        uses[role] += found
    return uses


def _batch_sizes(loader: Loader) -> Iterator[tuple[Module, ast.expr]]:
    if loader.batch_size is not None:
        yield loader.module, loader.batch_size
    for sampler in (argument(loader.call, 4, "batch_sampler"), *loader.samplers):
        for call in everywhere(sampler, ast.Call) if sampler is not None else ():
            size = argument(call, 1, "batch_size")
            if size is not None and "Batch" in loader.module.last_name(call.func):
                yield loader.module, size


def _other_loaders(program: Program, training: Iterable[Loader]) -> Iterator[Loader]:
    calls = {loader.call for loader in training}
    for module, call in loader_calls(program):
        if call not in calls and program.is_live(module, call):
            yield loader_from_call(module, call)


def _loss_divisors(module: Module, loop: ast.For | ast.While) -> Iterator[ast.expr]:
    """``n`` of ``loss = loss / n`` and ``(loss / n).backward()`` in a loop."""
    for node in within(loop.body, ast.BinOp):
        stmt = module.statement(node)
        is_kept = isinstance(stmt, ast.Assign) or mentions(stmt, "backward")
        if is_kept and isinstance(node.op, ast.Div) and "loss" in ast.unparse(node.left).lower():
            yield node.right
    for each in within(loop.body, ast.AugAssign):
        if isinstance(each.op, ast.Div) and "loss" in ast.unparse(each.target).lower():
            yield each.value


def _callers_ranges(
    program: Program, module: Module, loop: ast.AST
) -> Iterator[tuple[Module, ast.expr]]:
    """What the loops around calls of the training function run over: the epochs."""
    function = module.function(loop)
    for where, call in program.callers(function) if function is not None else ():
        for up in where.ancestors(call):
            if isinstance(up, ast.For):
                yield where, up.iter


def _learning_rates(program: Program) -> Iterator[tuple[Module, ast.expr]]:
    for module, call in program.calls_to(*sorted(OPTIMIZERS)):
        rate = argument(call, 1, "lr")
        if rate is not None and program.is_live(module, call):
            yield module, rate


def _arguments_of(
    program: Program, names: tuple[str, ...], place: int
) -> Iterator[tuple[Module, ast.expr]]:
    for module, call in program.calls_to(*names):
        if len(call.args) > place:
            yield module, call.args[place]


def _lengths(program: Program) -> Iterator[tuple[Module, ast.expr]]:
    """Maximum lengths passed to a tokenizer's call or to one of its methods."""
    for module in program.modules:
        for call in module.nodes(ast.Call):
            if "tokenizer" in ast.unparse(call.func).lower() or module.last_name(call.func) in (
                "encode",
                "encode_plus",
                "batch_encode_plus",
            ):
                for keyword in call.keywords:
                    if keyword.arg in TOKENIZER_LENGTHS:
                        yield module, keyword.value


def _written_paths(program: Program) -> Iterator[tuple[Module, ast.expr]]:
    for module, call in program.calls_to(*WRITERS):
        yield from ((module, each) for each in call.args)
    for module, call in program.calls_to("open"):
        mode = argument(call, 1, "mode")
        if isinstance(mode, ast.Constant) and "w" in str(mode.value) and call.args:
            yield module, call.args[0]


def _choose(role: str, dests: list[str]) -> str | None:
    """The one option among those that reach a role's place; the usual names decide."""
    named = [dest for dest in dests if normalize_flag(dest) not in NOT_SIZES]
    if len(named) == 1 and role not in ("output", "epochs", "sequence_length"):
        return named[0]
    usual = flag_for(role, named)
    if usual is not None:
        return usual
    if role == "output":
        folders = [one for one in named if "dir" in one or "out" in one or "save" in one]
        return folders[0] if len(folders) == 1 else None
    if role == "sequence_length":
        lengths = [one for one in named if "len" in one]
        return lengths[0] if len(lengths) == 1 else None
    return named[0] if len(named) == 1 and role == "epochs" and "epoch" in named[0] else None


def _is_taken(dest: str, found: dict[str, FlagRole], program: Program) -> bool:
    """Whether another role has the option: evaluations may share the batch of training."""
    spellings = program.options[dest].spellings
    return any(role.spellings == spellings for role in found.values())


def _by_name(program: Program, role: str, found: dict[str, FlagRole]) -> Option | None:
    """The option with a usual name, for a role whose place cannot be seen."""
    if role == "train_batch" and any(program.train_loops):
        loaders = [loop.loader for loop in program.train_loops if loop.loader]
        if loaders and all(isinstance(each.batch_size, ast.Constant) for each in loaders):
            return None
    free = {
        dest: option
        for dest, option in program.options.items()
        if not any(one.spellings == option.spellings for one in found.values())
    }
    dest = flag_for(role, free)
    return free[dest] if dest is not None else None


def constants_in(program: Program, module: Module, expr: ast.expr) -> Iterator[ast.Constant]:
    """The constants that may reach ``expr``."""
    for node in _reaching(program, module, expr):
        if isinstance(node, ast.Constant):
            yield node


def _reaching(program: Program, module: Module, expr: ast.expr) -> Iterator[ast.AST]:
    """All nodes of ``expr`` and of what its names and attributes stand for, each once."""
    seen: set[ast.AST] = set()
    pending: list[tuple[Module, ast.expr, int]] = [(module, expr, 0)]
    while pending:
        where, value, depth = pending.pop(0)
        if value in seen or depth > MOST_STEPS:
            continue
        seen.add(value)
        for node in below(value):
            yield node
            for source_module, source in sources_of(program, where, node):
                pending.append((source_module, source, depth + 1))


def sources_of(
    program: Program, module: Module, node: ast.AST
) -> Iterator[tuple[Module, ast.expr]]:
    """The values that a name, an attribute or a dict's key may stand for."""
    yield from members(program, module, node)
    if isinstance(node, ast.Attribute) and node.attr not in program.options:
        for each in program.modules:
            yield from ((each, value) for value in each.attribute_values.get(node.attr, ()))
    if not isinstance(node, ast.Name):
        return
    function = module.function(node)
    local = module.alternatives(node, node)
    if local:
        yield from ((module, value) for value in local)
    elif function is not None and node.id in parameters(function):
        calls = program.callers(function)
        for where, call in calls:
            value = argument_for_parameter(module, function, call, node.id)
            if value is not None:
                yield where, value
            elif (default := default_value(function, node.id)) is not None:
                yield module, default
        if not calls and (default := default_value(function, node.id)) is not None:
            yield module, default
    elif function is not None or (None, node.id) in module.stores:
        for store in module.stores.get((None, node.id), ()):
            holder = module.parents[store]
            if isinstance(holder, ast.Assign | ast.AnnAssign) and holder.value is not None:
                yield module, holder.value
