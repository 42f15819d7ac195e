"""Cards that a script for one process chooses, left to the launcher where there is one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ...recipes.script_flags import Option
from ...record import record
from ..analysis.training.program import Program
from ..editing.edits import Edit, Guard, Import, Rewrite
from ..source.module import Module
from ..source.tree import everywhere, is_plain_call, keyword

CARD_VARIABLES = {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"}
SETTERS = ("setdefault", "putenv", "update")
CARD = re.compile(r"(gpu|cuda|device)s?_?(ids?|idx|index|num|number|no)|gpus?|cuda|rank", re.I)
RANKS_CARD = re.compile(r"rank|current_device|LOCAL_RANK", re.I)
NOT_IN_LAUNCH = "'LOCAL_RANK' not in os.environ"


@record
class CardOption:
    """An option whose text names a card, ``--device cuda:0``, and where it is parsed."""

    call: ast.Call  # of add_argument
    value: str  # args.device
    parse: ast.stmt
    args: str


def card_options(program: Program) -> list[CardOption]:
    """The options that name a card as a text, where one statement of the script parses them."""
    sites = program.parse_sites
    if len(sites) != 1 or sites[0][0] is not program.script:
        return []
    _, parse, args = sites[0]
    return [
        CardOption(option.call, f"{args}.{option.dest}", parse, args)
        for option in program.options.values()
        if isinstance(option.call, ast.Call) and isinstance(option.default, str)
        if is_plain_text(option.call)
        and (
            any(map(is_card_text, everywhere(option.call, ast.Constant)))
            or (option.default == "cuda" and CARD.fullmatch(option.dest))
            or (option.default == "cpu" and may_be_told_a_card(option))
        )
    ]


def may_be_told_a_card(option: Option) -> bool:
    """Whether a card is had by its name alone, ``--device cuda:0``, of whatever number."""
    takes_any = isinstance(option.call, ast.Call) and keyword(option.call, "choices") is None
    return takes_any and "device" in option.dest


def is_plain_text(call: ast.Call) -> bool:
    """Whether an option's value stays a text."""
    kind = keyword(call, "type")
    return kind is None or (isinstance(kind.value, ast.Name) and kind.value.id == "str")


def is_card_text(node: ast.Constant) -> bool:
    return isinstance(node.value, str) and bool(re.fullmatch(r"cuda:\d+", node.value))


def is_of_card_option(program: Program, module: Module, node: ast.AST) -> bool:
    """Whether a node is in such an option, or is its value, which ranks set where it is parsed."""
    options = card_options(program)
    calls = {option.call for option in options}
    is_value = isinstance(node, ast.Attribute) and any(
        module.text(node) == option.value for option in options
    )
    return is_value or any(up in calls for up in module.ancestors(node))


class NotShareableError(Exception):
    """Ranks cannot share the training by the helper; the text says why."""


def cards_left_to_launcher(program: Program) -> Iterator[tuple[Module, Edit]]:
    """Edits that choose a card only without a launcher, which gives each rank its own."""
    for module in program.modules:
        for call in module.calls_to("set_device"):
            if program.is_live(module, call) and module.dotted(call.func).startswith("torch."):
                stmt = module.statement(call)
                if not (isinstance(stmt, ast.Expr) and stmt.value is call):
                    raise NotShareableError(f"line {call.lineno} chooses a card")
                if not is_left_to_launcher(module, stmt):
                    yield module, Guard(stmt, NOT_IN_LAUNCH)
                    yield module, Import("os")
                    yield from ((module, edit) for edit in card_of_its_name(module, call))
        yield from ((module, edit) for edit in card_variables(program, module))
        refuse_chosen_cards(program, module)


