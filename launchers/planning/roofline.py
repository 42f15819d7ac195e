"""How long an optimizer step is expected to take on cards whose sheets are known.

A roofline: either the card's units for products or its memory keeps a micro-batch waiting. Both
are taken at a part of their peak that is reached in practice.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...record import record
from ..gpus.model import Gpu, Link
from ..gpus.specs import Card, named
from .candidates import Candidate

EFFICIENCY = 0.33
"""The part of the peak of a card's units: the mean of what is published for training transformers,
21 % for GPT-3, 33 % for Gopher, 30 % for Megatron-Turing NLG and 46 % for PaLM (Chowdhery et al.,
PaLM, 2022, table 3)."""
BANDWIDTH_EFFICIENCY = 0.8
"""The part of its memory's rate that kernels over large tensors reach."""
BACKWARD = 2 / 3  # of the operations of a step, beside which DDP reduces gradients
LINK_EFFICIENCY = 0.7
"""The part of a link's rate at which NCCL reduces large buffers: nccl-tests report some 230 of
300 GB/s between A100s on NVSwitch."""
PCIE = {7: 16.0, 8: 32.0, 9: 64.0, 10: 64.0}
"""GB/s in one direction over 16 lanes, by the major compute capability of the cards that have
them: PCI Express 3.0, 4.0 and 5.0 (PCI-SIG)."""
NVLINK = 25.0
"""GB/s in one direction over one NVLink of the generations 2 to 4 (NVIDIA's whitepapers)."""


@record
class StepTime:
    """Seconds of an optimizer step.

    `compute` is all forward and backward passes, which wait for `bound` ("products" or "memory"),
    `once` is what moves whatever the batch, above all for clipping and AdamW, `reduced` what is
    left of the all-reduce when it has run beside the last backward pass. `peak` is what products
    alone would take at the units' peak.
    """

    compute: float
    bound: str
    once: float
    reduced: float
    peak: float

    @property
    def seconds(self) -> float:
        """All of them, one after the other."""
        return self.compute + self.once + self.reduced


def expected(way: Candidate, cards: Sequence[Gpu], links: Sequence[Link] = ()) -> StepTime | None:
    """The step of the slowest of these cards; None where no sheet of one of them is known."""
    sheets = [named(gpu.name) for gpu in cards]
    known = [sheet for sheet in sheets if sheet is not None and way.precision in sheet.tflops]
    if not known or len(known) < len(sheets):
        return None
    rate = _reducing(known, cards, links)
    return max((_on(way, card, rate) for card in known), key=_seconds)


def _on(way: Candidate, card: Card, rate: float) -> StepTime:
    world = way.plan.world
    peak = way.flops * way.plan.per_device / (card.tflops[way.precision] * 1e12)
    products = peak / EFFICIENCY
    bandwidth = card.bandwidth * 1e9 * BANDWIDTH_EFFICIENCY
    memory = way.moved * way.plan.per_device / bandwidth
    micro = max(products, memory)
    # A ring: every rank sends and receives each gradient twice, but for its own part.
    reducing = 2 * (world - 1) / world * way.trainable / (rate * 1e9)
    return StepTime(
        compute=micro * way.plan.accumulation,
        bound="products" if products >= memory else "memory",
        once=way.moved_once / bandwidth,
        reduced=max(0.0, reducing - BACKWARD * micro),
        peak=peak * way.plan.accumulation,
    )


def _reducing(known: Sequence[Card], cards: Sequence[Gpu], links: Sequence[Link]) -> float:
    """GB/s at which gradients go round, by the slowest link in the ring."""
    here = {gpu.index for gpu in cards}
    paths = [link.path for link in links if {link.first, link.second} <= here]
    pcie = min(PCIE.get(card.compute_capability[0], 16.0) for card in known)
    lanes = [int(path[2:]) if path.startswith("NV") else 0 for path in paths]
    # Cards that are not here are joined as their makers join them.
    nvlink = min(lanes) * NVLINK if lanes else min(card.nvlink / 2 for card in known)
    return (nvlink or pcie) * LINK_EFFICIENCY


def _seconds(one: StepTime) -> float:
    return one.seconds
