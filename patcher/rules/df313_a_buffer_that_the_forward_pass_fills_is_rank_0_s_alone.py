"""A buffer that the forward pass fills is rank 0's alone.

What         A module puts what it computes of a batch into a buffer of its own, or into a tensor
             that it keeps: a queue of keys, a memory of centres, a moving average. Or it makes a
             weight of its first batch, as normalising flows and quantizers do.
At run time  Each rank fills its copy from its part of the batch, and before the next forward pass
             DistributedDataParallel puts rank 0's in the place of all: what the others put in is
             lost; a tensor that is no buffer, or a module that is not wrapped, keeps what its own
             rank put in. One process at the global batch has N times as much in it. A weight that
             each rank makes for itself stays another one to the end. Nothing crashes.
Example      self.queue = torch.cat([self.queue[:, n:], keys.T], dim=1)   # self.queue is a buffer
Fix          None: gather what goes in from all ranks before (torch.distributed.all_gather), as MoCo
             does; how large a queue is to be is for you to say. Where a first batch makes weights,
             pass one through the model before it is wrapped: the wrapper then gives rank 0's to
             all.
Fix safety   Report only: what is to be in it is a matter of the method, not of the code.
Source       torch.nn.parallel.DistributedDataParallel (broadcast_buffers)
"""

import ast
from collections.abc import Iterator
from itertools import islice

from ..analysis.batches.filled_functions import FILLS, filled_arguments
from ..analysis.batches.loss_names import contents
from ..analysis.language.name_flow import flows
from ..analysis.training.frameworks import COLLECTIVES
from ..analysis.training.program import Program, trains_on_several_devices
from ..findings import Finding, Safety, Severity
from ..source.module import Module
from ..source.tree import Function, argument_values, everywhere, parameters, precedes, within

CODE, SEVERITY, SAFETY = "DF313", Severity.NOTE, Safety.REPORT

TENSORS = {f"torch.{name}" for name in ("zeros", "ones", "empty", "full", "rand", "randn")}


def findings(program: Program) -> Iterator[Finding]:
    if not trains_on_several_devices(program):
        return
    for module in program.modules:
        for owner in module.nodes(ast.ClassDef):
            for place, name in islice(set_by_forward(module, owner), 1):
                if program.is_live(module, place) and not is_called_before_wrapper(program):
                    because = f"each rank makes {name}, a weight, of its own part of a batch"
                    yield Finding(module, place, f"{because}, and trains on with another")
            buffers = buffers_of(module, owner)
            for method in owner.body if buffers else ():
                if not isinstance(method, Function) or method.name == "__init__":
                    continue
                if not program.is_live(module, method) or gathers(module, method):
                    continue
                filled = [*fills(module, method, buffers)]
                filled += filled_by_functions(program, module, method, buffers)
                for place, name in filled:
                    because = f"each rank puts its part of the batch into {name}"
                    yield Finding(module, place, because)


def buffers_of(module: Module, owner: ast.ClassDef) -> set[str]:
    """The names of the buffers that a class registers, and of the tensors that it begins with."""
    is_model = any(isinstance(each, Function) and each.name == "forward" for each in owner.body)
    kept = {
        target.attr
        for method in owner.body
        if is_model and isinstance(method, Function) and method.name == "__init__"
        for stmt in within(method.body, ast.Assign)
        if isinstance(stmt.value, ast.Call) and module.dotted(stmt.value.func) in TENSORS
        for target in stmt.targets
        if isinstance(target, ast.Attribute) and module.text(target.value) == "self"
    }
    return kept | {
        value.value
        for call in everywhere(owner, ast.Call)
        if isinstance(call.func, ast.Attribute) and call.func.attr == "register_buffer"
        for value in call.args[:1]
        if isinstance(value, ast.Constant) and isinstance(value.value, str)
    }


