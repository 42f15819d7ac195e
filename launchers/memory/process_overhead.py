"""What a process takes on a card beside what its own operations allocate."""

from __future__ import annotations

from ...record import changed
from .peak import Curve, Peak
from .step import TrainingStep

MIB = 1 << 20
CUBLAS = {9: 32 * MIB, 0: 2 * 4 * MIB + 8 * 16 * 1024}
"""Bytes of cuBLAS' workspace from a major compute capability on: what
aten/src/ATen/cuda/CublasHandlePool.cpp takes unless CUBLAS_WORKSPACE_CONFIG says otherwise."""
HANDLES = 2  # one for each thread that computes: the forward and the backward pass
CONTEXT = {10: 900 * MIB, 9: 800 * MIB, 8: 600 * MIB, 0: 500 * MIB}
"""Bytes that driver, kernels and libraries take from a major compute capability on, kernels being
loaded as they are used (CUDA 11.7 and later): the upper end of what is reported, from 300 MB
(https://github.com/pytorch/pytorch/issues/107667) to 0.9 GB on the newest cards."""
NCCL = 400 * MIB
"""Bytes that NCCL's buffers and kernels take where several ranks train, at most a few hundred MiB:
each channel has buffers of NCCL_BUFFSIZE = 4 MiB."""


def with_surroundings(curve: Curve, step: TrainingStep) -> Curve:
    """A curve as the driver sees it: with cuBLAS' workspaces, DDP's buckets, and the context."""
    if step.accumulates and curve.accumulated:
        curve = changed(curve, peaks=curve.accumulated)
    curve = changed(curve, accumulated=())
    if step.capability is None:
        return curve
    major = step.capability[0]
    workspace = HANDLES * _at(CUBLAS, major)
    # Gradients are copied into them: the patched script's DDP keeps no views.
    buckets = curve.trainable if step.world > 1 and step.training else 0
    context = _at(CONTEXT, major) + (NCCL if step.world > 1 else 0)

    def around(peak: Peak) -> Peak:
        return changed(peak, workspace=peak.workspace + workspace, buckets=buckets, context=context)

    return curve.mapped(around)


def _at(table: dict[int, int], major: int) -> int:
    return table[max(known for known in table if known <= major)]
