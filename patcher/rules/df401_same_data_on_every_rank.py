"""Every rank draws the same training data.

What         A process group is created, also by DeepSpeed, and the training loader has no
             DistributedSampler.
At run time  N ranks with one seed compute the same gradients N times: no speed-up, and N times
             the work for the same result.
Example      train_sampler = RandomSampler(train_dataset)
Fix          DistributedSampler for a rank, RandomSampler for a lone process; for a sampler of a
             part or by weights, what it draws, dealt by rank (DealtSampler). Of a sampler, or a
             batch_sampler, of the script's own, ranks take turns at whole batches, which rank 0
             draws (DealtBatches). A DistributedSampler that was made and forgotten is handed over.
             Data that the script deals itself, by shard_id, seeds of each rank or every
             world_size-th example, is left.
             A function that makes other loaders, too, deals those alone that train: by a parameter
             that tells, or by one that it gets.
             A data set that draws an example, whichever one it is asked for, draws others on each
             rank (DrawnApart).
             A data set that is as long as its loader's steps, num_steps * batch_size, is made as
             long as those of all ranks.
             Where no DataLoader makes the batches, but the loop itself, a generator or a list:
             ranks take turns (share_of_batches), equally often, and draw rank 0's random numbers
             ahead of what orders the examples (draw_alike). Sums over a rank's batches that are
             divided by the number of all are added up (gathered). Where each step draws the
             examples of its batch, ranks draw as many as all of them need, and each takes its share
             (share_of_drawn).
Fix safety   Safe: a lone process keeps its sampler, and its batches. Only reported where the data
             only iterates, as an IterableDataset takes no sampler: deal by rank in its __iter__,
             and streaming data of the datasets library by its split_dataset_by_node();
             and for batches without a DataLoader where it is not certain that all ranks go over
             the same ones, that a step needs nothing of the batch before, and that nothing
             counts all batches. Then let each rank take every world_size-th of them, the same
             number on all ranks, and count the steps of the schedule so.
Source       torch.utils.data.distributed.DistributedSampler
"""

import ast
import re
from collections.abc import Iterator

from ...record import replace
from ..analysis.batches.batch_taint import NotDealtError, UnknownOriginError
from ..analysis.batches.drawn_examples import drawn_example, ranks_draw_alike
from ..analysis.batches.torch_draws import seeds_torch
from ..analysis.models.wrapping import never_steps
from ..analysis.ranks.batch_samplers import deals_by_rank, is_own_dealer
from ..analysis.ranks.dealing import (
    SHARE_OF_DRAWN,
    deals,
    deals_itself,
    dealt_by_hand,
    is_for_lone_process,
    is_iterable_dataset,
    seeded_by_rank,
    takes_turns,
)
from ..analysis.ranks.rank_reach import RANKS, roles_reaching
from ..analysis.training.constructed_loaders import Loader, loader_calls, loader_from_call
from ..analysis.training.frameworks import (
    DEALS_DATA,
    DIVIDES_WORK,
    OWNS_LOOP,
    RANK_SAMPLERS,
    calls_one_of,
)
from ..analysis.training.program import Program
from ..analysis.training.train_loops import TrainLoop
from ..editing.edits import Define, Edit, Import, Rewrite
from ..findings import Finding, Safety, Severity
from ..fixes.batches_without_loader import edits_to_share_batches
from ..fixes.counted_cards import IN_GROUP
from ..fixes.dataset_by_name import dataset_by_name
from ..fixes.dealt_batches import deal_batches
from ..fixes.drawn_apart import knew_no_ranks, may_draw_apart
from ..fixes.examples_apart import draw_examples_apart
from ..fixes.idle_samplers import idle_sampler
from ..fixes.loader_factories import UntoldError, negated, only_evaluates_else, training_test
from ..fixes.loader_options import may_hold, may_shuffle, options_of, with_sampler
from ..fixes.made_samplers import makes_sampler
from ..fixes.process_group import lone_process_test, shares_batches
from ..fixes.samplers_or_none import deal_own_or_none, deal_without_sampler, may_be_none
from ..source.module import Module
from ..source.tree import (
    argument,
    everywhere,
    is_false,
    is_plain_call,
    is_true,
    keyword,
    last_argument,
    mentions,
    only_argument,
    same_code,
    within,
)

