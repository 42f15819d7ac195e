"""A card is chosen by its number, for all ranks.

What         torch.cuda.set_device, CUDA_VISIBLE_DEVICES, .cuda(0), .to(gpu_ids[0]), .to(i % n_gpu)
             or a device "cuda:%d" % n, or an option such as --device cuda:0, in a script for one
             process that ranks now run.
At run time  All ranks get the same card: NCCL ends with "Duplicate GPU detected", or the model is
             on another card than the batch; where one card is visible, rank 1 finds none.
Example      os.environ["CUDA_VISIBLE_DEVICES"] = args.gpu
Fix          Under a launcher, which tells each rank its card in LOCAL_RANK, that card is taken. A
             script that makes ranks itself keeps its cards, but for one that stands there alone,
             and one that is an option's default is noted: the user names one for each rank.
Fix safety   Safe: without LOCAL_RANK nothing changes.
Source       https://docs.pytorch.org/docs/stable/elastic/run.html (LOCAL_RANK)
"""

import ast
from collections.abc import Iterator

from ..analysis.ranks.rank_reach import RANKS, roles_reaching
from ..analysis.settings.flag_roles import sources_of
from ..analysis.training.program import Program
from ..editing.edits import Edit, Guard, Import, Rewrite
from ..findings import Finding, Safety, Severity
from ..fixes.behind_binding import behind_binding
from ..fixes.chosen_cards import (
    CARD,
    NOT_IN_LAUNCH,
    card_of_its_name,
    card_options,
    cards_in_turns,
    is_card_key,
    is_of_card_option,
    sets_visible_cards,
)
from ..fixes.group_setup import LAUNCHED, gets_card_below, is_our_group
from ..source.module import Module
from ..source.tree import Function, everywhere, is_plain_call, within

CODE, SEVERITY, SAFETY = "DF206", Severity.ERROR, Safety.SAFE

MOVES = ("cuda", "to")
BINDS_CLOSER = (  # to its operands than "if … else" to its own
    *(ast.IfExp, ast.BinOp, ast.BoolOp, ast.UnaryOp, ast.Compare, ast.Attribute, ast.Subscript),
    *(ast.Starred, ast.comprehension),
)
DEEPEST = 6  # functions and names between a device and where it is used
TOLD = ("print", "info", "debug", "warning", "log", "write")


def findings(program: Program) -> Iterator[Finding]:
    if not any(
        is_our_group(module, call) for module, call in program.calls_to("init_process_group")
    ):
        yield from one_visible_card(program)
        return
    yield from options_of_cards(program)
    yield from numbers_of_cards(program)
    for module in program.modules:
        yield from choices(program, module)
        yield from reads_of_visible_cards(program, module)
        seen: set[ast.expr] = set()
        for value, code in [*moves(module), *device_texts(module), *turns(program, module)]:
            if is_of_card_option(program, module, value) or is_device(program, module, value):
                continue
            if gets_card_below(module, module.statement(value)):
                continue
            if value not in seen and program.is_live(module, value) and not knows(module, value):
                seen.add(value)
                because = f"{' '.join(module.text(value).split())} is the same card on all ranks"
                yield Finding(module, value, because, (Rewrite(value, code), Import("os")))


def one_visible_card(program: Program) -> Iterator[Finding]:
    """Where a script that makes its ranks itself leaves all of them one card to see."""
    if not program.calls_to("init_process_group"):
        return
    for module in program.modules:
        for node in module.nodes(ast.Constant):
            stmt = module.statement(node)
            if (
                node.value != "CUDA_VISIBLE_DEVICES"
                or not sets_visible_cards(module, node)
                or not isinstance(stmt, ast.Assign)
                or not roles_reaching(program, module, stmt) >= RANKS
                or knows(module, stmt)
            ):
                continue
            if isinstance(stmt.value, ast.Constant) and is_one_card(stmt.value.value):
                because = f"{module.text(stmt.value)} is the only card that ranks see"
                yield Finding(module, stmt, because, (Guard(stmt, NOT_IN_LAUNCH), Import("os")))
            for part in everywhere(stmt.value, ast.Attribute):
                option = program.options.get(part.attr)
                if option is not None and is_one_card(option.default):
                    because = (
                        f"ranks see one card by default: {module.text(part)} is to name one each"
                    )
                    yield Finding(module, stmt, because, severity=Severity.NOTE)


def is_one_card(value: object) -> bool:
    """Whether a setting of the visible cards names one."""
    return isinstance(value, str) and value.strip().isdigit()


