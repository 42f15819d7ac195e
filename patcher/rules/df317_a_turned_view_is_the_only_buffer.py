"""A turned view is the only buffer of a model.

What         The one buffer of a model is a view with an axis of length 1 that was turned, as in
             the positional encoding of torch's tutorial, or one that was expanded.
At run time  DistributedDataParallel writes rank 0's buffers back into the view, whose strides are
             other than its shape says: RuntimeError, unsupported operation, at the first forward
             pass of each rank, or when the model is wrapped (measured: torch 2.11 on a card and
             2.13 on CPUs). With another buffer beside it, it is written another way and works.
Example      self.register_buffer("pe", pe.unsqueeze(0).transpose(0, 1))
Fix          Register a copy with plain strides.
Fix safety   Safe: the same numbers in the same shape; a checkpoint has the same bytes.
Source       torch.nn.parallel.DistributedDataParallel (broadcast_buffers)
"""

import ast
from collections.abc import Iterator

from ..analysis.models.batch_norm import norms_by_batch
from ..analysis.models.wrapping import SHARED
from ..analysis.training.program import Program
from ..editing.edits import Import, Rewrite
from ..findings import Finding, Safety, Severity
from ..source.module import Module
from ..source.tree import argument, keyword

CODE, SEVERITY, SAFETY = "DF317", Severity.DEGRADED, Safety.SAFE

TURNS = ("transpose", "permute", "t", "T", "movedim", "swapaxes")
EXPANDS = ("expand", "expand_as")
LENGTHENS = ("unsqueeze", "view", "reshape")  # which may make an axis of length 1
KEEPS = ("detach", "contiguous", "squeeze")  # the strides of such a view
MAX_NAMES = 4  # that one view has had


def findings(program: Program) -> Iterator[Finding]:
    wraps = program.calls_to("DistributedDataParallel")
    sends = [call for _, call in wraps if not keyword(call, "broadcast_buffers")]
    if not (sends or program.calls_to(SHARED)) or norms_by_batch(program):
        return
    buffers = [
        (module, call)
        for module, call in program.calls_to("register_buffer")
        if program.is_live(module, call)
    ]
    if len(buffers) != 1:
        return
    ((module, call),) = buffers
    view = argument(call, 1, "tensor")
    if view is not None and has_other_strides(module, view):
        plain = f"{module.operand(view)}.clone(memory_format=torch.contiguous_format)"
        because = f"the strides of {module.text(view)} are not those of its shape"
        yield Finding(module, call, because, (Rewrite(view, plain), Import("torch")))


def has_other_strides(module: Module, view: ast.expr) -> bool:
    """Whether a tensor is made by turning an axis of length 1, or by expanding."""
    made = [*ways_it_is_made(module, view)]
    turned = next((number for number, way in enumerate(made) if way in TURNS), None)
    return any(way in EXPANDS for way in made) or (
        turned is not None and any(way in LENGTHENS for way in made[turned:])
    )


def ways_it_is_made(module: Module, view: ast.expr) -> Iterator[str]:
    """The methods that a view comes from, the last one first."""
    names = 0
    while names < MAX_NAMES:
        if isinstance(view, ast.Name):
            value = module.definition(view, view)
            if value is None:
                return
            view, names = value, names + 1
        method = view.func if isinstance(view, ast.Call) else view
        if not isinstance(method, ast.Attribute):
            return
        if method.attr not in (*TURNS, *EXPANDS, *LENGTHENS, *KEEPS):
            return
        yield method.attr
        view = method.value
