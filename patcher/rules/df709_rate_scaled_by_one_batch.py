"""The learning rate is scaled by the batch of one process.

What         A script multiplies its learning rate, or its weight decay, by the size of a batch over
             a constant, as the linear scaling rule has it, and each rank takes a batch of that
             size. Or the rate warms up only where the batch is larger than a constant.
At run time  The global batch is as many times larger as there are ranks, and the rate is not: the
             same global batch on N ranks trains with an N-th of the rate. Nothing warns.
Example      lr = args.blr * args.batch_size / 256
Fix          Multiply the batch by the number of ranks there.
Fix safety   Safe: a lone process computes what it did.
Source       Goyal et al., Accurate, Large Minibatch SGD (arXiv:1706.02677)
"""

import ast
import re
from collections.abc import Iterator

from ..analysis.batches.batches_of_all import holds_size, is_for_all_ranks
from ..analysis.batches.example_counts import counts_listed_cards, has_world_size
from ..analysis.training.constructed_loaders import Loader
from ..analysis.training.only_values import origin
from ..analysis.training.program import Program
from ..editing.edits import Rewrite
from ..findings import Finding, Safety, Severity
from ..fixes.ranks_counted import number_of_ranks
from ..source.module import Module
from ..source.tree import everywhere, within

CODE, SEVERITY, SAFETY = "DF709", Severity.DEGRADED, Safety.SAFE

OF_RANKS = re.compile("world|gpu|rank|proc|device|replica|node", re.IGNORECASE)
WARM = re.compile("warm", re.IGNORECASE)
RATE = re.compile(r"(^|[^a-z])(b?lr|learning_?rate|wd|weight_?decay)([^a-z]|$)", re.IGNORECASE)


def findings(program: Program) -> Iterator[Finding]:
    told: set[ast.expr] = set()
    for loop in program.train_loops:
        loader = loop.loader
        if loader is None or loader.batch_size is None or not loader.distributed_samplers:
            continue
        if is_for_all_ranks(program, loader, loader.batch_size):
            continue
        for module in program.modules:
            found = [*scaled_rates(program, loader, module), *warm_ups(program, loader, module)]
            for node, size in found:
                if node not in told and program.is_live(module, node):
                    told.add(node)
                    because = f"{module.text(node)} knows the batch of one rank alone"
                    ranks, needed = number_of_ranks(program, module, node)
                    text = f"({module.operand(size)} * ({ranks}))"
                    yield Finding(module, node, because, (Rewrite(size, text), needed))


def scaled_rates(
    program: Program, loader: Loader, module: Module
) -> Iterator[tuple[ast.BinOp, ast.expr]]:
    """``lr * size / 256``, ``lr * (size / 256)`` and ``decay * size / nominal``, with the size."""
    for node in module.nodes(ast.BinOp):
        if not isinstance(node.op, ast.Div):
            continue
        if not (is_of_rate(module, node) or any(is_of_rate(module, u) for u in uses(module, node))):
            continue
        if not isinstance(origin(program, module, node.right)[1], ast.Constant):
            continue
        sizes = [part for part in factors(node.left) if is_batch(program, loader, module, part)]
        stmt = module.statement(node)
        if len(sizes) == 1 and not (
            counts_ranks(node.left)
            or has_world_size(module, node)
            or (isinstance(stmt, ast.Assign) and has_world_size(module, stmt.value))
            or counts_listed_cards(module, node)
        ):
            yield node, sizes[0]


def is_of_rate(module: Module, node: ast.expr) -> bool:
    """Whether a statement names a rate."""
    return RATE.search(module.text(module.statement(node)).partition("\n")[0]) is not None


def uses(module: Module, ratio: ast.BinOp) -> Iterator[ast.expr]:
    """Where the name of a ratio is a factor: ``b = size / 256`` and ``lr = args.lr * b``."""
    stmt = module.statement(ratio)
    match stmt:
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if value is ratio:
            for use in module.occurrences(name):
                is_factor = isinstance(module.parents[use], ast.BinOp)
                is_same = module.function(use) is module.function(stmt)
                if is_factor and is_same and isinstance(use.ctx, ast.Load):
                    yield use


def warm_ups(
    program: Program, loader: Loader, module: Module
) -> Iterator[tuple[ast.Compare, ast.expr]]:
    """``size > 256`` of a test behind which a rate is set, or is to warm up, with the size."""
    for test in module.nodes(ast.If):
        for compare in everywhere(test.test, ast.Compare):
            match compare:
                case ast.Compare(
                    left=size, ops=[ast.Gt() | ast.GtE()], comparators=[ast.Constant(int())]
                ) if holds_size(program, loader, module, size) and not counts_ranks(size):
                    heads = [module.text(each).partition("\n")[0] for each in test.body]
                    inner = [module.text(each) for each in within(test.body, ast.Assign)]
                    if any(RATE.search(text) or WARM.search(text) for text in (*heads, *inner)):
                        yield compare, size


def is_batch(program: Program, loader: Loader, module: Module, node: ast.expr) -> bool:
    """Whether a factor is the size of the loader's batches, or a name for so many times that."""
    where, value = origin(program, module, node)
    return holds_size(program, loader, module, node) or (
        isinstance(value, ast.BinOp)
        and holds_size(program, loader, where, value)
        and not counts_ranks(value)
    )


def counts_ranks(product: ast.expr) -> bool:
    """Whether a factor is called by cards or ranks, such as ``args.n_gpu``."""
    names = {each.id for each in everywhere(product, ast.Name)}
    names |= {each.attr for each in everywhere(product, ast.Attribute)}
    return any(map(OF_RANKS.search, names))


def factors(node: ast.expr) -> list[ast.expr]:
    """The factors of a product."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return [*factors(node.left), *factors(node.right)]
    return [node]