CODE, SEVERITY, SAFETY = "DF401", Severity.ERROR, Safety.SAFE


# torch's samplers of all examples, each once, and what a DistributedSampler has to be told of them.
# A wish to shuffle that may be asked twice.
WISHES = (
    *(ast.Name, ast.Attribute, ast.Subscript),
    *(ast.Compare, ast.BoolOp, ast.UnaryOp, ast.IfExp),
)
IN_FULL = {"RandomSampler": "", "SequentialSampler": ", shuffle=False"}
MOST_LISTED = 10**8  # numbers of examples that a rank can hold in a list
ENGINE = "deepspeed.initialize"
IN_PART = ("SubsetRandomSampler", "WeightedRandomSampler")

ABOUT_RANKS = (
    *("distributed", "rank", "world_size", "num_replicas", "num_shards", "is_distributed"),
    "use_ddp",
)
LENGTHS = re.compile(r"(max|num|n|total)_?(iters?|iterations|steps|samples)")
DATASET_NAMES = ("train_dataset", "training_dataset", "train_dataset_to_deal")


def findings(program: Program) -> Iterator[Finding]:
    yield from left_to_engine(program)
    if not program.calls_to("init_process_group"):
        return
    if calls_one_of(program, DEALS_DATA - {"DistributedSampler"} | DIVIDES_WORK | OWNS_LOOP):
        return
    by_hand = dealt_by_hand(program)
    seen: set[ast.Call] = set()  # a loader that several loops go over is dealt once
    told: set[Edit] = set()  # the edits of its function: another loader's would come on top
    for loop in program.train_loops:
        if by_hand:
            continue  # DF403 says what is wrong with shares by hand, if anything
        if never_steps(program, loop):
            continue  # what each rank finds in the gradients of all examples is the same
        if loop.loader is None:
            is_dealt = (
                program.calls_to(*RANK_SAMPLERS)
                or seeded_by_rank(program)
                or any(deals(program, loader_from_call(*each)) for each in loader_calls(program))
            )
            if not is_dealt and not tells_library_of_ranks(program):
                yield from without_loader(program, loop)
            continue
        every = (loop.loader, *loop.loader.others, *loop.beside)
        for loader in every:
            if loader.call not in seen and samplers_of_ranks(program, loader):
                yield from drawn_alike(program, loader)
                yield from cut_short(program, loader)
            if loader.call not in seen and not is_for_lone_process(program, loader, every):
                seen.add(loader.call)
                for each in undealt(program, loader, told):
                    # It may be meant that a step takes the same batch of a second one everywhere.
                    is_second = loader in loop.beside
                    yield replace(each, severity=Severity.DEGRADED) if is_second else each


def left_to_engine(program: Program) -> Iterator[Finding]:
    """The findings of loaders that DeepSpeed's engine trains with: it deals its own alone."""
    engines = [
        call
        for module, call in program.calls_to("initialize")
        if module.dotted(call.func) == ENGINE and program.is_live(module, call)
        if keyword(call, "training_data") is None
    ]
    others = DEALS_DATA - {ENGINE} | DIVIDES_WORK | OWNS_LOOP
    if not engines or calls_one_of(program, others) or program.calls_to(*RANK_SAMPLERS):
        return
    if dealt_by_hand(program) or seeded_by_rank(program) or tells_library_of_ranks(program):
        return
    seen: set[ast.Call] = set()
    for loop in program.train_loops:
        loader = loop.loader
        if loader is None or loader.call in seen or not program.is_live(loop.module, loop.steps):
            continue
        if loader.samplers or loader.batch_sampler is not None or never_steps(program, loop):
            continue
        made_of = program, loader.module, loader.dataset
        if is_iterable_dataset(*made_of) or deals_itself(*made_of):
            continue
        seen.add(loader.call)
        because = (
            f"line {engines[0].lineno} deals no loader but that of its training_data: call "
            "deepspeed.init_distributed() above, and give this one sampler=DistributedSampler(data)"
        )
        shuffle = argument(loader.call, 2, "shuffle")
        is_drawn = shuffle is not None and is_true(shuffle)  # by each rank anew, without a seed
        severity = Severity.DEGRADED if is_drawn and not ranks_draw_alike(program) else None
        yield Finding(loader.module, loader.call, because, severity=severity)


