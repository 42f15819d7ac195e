"""No rank takes a card of its own.

What         A process group is made, models and batches go to .cuda() or to "cuda", and nothing
             tells a rank which card that is. Or the model goes to cuda:local_rank, and the process
             keeps card 0 for what is on no named one.
At run time  All ranks of a machine use card 0: NCCL ends with "Duplicate GPU detected", or the card
             runs out of memory. It is right where each rank sees one card only. With a named card
             so do barriers and gathered objects, such as those of a shared evaluation.
Example      dist.init_process_group("nccl"); model = DistributedDataParallel(Net().cuda())
Fix          The card of LOCAL_RANK is set once there is a group. Only reported where something is
             moved before that.
Fix safety   Safe: without a launcher, or a group, nothing changes.
Source       https://docs.pytorch.org/docs/stable/generated/torch.cuda.set_device.html
"""

import ast
from collections.abc import Iterator

from ..analysis.models.wrapping import OTHER_WAYS
from ..analysis.training.frameworks import OWNS_LOOP, calls_one_of
from ..analysis.training.program import Program
from ..editing.edits import Import, Insert
from ..findings import Finding, Safety, Severity
from ..source.module import Module
from ..source.tree import argument, argument_values, precedes

CODE, SEVERITY, SAFETY = "DF208", Severity.DEGRADED, Safety.SAFE

TELL_CARDS = (
    "set_device",
    "CUDA_VISIBLE_DEVICES",
    "current_device",
    "device_mesh",
    "init_device_mesh",
)
SET_CARDS = ("set_device", "device_mesh", "init_device_mesh")
SET_CARD = """\
if 'LOCAL_RANK' in os.environ and torch.cuda.is_available():
    torch.cuda.set_device(int(os.environ['LOCAL_RANK']))"""


def findings(program: Program) -> Iterator[Finding]:
    groups = [g for g in program.calls_to("init_process_group") if program.is_live(*g)]
    if len(groups) != 1 or not program.train_loops:
        return
    if calls_one_of(program, OTHER_WAYS | OWNS_LOOP):
        return
    module, group = groups[0]
    stmt = module.statement(group)
    if program.unread or any(names_cards(program, each) for each in program.modules):
        if isinstance(stmt, ast.Expr) and (named := local_rank_as_card(program)):
            because = f"{named} is a card's number, and the process keeps card 0 for objects"
            set_card = (Insert(stmt, SET_CARD, "after"), Import("os"), Import("torch"))
            yield Finding(module, group, because, set_card, severity=Severity.NOTE)
        return
    moves: list[tuple[Module, ast.expr]] = [
        (module, call)
        for module, call in program.calls_to("cuda")
        if is_move(call) and program.is_live(module, call)
    ]
    moves += devices_of_no_number(program)
    if not moves:
        return
    moved = [*moves, *((where, call) for where, call in program.calls_to("to"))]
    is_late = any(
        where is module and where.function(call) is module.function(group) and precedes(call, group)
        for where, call in moved
        if isinstance(call, ast.Call)
    )
    set_card = (Insert(stmt, SET_CARD, "after"), Import("os"), Import("torch"))
    edits = set_card if not is_late and isinstance(stmt, ast.Expr) else ()
    where, call = moves[0]
    text = " ".join(where.text(call).split())
    yield Finding(module, group, f"{text} is on card 0 of all ranks of a machine", edits)


def local_rank_as_card(program: Program) -> str:
    """The text of ``args.local_rank`` in ``device_ids``, in a program that sets no card by it."""
    if any(module.spells(word) for module in program.modules for word in SET_CARDS):
        return ""
    for module, wrap in program.calls_to("DistributedDataParallel"):
        cards = argument(wrap, 1, "device_ids")
        if isinstance(cards, ast.List) and len(cards.elts) == 1 and program.is_live(module, wrap):
            number = cards.elts[0]
            if isinstance(number, ast.Name | ast.Attribute) and (
                module.last_name(number) == "local_rank"
            ):
                return module.text(number)
    return ""


def is_move(call: ast.Call) -> bool:
    """``model.cuda()``, to the card of the process."""
    return (
        isinstance(call.func, ast.Attribute)
        and not call.args
        and all(word.arg in ("non_blocking", "async") for word in call.keywords)
    )


def devices_of_no_number(program: Program) -> list[tuple[Module, ast.expr]]:
    """``torch.device("cuda")`` and ``device = "cuda"``, also as one of two choices."""
    return [
        (module, text)
        for module in program.modules
        for text in module.nodes(ast.Constant)
        if text.value == "cuda" and is_device(module, text) and program.is_live(module, text)
    ]


def is_device(module: Module, text: ast.Constant) -> bool:
    """Whether a text is what things are moved to, and not the kind of device of an autocast."""
    child: ast.AST = text
    for up in module.ancestors(text):
        match up:
            case ast.IfExp() if child is not up.test:
                pass
            case ast.Call():
                is_function = child in up.args and module.last_name(up.func) in ("device", "to")
                return is_function or isinstance(child, ast.keyword)
            case ast.keyword(arg="device"):
                pass
            case ast.Assign(targets=[target]):
                return "device" in module.last_name(target).lower()
            case _:
                return False
        child = up
    return False


def is_of_no_card(program: Program, call: ast.Call) -> bool:
    """``model.cuda(args.gpu)`` of an option that is None unless it is given."""
    match call:
        case ast.Call(func=ast.Attribute(), args=[ast.Attribute(attr=name)]):
            option = program.options.get(name)
            is_none = option is not None and option.default is None and not option.is_switch
            return is_none and not any(name in each.attribute_values for each in program.modules)
    return False


def names_cards(program: Program, module: Module) -> bool:
    """Whether a module may choose a card: by its number, or which cards there are."""
    if any(map(module.spells, TELL_CARDS)) or any(
        node.value in TELL_CARDS or (isinstance(node.value, str) and node.value.startswith("cuda:"))
        for node in module.nodes(ast.Constant)
    ):
        return True
    if any(len(argument_values(call)) > 1 for call in module.calls_to("device")):
        return True
    calls = module.calls_to("cuda")
    return not all(is_move(call) or is_of_no_card(program, call) for call in calls)
