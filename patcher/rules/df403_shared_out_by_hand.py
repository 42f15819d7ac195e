"""Examples are dealt to the ranks by hand while they are read.

What         A data set keeps only its rank's share: every world_size-th line, or a slice of the
             files.
At run time  Shares differ in length, so that ranks take unequal numbers of steps and the job ends
             in a time-out; shares never mix between epochs; evaluation scores one share; a
             DistributedSampler on top of it deals each share out once more.
Example      data = [line for i, line in enumerate(file) if i % world_size == local_rank]
Fix          Every rank reads what a lone process reads: of "if args.local_rank == -1: rank 0 of 1,
             else: …" the first branch stays. DF401 then deals by a DistributedSampler.
Fix safety   Safe: the branch of a lone process stays as it is. Each rank then holds all examples in
             memory. Only reported without such a branch, as what deals equal shares is right, and
             where a loop's batches come from no DataLoader that is found: nothing else would deal.
             A sampler that deals for ever, or fills its list up to a size of its own, is left; any
             other sampler, and shares that nothing found trains on, are a note.
             There, a local rank that picks the share becomes get_rank(): the same, on one node.
Source       torch.utils.data.distributed.DistributedSampler; hazards counted in 6 of 134 scripts
"""

import ast
from collections.abc import Iterator

from ..analysis.ranks.manual_sharding import (
    WORLD_NAMES,
    assignments,
    looks_like_rank,
    manual_shards,
    single_process_tests,
)
from ..analysis.training.program import Program
from ..editing.edits import Import, Rewrite, Unwrap
from ..findings import Finding, Safety, Severity
from ..source.module import Module
from ..source.tree import FUNCTIONS, is_false, is_inside, is_true, keyword, mentions

CODE, SEVERITY, SAFETY = "DF403", Severity.ERROR, Safety.SAFE


def findings(program: Program) -> Iterator[Finding]:
    if not program.train_loops and not program.evaluations:
        return
    shares = [
        (module, node) for module in program.modules for node in manual_shards(program, module)
    ]
    if not shares:
        return
    branches = [
        (module, *found) for module in program.modules for found in single_process_tests(module)
    ]
    first = shares[0][0]
    lines = ", ".join(sorted({str(node.lineno) for module, node in shares if module is first}))
    unfound = next((loop for loop in program.train_loops if loop.loader is None), None)
    for module, stmt, is_first in branches:
        because = f"line {lines} of {first.source.file} keeps this rank's share only"
        if unfound is None:
            yield Finding(module, stmt, because, (Unwrap(stmt, "body" if is_first else "orelse"),))
        else:
            yield from of_one_node(program, module, stmt.orelse if is_first else stmt.body)
    if not branches or unfound is not None:
        for module, node in shares:
            if deals_alike(module, node) or leaves_all(module, node):
                continue
            text = " ".join(module.text(node).split())
            because = f"{text} keeps this rank's share only"
            if unfound is not None:
                where = f"line {unfound.steps.lineno} of {unfound.module.source.file}"
                because += f"; {where} goes over no DataLoader that is found, to be dealt instead"
            is_sure = unfound is None and not is_of_sampler(module, node)
            severity = Severity.DEGRADED if is_sure else Severity.NOTE
            yield Finding(module, node, because, severity=severity)


def deals_alike(module: Module, node: ast.expr) -> bool:
    """Whether shares are equally long: without end, or of a sampler that fills up to a size.

    ``while True: … if i % world_size == rank``; ``indices[rank : self.total_size : world_size]``.
    """
    for up in module.ancestors(node):
        if isinstance(up, FUNCTIONS):
            break
        if isinstance(up, ast.While) and is_true(up.test):
            return True
    dealt = node.value if isinstance(node, ast.Subscript) else None
    even = keyword(dealt, "even_divisible") if isinstance(dealt, ast.Call) else None
    if even is not None and not is_false(even.value):
        return True  # MONAI's partition_dataset() fills the shares up
    cut = node.slice if isinstance(node, ast.Subscript) else None
    end = cut.upper if isinstance(cut, ast.Slice) else None
    if not isinstance(end, ast.Name | ast.Attribute):
        return False
    if is_of_sampler(module, node):
        return True
    return is_of(module, node, "IterableDataset") and any(
        mentions(value, word) for value in sizes_of(module, end) for word in WORLD_NAMES
    )


def is_of_sampler(module: Module, node: ast.expr) -> bool:
    """Whether a class of a sampler is around an expression, by its base or its name."""
    owner = module.enclosing_class(node)
    is_named = owner is not None and owner.name.endswith("Sampler")
    return is_named or is_of(module, node, "Sampler")


def is_of(module: Module, node: ast.expr, base: str) -> bool:
    """Whether the class around an expression has a base whose name ends so."""
    owner = module.enclosing_class(node)
    bases = [] if owner is None else owner.bases
    plain = [each.value if isinstance(each, ast.Subscript) else each for each in bases]
    return any(module.last_name(each).endswith(base) for each in plain)


def sizes_of(module: Module, end: ast.Name | ast.Attribute) -> list[ast.expr]:
    """The values of the size up to which a list is dealt, ``self.total_size``."""
    if isinstance(end, ast.Attribute):
        return list(module.attribute_values.get(end.attr, ()))
    return module.alternatives(end, end)


def leaves_all(module: Module, node: ast.expr) -> bool:
    """Whether a test for this rank's examples leaves the others where they are, in another form.

    ``if index % world_size == rank: samples[index] = read(path)`` and ``else: … = path``.
    """
    for up in module.ancestors(node):
        if isinstance(up, FUNCTIONS):
            return False
        if isinstance(up, ast.If) and (node is up.test or is_inside(node, up.test)):
            ways = [filled_by(module, block) for block in (up.body, up.orelse)]
            return bool(ways[0] & ways[1])
    return False


def filled_by(module: Module, block: list[ast.stmt]) -> set[str]:
    """What a block binds an element of, or appends to: its text."""
    targets = [each for stmt in block if isinstance(stmt, ast.Assign) for each in stmt.targets]
    found = {module.text(each) for each in targets if isinstance(each, ast.Subscript)}
    for stmt in block:
        called = stmt.value if isinstance(stmt, ast.Expr) else None
        if isinstance(called, ast.Call) and module.last_name(called.func) == "append":
            found.add(module.text(called.func))
    return found


def of_one_node(program: Program, module: Module, body: list[ast.stmt]) -> Iterator[Finding]:
    """The findings of a local rank that picks a share of what all ranks of all nodes share."""
    for value in (assignments(body) or {}).values():
        if mentions(value, "local_rank") and looks_like_rank(program, module, value):
            edits = (Rewrite(value, "torch.distributed.get_rank()"), Import("torch"))
            because = f"{module.text(value)} is the same on every node"
            yield Finding(module, value, because, edits, severity=Severity.DEGRADED)