def drawn_alike(program: Program, loader: Loader) -> Iterator[Finding]:
    """The finding of a loader that is dealt, and whose data set draws its examples itself."""
    found = drawn_example(program, loader)
    if found is not None and surely_alike(program, loader, *found):
        module, draw = found
        because = (
            "this may choose the example, whichever one is asked for, and all ranks draw alike: "
            "behind the seeds and the data add torch.manual_seed(torch.initial_seed() + rank)"
        )
        severity = None if knew_no_ranks(program) else Severity.DEGRADED
        edits = draw_examples_apart(program, loader) if knew_no_ranks(program) else ()
        at = (loader.module, loader.call) if edits else (module, draw)
        yield Finding(*at, because, edits, severity=severity)


def surely_alike(program: Program, loader: Loader, module: Module, draw: ast.Call) -> bool:
    """Whether ranks that nobody has told apart draw the same: by one seed, or by torch's own.

    Which is the same in each process that seeds nothing, and seeds what a loader's workers draw by.
    """
    if ranks_draw_alike(program):
        return True
    if not knew_no_ranks(program) or seeds_torch(program):
        return False
    workers = argument(loader.call, 5, "num_workers")
    is_of_worker = workers is not None and not is_constant(workers, 0)
    return is_of_worker or module.dotted(draw.func).startswith("torch.")


def cut_short(program: Program, loader: Loader) -> Iterator[Finding]:
    """The finding of a data set that is dealt, and is as long as one process takes steps.

    ``Data(max_iters=args.num_steps * args.batch_size)``: ranks come to its end before their last.
    """
    module, made, size = loader.module, loader.dataset, loader.batch_size
    if isinstance(made, ast.Name):
        made = module.definition(made, made)
    if not isinstance(made, ast.Call) or size is None or not knew_no_ranks(program):
        return
    for word in made.keywords:
        if LENGTHS.fullmatch(word.arg or "") and is_product_with(word.value, size):
            because = f"{word.arg} counts the examples of one process's steps"
            ranks = f"torch.distributed.get_world_size() if {IN_GROUP} else 1"
            edits = (Rewrite(word.value, f" * ({ranks})", after=True), Import("torch"))
            yield Finding(module, word.value, because, edits)


def is_product_with(node: ast.expr, factor: ast.expr) -> bool:
    """Whether an expression is a product of names and options, one of them a certain one."""
    match node:
        case ast.BinOp(op=ast.Mult(), left=left, right=right):
            parts = [left, right]
            while isinstance(first := parts[0], ast.BinOp) and isinstance(first.op, ast.Mult):
                parts[:1] = [first.left, first.right]
            known = all(isinstance(part, ast.Name | ast.Attribute) for part in parts)
            return known and any(same_code(part, factor) for part in parts)
    return False


def tells_library_of_ranks(program: Program) -> bool:
    """Whether a library makes a loader and is told of ranks: ``loader(…, distributed=True)``.

    What it does then is not read here.
    """
    return any(
        "loader" in name.lower()
        and any(word.arg in ABOUT_RANKS and not is_false(word.value) for word in call.keywords)
        and program.resolve(module, call.func) is None
        for module in program.modules
        for name in module.called_names
        for call in module.calls_to(name)
    )


