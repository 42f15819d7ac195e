"""Each loader of such a loop is dealt by rank exactly once, in a new order in each epoch.

What              The data of every training loop that several ranks reach is dealt by rank once: by
                  a sampler that knows the rank, by shards, by a slice of every n-th example. The
                  sampler learns the epoch, also where the epoch loop is in the caller. Iterable
                  data get no sampler.
At run time       Undealt, N ranks compute the same gradients N times. Dealt twice, 1/N of the data
                  is seen. Without set_epoch, each epoch has the order of the first. DataLoader
                  raises ValueError for shuffle=True beside a sampler, and for a sampler of
                  iterable data. What is taken by the number of the batch belongs to other examples.
How it is judged  For each loop its loader is followed to where it is made, and its sampler to what
                  the ranks, rather than a lone process, get. A sampler that shuffles needs a
                  set_epoch in the loop, around it, or in what these call, with a number that
                  changes, on all ranks.
When unknown      Never: where the loader or the sampler cannot be followed, nothing is said.
Source            torch.utils.data.distributed.DistributedSampler
"""

import ast
from collections.abc import Iterator

from ..analysis.batches.example_counts import holds_batch_size
from ..analysis.ranks.dealing import is_for_lone_process
from ..analysis.ranks.manual_sharding import manual_shards
from ..analysis.ranks.rank_reach import RANKS, Role, value_for_role
from ..analysis.training.constructed_loaders import Loader, makes_rank_sampler
from ..analysis.training.program import Program
from ..analysis.training.told_epochs import may_tell_sampler
from ..analysis.training.train_loops import TrainLoop
from ..source.branches import is_in
from ..source.module import Module
from ..source.tree import (
    FUNCTIONS,
    Function,
    argument,
    everywhere,
    is_true,
    is_within,
    mentions,
    within,
)
from .ranks import (
    callers_above,
    functions_below,
    is_managed,
    may_name_rank,
    ranked_loops,
    ranks_at,
)
from .verdict import AuditVerdict, violated

CODE = "O4"
SAMPLER = "DistributedSampler"
UNDEALT = {
    *("RandomSampler", "SequentialSampler", "WeightedRandomSampler", "SubsetRandomSampler"),
}
PLAIN = {"BatchSampler", "len", "int", "torch", "list", "range", "Generator", "manual_seed"}
Leaf = tuple[Module, ast.expr]


def verdicts(program: Program, original: Program | None) -> Iterator[AuditVerdict]:
    if is_managed(program):
        return
    for loop in ranked_loops(program):
        every = () if loop.loader is None else (loop.loader, *loop.loader.others)
        for loader in every:
            takes_options = any(word.arg is None for word in loader.call.keywords)
            is_of_ranks = ranks_at(program, loader.module, loader.call)
            if (
                is_of_ranks
                and not takes_options
                and not is_for_lone_process(program, loader, every)
            ):
                yield from judge(program, loop, loader)


def judge(program: Program, loop: TrainLoop, loader: Loader) -> Iterator[AuditVerdict]:
    """What is to be said of one loader that a loop may go over."""
    leaves = sampler_leaves(program, loader)
    yield from refused_by_torch(program, loader, leaves)
    yield from dealt_to_so_many(leaves)
    dealt = [leaf for leaf in leaves if is_distributed(*leaf)]
    if leaves and len(dealt) == len(leaves):
        yield from dealt_twice(program, loader)
        yield from epoch_unknown(program, loop, loader, leaves)
        if not any(shuffles(*leaf) for leaf in leaves):
            yield from taken_by_number(loop)
    elif is_undealt(program, loop, loader, leaves):
        how = "its sampler is the same on every rank" if leaves else "it has no sampler"
        yield violated(
            loader.module,
            loader.call,
            f"every rank draws the same data for the loop in line {loop.steps.lineno}: {how}",
        )


def sampler_leaves(program: Program, loader: Loader) -> list[Leaf]:
    """The samplers that ranks may get; nothing where the loader has none."""
    module = loader.module
    found: list[Leaf] = []
    pending = list(loader.samplers)
    if loader.batch_sampler is not None:
        pending.append(loader.batch_sampler)
    seen: set[ast.expr] = set()
    while pending:
        node = pending.pop(0)
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, ast.IfExp):
            pending += [node.body, node.orelse]
        elif isinstance(node, ast.Name) and (values := module.alternatives(node, node)):
            pending += values
        elif ranks_at(program, module, node) and loader.may_come_to(node):
            found.append((module, node))
    is_none = [isinstance(n, ast.Constant) and n.value is None for _, n in found]
    return [] if all(is_none) else found


def is_distributed(module: Module, node: ast.expr) -> bool:
    """Whether a sampler is a DistributedSampler, or one around it."""
    return any(makes_rank_sampler(module, call) for call in everywhere(node, ast.Call))


