"""What ranks save of a compiled model has other names than what one process saves.

What         Only ranks wrap a model that torch.compile wraps as well, in an order that does not
             match how its state is read: the script takes _orig_mod off first although
             DistributedDataParallel is outside, or it never takes _orig_mod off although
             DistributedDataParallel is inside.
At run time  Each wrapper sees only what it wraps. With DistributedDataParallel outside, _orig_mod
             is not found, and the wrapper or the compiled model is taken for the model: names begin
             with "module._orig_mod." or "_orig_mod.". With it inside, one process has "_orig_mod."
             before every name, and ranks have nothing or "_orig_mod.module.", as isinstance no
             longer finds the wrapper. Neither can load what the other one saved.
Example      model = torch.nn.parallel.DistributedDataParallel(model)   # ranks only
             model = torch.compile(model)
             torch.save((model.module if args.local_rank != -1 else model).state_dict(), path)
Fix          Wrap on the other side of torch.compile. Out of this altogether, and unlike what one
             process saved so far: model.compile() in the place of model = torch.compile(model).
Fix safety   Safe: one process does not wrap, and ranks train the same. In both orders their graphs
             are cut at the ends of buckets, and compiled again once parameters are unfrozen (torch
             2.13: equal graphs, all-reduces and weights on two ranks). An evaluation that takes
             module off runs compiled code where DistributedDataParallel is outside.
Source       torch.compile (OptimizedModule); torch.nn.Module.compile;
             https://docs.pytorch.org/docs/stable/notes/ddp.html (TorchDynamo DDPOptimizer)
"""

import ast
import itertools
from collections.abc import Iterator

from ...record import record
from ..analysis.ranks.rank_reach import EVERYONE, RANKS, Role, roles_reaching_in_function
from ..analysis.training.program import Program
from ..editing.edits import Edit, Insert, Replace
from ..findings import Finding, Safety, Severity
from ..fixes.statements import dedented_lines, with_gate
from ..source.module import Module
from ..source.tree import (
    argument,
    precedes,
    within,
)

CODE, SEVERITY, SAFETY = "DF309", Severity.DEGRADED, Safety.SAFE

COMPILED_ATTRIBUTE, WRAPPER_ATTRIBUTE = "_orig_mod", "module"  # hold the wrapped model
STATE_METHODS = ("state_dict", "load_state_dict", "save_pretrained")
HARMLESS_CALLS = ("parameters", "requires_grad_")  # work the same compiled or not


@record
class WrapAndCompile:
    """The statements of one function that wrap a model for ranks and that compile it."""

    module: Module
    wrap: ast.Assign
    compiling: ast.Assign

    @property
    def wraps_last(self) -> bool:
        """Whether DistributedDataParallel is outside, around the compiled model."""
        return precedes(self.compiling, self.wrap)


def findings(program: Program) -> Iterator[Finding]:
    for pair in wrapped_and_compiled(program):
        read = compiled_read_first(program) if pair.wraps_last else only_wrapper_read(program)
        if read is not None:
            reader, node = read
            file = "" if reader is pair.module else f"{reader.source.file} "
            off = "_orig_mod off first" if pair.wraps_last else "module off, and never _orig_mod"
            because = f"{file}line {node.lineno} takes {off}"
            yield Finding(pair.module, pair.wrap, because, swap_order(pair))


def wrapped_and_compiled(program: Program) -> Iterator[WrapAndCompile]:
    """Models that ranks alone wrap, and that are compiled in the same function."""
    for module in program.modules:
        compilings = [
            stmt
            for call in module.calls_to("compile")
            if module.dotted(call.func) == "torch.compile"
            for stmt in rebinding(module, call)
            if roles_reaching_in_function(module, stmt) == EVERYONE
        ]
        wraps = [
            stmt
            for call in (module.calls_to("DistributedDataParallel") if compilings else ())
            for stmt in rebinding(module, call)
            if Role.SINGLE not in roles_reaching_in_function(module, stmt)
        ]
        for wrap, compiling in itertools.product(wraps, compilings):
            if is_same_model(module, wrap, compiling):
                yield WrapAndCompile(module, wrap, compiling)


def rebinding(module: Module, call: ast.Call) -> Iterator[ast.Assign]:
    """The statement ``model = wrapper(model, …)`` around a call."""
    stmt = module.statement(call)
    if isinstance(stmt, ast.Assign) and stmt.value is call:
        model = argument(call, 0, "module", "model")
        if model is not None and [module.text(model)] == [*map(module.text, stmt.targets)]:
            yield stmt