def without_loader(program: Program, loop: TrainLoop) -> Iterator[Finding]:
    """The findings of a loop that makes its batches itself, where ranks take no turns yet."""
    if takes_turns(loop.steps) or program.calls_to(SHARE_OF_DRAWN):
        return
    because = "no DataLoader of its batches could be found, and nothing deals by rank"
    edits: dict[Module, list[Edit]] = {}
    try:
        for module, edit in edits_to_share_batches(program, loop):
            edits.setdefault(module, []).append(edit)
    except NotDealtError as error:
        is_unknown = isinstance(error, UnknownOriginError) and not knew_no_ranks(program)
        may_differ = is_unknown or may_draw_apart(program, loop)
        severity = Severity.DEGRADED if may_differ else None
        yield Finding(loop.module, loop.steps, f"{because}: {error}", severity=severity)
        return
    for module, own in edits.items():
        at = loop.steps if module is loop.module else module.tree.body[0]
        yield Finding(module, at, because, tuple(own))


def samplers_of_ranks(program: Program, loader: Loader) -> list[ast.Call]:
    """Constructions of a DistributedSampler that ranks may come to.

    Not one for ``n_gpu > 1``, where ranks have been told of one card.
    """
    return [
        call
        for call in loader.distributed_samplers
        if not is_for_others(program, loader.module, call)
    ]


def is_for_others(program: Program, module: Module, sampler: ast.expr) -> bool:
    """Whether a lone process alone comes to a sampler; nobody does to what no call asks for."""
    roles = roles_reaching(program, module, sampler)
    return bool(roles) and not roles & RANKS


def is_dealt_by_function(program: Program, loader: Loader) -> bool:
    """Whether a function of the program makes the sampler, and may return one that deals."""
    return any(
        where.last_name(part.func) in RANK_SAMPLERS
        for sampler in loader.samplers
        for call in everywhere(sampler, ast.Call)
        for where, function in program.callees(loader.module, call)
        for result in within(function.body, ast.Return)
        if result.value is not None
        for value in (result.value, *where.alternatives(result.value, result.value))
        for part in everywhere(value, ast.Call)
    )


def undealt(program: Program, loader: Loader, told: set[Edit]) -> Iterator[Finding]:
    """The finding for one loader that a loop may go over; ``told`` collects edits of functions."""
    if deals_itself(program, loader.module, loader.dataset):
        return
    if is_iterable_dataset(program, loader.module, loader.dataset):
        because = (
            "its data set only iterates and takes no sampler, and nothing deals by rank: let its"
            " __iter__() give islice(examples, rank, None, world_size), as many on each rank"
        )
        yield Finding(loader.module, loader.call, because)
    elif (
        not samplers_of_ranks(program, loader)
        and not any(map(draws_apart, loader.samplers))
        and not any(is_own_dealer(program, loader.module, each) for each in loader.samplers)
        and not shares_batches(loader)
        and not is_dealt_by_function(program, loader)
    ):
        because = "no branch deals by rank" if loader.samplers else "it has no sampler"
        severity = None
        if not loader.samplers and loader.batch_sampler is not None:
            deals = deals_by_rank(program, loader.module, loader.batch_sampler)
            if deals:
                return
            because = "its batch_sampler gives all ranks the same batches, as far as it is read"
            if deals is None:
                because = "whether its batch_sampler deals by rank cannot be told"
                severity = None if knew_no_ranks(program) else Severity.DEGRADED
        if (endless := next(filter(draws_without_end, loader.samplers), None)) is not None:
            because = (
                f"line {endless.lineno} draws more examples than can be listed, to be dealt: give"
                " it generator=torch.Generator().manual_seed(seed + rank), of each rank's own"
            )
            yield Finding(loader.module, loader.call, because)
            return
        try:
            trains, more = training_test(program, loader)
        except UntoldError as error:
            because += f"; to deal those alone that train, tell them apart: {error}"
            yield Finding(loader.module, loader.call, because, severity=severity)
            return
        edits = add_distributed_sampler(program, loader, trains) if told.isdisjoint(more) else ()
        told.update(more)
        whole = (*edits, *more) if edits else ()
        yield Finding(loader.module, loader.call, because, whole, severity=severity)


