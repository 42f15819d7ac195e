"""What a value is to the examples of a batch: one row each, a mean over them, or neither."""

from __future__ import annotations

import ast
from enum import Enum

from ....record import record
from ...source.module import Module


class ValueKind(Enum):
    """How a value hangs on the batch."""

    FREE = "the same whatever the batch"
    ROWS = "something for each example"
    TURNED = "the same, examples in the last of two dimensions"
    AHEAD = "the same, behind a new first dimension"
    MEAN = "sums or means over the examples, added up"
    VAGUE = "of the batch in a way that is not followed"


@record
class Mixture:
    """The place where a value stops to be a mean of what examples give, and the reason."""

    module: Module
    node: ast.expr
    text: str


@record
class BatchValue:
    """A kind, and where examples have mixed."""

    kind: ValueKind
    mixed: Mixture | None = None
    # Something of the whole batch is added: harmless until the sum is bent.
    shifted: Mixture | None = None
    is_flat: bool = False  # one number for each example
    is_bundle: bool = False  # a tuple, a list or a dictionary
    is_sum: bool = False  # which counts, perhaps
    parts: tuple[BatchValue, ...] = ()  # of a tuple
    is_extreme: bool = False  # the largest or smallest, as is taken off ahead of exp()


FREE = BatchValue(ValueKind.FREE)
VAGUE = BatchValue(ValueKind.VAGUE)
ORDER = (
    ValueKind.FREE,
    ValueKind.MEAN,
    ValueKind.VAGUE,
    ValueKind.AHEAD,
    ValueKind.TURNED,
    ValueKind.ROWS,
)


def joined(*values: BatchValue) -> BatchValue:
    """What a value is that may be any of these, or is put together of them."""
    sizes = {len(each.parts) for each in values}
    parts: tuple[BatchValue, ...] = ()
    if len(sizes) == 1 and sizes != {0} and len(values) > 1:
        parts = tuple(
            joined(*each) for each in zip(*(value.parts for value in values), strict=True)
        )
    return BatchValue(
        max((each.kind for each in values), key=ORDER.index, default=ValueKind.FREE),
        next((each.mixed for each in values if each.mixed is not None), None),
        next((each.shifted for each in values if each.shifted is not None), None),
        is_sum=any(each.is_sum for each in values),
        parts=parts,
    )


def as_kind(value: BatchValue, kind: ValueKind) -> BatchValue:
    """The value, of another kind."""
    return BatchValue(kind, value.mixed, value.shifted, is_sum=value.is_sum)


def bent(value: BatchValue) -> BatchValue:
    """The value behind a function that is not linear: what was shifted has mixed by now."""
    return BatchValue(value.kind, value.mixed or value.shifted, is_sum=value.is_sum)


def mixture(
    module: Module, node: ast.expr, kind: ValueKind, whole: BatchValue, because: str
) -> BatchValue:
    """A value in which examples mix here, if they have not before; of a text with ``{}``."""
    text = because.format(" ".join(module.text(node).split())[:60])
    return BatchValue(kind, whole.mixed or Mixture(module, node, text))
