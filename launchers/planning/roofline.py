"""Estimate the time of an optimizer step from the cards' datasheets, by a roofline model.

A micro-batch is limited either by the card's arithmetic units or by its memory bandwidth; for both
a fraction of the peak is assumed that is reached in practice.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...record import record
from ..gpus.model import Gpu, Link
from ..gpus.specs import CardSpec, card_named
from .candidates import Candidate

EFFICIENCY = 0.33
"""Fraction of the arithmetic peak: the mean of what is published for training transformers, 21 %
for GPT-3, 33 % for Gopher, 30 % for Megatron-Turing NLG and 46 % for PaLM (Chowdhery et al., PaLM,
2022, table 3)."""
BANDWIDTH_EFFICIENCY = 0.8
"""Fraction of the memory bandwidth that kernels over large tensors reach."""
BACKWARD_SHARE = 2 / 3  # of a step's operations, during which DDP all-reduces gradients
LINK_EFFICIENCY = 0.7
"""Fraction of a link's rate at which NCCL all-reduces large buffers: nccl-tests report some 230 of
300 GB/s between A100s on NVSwitch."""
PCIE = {7: 16.0, 8: 32.0, 9: 64.0, 10: 64.0}
"""GB/s in one direction over 16 lanes, by the major compute capability of the cards that have
them: PCI Express 3.0, 4.0 and 5.0 (PCI-SIG)."""
NVLINK = 25.0
"""GB/s in one direction over one NVLink of the generations 2 to 4 (NVIDIA's whitepapers)."""


@record
class StepTime:
    """Seconds of an optimizer step.

    `compute` is all forward and backward passes, limited by `bottleneck` ("products", "memory" or
    "links", over which sharded weights are gathered); `fixed` is what does not depend on the batch,
    above all clipping and AdamW; `all_reduce` is the part of the all-reduce that does not overlap
    with the last backward pass. `at_peak` is what the matrix products alone would take at the
    arithmetic peak.
    """

    compute: float
    bottleneck: str
    fixed: float
    all_reduce: float
    at_peak: float

    @property
    def seconds(self) -> float:
        """The whole step."""
        return self.compute + self.fixed + self.all_reduce


def expected_step_time(
    candidate: Candidate, cards: Sequence[Gpu], links: Sequence[Link] = ()
) -> StepTime | None:
    """The step time on the slowest of these cards; None if the datasheet of one is not known."""
    datasheets = [card_named(gpu.name) for gpu in cards]
    known = [sheet for sheet in datasheets if sheet and candidate.precision in sheet.tflops]
    if not known or len(known) < len(datasheets):
        return None
    rate = _all_reduce_rate(known, cards, links)
    times = (_time_on_card(candidate, card, rate) for card in known)
    return max(times, key=lambda time: time.seconds)


def _time_on_card(candidate: Candidate, card: CardSpec, rate: float) -> StepTime:
    plan = candidate.plan
    peak = candidate.flops * plan.per_device / (card.tflops[candidate.precision] * 1e12)
    products = peak / EFFICIENCY
    bandwidth = card.bandwidth * 1e9 * BANDWIDTH_EFFICIENCY
    memory = candidate.bytes_moved * plan.per_device / bandwidth
    others = (plan.world - 1) / plan.world  # the part of a tensor that comes from other ranks
    # FSDP2 gathers all weights forward and again backward, while it computes.
    whole = candidate.peak.parameters * plan.world if candidate.sharded else 0
    gathering = 2 * others * whole / (rate * 1e9)
    micro = max(products, memory, gathering)
    # In a ring all-reduce every rank sends and receives each gradient twice, but for its own part.
    # Where each keeps a part only, gradients go once.
    ways = 1 if candidate.sharded else 2
    all_reduce = ways * others * candidate.trainable_bytes / (rate * 1e9)
    return StepTime(
        compute=micro * plan.accumulation,
        bottleneck="links" if micro > max(products, memory) else _slower(products, memory),
        fixed=candidate.fixed_bytes_moved / bandwidth,
        all_reduce=max(0.0, all_reduce - BACKWARD_SHARE * micro),
        at_peak=peak * plan.accumulation,
    )


def _slower(products: float, memory: float) -> str:
    return "products" if products >= memory else "memory"


def _all_reduce_rate(
    known: Sequence[CardSpec], cards: Sequence[Gpu], links: Sequence[Link]
) -> float:
    """GB/s of an all-reduce, by the slowest link in the ring."""
    used = {gpu.index for gpu in cards}
    paths = [link.path for link in links if {link.first, link.second} <= used]
    pcie = min(PCIE.get(card.compute_capability[0], 16.0) for card in known)
    lanes = [int(path[2:]) if path.startswith("NV") else 0 for path in paths]
    # Simulated cards have no links here: their datasheets say how they are joined.
    nvlink = min(lanes) * NVLINK if lanes else min(card.nvlink / 2 for card in known)
    return (nvlink or pcie) * LINK_EFFICIENCY