def draws_apart(sampler: ast.expr) -> bool:
    """Whether a sampler draws with replacement by a generator whose seed is told the rank."""
    if not isinstance(sampler, ast.Call) or argument(sampler, 1, "replacement") is None:
        return False
    own = keyword(sampler, "generator")
    return own is not None and any(mentions(own.value, word) for word in ("rank", "get_rank"))


def draws_without_end(sampler: ast.expr) -> bool:
    """``RandomSampler(data, replacement=True, num_samples=int(1e10))``, of a rank's own or not."""
    count = argument(sampler, 2, "num_samples") if isinstance(sampler, ast.Call) else None
    if isinstance(count, ast.Call) and is_plain_call(count, "int") and count.args:
        count = count.args[0]
    number = count.value if isinstance(count, ast.Constant) else 0
    has_own = isinstance(sampler, ast.Call) and keyword(sampler, "generator") is not None
    return isinstance(number, int | float) and number >= MOST_LISTED and not has_own


def add_distributed_sampler(program: Program, loader: Loader, trains: str) -> tuple[Edit, ...]:
    """Edits that use a DistributedSampler on ranks; none where that is not provably right.

    ``trains`` is a test that holds where the construction makes the loader of a training.
    """
    module = loader.module
    alone = lone = lone_process_test(program, module, loader.call)
    if trains:
        alone = f"({alone} or {negated(trains)})"
        lone = lone if only_evaluates_else(program, loader) else alone
    if loader.only_for:
        alone = lone = f"({alone} or {loader.only_for.replace('==', '!=')})"
    torch: list[Edit] = [Import("torch")] if "torch.distributed" in alone else []
    imports = [*torch]
    if "DistributedSampler" not in module.aliases:
        imports.append(Import("torch.utils.data.distributed", "DistributedSampler"))
    if loader.batch_sampler is not None:
        return deal_batches(program, loader, alone)
    if all(is_constant(sampler, None) for sampler in loader.samplers):
        shuffled = replace_shuffle(module, loader, alone, lone, trains)
        texts = [each.code for each in shuffled if isinstance(each, Rewrite)]
        is_new = any("DistributedSampler(" in text for text in texts)
        return (*shuffled, *imports) if is_new else shuffled
    edits: list[Edit] = []
    is_lacking = may_be_none(module, loader)
    if is_lacking:
        edits += deal_without_sampler(module, loader, alone, lone, DATASET_NAMES)
        if not edits:
            return ()
    for sampler in loader.samplers:  # one per branch
        if is_constant(sampler, None) or is_for_others(program, module, sampler):
            continue
        if is_lacking and not loader.may_come_to(sampler):
            continue
        is_here = module.function(sampler) is module.function(loader.call)
        knows_test = is_here or alone == lone_process_test(program, module, sampler)
        dealt = deal(program, module, sampler, alone) if knows_test else ()
        if not dealt and is_lacking:
            turns = deal_own_or_none(program, loader, alone, lone, DATASET_NAMES)
            return (*turns, *imports) if turns else ()
        if not dealt:
            return deal_batches(program, loader, alone)
        edits += dealt
    if is_lacking:
        return (*edits, *imports)
    is_wrapped = any(isinstance(edit, Define) for edit in edits)
    return (*edits, *(torch if is_wrapped and len(loader.samplers) == 1 else imports))


