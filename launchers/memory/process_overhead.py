"""Add the memory that a process takes on a card besides the allocations of its operations."""

from __future__ import annotations

from ...record import replace
from .peak import Curve, Peak
from .step import TrainingStep

MIB = 1 << 20
CUBLAS = {9: 32 * MIB, 0: 2 * 4 * MIB + 8 * 16 * 1024}
"""Bytes of cuBLAS' workspace from a major compute capability on: the default of
aten/src/ATen/cuda/CublasHandlePool.cpp without CUBLAS_WORKSPACE_CONFIG."""
CUBLAS_HANDLES = 2  # cuBLAS handles: one for the thread of each, the forward and the backward pass
CONTEXT = {10: 900 * MIB, 9: 800 * MIB, 8: 600 * MIB, 0: 500 * MIB}
"""Bytes that driver, kernels and libraries take from a major compute capability on, with kernels
loaded lazily (CUDA 11.7 and later): the upper end of what is reported, from 300 MB
(https://github.com/pytorch/pytorch/issues/107667) to 0.9 GB on the newest cards."""
NCCL_BYTES = 400 * MIB
"""Bytes of NCCL's buffers and kernels if several ranks train, at most a few hundred MiB: each
channel has buffers of NCCL_BUFFSIZE = 4 MiB."""


def add_process_overhead(curve: Curve, step: TrainingStep) -> Curve:
    """Add cuBLAS' workspaces, DDP's buckets and the context to the peaks of a curve.

    What a sharded step takes in place of the buckets is in its trace.
    """
    if step.accumulates and curve.accumulated:
        curve = replace(curve, peaks=curve.accumulated)
    if curve.gathered:
        pairs = zip(curve.peaks, curve.gathered, strict=True)
        curve = replace(curve, peaks=tuple(max(pair, key=_total) for pair in pairs))
    curve = replace(curve, accumulated=(), gathered=())
    if step.capability is None:
        return curve
    major = step.capability[0]
    workspace = CUBLAS_HANDLES * _for_capability(CUBLAS, major)
    # DDP copies the gradients, as patched scripts do not set gradient_as_bucket_view.
    is_ddp = step.world > 1 and step.training and not step.sharded
    buckets = curve.trainable if is_ddp else 0
    context = context_bytes(major, step.world)

    def with_overhead(peak: Peak) -> Peak:
        return replace(
            peak,
            workspace=peak.workspace + workspace,
            buckets=peak.buckets + buckets,
            context=context,
        )

    return curve.map_peaks(with_overhead)


def context_bytes(major: int, world: int) -> int:
    """What driver, kernels and NCCL take of a card of this major compute capability."""
    return _for_capability(CONTEXT, major) + (NCCL_BYTES if world > 1 else 0)


def _total(peak: Peak) -> int:
    return peak.total


def _for_capability(table: dict[int, int], major: int) -> int:
    return table[max(since for since in table if since <= major)]