def fills(module: Module, method: Function, buffers: set[str]) -> Iterator[tuple[ast.stmt, str]]:
    """Statements that make a buffer of what the method is passed, and its name."""
    passed = made_of(method, set(parameters(method)) - {"self"})
    pairs: list[tuple[ast.stmt, list[ast.expr], ast.expr]]
    pairs = [(stmt, stmt.targets, stmt.value) for stmt in within(method.body, ast.Assign)]
    pairs += [(each, [each.target], each.value) for each in within(method.body, ast.AugAssign)]
    for stmt, targets, value in pairs:
        for target in targets:
            name = buffer_name(target)
            if name in buffers and reads_any(value, passed):
                yield stmt, f"self.{name}"
    for call in within(method.body, ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr in FILLS:
            name = buffer_name(call.func.value)
            if name in buffers and any(reads_any(each, passed) for each in argument_values(call)):
                yield module.statement(call), f"self.{name}"


def made_of(method: Function, names: set[str]) -> set[str]:
    """The names, and those of a method that are bound to something of them."""
    known = set(names)
    while True:
        more = {
            target.id
            for targets, value in flows(method.body)
            if reads_any(value, known)
            for target in targets
            for target in everywhere(target, ast.Name)
            if isinstance(target.ctx, ast.Store)
        }
        if more <= known:
            return known
        known |= more


def filled_by_functions(
    program: Program, module: Module, method: Function, buffers: set[str]
) -> Iterator[tuple[ast.stmt, str]]:
    """Statements that pass a buffer to a torch.autograd.Function that fills it, and its name."""
    for call in within(method.body, ast.Call):
        if any(buffer_name(value) in buffers for value in argument_values(call)):
            for value in filled_arguments(program, module, call):
                if buffer_name(value) in buffers:
                    yield module.statement(call), f"self.{buffer_name(value)}"


def set_by_forward(module: Module, owner: ast.ClassDef) -> Iterator[tuple[ast.stmt, str]]:
    """Statements of a forward pass that make a weight of what it is passed, and its name.

    Its own, and those of a method that it calls: ``self.initialize(x)``.
    """
    weights = weights_of(module, owner)
    methods = {each.name: each for each in owner.body if isinstance(each, Function)}
    forward = methods.get("forward")
    if not weights or forward is None:
        return
    called = {
        call.func.attr
        for call in within(forward.body, ast.Call)
        if isinstance(call.func, ast.Attribute) and module.text(call.func.value) == "self"
    }
    for name, method in methods.items():
        if (name == "forward" or name in called) and not gathers(module, method):
            yield from fills(module, method, weights)


def is_called_before_wrapper(program: Program) -> bool:
    """Whether a model gets a batch before it is wrapped, and rank 0's weights behind it."""
    for module, wrap in program.calls_to("DistributedDataParallel", "DataParallel"):
        model = wrap.args[0] if wrap.args else None
        for use in module.occurrences(model.id) if isinstance(model, ast.Name) else ():
            call = module.parents[use]
            is_first = isinstance(call, ast.Call) and call.func is use and precedes(call, wrap)
            if is_first and module.function(call) is module.function(wrap):
                return True
    return False


def weights_of(module: Module, owner: ast.ClassDef) -> set[str]:
    """The names of the parameters that a class makes."""
    return {
        target.attr
        for stmt in everywhere(owner, ast.Assign)
        if isinstance(stmt.value, ast.Call) and module.last_name(stmt.value.func) == "Parameter"
        for target in stmt.targets
        if isinstance(target, ast.Attribute) and module.text(target.value) == "self"
    }


def buffer_name(node: ast.expr) -> str:
    """``queue`` of ``self.queue``, ``self.queue[:, n]`` and ``self.queue.data.mul_(0.9)``."""
    while True:
        match node:
            case ast.Subscript(value=inner) | ast.Attribute(value=inner, attr="data"):
                node = inner
            case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if attr.endswith("_"):
                node = inner
            case _:
                break
    is_own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    return node.attr if isinstance(node, ast.Attribute) and is_own else ""


def reads_any(node: ast.expr, names: set[str]) -> bool:
    """Whether an expression reads one of the names, and not only its shape or device."""
    return not names.isdisjoint(contents(node))


def gathers(module: Module, method: Function) -> bool:
    """Whether a method always asks the other ranks, itself or in a function named for it."""
    for call in within(method.body, ast.Call):
        name = module.last_name(call.func)
        is_asked = name in COLLECTIVES or "gather" in name or "reduce" in name
        if is_asked and not any(isinstance(up, ast.If) for up in module.ancestors(call)):
            return True
    return False
