"""What users report of memory, beside what is predicted, and why they differ.

``python -m ddpfix.launchers.memory.reported`` prints the table of docs/memory.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs
from attrs import evolve

from ...recipes import model as recipes
from ...recipes.network import Network
from .peak import Curve, Peak
from .predict import predict
from .step import Step, step_of

GB = 10**9
SHALLOW = (4, 6)
"""Layers that are traced of a network with more than DEEP: its peak goes on in a straight line."""
DEEP = 24
LENGTH = 256  # tokens: what anchors are trained with
LARGE = Network(
    "xlm-roberta",
    "anchor",
    vocabulary=250002,
    hidden=1024,
    layers=24,
    heads=16,
    intermediate=4096,
    positions=514,
    length=(LENGTH,),
    weights="bf16",
    precision="bf16",
    projection=768,
    lora=32,
)
XL = evolve(
    LARGE,
    architecture="xlm-roberta-xl",
    vocabulary=250880,
    hidden=2560,
    layers=36,
    heads=32,
    intermediate=10240,
)
ANCHORS = {
    "large": LARGE,
    "XL": XL,
    "XXL": evolve(XL, hidden=4096, layers=48, intermediate=16384),
}
"""XLM-RoBERTa by the configurations of facebook/xlm-roberta-large, -xl and -xxl."""
DETECTOR = Network(
    "roberta",
    "detector",
    vocabulary=50265,
    hidden=768,
    layers=12,
    heads=12,
    intermediate=3072,
    positions=514,
    length=(LENGTH,),
    precision="fp16",
    projection=256,
)


@attrs.frozen
class Reported:
    """A figure in GB of a card, and the setting that is predicted beside it."""

    what: str
    step: Step
    batch: int
    gigabytes: float
    why: str

    @property
    def steps(self) -> list[Step]:
        """What is traced for it."""
        network = self.step.network
        if network.layers <= DEEP:
            return [self.step]
        return [evolve(self.step, network=evolve(network, layers=count)) for count in SHALLOW]

    def peak(self) -> Peak:
        """What is predicted. Raises SystemExit where nothing can be."""
        peaks = []
        for step, curve in zip(self.steps, predict(self.steps), strict=True):
            if not isinstance(curve, Curve):
                raise SystemExit(f"{step}: {curve.because}")
            peaks.append(curve.at(self.batch))
        low, high = peaks[0], peaks[-1]
        share = (self.step.network.layers - SHALLOW[0]) / (SHALLOW[1] - SHALLOW[0])
        pairs = zip(attrs.astuple(low), attrs.astuple(high), strict=True)
        return Peak(*(round(one + (other - one) * share) for one, other in pairs))


def reported() -> Iterator[Reported]:
    """Every figure, with our words on it."""
    for length, figure in ((1024, 43.0), (400, 13.0)):
        for attention in ("sdpa", "eager"):
            yield Reported(
                f"CodeGPT, 8 pairs of 2 x {length} tokens, fp32, {attention}, 2 cards",
                _codegpt(length, attention),
                8,
                figure,
                WHY[attention],
            )
    for (size, network), batch, figure in zip(
        ANCHORS.items(), (256, 192, 128), (3.0, 10.0, 28.0), strict=True
    ):
        step = Step(network, LENGTH, "bf16", checkpointing=True, lora_rank=32, projection=768)
        yield Reported(
            f"XLM-R {size}, {batch} anchors of 2 x {LENGTH}, LoRA 32, bf16, checkpointing",
            evolve(step, capability=(9, 0)),
            batch,
            figure,
            WHY["anchors"],
        )
    yield Reported(
        f"detector, CodeBERT, 128 texts of {LENGTH}, fp16",
        Step(DETECTOR, LENGTH, "fp16", projection=256),
        128,
        16.0,
        WHY["detector"],
    )


WHY = {
    "sdpa": "torch's attention kernels hold no scores of tokens x tokens",
    "eager": "attention as it was before transformers had them: scores, softmax and dropout of "
    "every layer are kept",
    "anchors": "the claim is little more than the weights in bf16; both texts of every anchor "
    "and the contrast keep their activations as well",
    "detector": "the claim names no length",
}


def _codegpt(length: int, attention: str) -> Step:
    recipe = recipes.load("codegpt-bigclonebench")
    arguments = {**recipe.arguments, "--block_size": length, "--attn_implementation": attention}
    step = step_of(recipe, arguments, world=2, accumulates=True, capability=(8, 9))
    assert step is not None
    return step


def table() -> str:
    """The rows in Markdown: reported, predicted and what of that is constant, all in GB."""
    lines = [
        "| setting | reported | predicted | of which weights, gradients, moments | why |",
        "|---|---|---|---|---|",
    ]
    for row in reported():
        peak = row.peak()
        total, fixed = (f"{size / GB:.1f}" for size in (peak.total, _constant(peak)))
        lines.append(f"| {row.what} | {row.gigabytes:g} | {total} | {fixed} | {row.why} |")
    return "\n".join(lines)


def _constant(peak: Peak) -> int:
    return peak.parameters + peak.gradients + peak.optimizer + peak.buckets


if __name__ == "__main__":
    print(table())
