"""Edits that create a process group where a script starts, and give each rank a card."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Sequence

from ..analysis.ranks.certain_reach import surely_on_every_rank
from ..analysis.ranks.rank_reach import Role, roles_reaching
from ..analysis.training.frameworks import COLLECTIVES, MAKE_RANKS
from ..analysis.training.program import Program
from ..analysis.training.run_again import runs_again
from ..editing.edits import Edit, Import, Insert, Rewrite
from ..editing.helpers import helper_names
from ..source.module import Module
from ..source.tree import everywhere, is_inside, is_run_by_decorator, mentions, position, within
from .behind_binding import behind_binding
from .chosen_cards import is_of_card_option
from .counted_cards import one_card_each
from .process_group import (
    READ_RANK,
    SET_UP,
    SET_UP_FROM_ENVIRONMENT,
    SET_UP_ON_CPU,
    marks_lone_process,
    one_hour,
    use_cuda_test,
)
from .statements import is_text, main_guard

PREPARES = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
"""Statements at module level that compute nothing."""
NEEDED = {"os", "torch", "datetime"}  # by the set-up
NO_EXCHANGES = {"barrier", "monitored_barrier", "new_group"}
EXCHANGES = COLLECTIVES - NO_EXCHANGES - {"init_process_group", "destroy_process_group"}
LAUNCHED = "'LOCAL_RANK' in os.environ"
ParseSite = tuple[Module, ast.stmt, str]
CARD_CALLS = ("to", "device", "set_default_device", "DataParallel", "Trainer", "prepare")


def group_setup(program: Program) -> tuple[Edit, ...]:
    """Edits that create a process group; none where the right place for them is not clear."""
    if exchange_in_no_group(program) or library_of_ranks(program):
        return ()
    return setup_from_arguments(program) or setup_from_environment(program)


def may_use_cards(program: Program) -> bool:
    """Whether a program may put anything on a card; nccl sends nothing that lies elsewhere."""
    return (
        bool(program.unread)
        or bool(program.calls_to(*CARD_CALLS))
        or any("cuda" in module.source.text for module in program.modules)
        or any(
            (word.arg or "").startswith("device")
            for module in program.modules
            for word in module.nodes(ast.keyword)
        )
    )


def exchange_in_no_group(program: Program) -> str:
    """Where a script that makes no group would exchange values in one; empty if nowhere.

    What it adds up is of examples that ranks share, as it may be for another script; with a group
    that is made here they would add up what each of them has of all examples.
    """
    if program.calls_to("init_process_group"):
        return ""
    for module, call in program.calls_to(*sorted(EXCHANGES)):
        is_of_torch = module.dotted(call.func).startswith("torch.distributed.")
        owners = {getattr(up, "name", "") for up in module.ancestors(call)}
        is_of_helper = not owners.isdisjoint(helper_names())
        if not is_of_torch or is_of_helper or keeps_mean(program, module, call):
            continue
        if program.is_live(module, call) and program.is_called(module, call):
            return f"line {call.lineno} of {module.source.file}"
    return ""


def keeps_mean(program: Program, module: Module, call: ast.Call) -> bool:
    """Whether what a call adds up only makes means, which are right of shares and of the whole.

    A meter's count and total, ``self.count, self.total = added``, or a sum that is divided by the
    number of ranks; a lone process does not come to it.
    """
    function = module.function(call)
    if function is None or Role.SINGLE in roles_reaching(program, module, call):
        return False
    kept = {
        node.attr
        for stmt in within(function.body, ast.Assign)
        for target in stmt.targets
        for node in (target.elts if isinstance(target, ast.Tuple) else [target])
        if isinstance(node, ast.Attribute) and module.text(node.value) == "self"
    }
    divisors = [
        *(each.right for each in within(function.body, ast.BinOp) if isinstance(each.op, ast.Div)),
        *(each.value for each in within(function.body, ast.AugAssign)),
    ]
    return len(kept) > 1 or any("world_size" in module.text(each) for each in divisors)


def library_of_ranks(program: Program) -> str:
    """The call of a library that surely makes the group, and averages what it wraps; or nothing."""
    lasts = sorted(name.rpartition(".")[2] for name in MAKE_RANKS)
    return next(
        (
            module.dotted(call.func)
            for module, call in program.calls_to(*lasts)
            if module.dotted(call.func) in MAKE_RANKS
            and surely_on_every_rank(program, module, call)
        ),
        "",
    )


def setup_from_arguments(program: Program) -> tuple[Edit, ...]:
    """Edits behind the choice of the device, if the arguments are parsed in the same block."""
    if len(program.parse_sites) != 1:
        return ()
    if "local_rank" in program.options and not marks_lone_process(program):
        return ()  # a lone process would make a group
    module, parse, args = program.parse_sites[0]
    if module is not program.script or runs_again(program, module, parse):
        return ()
    block = module.body(parse)
    below_parse = block[block.index(parse) + 1 :]
    devices = [stmt for stmt in below_parse if is_device(module, stmt)]
    counts = [stmt for stmt in below_parse if is_n_gpu_count(module, stmt, args)]
    if not devices or not counts:
        return ()
    names = dict.fromkeys(
        module.text(target) for stmt in devices for target in assignment_targets(stmt)
    )
    last = max(*devices, *counts, key=position)
    timeout, needed = one_hour(module)
    code = with_free_name(module, SET_UP).format(
        args=args,
        use_cuda=use_cuda_test(program, args),
        device=" = ".join(names),
        timeout=timeout,
    )
    if "local_rank" not in program.options:  # otherwise DF101 adds the code that reads it
        code = f"{args}.local_rank = -1\n{READ_RANK.format(args=args)}\n{code}"
    return (Insert(last, code, "after"), Import("os"), Import("torch"), needed)


def setup_from_environment(program: Program) -> tuple[Edit, ...]:
    """Edits behind the arguments, or where the program starts; "cuda" is then this rank's card."""
    script = program.script
    timeout, needed = one_hour(script)
    template = SET_UP_FROM_ENVIRONMENT if may_use_cards(program) else SET_UP_ON_CPU
    code = whole = with_free_name(script, template).format(timeout=timeout)
    start: tuple[Edit, ...] = ()
    for module, parse, args in passed_sites(program):
        if module is script and not start:
            if program.has_argument("local_rank"):
                code += f"\n    {args}.local_rank = int(os.environ['LOCAL_RANK'])"
            if counts_cards_by_option(program):
                code += f"\n    {args}.n_gpu = 1"
            start = behind_binding(module, parse, args, code)
            if runs_again(program, module, parse):
                start = made_once(module, parse, args, whole, code)
            elif module.function(parse) is None and imported_below(module, parse):
                start = ()  # the set-up reads what they bind
    guard = main_guard(script)
    if not start and guard is not None:
        start = (Insert(guard, code, "first"),)
    if not start and (first := first_step(script)) is not None:
        start = (Insert(first, code),)
    if code == whole:
        start = lifted(script, start, first_in_need(script), code)
        start = lifted(script, start, first_that_makes_loaders(program, script, start), code)
    if not start or any(names_cards_otherwise(program, each) for each in program.modules[1:]):
        return ()
    cards = cards_by_number(program, script)
    if cards is None:
        return ()
    counted = [edit for _, edits in one_card_each(program, script) for edit in edits]
    return (*start, *counted, *cards, Import("os"), Import("torch"), needed)


