"""Tolerances for two runs that should train the same, by the precision they compute in."""

from __future__ import annotations

from attrs import frozen


@frozen
class Tolerances:
    """Relative differences allowed in a step's loss and gradient norm, and the final parameters.

    Splitting a batch differently adds the same numbers in another order. That costs a few units in
    the last place of what products are rounded to, and further training amplifies it.
    ``first_step`` is for loss and norm of the first step, which starts from equal parameters.
    """

    precision: str
    first_step: float
    loss: float
    norm: float
    weights: float

    @property
    def summary(self) -> str:
        """A remark for a table; "" for fp32, whose tolerances are the promise itself."""
        if self == FP32:
            return ""
        return (
            f"in {self.precision} the first step may be {self.first_step:.1e} apart in both; later "
            f"ones, from rounded parameters, {self.loss:.1e} in the loss, {self.norm:.1e} in the "
            f"norm; parameters {self.weights:.1e}"
        )


FP32 = Tolerances("fp32", first_step=1e-5, loss=1e-6, norm=1e-5, weights=1e-5)

# fp64 has 29 bits more than fp32: what is rounding shrinks to a 5e8th. A wrong weight stays.
FP64 = Tolerances("fp64", first_step=1e-11, loss=1e-10, norm=1e-9, weights=1e-9)
# What rounding in fp32 may have grown to where fp64 runs are the same: one step adds little, many
# may diverge, as at large learning rates or where a batch norm divides by a small variance.
GROWN_ROUNDING = Tolerances("fp32", first_step=1e-4, loss=1e-2, norm=1e-1, weights=1e-2)

# One unit in the last place of bfloat16, with its 8 significant bits, is 2**-7. Tolerances of later
# steps are measured (benchmarks/verify_families.py), at 100 times the usual learning rates and
# more. Late in training, examples' gradients nearly cancel and the remainder is imprecise: the norm
# of a later step is reliable in its order of magnitude only.
BF16 = Tolerances("bf16", first_step=2**-7, loss=2**-5, norm=2**-1, weights=2**-5)
# float16 has 11 bits, but on a CPU bfloat16 stands in for it.
FP16 = Tolerances("fp16", first_step=2**-7, loss=2**-5, norm=2**-1, weights=2**-5)

TOLERANCES = {each.precision: each for each in (FP32, BF16, FP16)}
