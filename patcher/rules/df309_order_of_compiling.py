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
from ..analysis.program import Program
from ..analysis.rank_reach import EVERYONE, RANKS, Role, reached_in_function
from ..editing.edits import Edit, Insert, Replace
from ..findings import Finding, Safety, Severity
from ..source.module import Module
from ..source.tree import within

CODE, SEVERITY, SAFETY = "DF309", Severity.DEGRADED, Safety.SAFE

COMPILED_ATTRIBUTE, WRAPPER_ATTRIBUTE = "_orig_mod", "module"  # where the two keep what they wrap
STATE_METHODS = ("state_dict", "load_state_dict", "save_pretrained")
HARMLESS_CALLS = ("parameters", "requires_grad_")  # calls that are the same on either side


@record
class WrapAndCompile:
    """A model's wrapping for ranks and its compiling, two statements of one function."""

    module: Module
    wrap: ast.Assign
    compiling: ast.Assign

    @property
    def wraps_last(self) -> bool:
        """Whether DistributedDataParallel is around what is compiled."""
        return self.compiling.lineno < self.wrap.lineno


def findings(program: Program) -> Iterator[Finding]:
    for twice in wrapped_and_compiled(program):
        found = reads_compiled_first(program) if twice.wraps_last else reads_wrapper_only(program)
        if found is not None:
            where, node = found
            file = "" if where is twice.module else f"{where.source.file} "
            off = "_orig_mod off first" if twice.wraps_last else "module off, and never _orig_mod"
            because = f"{file}line {node.lineno} takes {off}"
            yield Finding(twice.module, twice.wrap, because, swap_order(twice))


def wrapped_and_compiled(program: Program) -> Iterator[WrapAndCompile]:
    """Models that ranks alone wrap, and that are compiled in the same function."""
    for module in program.modules:
        compilings = [
            stmt
            for call in module.calls_to("compile")
            if module.dotted(call.func) == "torch.compile"
            for stmt in rebinding(module, call)
            if reached_in_function(module, stmt) == EVERYONE
        ]
        wraps = [
            stmt
            for call in (module.calls_to("DistributedDataParallel") if compilings else ())
            for stmt in rebinding(module, call)
            if Role.SINGLE not in reached_in_function(module, stmt)
        ]
        for wrap, compiling in itertools.product(wraps, compilings):
            if is_same_model(module, wrap, compiling):
                yield WrapAndCompile(module, wrap, compiling)


def rebinding(module: Module, call: ast.Call) -> Iterator[ast.Assign]:
    """The statement ``model = wrapper(model, …)`` around a call."""
    stmt, taken = module.statement(call), [module.text(model) for model in call.args[:1]]
    if isinstance(stmt, ast.Assign) and stmt.value is call:
        yield from [stmt] if taken == [module.text(target) for target in stmt.targets] else []


def is_same_model(module: Module, one: ast.Assign, other: ast.Assign) -> bool:
    """Whether two statements of one function bind the same name."""
    first, second = (module.text(stmt.targets[0]) for stmt in (one, other))
    return first == second and module.function(one) is module.function(other)


def reads_compiled_first(program: Program) -> tuple[Module, ast.expr] | None:
    """Where a function asks for ``_orig_mod`` before ``module``, but in a loop for both."""
    for module in program.modules:
        seen = set()
        for node in attribute_reads(module):
            function = module.function(node)
            loops = any(isinstance(up, ast.While) for up in module.ancestors(node))
            if function not in seen and attribute_name(node) == COMPILED_ATTRIBUTE and not loops:
                return module, node
            seen.add(function)
    return None


def reads_wrapper_only(program: Program) -> tuple[Module, ast.expr] | None:
    """Where ``module`` is asked for, in a script that reads a state and never says _orig_mod."""
    for module in program.modules:
        strings = (str(node.value) for node in module.nodes(ast.Constant))
        if module.attributes(COMPILED_ATTRIBUTE) or any(
            COMPILED_ATTRIBUTE in text for text in strings
        ):
            return None
        if any(isinstance(node.ctx, ast.Store) for node in module.attributes(WRAPPER_ATTRIBUTE)):
            return None  # a class has one of its own
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
    """Where either attribute is read, or getattr or hasattr asks for it, in the order of asking.

    Of ``model.module._orig_mod`` what is asked first ends first.
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


def swap_order(twice: WrapAndCompile) -> tuple[Edit, ...]:
    """Edits that wrap on the other side; none where ranks would do more than that otherwise."""
    module = twice.module
    wrap, compiling = wrap_gate(module, twice.wrap), gate(module, twice.compiling)
    block = module.body(compiling)
    if wrap not in block:
        return ()
    first, last = sorted((block.index(wrap), block.index(compiling)))
    if not all(is_lone_process_branch(module, stmt) for stmt in block[first + 1 : last]):
        return ()
    code = source_with_comments(module, wrap)
    if not twice.wraps_last:
        return (Replace(wrap, ""), Insert(compiling, code, "after"))
    if first > 0:
        return (Replace(wrap, ""), Insert(block[first - 1], code, "after"))
    return (Replace(wrap, ""), Insert(compiling, code))


def is_lone_process_branch(module: Module, stmt: ast.stmt) -> bool:
    """A test of which ranks reach nothing."""
    return (
        isinstance(stmt, ast.If)
        and not stmt.orelse
        and not reached_in_function(module, stmt.body[0]) & RANKS
    )


def gate(module: Module, stmt: ast.stmt) -> ast.stmt:
    """The test around a statement that holds nothing else, or the statement."""
    above = module.parents[stmt]
    alone = isinstance(above, ast.If) and above.body == [stmt] and not above.orelse
    return above if isinstance(above, ast.If) and alone else stmt


def wrap_gate(module: Module, wrap: ast.stmt) -> ast.stmt | None:
    """The test for ranks around a wrapping; None where it holds more than what goes with it."""
    above = module.parents[wrap]
    if not isinstance(above, ast.If) or above.orelse or wrap not in above.body:
        return None
    others = [stmt for stmt in above.body if stmt is not wrap]
    calls = [call for stmt in others for call in within(stmt, ast.Call)]
    plain = all(isinstance(stmt, ast.Assign | ast.For) for stmt in others)
    return (
        above if plain and all(module.last_name(c.func) in HARMLESS_CALLS for c in calls) else None
    )


def source_with_comments(module: Module, stmt: ast.stmt) -> str:
    """The lines of a statement, and the comments that stand right above it."""
    from textwrap import dedent  # few checks have a use for it

    first, last = stmt.lineno, stmt.end_lineno or stmt.lineno
    while first > 1 and module.line(first - 1).lstrip().startswith("#"):
        first -= 1
    return dedent("".join(module.line(number) for number in range(first, last + 1)))