def is_undealt(program: Program, loop: TrainLoop, loader: Loader, leaves: list[Leaf]) -> bool:
    """Whether nothing that deals by rank can be behind a loader."""
    module = loader.module
    for where, node in leaves:
        calls = everywhere(node, ast.Call)
        is_none = isinstance(node, ast.Constant) and node.value is None
        names = {where.last_name(call.func) for call in calls}
        if not is_none and not (names & UNDEALT and names <= UNDEALT | PLAIN):
            return False  # a sampler that is not known
        if may_name_rank(program, where, node):
            return False
    if loader.dataset is None or may_name_rank(program, module, loader.dataset):
        return False
    if any(
        True
        for each in program.modules
        for shard in manual_shards(program, each)
        if not is_of_evaluation(program, each, shard)
    ):
        return False
    if any(has_rank_in_seed(program, each) for each in program.modules):
        return False
    return not takes_share_in_loop(program, loop) and is_read(program, module, loader.dataset)


def is_of_evaluation(program: Program, module: Module, shard: ast.expr) -> bool:
    """Whether a shard is for a loader that an evaluation goes over."""
    return program.evaluation_of(module, shard) is not None or any(
        is_in(shard, each.loader.call) for each in program.evaluations
    )


def takes_share_in_loop(program: Program, loop: TrainLoop) -> bool:
    """Whether the loop itself picks this rank's part of each batch."""
    return any(
        may_name_rank(program, loop.module, part.slice)
        for part in everywhere(loop.steps, ast.Subscript)
    ) or any(
        may_name_rank(program, loop.module, test.test)
        and any(isinstance(stmt, ast.Continue) for stmt in test.body)
        for test in within(loop.steps.body, ast.If)
    )


def has_rank_in_seed(program: Program, module: Module) -> bool:
    """Whether random numbers start differently on each rank: ``manual_seed(seed + rank)``."""
    calls = module.calls_to("manual_seed", "manual_seed_all", "seed", "set_seed", "seed_everything")
    return any(
        may_name_rank(program, module, arg)
        for call in calls
        for arg in (*call.args, *(word.value for word in call.keywords))
        if not isinstance(arg, ast.Name | ast.Attribute) or arg is not None
    )


def is_read(program: Program, module: Module, dataset: ast.expr) -> bool:
    """Whether all that a dataset is made of lies in modules that are read, and names no rank."""
    if program.unread:
        return False
    values = module.alternatives(dataset, dataset) or [dataset]
    for value in values:
        for call in everywhere(value, ast.Call):
            found = program.resolve(module, call.func)
            if found is not None and any(
                mentions(found[1], word)
                for word in ("get_rank", "get_world_size", "rank", "world_size", "RANK")
            ):
                return False
    return True


def refused_by_torch(
    program: Program, loader: Loader, leaves: list[Leaf]
) -> Iterator[AuditVerdict]:
    """Arguments for which DataLoader raises ValueError."""
    module, call = loader.module, loader.call
    shuffle = argument(call, 2, "shuffle")
    real = [
        node for _, node in leaves if not (isinstance(node, ast.Constant) and node.value is None)
    ]
    if shuffle is not None and real and len(real) == len(leaves):
        value = value_for_role(module, shuffle, Role.OTHER)
        if value is True:
            yield violated(module, call, "shuffle=True beside a sampler: DataLoader raises")
    if real and len(real) == len(leaves) and is_iterable(program, loader):
        yield violated(module, call, "iterable data with a sampler: DataLoader raises")


def dealt_to_so_many(leaves: list[Leaf]) -> Iterator[AuditVerdict]:
    """Samplers that the script tells a number of ranks, such as that of one machine's cards."""
    for module, node in leaves:
        for call in everywhere(node, ast.Call):
            told = argument(call, 1, "num_replicas")
            ranks = told.value if isinstance(told, ast.Constant) else None
            if type(ranks) is int and ranks > 1 and module.last_name(call.func) == SAMPLER:
                yield violated(module, call, f"it deals to {ranks} ranks, however many there are")


def is_iterable(program: Program, loader: Loader) -> bool:
    """Whether the dataset is of a class of the program that is an IterableDataset."""
    module = loader.module
    if loader.dataset is None:
        return False
    values = module.alternatives(loader.dataset, loader.dataset) or [loader.dataset]
    for value in values:
        found = program.resolve(module, value.func) if isinstance(value, ast.Call) else None
        if found is None or not isinstance(found[1], ast.ClassDef):
            return False
        if not any(found[0].last_name(b) == "IterableDataset" for b in found[1].bases):
            return False
    return bool(values)


def dealt_twice(program: Program, loader: Loader) -> Iterator[AuditVerdict]:
    """A DistributedSampler over data of which every rank has a part only."""
    module, dataset = loader.module, loader.dataset
    if dataset is None:
        return
    for value in module.alternatives(dataset, dataset) or [dataset]:
        if not isinstance(value, ast.Subscript | ast.Call | ast.ListComp):
            continue
        for shard in manual_shards(program, module):
            if shard is value or shard in everywhere(value, type(shard)):
                yield violated(
                    module,
                    loader.call,
                    f"a DistributedSampler deals out what line {shard.lineno} has dealt already",
                )


