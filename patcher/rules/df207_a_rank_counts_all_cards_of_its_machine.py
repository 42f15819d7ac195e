"""A rank counts all cards of its machine.

What         n_gpu is torch.cuda.device_count() in a process group too, nothing makes it 1 there,
             and a test of it alone leads to DataParallel.
At run time  On a machine with several cards each rank wraps its model in DataParallel as well,
             which wants it on card 0: "module must have its parameters and buffers on device
             cuda:0" on every other rank.
Example      args.n_gpu = torch.cuda.device_count(); if args.n_gpu > 1: model = DataParallel(model)
Fix          n_gpu is 1 once there is a group. Only reported where the group is made in another
             function than the count.
Fix safety   Safe: without a group the count stays.
Source       https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html
"""

import ast
from collections.abc import Iterator

from ..analysis.ranks.rank_reach import Role, roles_reaching
from ..analysis.training.program import Program
from ..editing.edits import Edit, Insert
from ..findings import Finding, Safety, Severity
from ..source.module import Module
from ..source.tree import is_within, precedes

CODE, SEVERITY, SAFETY = "DF207", Severity.ERROR, Safety.SAFE

COUNT = "n_gpu"
Assignment = tuple[Module, ast.Assign]


def findings(program: Program) -> Iterator[Finding]:
    groups = [g for g in program.calls_to("init_process_group") if program.is_live(*g)]
    if not groups or not any(asks_for_count_alone(program, *w) for w in wraps(program)):
        return
    counts = assignments(program)
    if not counts or not all(counts_all_cards(program, *each) for each in counts):
        return
    for module, stmt in counts:
        because = "nothing makes it 1 in a process group, and DataParallel follows a test of it"
        edits = one_in_group(module, stmt, groups) if len(counts) == 1 else ()
        yield Finding(module, stmt, because, edits)


def wraps(program: Program) -> list[tuple[Module, ast.Call]]:
    """Calls of DataParallel that the program may come to."""
    return [each for each in program.calls_to("DataParallel") if program.is_live(*each)]


def asks_for_count_alone(program: Program, module: Module, wrap: ast.Call) -> bool:
    """Whether only ``n_gpu > 1`` keeps ranks from a DataParallel: they come to the test of it."""
    return any(
        isinstance(test, ast.If)
        and isinstance(test.test, ast.Compare)
        and is_count(test.test.left)
        and is_within(wrap, test.body)
        and Role.OTHER in roles_reaching(program, module, test)
        for test in module.ancestors(wrap)
    )


def is_count(node: ast.expr) -> bool:
    return (node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")) == COUNT


def assignments(program: Program) -> list[Assignment]:
    """The statements that give a number to ``n_gpu``, on whatever object."""
    return [
        (module, stmt)
        for module in program.modules
        for stmt in module.nodes(ast.Assign)
        if any(map(is_count, stmt.targets)) and program.is_live(module, stmt)
    ]


def counts_all_cards(program: Program, module: Module, stmt: ast.Assign) -> bool:
    """``n_gpu = torch.cuda.device_count()``, where ranks come to it."""
    value = stmt.value
    return (
        isinstance(value, ast.Call)
        and module.dotted(value.func) == "torch.cuda.device_count"
        and Role.OTHER in roles_reaching(program, module, stmt)
    )


def one_in_group(
    module: Module, count: ast.Assign, groups: list[tuple[Module, ast.Call]]
) -> tuple[Edit, ...]:
    """Edits that make the count 1 where a group is: behind whichever of the two is later."""
    name = module.text(count.targets[0])
    if len(groups) != 1:
        return ()
    where, group = groups[0]
    if where is not module or module.function(group) is not module.function(count):
        return ()
    made = module.statement(group)
    if precedes(count, made) and isinstance(made, ast.Expr):
        return (Insert(made, f"{name} = 1  # a rank has one card", "after"),)
    if precedes(made, count):
        code = f"if torch.distributed.is_initialized():\n    {name} = 1  # a rank has one card"
        return (Insert(count, code, "after"),)
    return ()