def options_of_cards(program: Program) -> Iterator[Finding]:
    """Options such as ``--device cuda:0``, which every rank reads alike."""
    script = program.script
    for option in card_options(program):
        if any(
            script.text(target) == option.value and knows(script, stmt.value)
            for stmt in script.nodes(ast.Assign)
            for target in stmt.targets
        ):
            continue
        code = (
            f"if {LAUNCHED} and {option.value}.startswith('cuda'):\n"
            f"    {option.value} = f\"cuda:{{os.environ['LOCAL_RANK']}}\""
        )
        because = f"{option.value} is the same card on all ranks"
        edits = (*behind_binding(script, option.parse, option.args, code), Import("os"))
        yield Finding(script, option.parse, because, edits)


def numbers_of_cards(program: Program) -> Iterator[Finding]:
    """Options such as ``--gpu 0`` that a function of the program gets, to make a device of it."""
    sites = program.parse_sites
    if len(sites) != 1 or sites[0][0] is not program.script:
        return
    script, parse, args = sites[0]
    for option in program.options.values():
        value = f"{args}.{option.dest}"
        if type(option.default) is not int or not CARD.fullmatch(option.dest):
            continue
        uses = [use for use in script.attributes(option.dest) if script.text(use) == value]
        is_passed = any(
            isinstance(call := script.parents[use], ast.Call)
            and any(makes_device(*each) for each in program.callees(script, call))
            for use in uses
        )
        if is_passed and not any(isinstance(use.ctx, ast.Store) for use in uses):
            code = (
                f"if {LAUNCHED} and torch.cuda.is_available():\n"
                f"    {value} = int(os.environ['LOCAL_RANK'])"
            )
            edits = (*behind_binding(script, parse, args, code), Import("os"), Import("torch"))
            yield Finding(script, parse, f"{value} is the same card on all ranks", edits)


def makes_device(module: Module, function: Function) -> bool:
    """Whether a function makes a device of what is no text: of a number that it is passed."""
    return any(
        module.dotted(call.func) == "torch.device"
        and len(call.args) == 1
        and isinstance(call.args[0], ast.Name)
        for call in within(function.body, ast.Call)
    )


def knows(module: Module, node: ast.AST) -> bool:
    """Whether a line asks for the local rank itself, or a test around it does."""
    own = [up for up in module.ancestors(node) if isinstance(up, ast.IfExp | ast.If)]
    tests = [module.text(up.test) for up in own]
    asked = [module.text(node), *tests] if isinstance(node, ast.expr) else tests
    return any("rank" in text.lower() for text in asked)


def choices(program: Program, module: Module) -> Iterator[Finding]:
    """Statements that choose a card, or the cards that are visible."""
    found: list[tuple[ast.stmt, str, tuple[Edit, ...]]] = []
    for call in module.calls_to("set_device"):
        if module.dotted(call.func) == "torch.cuda.set_device":
            stmt = module.statement(call)
            if isinstance(stmt, ast.Expr) and stmt.value is call:
                found.append((stmt, module.text(call), card_of_its_name(module, call)))
    for node in module.nodes(ast.Constant):
        if node.value == "CUDA_VISIBLE_DEVICES" and sets_visible_cards(module, node):
            found.append((module.statement(node), "CUDA_VISIBLE_DEVICES", ()))
    for stmt, what, more in found:
        edits: tuple[Edit, ...] = (Guard(stmt, NOT_IN_LAUNCH), Import("os"), *more)
        is_ranks = "rank" in module.text(stmt).lower()
        if program.is_live(module, stmt) and not is_ranks and not knows(module, stmt):
            yield Finding(module, stmt, f"{what} is for one process", edits)


def reads_of_visible_cards(program: Program, module: Module) -> Iterator[Finding]:
    """``os.environ["CUDA_VISIBLE_DEVICES"]`` where the program sets it, but for no rank."""
    names = [
        (where, node)
        for where in program.modules
        for node in where.nodes(ast.Constant)
        if node.value == "CUDA_VISIBLE_DEVICES"
    ]
    if not any(sets_visible_cards(where, node) for where, node in names):
        return
    for where, node in names:
        read = where.parents[node]
        if (
            where is module
            and isinstance(read, ast.Subscript)
            and isinstance(read.ctx, ast.Load)
            and module.dotted(read.value) == "os.environ"
        ):
            because = "the launcher need not set CUDA_VISIBLE_DEVICES: KeyError on ranks"
            code = f"{module.text(read.value)}.get({module.text(node)}, '0')"
            yield Finding(module, read, because, (Rewrite(read, code),))


