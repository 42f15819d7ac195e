"""A number is read from a tensor as in torch 0.3.

What         loss.data[0] takes the number out of a loss; accuracy() flattens with view(-1) what a
             transposition has left, and indexes its sum.
At run time  A loss has no dimension since torch 0.4, nor has sum(0) of a vector: IndexError,
             invalid index of a 0-dim tensor, in the first step. view(-1) of a slice across the
             transposed tensor is a RuntimeError since 1.7.
Example      losses.update(loss.data[0], inputs.size(0))
Fix          loss.item(); reshape(-1), and sum(0, keepdim=True) where the result is indexed.
Fix safety   Safe: what is replaced raises today. Only losses are looked at, by what makes them or
             by their backward().
Source       torch 0.4 migration guide; torch.Tensor.view; pytorch/examples, imagenet
"""

import ast
from collections.abc import Iterator

from ..analysis.batches.loss_reduction import FUNCTIONS_OF_LOSS, Reduction, asked_for
from ..analysis.training.program import Program
from ..editing.edits import Edit, Rewrite
from ..findings import Finding, Safety, Severity
from ..source.module import Module
from ..source.tree import argument_values, everywhere

CODE, SEVERITY, SAFETY = "DF910", Severity.ERROR, Safety.SAFE

LOSS_WORDS = ("criterion", "loss")


def findings(program: Program) -> Iterator[Finding]:
    for module in program.modules:
        for node in module.nodes(ast.Subscript):
            match node:
                case ast.Subscript(
                    value=ast.Attribute(value=(ast.Name() | ast.Call()) as loss, attr="data"),
                    slice=ast.Constant(value=0),
                ) if is_loss(module, loss):
                    text = module.text(loss)
                    name = text if isinstance(loss, ast.Name) else f"{module.text(loss.func)}()"
                    edit = Rewrite(node, f"{text}.item()")
                    yield Finding(module, node, f"{name} has no dimension", (edit,))
        for call in module.calls_to("view"):
            if is_of_sliced_hits(module, call) and takes_several(program, module, call):
                yield Finding(
                    module,
                    call,
                    "the slice of a transposed tensor lies in several pieces",
                    tuple(flattening(program, module, call)),
                )


def is_loss(module: Module, name: ast.Name | ast.Call) -> bool:
    """Whether a value is a loss: it is gone back through, or made by what is called a loss."""
    if isinstance(name, ast.Call):
        return makes_loss(module, name)
    backward = {
        call.func.value.id
        for call in module.calls_to("backward")
        if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name)
        if module.function(call) is module.function(name)
    }
    return name.id in backward or any(
        isinstance(value, ast.Call) and makes_loss(module, value)
        for value in module.alternatives(name, name)
    )


def makes_loss(module: Module, call: ast.Call) -> bool:
    """Whether a call is of torch's losses, and not asked for one of each example, or so called."""
    name = module.last_name(call.func)
    if name in FUNCTIONS_OF_LOSS:
        return asked_for(call) is not Reduction.UNKNOWN
    return any(word in name.lower() for word in LOSS_WORDS)


def is_of_sliced_hits(module: Module, call: ast.Call) -> bool:
    """``correct[:k].view(-1)`` where ``correct = pred.eq(…)`` and ``pred = pred.t()``."""
    match call:
        case ast.Call(
            func=ast.Attribute(value=ast.Subscript(value=ast.Name() as hits, slice=ast.Slice())),
            args=[ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=1))],
            keywords=[],
        ):
            compared = [
                value
                for value in module.alternatives(hits, hits)
                if isinstance(value, ast.Call) and module.last_name(value.func) == "eq"
            ]
            return bool(compared) and any(
                module.function(each) is module.function(call) for each in module.calls_to("t")
            )
    return False


def takes_several(program: Program, module: Module, call: ast.Call) -> bool:
    """Whether the function is asked for more than the first of its hits, as by ``topk=(1, 5)``."""
    function = module.function(call)
    if function is None:
        return False
    asked: list[ast.expr] = [*function.args.defaults]
    for _, use in program.callers(function):
        asked += argument_values(use)
    return any(
        type(number.value) is int and number.value > 1
        for value in asked
        for number in everywhere(value, ast.Constant)
    )


def flattening(program: Program, module: Module, call: ast.Call) -> Iterator[Edit]:
    """Edits of the flattening, and of the sum behind it if what comes of it is indexed."""
    assert isinstance(call.func, ast.Attribute)
    yield Rewrite(call, f"{module.text(call.func.value)}.reshape(-1)")
    function = module.function(call)
    summed = call_above(module, call, "sum")
    if summed is None or len(summed.args) != 1 or summed.keywords or function is None:
        return
    names = {
        (where, name.id)
        for where, use in program.callers(function)
        if isinstance(stmt := where.statement(use), ast.Assign)
        for target in stmt.targets
        for name in ast.walk(target)
        if isinstance(name, ast.Name)
    }
    if any(
        isinstance(node.value, ast.Name)
        and (where, node.value.id) in names
        and isinstance(node.slice, ast.Constant)
        for where in {where for where, _ in names}
        for node in where.nodes(ast.Subscript)
    ):
        yield Rewrite(summed.args[0], ", keepdim=True", after=True)


def call_above(module: Module, call: ast.Call, name: str) -> ast.Call | None:
    """The call of a method in the chain behind a call: ``sum`` of ``call().float().sum(0)``."""
    for up in module.ancestors(call):
        if isinstance(up, ast.Call) and module.last_name(up.func) == name:
            return up
        if not isinstance(up, ast.Call | ast.Attribute):
            return None
    return None
