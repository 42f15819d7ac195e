"""Counts of a machine's cards, of which a rank has one."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..analysis.language.call_graph import reachable_functions
from ..analysis.language.names import answered_once
from ..analysis.training.program import Program
from ..editing.edits import Edit, Import, Insert
from ..source.module import Module
from ..source.tree import Function, argument, everywhere, is_inside, precedes, within
from .statements import main_guard

IN_GROUP = "torch.distributed.is_initialized()"
IN_LAUNCH = "'LOCAL_RANK' in os.environ and 'WORLD_SIZE' in os.environ"


def one_card_each(
    program: Program, module: Module
) -> Iterator[tuple[ast.Assign, tuple[Edit, ...]]]:
    """The statements of a module that count the cards, with edits that count one for a rank."""
    for stmt in counts_of_cards(program, module):
        names = " = ".join(module.text(target) for target in stmt.targets)
        is_early = may_come_before_group(program, module, stmt)
        test, needed = (IN_LAUNCH, Import("os")) if is_early else (IN_GROUP, Import("torch"))
        yield stmt, (Insert(stmt, f"if {test}:\n    {names} = 1", "after"), needed)


def counts_of_cards(program: Program, module: Module) -> list[ast.Assign]:
    """The statements that count the cards, outside of the main guards of other scripts."""
    guard = None if module is program.script else main_guard(module)
    return [
        stmt
        for stmt in module.nodes(ast.Assign)
        if is_device_count(program, module, stmt)
        and (guard is None or not is_inside(stmt, guard))
        and program.is_live(module, stmt)
    ]


def is_device_count(program: Program, module: Module, stmt: ast.Assign) -> bool:
    """``n_gpu = torch.cuda.device_count()``, or the length of the list that DataParallel takes.

    Or what that list counts up to, ``DataParallel(model, list(range(n_gpu)))``, and more than that.
    """
    if not isinstance(stmt.value, ast.Call):
        return False
    if module.dotted(stmt.value.func) == "torch.cuda.device_count":
        return True
    lists = [
        cards
        for where, wrap in program.calls_to("DataParallel")
        if where is module and (cards := argument(wrap, 1, "device_ids")) is not None
    ]
    if module.dotted(stmt.value.func) == "len":
        return any(module.text(cards) == module.text(stmt.value.args[0]) for cards in lists)
    counted = [part for cards in lists for part in everywhere(cards, ast.Name)]
    targets = {target.id for target in stmt.targets if isinstance(target, ast.Name)}
    return any(
        is_range_up_to(module, name)
        and name.id in targets
        and any(
            use.id == name.id and isinstance(use.ctx, ast.Load) and use not in counted
            for use in module.nodes(ast.Name)
        )
        for name in counted
    )


def is_range_up_to(module: Module, name: ast.Name) -> bool:
    call = module.parents[name]
    return (
        isinstance(call, ast.Call) and module.dotted(call.func) == "range" and call.args == [name]
    )


@answered_once
def called_before_group(program: Program) -> set[Function]:
    """Functions that may run before the script has parsed its arguments, or where it has none."""
    script, names = program.script, set[str]()
    for module in program.modules:
        guard = main_guard(module)
        if module is script and guard is None:
            continue  # the group is made above what it does
        names |= {
            module.last_name(call.func)
            for call in module.nodes(ast.Call)
            if module.function(call) is None and not (guard and is_inside(call, guard))
        }
    for module, parse, _ in program.parse_sites:
        if module is script:
            names |= {
                module.last_name(call.func)
                for call in within(module.scope_statements(parse), ast.Call)
                if precedes(call, parse) or is_inside(call, parse)
            }
    return reachable_functions(program, names)


def may_come_before_group(program: Program, module: Module, stmt: ast.stmt) -> bool:
    """Whether a statement may run before the set-up of the process group that a patch inserts."""
    function, script = module.function(stmt), program.script
    if function is not None and function in called_before_group(program):
        return True
    for where, parse, _ in program.parse_sites:
        if where is module is script and module.function(parse) is function:
            return precedes(stmt, parse)
    guard = main_guard(script)
    if function is not None or (module is script and guard is None):
        return False
    return guard is None or not is_inside(stmt, guard)
