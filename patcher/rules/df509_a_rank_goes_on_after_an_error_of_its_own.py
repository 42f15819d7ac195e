"""A rank goes on after an error of its own.

What         A training step goes back inside a try whose handler swallows what any rank may meet
             alone, such as running out of memory. Or such a try is around the training.
At run time  That rank skips its part of the step, and its peers wait for its gradients: until the
             time-out, or until its next step sends them another batch's. A rank that leaves the
             training so ends with exit status 0, of which no launcher tells the others.
Example      except RuntimeError as e:
                 if "out of memory" in str(e): continue
Fix          A rank raises the error, around a training behind what the handler does: the job ends
             at once, with the traceback, and can be launched again with a smaller batch.
Fix safety   Safe: a lone process goes on as before.
Source       torch.nn.parallel.DistributedDataParallel, torch.distributed.init_process_group
"""

import ast
from collections.abc import Iterator

from ..analysis.language.process_exits import exit_call
from ..analysis.training.program import Program
from ..analysis.training.train_loops import TrainLoop, backward_calls
from ..editing.edits import Import, Insert
from ..findings import Finding, Safety, Severity
from ..source.branches import is_in
from ..source.module import Module
from ..source.tree import FUNCTIONS, Function, is_inside, mentions

CODE, SEVERITY, SAFETY = "DF509", Severity.DEGRADED, Safety.SAFE

OWN_ERRORS = ("Exception", "BaseException", "RuntimeError", "OutOfMemoryError", "AcceleratorError")
RAISE = "if torch.distributed.is_initialized():\n    raise  # the other ranks wait for this one"


def findings(program: Program) -> Iterator[Finding]:
    if not program.calls_to("init_process_group", "DistributedDataParallel"):
        return
    seen: set[ast.ExceptHandler] = set()
    for loop in program.train_loops:
        if not program.is_live(loop.module, loop.steps):
            continue
        for module, call in backward_calls(program, loop):
            for handler in handlers_around(module, call, loop.steps):
                if handler not in seen and swallows(module, handler):
                    seen.add(handler)
                    kind = module.text(handler.type) if handler.type else "everything"
                    because = f"it catches {kind}, which one rank may meet alone"
                    edits = (Insert(handler.body[0], RAISE), Import("torch"))
                    yield Finding(module, handler.body[0], because, edits)
        for module, handler in handlers_of_training(program, loop):
            if handler not in seen and swallows(module, handler):
                seen.add(handler)
                kind = module.text(handler.type) if handler.type else "everything"
                because = f"it catches {kind}, and one rank may leave the training alone"
                ending = [each for each in handler.body if ends_group(program, module, each)]
                last = [*ending, handler.body[-1]][0]
                leaves = isinstance(last, ast.Return | ast.Break | ast.Continue | ast.Pass)
                edit = Insert(last, RAISE, "before" if leaves or ending else "after")
                yield Finding(module, handler.body[0], because, (edit, Import("torch")))


def ends_group(program: Program, module: Module, stmt: ast.stmt) -> bool:
    """Whether a rank leaves the group in a statement: behind it none could tell that it was one."""
    below = [stmt, *(body for _, body in program.functions_below(module, stmt))]
    return any(mentions(each, "destroy_process_group") for each in below)


def handlers_of_training(
    program: Program, loop: TrainLoop
) -> Iterator[tuple[Module, ast.ExceptHandler]]:
    """The handlers of each ``try`` around a training loop, and around what leads to it."""
    pending: list[tuple[Module, ast.AST]] = [(loop.module, loop.steps)]
    seen: set[Function] = set()
    while pending:
        module, place = pending.pop()
        for up in module.ancestors(place):
            if isinstance(up, FUNCTIONS):
                break
            if isinstance(up, ast.Try) and any(is_in(place, stmt) for stmt in up.body):
                yield from ((module, handler) for handler in up.handlers)
        function = module.function(place)
        if function is not None and function not in seen:
            seen.add(function)
            pending += [each for each in program.callers(function) if program.is_live(*each)]


def handlers_around(module: Module, call: ast.Call, steps: ast.AST) -> Iterator[ast.ExceptHandler]:
    """The handlers of each ``try`` around a backward pass, within its step."""
    for up in module.ancestors(call):
        if up is steps or isinstance(up, FUNCTIONS):
            return
        if isinstance(up, ast.Try) and any(is_inside(call, stmt) for stmt in up.body):
            yield from up.handlers


def swallows(module: Module, handler: ast.ExceptHandler) -> bool:
    """Whether a handler of such errors may end without raising one."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = [module.last_name(kind) for kind in kinds if kind is not None]
    if handler.type is not None and not set(names) & set(OWN_ERRORS):
        return False
    told = [stmt for stmt in handler.body if mentions(stmt, "is_initialized")]
    return not always_raises(module, handler.body) and not told


def always_raises(module: Module, body: list[ast.stmt]) -> bool:
    """Whether a block raises, or ends the process, on each way through it."""
    last = body[-1]
    if isinstance(last, ast.If):
        blocks = (last.body, last.orelse)
        return bool(last.orelse) and all(always_raises(module, block) for block in blocks)
    return isinstance(last, ast.Raise) or exit_call(module, last) is not None