def is_same_model(module: Module, one: ast.Assign, other: ast.Assign) -> bool:
    """Whether two statements of one function bind the same name."""
    first, second = (module.text(stmt.targets[0]) for stmt in (one, other))
    return first == second and module.function(one) is module.function(other)


def compiled_read_first(program: Program) -> tuple[Module, ast.expr] | None:
    """Where a function reads ``_orig_mod`` before ``module``, and not in a loop that takes both."""
    for module in program.modules:
        seen = set()
        for node in attribute_reads(module):
            function = module.function(node)
            in_loop = any(isinstance(up, ast.While) for up in module.ancestors(node))
            if function not in seen and attribute_name(node) == COMPILED_ATTRIBUTE and not in_loop:
                return module, node
            seen.add(function)
    return None


def only_wrapper_read(program: Program) -> tuple[Module, ast.expr] | None:
    """Where ``module`` is read, in a program that reads a state and never mentions _orig_mod."""
    for module in program.modules:
        strings = (str(node.value) for node in module.nodes(ast.Constant))
        if module.attributes(COMPILED_ATTRIBUTE) or any(
            COMPILED_ATTRIBUTE in text for text in strings
        ):
            return None
        if any(isinstance(node.ctx, ast.Store) for node in module.attributes(WRAPPER_ATTRIBUTE)):
            return None  # a class has an attribute of that name itself
    if not any(module.attributes(name) for module in program.modules for name in STATE_METHODS):
        return None
    return next(
        (
            (module, node)
            for module in program.modules
            for node in attribute_reads(module)
            if program.evaluation_of(module, node) is None
        ),
        None,
    )


def attribute_reads(module: Module) -> list[ast.Attribute | ast.Constant]:
    """Reads of either attribute, also by getattr or hasattr, in the order in which they run.

    In ``model.module._orig_mod`` the attribute that is read first ends first.
    """
    found: list[ast.Attribute | ast.Constant] = []
    for name in (COMPILED_ATTRIBUTE, WRAPPER_ATTRIBUTE):
        found += module.attributes(name)
    for call in module.calls_to("getattr", "hasattr"):
        for node in call.args[1:2]:
            if isinstance(node, ast.Constant) and node.value in (
                COMPILED_ATTRIBUTE,
                WRAPPER_ATTRIBUTE,
            ):
                found.append(node)
    return sorted(found, key=lambda node: (node.end_lineno or 0, node.end_col_offset or 0))


def attribute_name(node: ast.Attribute | ast.Constant) -> object:
    return node.attr if isinstance(node, ast.Attribute) else node.value


def swap_order(pair: WrapAndCompile) -> tuple[Edit, ...]:
    """Edits that wrap on the other side; none where this would change what else ranks do."""
    module = pair.module
    wrap, compiling = wrap_gate(module, pair.wrap), with_gate(module, pair.compiling)
    block = module.body(compiling)
    if wrap not in block:
        return ()
    first, last = sorted((block.index(wrap), block.index(compiling)))
    if not all(is_lone_process_branch(module, stmt) for stmt in block[first + 1 : last]):
        return ()
    code = source_with_comments(module, wrap)
    if not pair.wraps_last:
        return (Replace(wrap, ""), Insert(compiling, code, "after"))
    if first > 0:
        return (Replace(wrap, ""), Insert(block[first - 1], code, "after"))
    return (Replace(wrap, ""), Insert(compiling, code))


def is_lone_process_branch(module: Module, stmt: ast.stmt) -> bool:
    """An ``if`` whose body no rank of a group reaches."""
    return (
        isinstance(stmt, ast.If)
        and not stmt.orelse
        and not roles_reaching_in_function(module, stmt.body[0]) & RANKS
    )


def wrap_gate(module: Module, wrap: ast.stmt) -> ast.stmt | None:
    """The ``if`` around a wrap; None where it holds more than the freezing around the wrap."""
    gate = module.parents[wrap]
    if not isinstance(gate, ast.If) or gate.orelse or wrap not in gate.body:
        return None
    others = [stmt for stmt in gate.body if stmt is not wrap]
    calls = [call for stmt in others for call in within(stmt, ast.Call)]
    is_movable = all(isinstance(stmt, ast.Assign | ast.For) for stmt in others) and all(
        module.last_name(call.func) in HARMLESS_CALLS for call in calls
    )
    return gate if is_movable else None


def source_with_comments(module: Module, stmt: ast.stmt) -> str:
    """The dedented lines of a statement and of the comments right above it."""
    first, last = stmt.lineno, stmt.end_lineno or stmt.lineno
    while first > 1 and module.line(first - 1).lstrip().startswith("#"):
        first -= 1
    return dedented_lines(module, first, last)
