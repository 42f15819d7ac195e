"""How a program deals its examples to the ranks where no DistributedSampler does."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from ...source.branches import exclusive
from ...source.module import Module
from ...source.tree import below, everywhere, is_inside, is_true, keyword, within
from ..language.names import answered_once
from ..language.objects import classes_above, named_definition
from ..training.constructed_loaders import Loader
from ..training.program import Program
from .batch_samplers import deals_by_rank
from .manual_sharding import looks_like_rank, manual_shards
from .rank_reach import RANKS, UNKNOWN, Role, roles_reaching, value_for_role

# Parameters of data sets and samplers that take a rank.
SHARD_WORDS = ("shard_id", "shard_index", "shard_idx", "shard", "rank", "index", "process_index")
TURNS = "share_of_batches"  # of helper_code.py: every n-th batch of what makes them
SHARE_OF_DRAWN = "share_of_drawn"  # of helper_code.py: a rank's part of what all of them draw
ITERATES_ONLY = ("torchtext", "torchdata", "webdataset")  # their data sets take no sampler
# Methods of a data set of the datasets library that give another of its kind.
OF_THE_SAME = ("map", "filter", "shuffle", "with_format", "remove_columns", "take", "skip")
SHARDING_PIPES = ("sharding_filter", "ShardingFilter", "ShardingFilterIterDataPipe")
STREAMS = ("streaming", "litdata", "lightning.data")  # theirs deal by rank
SHARDING_METHODS = ("shard", "islice")  # datasets.Dataset.shard(n, rank), islice(it, rank, None, n)
SPLITTING = ("split", "chunk", "tensor_split", "array_split")  # in parts, of which each is a rank's
SOUNDS_OF_RANKS = re.compile(r"dist|rank|world|ddp|parallel|launch|gpu", re.IGNORECASE)
# Functions that seed a generator of random numbers.
SEEDING = ("manual_seed", "manual_seed_all", "seed", "set_seed", "seed_everything", "fix_seed")


def takes_turns(loop: ast.For | ast.While) -> bool:
    """Whether ranks take turns with what a loop goes over."""
    return isinstance(loop, ast.For) and any(
        isinstance(call.func, ast.Name) and call.func.id == TURNS
        for call in everywhere(loop.iter, ast.Call)
    )


def is_for_lone_process(program: Program, loader: Loader, others: Iterable[Loader]) -> bool:
    """Whether a test of ranks leaves them another loader, which deals: ``if args.distributed:``.

    So does a function that no rank comes to, where the program starts its ranks itself.
    """
    module = loader.module
    others = [each for each in others if each is not loader]
    if loader.made_by and any(deals(program, other) for other in others):
        roles = roles_reaching(program, *loader.made_by[-1])
        if roles and not roles & RANKS:
            return True
    for other in others:
        if other.module is not module or not exclusive(loader.call, other.call):
            continue
        test = next(
            up.test
            for up in module.ancestors(loader.call)
            if isinstance(up, ast.If | ast.IfExp) and is_inside(other.call, up)
        )
        if SOUNDS_OF_RANKS.search(module.text(test)) and deals(program, other):
            return True
    return False


def deals(program: Program, loader: Loader) -> bool:
    """Whether a loader deals by rank, by its sampler or its batch_sampler."""
    made = loader.batch_sampler
    values = loader.samplers if made is None else (made,)
    return bool(loader.distributed_samplers) or any(
        deals_by_rank(program, loader.module, value) for value in values
    )


@answered_once
def dealt_by_hand(program: Program) -> str:
    """What deals examples by rank, as a line of the program; "" where nothing is seen to."""
    for module in program.modules:
        for node in (
            *manual_shards(program, module),
            *blocks_by_rank(program, module),
            *turns_by_name(module),
            *shard_arguments(program, module),
            *sharding_pipes(module),
        ):
            if not program.is_live(module, node):
                continue  # a library's, for other scripts
            return f"{module.text(node)} in line {node.lineno} of {module.source.name}"
    return ""


def sharding_pipes(module: Module) -> Iterator[ast.expr]:
    """``pipe.sharding_filter()``, and bases of that class: a DataLoader has it deal by rank."""
    yield from module.calls_to(*SHARDING_PIPES)
    for owner in module.nodes(ast.ClassDef):
        yield from (base for base in owner.bases if module.last_name(base) in SHARDING_PIPES)


def turns_by_name(module: Module) -> Iterator[ast.Compare]:
    """``number % n_gpu == self.gpu_rank``, whose values no line may tell.

    Names of ranks that are followed to their values are left to the others.
    """
    for remainder in module.nodes(ast.BinOp):
        test = module.parents[remainder]
        if (
            isinstance(remainder.op, ast.Mod)
            and isinstance(test, ast.Compare)
            and isinstance(test.ops[0], ast.Eq | ast.NotEq)
            and not isinstance(remainder.right, ast.Constant)
        ):
            names = {module.last_name(side) for side in (test.left, *test.comparators)}
            if any(name.endswith("_rank") for name in names - {"local_rank", "global_rank"}):
                yield test


def blocks_by_rank(program: Program, module: Module) -> Iterator[ast.expr]:
    """A rank's block of each global batch, ``tokens[place + rank * size :]``, or of all examples.

    That is ``examples.split(size)[rank]``, too. The place may have a name, or be kept in an object;
    what a data set or sampler goes over may begin at it without a slice.
    """
    for cut in module.nodes(ast.Slice):
        part = module.parents[cut]
        begins = [] if cut.lower is None else begins_of(module, cut.lower)
        if isinstance(part, ast.Subscript) and any(
            is_rank_times(program, module, product) for product in begins
        ):
            yield part
    for function in module.all_functions:
        for stmt in within(function.body, ast.Assign) if function.name == "__iter__" else ():
            for product in everywhere(stmt.value, ast.BinOp):
                if is_rank_times(program, module, product):
                    yield product
    for call in module.calls_to(*SPLITTING):
        pieces = [call, *(up for up in module.ancestors(call) if isinstance(up, ast.Call))]
        for piece in pieces:
            part = module.parents[piece]
            if (
                isinstance(part, ast.Subscript)
                and part.value is piece
                and isinstance(part.ctx, ast.Load)
                and looks_like_rank(program, module, part.slice)
            ):
                yield part


def begins_of(module: Module, lower: ast.expr) -> list[ast.BinOp]:
    """The sums and products in the begin of a slice, and in what its names and attributes hold."""
    values = [lower]
    for name in everywhere(lower, ast.Name):
        values += module.alternatives(name, name)
    for attribute in everywhere(lower, ast.Attribute):
        values += module.attribute_values.get(attribute.attr, [])
    return [product for value in values for product in everywhere(value, ast.BinOp)]


def is_rank_times(program: Program, module: Module, product: ast.BinOp) -> bool:
    """``rank * size``, either way round, or ``rank / world_size * size``."""
    sides = [product.left, product.right] if isinstance(product.op, ast.Mult) else []
    sides += [
        side.left
        for side in sides
        if isinstance(side, ast.BinOp) and isinstance(side.op, ast.Div | ast.FloorDiv)
    ]
    return any(looks_like_rank(program, module, side) for side in sides)


def shard_arguments(program: Program, module: Module) -> Iterator[ast.Call]:
    """Calls that get a rank for a share: ``Shards(data, shard_id=rank, num_shards=n)``."""
    for call in module.nodes(ast.Call):
        words = [word.value for word in call.keywords if word.arg in SHARD_WORDS]
        if module.last_name(call.func) in SHARDING_METHODS:
            words += call.args
        if not words or is_of_torch(module, call):
            continue
        if any(holds_rank(program, module, word) for word in words):
            yield call


def is_of_torch(module: Module, call: ast.Call) -> bool:
    """Whether a call is of a process group, a wrapper or a device, none of which hold examples."""
    return module.dotted(call.func).startswith("torch.") and (
        module.last_name(call.func) != "DistributedSampler"
    )


def holds_rank(program: Program, module: Module, node: ast.expr) -> bool:
    """Whether an expression is a rank, or an attribute that is assigned one."""
    if looks_like_rank(program, module, node):
        return True
    if not isinstance(node, ast.Attribute):
        return False
    return any(
        looks_like_rank(program, where, value)
        for where in program.modules
        for value in where.attribute_values.get(node.attr, ())
    )


def seeded_by_rank(program: Program) -> str:
    """A call that seeds each rank's random numbers differently, as it stands; "" for none."""
    for module, call in program.calls_to(*SEEDING):
        for value in (*call.args, *(word.value for word in call.keywords)):
            if any(differs_by_rank(module, part) for part in below(value)):
                return module.text(call)
    return ""


