"""Compare predicted memory with figures that users report.

``python -m ddpfix.launchers.memory.reported_cases`` prints the table of docs/memory.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from ...recipes.load import load
from .peak import Curve, Peak
from .predict import predict
from .step import TrainingStep, step_of

GB = 10**9


@attrs.frozen
class ReportedCase:
    """A reported figure in GB per card, and the step and batch to predict for it."""

    setting: str
    step: TrainingStep
    batch: int
    gigabytes: float
    why: str


def reported_cases() -> Iterator[ReportedCase]:
    """Every reported figure, with why the prediction differs."""
    for length, figure in ((1024, 43.0), (400, 13.0)):
        for attention in ("sdpa", "eager"):
            yield ReportedCase(
                f"CodeGPT, 8 pairs of 2 x {length} tokens, fp32, {attention}, 2 cards",
                _codegpt(length, attention),
                8,
                figure,
                WHY[attention],
            )
    for size, batch, figure in (("large", 256, 3.0), ("xl", 192, 10.0), ("xxl", 128, 28.0)):
        yield ReportedCase(
            f"XLM-R {size}, {batch} pairs of 2 x 256 tokens, LoRA 32, bf16, checkpointing",
            _step(f"anchor-xlmr-{size}", capability=(9, 0)),
            batch,
            figure,
            WHY["anchors"],
        )
    for length in (512, 256):
        yield ReportedCase(
            f"CodeBERT as a detector, 128 texts of {length} tokens, fp16",
            _step("code-detector", {"--max_length": length}),
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


def _codegpt(length: int, attention: str) -> TrainingStep:
    arguments = {"--block_size": length, "--attn_implementation": attention}
    return _step("codegpt-bigclonebench", arguments, world=2, accumulates=True, capability=(8, 9))


def _step(name: str, arguments: dict[str, Any] | None = None, **options: Any) -> TrainingStep:
    recipe = load(name)
    step = step_of(recipe, recipe.arguments | (arguments or {}), **options)
    assert step is not None
    return step


def table() -> str:
    """The cases as a Markdown table: reported, predicted, and its constant part, all in GB."""
    lines = [
        "| setting | reported | predicted | of which weights, gradients, moments | why |",
        "|---|---|---|---|---|",
    ]
    cases = [*reported_cases()]
    for case, curve in zip(cases, predict([case.step for case in cases]), strict=True):
        if not isinstance(curve, Curve):
            raise SystemExit(f"{case.setting}: {curve.because}")
        peak = curve.at(case.batch)
        total, fixed = (f"{size / GB:.1f}" for size in (peak.total, _constant(peak)))
        lines.append(f"| {case.setting} | {case.gigabytes:g} | {total} | {fixed} | {case.why} |")
    return "\n".join(lines)


def _constant(peak: Peak) -> int:
    return peak.parameters + peak.gradients + peak.optimizer + peak.buckets


if __name__ == "__main__":
    print(table())