def moves(module: Module) -> Iterator[tuple[ast.expr, str]]:
    """Numbers of cards in ``.cuda(0)``, ``.to(gpu)`` and ``torch.device("cuda", gpu)``."""
    for call in module.calls_to(*MOVES, "device"):
        values = list(call.args[:1])
        if module.dotted(call.func) == "torch.device":
            values = call.args[:2]
        elif module.dotted(call.func) == "torch.cuda.device":  # with torch.cuda.device(gpu):
            values = call.args[:1]
        elif module.last_name(call.func) == "device" or not isinstance(call.func, ast.Attribute):
            continue
        values += [word.value for word in call.keywords if word.arg in ("device", "index")]
        for value in values:
            for part in (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,):
                is_number = isinstance(part, ast.Constant) and type(part.value) is int
                text = module.text(part)
                if is_number:
                    yield part, f"int(os.environ.get('LOCAL_RANK', {text}))"
                elif sounds_of_card(part) or is_number_of_card(call, part):
                    yield part, enclosed(module, part, "int(os.environ['LOCAL_RANK'])")
                elif (made := card_named_otherwise(module, part)) is not None:
                    yield made, enclosed(module, made, "int(os.environ['LOCAL_RANK'])")


def is_device(program: Program, module: Module, node: ast.expr, depth: int = 0) -> bool:
    """Whether a name that sounds of a number is that of a device, which is made for each rank.

    ``gpu = torch.device("cuda")``, also as it comes to a function.
    """
    match node:
        case ast.Call():
            return depth > 0 and module.dotted(node.func) == "torch.device"
        case ast.IfExp(body=first, orelse=second):
            return all(is_device(program, module, each, depth + 1) for each in (first, second))
        case ast.JoinedStr() | ast.Constant(value=str()):
            return depth > 0
        case ast.Name() if depth < DEEPEST:
            made = list(sources_of(program, module, node))
            return bool(made) and all(is_device(program, *each, depth + 1) for each in made)
    return False


def card_named_otherwise(module: Module, node: ast.expr) -> ast.expr | None:
    """``cfg.GPU_ID`` of ``device = cfg.GPU_ID``, for ``device``."""
    made = module.definition(node, node)
    return made if isinstance(made, ast.Attribute) and sounds_of_card(made) else None


def is_number_of_card(call: ast.Call, node: ast.expr) -> bool:
    """``int(ids[0])``, and in ``x.cuda(ids[0])`` also ``ids[0]``: cuda() takes only a card."""
    if is_plain_call(node, "int"):
        return True
    is_cuda = isinstance(call.func, ast.Attribute) and call.func.attr == "cuda"
    place = node.slice if is_cuda and isinstance(node, ast.Subscript) else None
    return isinstance(place, ast.Constant) and type(place.value) is int


def sounds_of_card(node: ast.expr) -> bool:
    """``gpu``, ``args.gpu_id``, ``cfg.GPUS[0]``, ``params["GPU"]``; not ``outputs[0].device``."""
    if isinstance(node, ast.Subscript):
        return is_card_key(node) or (
            isinstance(node.slice, ast.Constant) and sounds_of_card(node.value)
        )
    name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
    return bool(CARD.fullmatch(name))


def device_texts(module: Module) -> Iterator[tuple[ast.expr, str]]:
    """Texts that begin with ``cuda:`` and are put together, or name a card outright."""
    ranks = "f\"cuda:{os.environ['LOCAL_RANK']}\""
    for node in module.nodes(ast.Constant):
        if not (isinstance(node.value, str) and node.value.startswith("cuda:")):
            continue
        up = module.parents[node]
        whole: ast.expr | None = None
        begins = (isinstance(up, ast.JoinedStr) and up.values[0] is node) or (
            isinstance(up, ast.BinOp) and up.left is node
        )
        if begins and isinstance(up, ast.expr):
            whole = up
        elif isinstance(up, ast.Attribute) and up.attr == "format":
            call = module.parents[up]
            whole = call if isinstance(call, ast.Call) else None
        elif isinstance(up, ast.Call | ast.IfExp | ast.Assign | ast.keyword):
            whole = node
        above = module.parents[whole] if whole is not None else None
        is_told = isinstance(above, ast.Call) and module.last_name(above.func) in TOLD
        if isinstance(above, ast.Call) and isinstance(module.parents[above], ast.Expr):
            is_told |= module.dotted(above.func) == "torch.cuda.set_device"  # which has a gate
        if whole is not None and not is_told:
            yield whole, enclosed(module, whole, ranks)


def turns(program: Program, module: Module) -> Iterator[tuple[ast.expr, str]]:
    """Numbers by which parts of a model take the cards in turns: ``i % n_gpu``."""
    for node in cards_in_turns(program, module):
        yield node, enclosed(module, node, "int(os.environ['LOCAL_RANK'])")


def enclosed(module: Module, node: ast.expr, ranks: str) -> str:
    """The text of a choice between the ranks' value and a lone process's, in brackets if needed."""
    code = f"{ranks} if {LAUNCHED} else {module.text(node)}"
    needs = isinstance(module.parents[node], BINDS_CLOSER)
    return f"({code})" if needs else code
