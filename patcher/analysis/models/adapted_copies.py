"""Copies of a model that a training step adapts, and whose gradients reach the model's weights."""

from __future__ import annotations

import ast

from ...source.module import Module
from ..training.frameworks import is_one_of
from ..training.program import Program

ADAPTS = (
    "higher.innerloop_ctx",
    "torch.func.functional_call",
    "torch.nn.utils.stateless.functional_call",
)
"""They run a model with other weights, which are computed from its own."""


def adapted_copy(program: Program) -> tuple[Module, ast.Call] | None:
    """A call that runs a model with weights of its own, as meta-learning does; None without one.

    The gradients of these weights are not those of the model's forward pass, which alone
    DistributedDataParallel looks at.
    """
    for module, call in program.calls_to(*(name.rpartition(".")[2] for name in ADAPTS)):
        if is_one_of(module.dotted(call.func), ADAPTS) and program.is_live(module, call):
            return module, call
    return None