def differs_by_rank(module: Module, node: ast.AST) -> bool:
    """Whether an expression is known for rank 0 and another rank, and not the same."""
    if not isinstance(node, ast.expr):
        return False
    first, second = (value_for_role(module, node, role) for role in (Role.MAIN, Role.OTHER))
    return UNKNOWN not in (first, second) and first != second


def deals_itself(program: Program, module: Module, dataset: ast.expr | None) -> bool:
    """Whether a data set is a StreamingDataset, or of a class below it, which deals by rank."""
    made = () if dataset is None else (dataset, *module.alternatives(dataset, dataset))
    for call in made:
        if not isinstance(call, ast.Call):
            continue
        names = [module.dotted(call.func)]
        match named_definition(program, module, call.func):
            case where, ast.ClassDef() as owner:
                for home, each in classes_above(program, (where, owner)):
                    names += map(home.dotted, each.bases)
        if any(map(is_stream, names)):
            return True
    return False


def is_stream(name: str) -> bool:
    """Whether a resolved name is of a library's StreamingDataset."""
    package, _, kind = name.rpartition(".")
    return package.startswith(STREAMS) and kind == "StreamingDataset"


def is_iterable_dataset(program: Program, module: Module, dataset: ast.expr | None) -> bool:
    """Whether a data set may be of a class that only iterates, and so takes no sampler."""
    if isinstance(dataset, ast.Name):
        made = module.alternatives(dataset, dataset)
        return any(is_iterable_dataset(program, module, each) for each in made)
    if isinstance(dataset, ast.Subscript):  # of its splits
        return is_iterable_dataset(program, module, dataset.value)
    if not isinstance(dataset, ast.Call):
        return False
    name = module.last_name(dataset.func)
    streaming = keyword(dataset, "streaming")
    if name == "to_iterable_dataset" or (streaming is not None and is_true(streaming.value)):
        return True
    if name in OF_THE_SAME and isinstance(dataset.func, ast.Attribute):
        return is_iterable_dataset(program, module, dataset.func.value)
    if module.dotted(dataset.func).partition(".")[0] in ITERATES_ONLY:
        return True
    return any(
        where.last_name(base) == "IterableDataset"
        for where in program.modules
        for owner in where.nodes(ast.ClassDef)
        if owner.name == name
        for base in owner.bases
    )