def passed_sites(program: Program) -> list[ParseSite]:
    """Where the arguments are parsed: of several places those that each process surely comes to.

    A function that nobody calls, as one that only tests a model, may parse them as well.
    """
    sites = program.parse_sites
    sure = [site for site in sites if surely_on_every_rank(program, *site[:2])]
    return (sure or sites) if len(sites) > 1 else sites


def made_once(
    module: Module, parse: ast.stmt, args: str, whole: str, code: str
) -> tuple[Edit, ...]:
    """Edits that make the group where the script starts, as it may parse its arguments again.

    What the set-up tells the arguments stays behind them.
    """
    if (guard := main_guard(module)) is not None:
        start = Insert(guard, whole, "first")
    elif (first := first_step(module)) is not None:
        start = Insert(first, whole)
    else:
        return ()
    told = code.removeprefix(whole)
    if not told:
        return (start,)
    return (start, *behind_binding(module, parse, args, whole.partition("\n")[0] + told))


def lifted(
    module: Module, start: tuple[Edit, ...], early: ast.stmt | None, code: str
) -> tuple[Edit, ...]:
    """The start, or one above a statement that would come before it."""
    is_late = bool(start) and early is not None and runs_behind(module, start[0], early)
    return (Insert(early, code),) if is_late and early is not None else start


