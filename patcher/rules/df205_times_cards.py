"""A batch is multiplied by the number of cards that one process drives.

What         A number is multiplied by, or divided by, the length of the list of cards that
             DataParallel gets as device_ids; or a loader's batch is multiplied by all cards. Or a
             loss goes back by a number for each card. Where the script makes ranks itself, it may
             divide by a list of all ranks' cards.
At run time  A rank has one card, and counts all of the list: N ranks on N cards take N times N
             batches for each optimizer step, at the same learning rate. backward() ends with
             "Mismatch in shape" where it gets numbers for several cards.
Example      DataLoader(train_set, batch_size=args.batch_size * len(gpus))
Fix          In a process group the list is cut to one card where it is made, and the count is 1.
             Only reported where it is made of something else than a list, or is asked for anything
             else. A warning where a script that makes ranks itself counts a configuration's list,
             which may be of one card.
Fix safety   Safe: without a group the list stays whole, and DataParallel is not used in one.
Source       torch.nn.DataParallel (device_ids)
"""

import ast
import re
from collections.abc import Iterator

from ..analysis.ranks.before_group import runs_before_group
from ..analysis.ranks.rank_reach import RANKS, roles_reaching
from ..analysis.training.program import Program
from ..editing.edits import Edit, Import, Insert, Rewrite
from ..findings import Finding, Safety, Severity
from ..fixes.drawn_apart import knew_no_ranks
from ..source.module import Module
from ..source.tree import Function, argument, everywhere, parameters, precedes

CODE, SEVERITY, SAFETY = "DF205", Severity.ERROR, Safety.SAFE

CARDS = re.compile("(gpus?|cards|devices?)(_?(ids?|list))?", re.IGNORECASE)
COUNT = re.compile("(n_?|num_?)gpus?|gpus?_?num", re.IGNORECASE)
SCALING = (ast.Mult, ast.Div, ast.FloorDiv)
LISTS = ("list", "sorted", "range")
IS_RANK = "'LOCAL_RANK' in os.environ"  # where there is no group to ask


def findings(program: Program) -> Iterator[Finding]:
    groups = program.calls_to("init_process_group")
    if not groups:
        return
    yield from counted_cards(program)
    yield from numbers_per_card(program)
    for module, call in program.calls_to("DataParallel"):
        cards = argument(call, 1, "device_ids")
        if not isinstance(cards, ast.Name):
            continue
        every = lengths(module, cards)
        scaled = [
            each
            for call in every
            for each in [scaling(module, call)]
            if each is not None and roles_reaching(program, module, each) & RANKS
            if isinstance(each.op, ast.Mult) or knew_no_ranks(program)
        ]
        if not scaled or is_cut(module, cards):
            continue
        made = definition_of(module, cards)
        ranked = [each for where, each in groups if where is module]
        is_late = made is not None and any(
            module.function(each) is module.function(made) and precedes(made, each)
            for each in ranked
        )
        edits: tuple[Edit, ...] = ()
        if made is not None and not is_late and len(scaled) == len(every):
            name = cards.id
            code = (
                f"if torch.distributed.is_initialized():\n    {name} = {name}[:1]  # of this rank"
            )
            edits = (Insert(made, code, "after"), Import("torch"))
        because = f"{' '.join(module.text(scaled[0]).split())}: a rank has one card of {cards.id}"
        yield Finding(module, scaled[0], because, edits)


def numbers_per_card(program: Program) -> Iterator[Finding]:
    """``loss.backward(torch.ones(torch.cuda.device_count()))``, of the losses of all replicas."""
    if not program.calls_to("device_count"):
        return
    for module, back in program.calls_to("backward"):
        for call in everywhere(back.args[0], ast.Call) if back.args else ():
            is_settled = isinstance(module.parents[call], ast.IfExp)
            if module.dotted(call.func) == "torch.cuda.device_count" and not is_settled:
                count = module.text(call)
                code = f"1 if torch.distributed.is_initialized() else {count}"
                code = code if isinstance(module.parents[call], ast.Call) else f"({code})"
                because = f"a rank has one loss, and {count} counts the cards of all ranks"
                yield Finding(module, call, because, (Rewrite(call, code), Import("torch")))


def counted_cards(program: Program) -> Iterator[Finding]:
    """Batches of training loaders that are multiplied by the number of cards."""
    seen: set[ast.expr] = set()
    for loop in program.train_loops:
        for loader in () if loop.loader is None else (loop.loader, *loop.loader.others):
            module, size = loader.module, loader.batch_size
            value = None if size is None else bound_to(module, size) or size
            for call, named in [] if value is None else counts_in(program, module, value):
                factor = scaling(module, named)
                counts_all = counts = True  # an option
                if isinstance(call, ast.Call):
                    counts_all = module.dotted(call.func) == "torch.cuda.device_count"
                    counts = counts_all or counts_listed_cards(program, module, call)
                if not (counts and factor and isinstance(factor.op, ast.Mult)) or call in seen:
                    continue
                # The list of a script that makes ranks itself may be of one card.
                is_sure = counts_all or knew_no_ranks(program)
                because = f"{' '.join(module.text(factor).split())}: a rank has one card"
                for each in (call, *spelled_alike(module, call)):
                    if each in seen:
                        continue
                    seen.add(each)
                    is_early = runs_before_group(program, module, each)
                    test = IS_RANK if is_early else "torch.distributed.is_initialized()"
                    code = f"(1 if {test} else {module.text(each)})"
                    yield Finding(
                        module,
                        each,
                        because,
                        (Rewrite(each, code), Import("os" if is_early else "torch")),
                        severity=None if is_sure else Severity.DEGRADED,
                    )