def taken_by_number(loop: TrainLoop) -> Iterator[AuditVerdict]:
    """``labels[step * batch_size :]`` of what keeps the order of the data, as the loader did."""
    module, body, number = loop.module, loop.steps.body, loop.step_name
    if not number or loop.loader is None or loop.loader.batch_size is None:
        return
    places: set[str] = set()  # in the data, by the number of the batch

    def is_place(node: ast.AST) -> bool:
        return any(
            isinstance(product.op, ast.Mult)
            and any(isinstance(side, ast.Name) and side.id == number for side in sides)
            and any(holds_batch_size(loop, side) for side in sides)
            for product in everywhere(node, ast.BinOp)
            for sides in [(product.left, product.right)]
        ) or any(name.id in places for name in everywhere(node, ast.Name))

    for stmt in within(body, ast.Assign):
        target = stmt.targets[0]
        if isinstance(target, ast.Name) and isinstance(stmt.value, ast.BinOp):
            places |= {target.id} if is_place(stmt.value) else set()
    own = {name.id for name in everywhere(loop.steps, ast.Name) if isinstance(name.ctx, ast.Store)}
    for part in within(body, ast.Subscript):
        if is_place(part.slice) and not own & {
            each.id for each in everywhere(part.value, ast.Name)
        }:
            because = f"{module.text(part.value)} is taken by the number of the batch"
            yield violated(module, part, f"{because}, and a rank's batches are others")
            return


def epoch_unknown(
    program: Program, loop: TrainLoop, loader: Loader, leaves: list[Leaf]
) -> Iterator[AuditVerdict]:
    """A sampler that shuffles and serves several epochs, and never learns the epoch."""
    if loader.cycle is not None or not any(shuffles(*leaf) for leaf in leaves):
        return
    places, epochs = epoch_places(program, loop)
    calls = {
        (module, call)
        for module, node in places
        for call in everywhere(node, ast.Call)
        if module.last_name(call.func) == "set_epoch"
        and isinstance(call.func, ast.Attribute)
        and may_tell_sampler(program, module, call.func)
    }
    if epochs and not calls:
        yield violated(*epochs[0], "the sampler never learns the epoch: nothing calls set_epoch")
    for module, call in calls:
        if call.args and isinstance(call.args[0], ast.Constant) and len(calls) == 1:
            yield violated(module, call, "set_epoch gets the same number in each epoch")
        roles = ranks_at(program, module, call)
        if roles and roles < RANKS and len(calls) == 1:
            who = next(iter(roles)).value
            yield violated(
                module, call, f"only {who} tells its sampler the epoch: ranks draw by other orders"
            )


def shuffles(module: Module, node: ast.expr) -> bool:
    """Whether a DistributedSampler shuffles, which it does unless it is told not to."""
    for call in everywhere(node, ast.Call):
        if module.last_name(call.func) == "DealtSampler":
            return True
        if module.last_name(call.func) == SAMPLER:
            word = argument(call, 3, "shuffle")
            return word is None or is_true(word)
    return False


def epoch_places(
    program: Program, loop: TrainLoop
) -> tuple[list[tuple[Module, ast.AST]], list[tuple[Module, ast.For]]]:
    """Where set_epoch would stand, and the loops over epochs around the training loop."""
    module, steps = loop.module, loop.steps
    function = module.function(steps)
    functions: list[tuple[Module, Function]] = [
        (program.module_of(each), each) for each in callers_above(program, function)
    ]
    epochs = [(module, up) for up in loops_around(module, steps) if counts(module, up)]
    places: list[tuple[Module, ast.AST]] = [(module, module.tree if function is None else function)]
    places += functions
    if any(
        module.function(call) is None
        for each in (function, *(f for _, f in functions))
        if each is not None
        for _, call in program.callers(each)
    ):
        places.append((program.script, program.script.tree))
    for each in {function, *(f for _, f in functions)} - {None}:
        assert each is not None
        for where, call in program.callers(each):
            epochs += [(where, up) for up in loops_around(where, call) if counts(where, up)]
    for where, node in list(places):
        if not isinstance(node, ast.Module):
            places += functions_below(program, where, node)
    return places, epochs


def loops_around(module: Module, node: ast.AST) -> Iterator[ast.For]:
    """The for loops around a node in its function."""
    for up in module.ancestors(node):
        if isinstance(up, FUNCTIONS):
            return
        if isinstance(up, ast.For) and is_within(node, up.body):
            yield up


def counts(module: Module, loop: ast.For) -> bool:
    """Whether a loop counts epochs: over a range that is not of one pass."""
    named = (module.definition(name, name) for name in everywhere(loop.iter, ast.Name))
    sources = [loop.iter, *(each for each in named if each is not None)]
    for call in (call for source in sources for call in everywhere(source, ast.Call)):
        if module.last_name(call.func) in ("range", "trange"):
            one = len(call.args) == 1 and isinstance(call.args[0], ast.Constant)
            return not (one and getattr(call.args[0], "value", 0) == 1)
    return False