def first_in_need(module: Module) -> ast.stmt | None:
    """What first needs a rank at module level: a loader or a wrapper, or what goes to its card."""
    for stmt in module.tree.body:
        if stmt is not main_guard(module) and not isinstance(stmt, PREPARES):
            for call in everywhere(stmt, ast.Call):
                func = call.func
                if isinstance(func, ast.Attribute) and func.attr == "cuda" and not call.args:
                    return stmt
                if module.last_name(func) in ("DataLoader", "DataParallel"):
                    return stmt
    return None


def first_that_makes_loaders(
    program: Program, module: Module, start: tuple[Edit, ...]
) -> ast.stmt | None:
    """What first calls a function that makes a loader, above a start at module level."""
    anchor = start[0].anchor if start and isinstance(start[0], Insert) else None
    if anchor is None or module.function(anchor) is not None:
        return None
    for stmt in module.tree.body:
        if position(stmt) >= position(anchor) or is_inside(anchor, stmt):
            return None
        if isinstance(stmt, PREPARES) or not everywhere(stmt, ast.Call):
            continue
        if any(
            where.last_name(call.func) == "DataLoader"
            for where, function in program.functions_below(module, stmt)
            for call in everywhere(function, ast.Call)
        ):
            return stmt
    return None


def runs_behind(module: Module, edit: Edit, stmt: ast.stmt) -> bool:
    """Whether an inserted start runs behind one at module level: below it, or in a function."""
    anchor = edit.anchor if isinstance(edit, Insert) else None
    if anchor is None:
        return False
    return module.function(anchor) is not None or position(anchor) > position(stmt)


def counts_cards_by_option(program: Program) -> bool:
    """Whether ``--n_gpu`` is a number of cards that the program takes as it is given."""
    option = program.options.get("n_gpu")
    return (
        option is not None
        and type(option.default) is int
        and any(module.attributes("n_gpu") for module in program.modules)
        and not any(module.attribute_values.get("n_gpu") for module in program.modules)
    )


def is_our_group(module: Module, call: ast.Call) -> bool:
    """Whether a group is made where a launcher has told the rank, and nowhere else."""
    return any(
        isinstance(up, ast.If)
        and (module.text(up.test).startswith(LAUNCHED) or is_set_up_behind_arguments(module, up))
        for up in module.ancestors(call)
    )


def is_set_up_behind_arguments(module: Module, gate: ast.If) -> bool:
    """Whether a block is the set-up that ``setup_from_arguments`` makes."""
    args, _, asked = module.text(gate.test).partition(".local_rank")
    first, last = module.text(gate.body[0]), module.text(gate.body[-1])
    begins = first.startswith(("use_cuda = ", "has_card = "))
    return asked == " != -1" and begins and last == f"{args}.n_gpu = 1"


def gets_card_below(module: Module, stmt: ast.stmt) -> bool:
    """Whether the set-up behind the arguments binds anew what a statement above it binds."""
    if not isinstance(stmt, ast.Assign):
        return False
    names = {*map(module.text, stmt.targets)}
    block = module.body(stmt)
    return any(
        names & set(map(module.text, below.targets))
        for gate in block[block.index(stmt) + 1 :]
        if isinstance(gate, ast.If) and is_set_up_behind_arguments(module, gate)
        for below in gate.body
        if isinstance(below, ast.Assign)
    )


def with_free_name(module: Module, template: str) -> str:
    """The template with another name for its variable where the script has one of that name."""
    if not module.spells("use_cuda"):
        return template
    return re.sub(r"(?<!\{)\buse_cuda\b", "has_card", template)


def why_no_group(program: Program) -> str:
    """Why a program gets no set-up of a process group."""
    if place := exchange_in_no_group(program):
        return f"{place} exchanges values in a group that nothing makes: make it, and patch again"
    if library := library_of_ranks(program):
        return f"{library}() makes one, and averages gradients: train without DataParallel there"
    script, *others = program.modules
    if cards_by_number(program, script) is None or any(
        names_cards_otherwise(program, each) for each in others
    ):
        return "several cards are named by their numbers, or one in another module"
    return "it has no command line, no main guard and nothing behind its imports to start from"