def card_of_its_name(module: Module, set_device: ast.Call) -> tuple[Edit, ...]:
    """Edits by which a name that a script sets as its card, and moves things to, is a rank's own.

    ``device = config["gpu"]; torch.cuda.set_device(device); return device``. Numbers that go into
    another text are left.
    """
    name = set_device.args[0] if set_device.args else None
    function = module.function(set_device)
    values = [] if name is None else module.alternatives(name, set_device)
    if not isinstance(name, ast.Name) or function is None or len(values) != 1:
        return ()
    value, text = values[0], module.text(values[0])
    if isinstance(value, ast.Constant) or RANKS_CARD.search(text) or CARD.fullmatch(name.id):
        return ()  # or DF206 sees to it where it is used
    uses = [
        module.parents[each]
        for each in everywhere(function, ast.Name)
        if each.id == name.id and isinstance(each.ctx, ast.Load) and each is not name
    ]
    moves = [each for each in uses if isinstance(each, ast.Return) or is_move(module, each)]
    told = [each for each in uses if isinstance(each, ast.Call | ast.Compare)]
    if not moves or len({*moves, *told}) < len({*uses}):
        return ()
    card = "f\"cuda:{os.environ['LOCAL_RANK']}\" if 'LOCAL_RANK' in os.environ else "
    return (Rewrite(value, f"{card}{module.conjunct(value)}"), Import("os"))


def is_left_to_launcher(module: Module, stmt: ast.stmt) -> bool:
    """Whether the patch of another script that shares the module has gated a statement."""
    return any(
        isinstance(up, ast.If) and NOT_IN_LAUNCH in module.text(up.test)
        for up in module.ancestors(stmt)
    )


def card_variables(program: Program, module: Module) -> Iterator[Edit]:
    """Edits of ``os.environ["CUDA_VISIBLE_DEVICES"] = …``, by which all ranks saw one card."""
    for node in module.nodes(ast.Constant):
        if node.value != "CUDA_VISIBLE_DEVICES" or not program.is_live(module, node):
            continue
        stmt = module.statement(node)
        if is_left_to_launcher(module, stmt):
            continue
        if sets_visible_cards(module, node):
            yield Guard(stmt, NOT_IN_LAUNCH)
        elif any(
            isinstance(up, ast.Call) and module.last_name(up.func) in SETTERS
            for up in module.ancestors(node)
        ):
            raise NotShareableError(f"line {node.lineno} chooses a card: {module.text(stmt)}")


def sets_visible_cards(module: Module, node: ast.Constant) -> bool:
    """Whether a statement does nothing but to set the variable that a text names.

    ``os.environ["CUDA_VISIBLE_DEVICES"] = "0"``, ``os.environ.setdefault(…)``, ``os.putenv(…)``,
    and ``os.environ.update({…})`` of it alone.
    """
    stmt, up = module.statement(node), module.parents[node]
    if isinstance(stmt, ast.Assign):
        return stmt.targets == [up]
    call = stmt.value if isinstance(stmt, ast.Expr) else None
    if not isinstance(call, ast.Call) or module.last_name(call.func) not in SETTERS:
        return False
    if isinstance(up, ast.Dict):
        names = {key.value for key in up.keys if isinstance(key, ast.Constant)}
        return call.args == [up] and len(names) == len(up.keys) and names <= CARD_VARIABLES
    return bool(call.args) and call.args[0] is node


def refuse_chosen_cards(program: Program, module: Module) -> None:
    """Raise where a card's number is computed."""
    for call in module.calls_to("cuda", "to", "device"):
        if not program.is_live(module, call):
            continue
        is_device = module.last_name(call.func) == "device"
        if not module.dotted(call.func).startswith("torch.") and (
            is_device or not isinstance(call.func, ast.Attribute)
        ):
            continue  # a function of the script's own
        chosen = [*call.args, *(word.value for word in call.keywords if word.arg == "device")]
        if any(names_card(module, value) and not is_plain(value) for value in chosen):
            raise NotShareableError(f"line {call.lineno} chooses a card: {module.text(call)}")


