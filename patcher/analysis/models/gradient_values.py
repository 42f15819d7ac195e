"""What values of a forward pass are made of, and which functions keep a gradient."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ....record import record
from .model_parts import ModelPart

NOTHING: frozenset[str] = frozenset()

WITHOUT_GRADIENT = frozenset(
    [
        *("argmax", "argmin", "argsort", "eq", "ne", "gt", "ge", "lt", "le", "isnan", "isinf"),
        *("zeros_like", "ones_like", "full_like", "empty_like", "randn_like", "rand_like"),
        *("zeros", "ones", "arange", "tensor", "full", "eye", "one_hot", "nonzero", "bincount"),
        *("size", "dim", "numel", "item", "tolist", "detach", "numpy", "long", "int", "bool"),
        *("sign", "floor", "ceil", "round", "logical_and", "logical_or", "logical_not", "unique"),
        *(
            "new",
            "new_zeros",
            "new_ones",
            "new_full",
            "new_tensor",
            "get_device",
            "type",
            "new_empty",
        ),
        *("from_numpy", "multinomial", "bernoulli", "randint", "rand", "randn", "randperm"),
    ]
)
FIRST_IS_RESULT = frozenset(["max", "min", "topk", "sort", "kthvalue", "median", "mode"])
VIEWS = frozenset(["T", "mT", "H", "real"])
OUTPUTS = {"loss": 0, "logits": 0, "last_hidden_state": 0, "pooler_output": 1}


class NotFollowedError(Exception):
    """A forward does what cannot be followed."""


@record
class FlowValue:
    """The parts that a value is made of: as a whole, and each of its elements where it is a tuple.

    `module` is the part that it stands for, where it is one: the layer of a loop over layers.
    """

    parts: frozenset[str] = NOTHING
    elements: tuple[frozenset[str], ...] | None = None
    module: ModelPart | None = None


UNMADE = FlowValue()


def union(values: Iterable[FlowValue]) -> frozenset[str]:
    """The parts that any of the values is made of; of a tuple, its first element's."""
    made: frozenset[str] = NOTHING
    for value in values:
        made |= value.parts
    return made


def element(value: FlowValue, place: int) -> FlowValue:
    """One of several results; a piece of a tensor is made of what all of it is."""
    if value.elements is None:
        return FlowValue(value.parts)
    inside = -len(value.elements) <= place < len(value.elements)
    return FlowValue(value.elements[place]) if inside and place >= 0 else UNMADE


def common(values: list[FlowValue]) -> FlowValue:
    """What all of several values are made of."""
    parts = frozenset.intersection(*(value.parts for value in values))
    lists = [value.elements for value in values]
    if all(each is None for each in lists):
        return FlowValue(parts)
    if any(each is None for each in lists):
        raise NotFollowedError
    columns = zip(*(each for each in lists if each is not None), strict=False)
    return FlowValue(NOTHING, tuple(frozenset.intersection(*column) for column in columns))


def meet(values: dict[str, FlowValue], other: Mapping[str, FlowValue]) -> None:
    """Leave to each name what it is made of on both of two paths."""
    for name in [*values]:
        if name not in other:
            del values[name]
        elif values[name] != other[name]:
            try:
                values[name] = common([values[name], other[name]])
            except NotFollowedError:
                del values[name]