def bound_to(module: Module, node: ast.expr) -> ast.expr | None:
    """What a name is bound to where it is read, also by the module around a function."""
    if (value := module.definition(node, node)) is not None or not isinstance(node, ast.Name):
        return value
    function = module.function(node)
    if function is not None and (
        node.id in parameters(function) or module.stores.get((function, node.id))
    ):
        return None
    return module.single_assignment(None, node.id)


def counts_in(
    program: Program, module: Module, value: ast.expr
) -> Iterator[tuple[ast.Call | ast.Attribute, ast.expr]]:
    """What may count cards in a value, and what its names are bound to, each with its place.

    Calls, and options of one process that are so called: ``args.ngpu``.
    """
    for call in everywhere(value, ast.Call):
        yield call, call
    for option in everywhere(value, ast.Attribute) if knew_no_ranks(program) else ():
        is_set = option.attr == "n_gpu"  # to 1, beside the process group
        if COUNT.fullmatch(option.attr) and option.attr in program.options and not is_set:
            yield option, option
    for name in everywhere(value, ast.Name):
        if isinstance(made := bound_to(module, name), ast.Call):
            yield made, name


def spelled_alike(
    module: Module, count: ast.Call | ast.Attribute
) -> list[ast.Call | ast.Attribute]:
    """The same count where it multiplies something else, such as the labelled part of a batch."""
    text = module.text(count)
    alike: list[ast.Call | ast.Attribute] = (
        [*module.calls_to(module.last_name(count.func))]
        if isinstance(count, ast.Call)
        else [*module.attributes(count.attr)]
    )
    return [
        each
        for each in alike
        if module.text(each) == text
        and (factor := scaling(module, each)) is not None
        and isinstance(factor.op, ast.Mult)
    ]


def counts_listed_cards(program: Program, module: Module, call: ast.Call) -> bool:
    """``len(config.GPUS)`` and ``len(args.gpus.split(","))``.

    Not of a variable that DataParallel takes, which is cut instead.
    """
    if module.dotted(call.func) != "len" or len(call.args) != 1:
        return False
    (cards,) = call.args
    match cards:
        case ast.Call(func=ast.Attribute(value=text, attr="split")):
            return isinstance(text, ast.Attribute) and bool(CARDS.fullmatch(text.attr))
    if not isinstance(cards, ast.Name | ast.Attribute):
        return False
    wrapped = {
        module.text(ids)
        for where, each in program.calls_to("DataParallel")
        if where is module and (ids := argument(each, 1, "device_ids")) is not None
    }
    name = cards.id if isinstance(cards, ast.Name) else cards.attr
    if isinstance(cards, ast.Name) and name in wrapped:
        return False
    return module.text(cards) in wrapped or bool(CARDS.fullmatch(name))


def home_of(module: Module, cards: ast.Name) -> Function | None:
    """The function that binds the list; None where the module does."""
    function = module.function(cards)
    if function is None or cards.id in parameters(function):
        return function
    return function if module.stores.get((function, cards.id)) else None


def lengths(module: Module, cards: ast.Name) -> list[ast.Call]:
    """The calls ``len(cards)`` of the list that the model is wrapped for."""
    home = home_of(module, cards)
    return [
        call
        for call in module.calls_to("len")
        if len(call.args) == 1
        and isinstance(call.args[0], ast.Name)
        and call.args[0].id == cards.id
        and home_of(module, call.args[0]) is home
    ]


def scaling(module: Module, call: ast.expr) -> ast.BinOp | None:
    """The product or quotient that a call is a part of."""
    parent = module.parents[call]
    return parent if isinstance(parent, ast.BinOp) and isinstance(parent.op, SCALING) else None


def is_cut(module: Module, cards: ast.Name) -> bool:
    """Whether the list is cut to one card somewhere in the function already."""
    stores = module.stores.get((home_of(module, cards), cards.id), ())
    values = [getattr(module.statement(store), "value", None) for store in stores]
    return any(
        isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice) for value in values
    )


def definition_of(module: Module, cards: ast.Name) -> ast.stmt | None:
    """The one statement that makes the list; None where there are more, or it makes no list."""
    value = module.single_assignment(home_of(module, cards), cards.id)
    is_list = isinstance(value, ast.List | ast.ListComp) or (
        isinstance(value, ast.Call) and module.dotted(value.func) in LISTS
    )
    return module.statement(value) if value is not None and is_list else None