def is_plain(value: ast.expr) -> bool:
    """Whether a card's number or text stands there as it is, for DF206 to leave to the launcher."""
    if isinstance(value, ast.IfExp):
        return is_plain(value.body) and is_plain(value.orelse)
    if isinstance(value, ast.Call):
        function = value.func
        is_format = isinstance(function, ast.Attribute) and function.attr == "format"
        return is_format or is_plain_call(value, "int")
    return isinstance(
        value, ast.Constant | ast.Name | ast.Attribute | ast.Subscript | ast.JoinedStr | ast.BinOp
    )


def cards_in_turns(program: Program, module: Module) -> Iterator[ast.BinOp]:
    """``i % n_gpu`` where it is a card's number, itself or in a list: a rank counts one card."""
    for node in module.nodes(ast.BinOp):
        if (
            isinstance(node.op, ast.Mod)
            and counts_cards(program, module, node.right)
            and "rank" not in module.text(node).lower()
            and is_moved_to(module, node)
        ):
            yield node


def counts_cards(program: Program, module: Module, node: ast.expr) -> bool:
    """Whether a number is, or may be, torch's count of cards; also ``max(1, n_gpu)``."""
    values = [*everywhere(node, ast.Call)]
    for name in everywhere(node, ast.Name):
        values += [v for v in module.alternatives(name, name) if isinstance(v, ast.Call)]
    counted = [(module, value) for value in values] + [
        (where, value)
        for attribute in everywhere(node, ast.Attribute)
        for where in program.modules
        for value in where.attribute_values.get(attribute.attr, ())
        if isinstance(value, ast.Call)
    ]
    return any(where.dotted(each.func) == "torch.cuda.device_count" for where, each in counted)


def is_moved_to(module: Module, node: ast.expr) -> bool:
    """Whether tensors or models are moved to what a number, or a list with it, stands for."""
    child: ast.AST = node
    for up in module.ancestors(node):
        if isinstance(up, ast.Call):
            return is_move(module, up) and child is not up.func
        if isinstance(up, ast.Assign):
            names = [
                t.id if isinstance(t, ast.Name) else getattr(t, "attr", "") for t in up.targets
            ]
            return any(
                module.last_name(part) in names
                for call in module.calls_to("to", "cuda", "device")
                if is_move(module, call)
                for argument in (*call.args, *(word.value for word in call.keywords))
                for part in (*everywhere(argument, ast.Name), *everywhere(argument, ast.Attribute))
            )
        if not isinstance(up, ast.ListComp | ast.GeneratorExp | ast.List | ast.Tuple):
            return False
        child = up
    return False


def is_move(module: Module, call: ast.AST) -> bool:
    """``x.to(card)``, ``x.cuda(card)`` and ``torch.device("cuda", card)``."""
    if not isinstance(call, ast.Call):
        return False
    is_device = module.last_name(call.func) == "device"
    return isinstance(call.func, ast.Attribute) and (
        module.dotted(call.func) == "torch.device"
        if is_device
        else call.func.attr in ("to", "cuda")
    )


def is_card_key(node: ast.expr) -> bool:
    """``params["GPU"]``."""
    key = node.slice if isinstance(node, ast.Subscript) else None
    return (
        isinstance(key, ast.Constant)
        and isinstance(key.value, str)
        and bool(CARD.fullmatch(key.value))
    )


def names_card(module: Module, value: ast.expr) -> bool:
    """Whether a device's text has a card's number in it, or a variable that sounds of one."""
    if isinstance(value, ast.IfExp):
        return names_card(module, value.body) or names_card(module, value.orelse)
    if isinstance(value, ast.Call) and module.dotted(value.func) == "torch.device":
        return False  # it is looked at on its own
    if any(type(each.value) is int for each in everywhere(value, ast.Constant)):
        return True
    if any(map(is_card_key, everywhere(value, ast.Subscript))):
        return True
    names = [node.id for node in everywhere(value, ast.Name)]
    names += [
        node.attr
        for node in everywhere(value, ast.Attribute)
        if not module.dotted(node).startswith("torch.")
    ]
    return any(map(CARD.fullmatch, names))