def deal(program: Program, module: Module, call: ast.expr, alone: str) -> tuple[Edit, ...]:
    """Edits that deal by rank what a sampler of torch draws; none for another."""
    kind = module.dotted(call.func) if isinstance(call, ast.Call) else ""
    package, _, kind = kind.rpartition(".")
    if not isinstance(call, ast.Call):
        return ()
    if not package.startswith("torch.utils.data"):
        return deal_drawn(module, call, alone) if makes_sampler(program, module, call) else ()
    data = only_argument(call, "data_source")
    if data is not None and kind in IN_FULL:
        by_rank = f"DistributedSampler({module.text(data)}{IN_FULL[kind]})"
        return (Rewrite(call, f" if {alone} else {by_rank}", after=True),)
    return deal_drawn(module, call, alone) if kind in (*IN_FULL, *IN_PART) else ()


def deal_drawn(module: Module, call: ast.Call, alone: str) -> tuple[Edit, ...]:
    """Edits that deal among the ranks what a sampler draws, which all of them draw alike."""
    dealt = Rewrite(call, f" if {alone} else DealtSampler({module.text(call)})", after=True)
    return (dealt, Define("DealtSampler"))


def replace_shuffle(
    module: Module, loader: Loader, alone: str, lone: str, trains: str
) -> tuple[Edit, ...]:
    """Edits of ``DataLoader(data, shuffle=True)``, which must not shuffle beside a sampler.

    Its sampler may be None already; then ``shuffle=sampler is None`` is true. ``alone`` tells where
    there is no sampler, ``lone`` where the loader may shuffle.
    """
    shuffle, last = argument(loader.call, 2, "shuffle"), last_argument(loader.call)
    if loader.dataset is None or last is None:
        return ()
    sampler = keyword(loader.call, "sampler")
    if loader.samplers and sampler is None:
        return ()  # by position
    data, edits = dataset_by_name(module, loader.call, loader.dataset, DATASET_NAMES)
    dealt = f"DistributedSampler({data})"
    options = options_of(loader.call)
    if options and sampler is None and may_hold(module, "sampler"):
        return ()  # which would be given twice
    if shuffle is None and any(may_shuffle(module, each) for each in options):
        if sampler is not None or len(options) > 1:
            return ()
        wish = f"{module.text(options[0])}.get('shuffle', False)"
        dealt = f"DistributedSampler({module.text(loader.dataset)}, shuffle={wish})"
        return with_sampler(module, options[0], dealt, alone)
    if not (trains or sampler or loader.only_for) and (name := idle_sampler(module, loader)):
        told = () if shuffle is None else (Rewrite(shuffle, f"{name} is None"),)
        return (*told, Rewrite(last, f", sampler={name}", after=True))
    if shuffle is None:
        dealt = f"DistributedSampler({data}, shuffle=False)"
    elif is_true(shuffle) or (sampler and is_none_test(shuffle, sampler)):
        edits.append(Rewrite(shuffle, lone))
    elif is_false(shuffle):
        dealt = f"DistributedSampler({data}, shuffle=False)"
    elif isinstance(shuffle, WISHES) or is_plain_call(shuffle, "bool"):
        wish = module.text(shuffle)
        if isinstance(shuffle, ast.Compare):
            wish = f"({wish.removeprefix('(').removesuffix(')')})"
        elif not isinstance(shuffle, ast.Name | ast.Attribute | ast.Subscript | ast.Call):
            wish = f"({wish})"
        edits.append(Rewrite(shuffle, f"{wish} and {lone}"))
        if wish != trains:
            dealt = f"DistributedSampler({data}, shuffle={wish})"
    else:
        return ()
    choice = f"None if {alone} else {dealt}"
    if sampler is not None:
        edits.append(Rewrite(sampler.value, choice))
    else:
        edits.append(Rewrite(last, f", sampler={choice}", after=True))
    return tuple(edits)


def is_constant(node: ast.expr, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def is_none_test(test: ast.expr, sampler: ast.keyword) -> bool:
    """``sampler is None``, of the sampler that the loader gets."""
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.ops[0], ast.Is)
        and same_code(test.left, sampler.value)
        and is_constant(test.comparators[0], None)
    )
