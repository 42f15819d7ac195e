"""A part of the loader's length divides, and may be no batch at all on a rank.

What         len(loader) // n, of a loader that is dealt by rank, is what something is divided by:
             an interval, or the steps of an epoch.
At run time  A rank has one world_size-th of the batches. Where these are fewer than n, the interval
             is 0, and the first step ends with ZeroDivisionError; one process had none.
Example      if step % (len(train_loader) // 10) == 0: print(loss)
Fix          At least 1: max(1, len(train_loader) // 10).
Fix safety   Safe: a lone process divides by the same number, or would have failed.
Source       torch.utils.data.distributed.DistributedSampler
"""

import ast
from collections.abc import Iterator

from ..analysis.ranks.rank_reach import is_world_size
from ..analysis.training.constructed_loaders import Loader
from ..analysis.training.loaders import trace_loader
from ..analysis.training.program import Program
from ..editing.edits import Rewrite
from ..findings import Finding, Safety, Severity
from ..source.module import Module
from ..source.tree import below, same_code

CODE, SEVERITY, SAFETY = "DF707", Severity.NOTE, Safety.SAFE

DIVIDES = (ast.FloorDiv, ast.Div, ast.Mod)
ROUNDS = ("int", "floor", "round")
Use = tuple[Module, ast.expr]


def findings(program: Program) -> Iterator[Finding]:
    dealt = [each for each in program.training_loaders if each.distributed_samplers]
    for module in program.modules if dealt else ():
        for call in module.calls_to("len"):
            for where, count in (module, call), *steps_of_epoch(program, module, call):
                part = part_of_length(where, count) if len(call.args) == 1 else None
                if part is None or not counts_batches(program, module, call, part, dealt):
                    continue
                use = division_by(program, where, part)
                if use is not None:
                    because = f"line {use[1].lineno} divides by it"
                    if use[0] is not where:
                        because = f"line {use[1].lineno} of {use[0].source.file} divides by it"
                    yield Finding(where, part, because, (at_least_one(where, part),))


def steps_of_epoch(program: Program, module: Module, call: ast.Call) -> list[Use]:
    """Where ``steps`` of ``steps = -(-len(loader) // accumulation)`` are read."""
    minus = module.parents[call]
    quotient = module.parents[minus]
    if not isinstance(quotient, ast.BinOp) or not isinstance(quotient.op, ast.FloorDiv):
        return []
    rounded_up = module.parents[quotient]
    if quotient.left is not minus or not all(
        isinstance(each, ast.UnaryOp) and isinstance(each.op, ast.USub)
        for each in (minus, rounded_up)
    ):
        return []
    bound = module.parents[rounded_up]
    return reads_of(program, module, bound) if isinstance(bound, ast.Assign) else []


def at_least_one(module: Module, part: ast.expr) -> Rewrite:
    """The edit that puts ``max(1, …)`` around a number, by the parentheses that it stands in."""
    up = module.parents[part]
    if isinstance(up, ast.BinOp) and isinstance(part, ast.BinOp) and up.right is part:
        left = up.left
        assert left.end_lineno is not None
        assert left.end_col_offset is not None
        start = left.end_lineno, left.end_col_offset
        between = module.text_between(start, (part.lineno, part.col_offset))
        if between.count("(") == 1 and between.endswith("("):
            return Rewrite(left, f"{between[:-1]}max(1, ", last=part, after=True, before=True)
    return Rewrite(part, f"max(1, {module.text(part)})")


def part_of_length(module: Module, node: ast.expr) -> ast.expr | None:
    """``len(loader) // n`` around ``len(loader)``, or ``int(len(loader) * share)``."""
    is_rounded = False
    while True:
        up = module.parents[node]
        if isinstance(up, ast.BinOp) and isinstance(up.op, ast.FloorDiv) and up.left is node:
            node, is_rounded = up, not is_one(up.right)
        elif is_share(up, node):
            assert isinstance(up, ast.BinOp)
            rounding = module.parents[up]
            if not isinstance(rounding, ast.Call) or rounding.args != [up]:
                return None
            if module.last_name(rounding.func) not in ROUNDS:
                return None
            node, is_rounded = rounding, True
        else:
            return node if is_rounded else None


def is_one(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 1


def is_share(up: ast.AST, node: ast.expr) -> bool:
    """``node / n``, or ``node`` times a constant below 1."""
    if not isinstance(up, ast.BinOp):
        return False
    if isinstance(up.op, ast.Div):
        return up.left is node
    other = up.right if up.left is node else up.left
    return (
        isinstance(up.op, ast.Mult)
        and isinstance(other, ast.Constant)
        and isinstance(other.value, float)
        and other.value < 1
    )


def counts_batches(
    program: Program, module: Module, call: ast.Call, part: ast.expr, dealt: list[Loader]
) -> bool:
    """Whether a length is that of a loader of ranks, or of its data by the number of ranks."""
    loader = trace_loader(program, module, call.args[0])
    if loader is not None:
        return any(each.is_same(loader) for each in dealt)
    of_data = any(
        each.dataset is not None and each.module is module and same_code(call.args[0], each.dataset)
        for each in dealt
    )
    return of_data and any(
        is_world_size(module, node) for node in below(part) if isinstance(node, ast.expr)
    )


def division_by(program: Program, module: Module, part: ast.expr) -> Use | None:
    """Where a value, or what it is assigned to, is divided by; None where nothing shows it."""
    up = module.parents[part]
    if is_divisor(up, part):
        return module, part
    uses = reads_of(program, module, up) if isinstance(up, ast.Assign) else []
    if any(is_asked(where, use) for where, use in uses):
        return None  # the script knows that it may be 0
    return next((use for use in uses if is_divisor(use[0].parents[use[1]], use[1])), None)


def reads_of(program: Program, module: Module, bound: ast.Assign) -> list[Use]:
    """Where the name or the attribute that an assignment binds stands, itself included."""
    target = bound.targets[0]
    if len(bound.targets) == 1 and isinstance(target, ast.Name):
        function = module.function(bound)
        names = [node for node in module.occurrences(target.id) if isinstance(node, ast.Name)]
        return [
            (module, name)
            for name in names
            if module.function(name) is function
            or (function is None and (module.function(name), name.id) not in module.stores)
        ]
    if len(bound.targets) == 1 and isinstance(target, ast.Attribute):
        text = module.text(target)
        return [
            (where, node)
            for where in program.modules
            for node in where.attributes(target.attr)
            if where.text(node) == text
        ]
    return []


def is_divisor(up: ast.AST, node: ast.expr) -> bool:
    return isinstance(up, ast.BinOp) and isinstance(up.op, DIVIDES) and up.right is node


def is_asked(module: Module, node: ast.expr) -> bool:
    """``if interval and …`` and ``interval > 0``, of a number that may be 0."""
    up = module.parents[node]
    if isinstance(up, ast.BoolOp | ast.UnaryOp):
        return not isinstance(up, ast.UnaryOp) or isinstance(up.op, ast.Not)
    if isinstance(up, ast.If | ast.IfExp | ast.While):
        return up.test is node
    if isinstance(up, ast.Compare):
        sides = (up.left, *up.comparators)
        return any(isinstance(side, ast.Constant) and side.value in (0, 1) for side in sides)
    return isinstance(up, ast.Call) and module.last_name(up.func) == "max"