def first_step(module: Module) -> ast.stmt | None:
    """What a script without a main guard does first, behind its imports; None if one is below.

    Imports below the first use of torch, such as those of what is only needed at the end, are none
    of its head, unless the set-up of a group needs them.
    """
    if main_guard(module) is not None:
        return None
    statements: list[ast.Import | ast.ImportFrom] = [
        *module.nodes(ast.Import),
        *module.nodes(ast.ImportFrom),
    ]
    imports = [node for node in statements if module.function(node) is None]
    steps = [
        stmt
        for stmt in module.tree.body
        if not is_text(stmt) and not holds(stmt, imports)
        if not isinstance(stmt, PREPARES) or is_run_by_decorator(stmt)
    ]
    own = [name for name, whole in module.aliases.items() if whole == "torch"]  # import torch as T
    uses = (position(stmt) for stmt in steps if any(mentions(stmt, name) for name in own))
    torch_from = min(uses, default=(sys.maxsize, 0))
    head = (position(node) for node in imports if position(node) < torch_from)
    last = max(head, default=(0, 0))
    first = next((stmt for stmt in steps if position(stmt) >= last), None)
    return None if first is not None and imported_below(module, first) else first


def imported_below(module: Module, stmt: ast.stmt) -> set[str]:
    """What the set-up of a group needs and a module imports behind a statement, not above it."""
    above: set[str] = set()
    below: set[str] = set()
    statements: list[ast.Import | ast.ImportFrom] = [
        *module.nodes(ast.Import),
        *module.nodes(ast.ImportFrom),
    ]
    for node in statements:
        if module.function(node) is None:
            names = {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
            (below if position(node) > position(stmt) else above).update(names & NEEDED)
    return below - above


def holds(stmt: ast.stmt, imports: Sequence[ast.stmt]) -> bool:
    """Whether one of the imports stands in a statement, such as a ``try``."""
    return any(is_inside(node, stmt) for node in imports)


def names_cards_otherwise(program: Program, module: Module) -> bool:
    """Whether a text such as ``"cuda:0"`` is used in a way that is not known."""
    return cards_by_number(program, module) is None


def cards_by_number(program: Program, module: Module) -> tuple[Edit, ...] | None:
    """Edits that give each rank its own card where ``"cuda:0"`` names that of a lone process.

    Several of them, and texts that are put together, are left to DF206; None where one of them is
    used in another way.
    """
    named = [
        node
        for node in module.nodes(ast.Constant)
        if isinstance(node.value, str) and node.value.startswith("cuda:")
        if not is_of_card_option(program, module, node)
    ]
    numbers = {node.value for node in named}
    is_put_together = any(not str(text).removeprefix("cuda:").isdigit() for text in numbers)
    if len(numbers) > 1 or is_put_together:
        known = (ast.JoinedStr, ast.BinOp, ast.Attribute, ast.Call, ast.IfExp, ast.Assign)
        return () if all(isinstance(module.parents[node], known) for node in named) else None
    if any(isinstance(module.parents[node], ast.Expr) for node in named):
        return None
    return tuple(
        Rewrite(node, f"f\"cuda:{{os.environ.get('LOCAL_RANK', {str(node.value)[5:]})}}\"")
        for node in named
    )


def assignment_targets(stmt: ast.stmt) -> list[ast.expr]:
    return stmt.targets if isinstance(stmt, ast.Assign) else []


def is_device(module: Module, stmt: ast.stmt) -> bool:
    """``device = torch.device("cuda" if … else "cpu")`` or ``args.device = device``."""
    if not isinstance(stmt, ast.Assign):
        return False
    if isinstance(stmt.value, ast.Name):
        value = module.definition(stmt.value, stmt)
        return value is not None and makes_device(module, value)
    return makes_device(module, stmt.value)


def makes_device(module: Module, value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and module.dotted(value.func) == "torch.device"


def is_n_gpu_count(module: Module, stmt: ast.stmt, args: str) -> bool:
    """``args.n_gpu = torch.cuda.device_count()``."""
    return [module.text(target) for target in assignment_targets(stmt)] == [
        f"{args}.n_gpu"
    ] and any(
        module.dotted(call.func) == "torch.cuda.device_count" for call in within(stmt, ast.Call)
    )
