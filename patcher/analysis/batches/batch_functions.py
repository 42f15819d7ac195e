"""What torch's functions and operators make of rows of examples and of means over them."""

from __future__ import annotations

import ast
import re

from ...source.module import Module
from ...source.tree import argument, everywhere, keyword
from .batch_values import FREE, VAGUE, BatchValue, ValueKind, as_kind, bent, joined, mixture

SUMS = ("mean", "sum", "nanmean", "nansum")
WHOLES = (
    *("std", "var", "max", "min", "amax", "amin", "median", "quantile", "nanquantile", "norm"),
    *("logsumexp", "percentile", "prod", "vector_norm", "std_mean", "var_mean"),
)
COUNTS = ("bincount", "histc")
RANKED = ("topk", "sort", "argsort", "kthvalue", "cumsum", "logcumsumexp", "cumprod", "sorted")
SHARES = ("softmax", "log_softmax", "normalize", "softmin")
OF_ALL = ("cov", "corrcoef", "pdist", "combinations")
ASKED_SECOND = ("quantile", "percentile", "norm", "nanquantile", "topk", "kthvalue")
# What makes of a mean another number than the mean of what it makes of ranks' means.
BENDING = (
    *("log", "log2", "log10", "log1p", "exp", "sqrt", "rsqrt", "pow", "square", "abs", "relu"),
    *("clamp", "clamp_min", "clamp_max", "clip", "sigmoid", "tanh", "softplus", "reciprocal"),
    *("leaky_relu", "elu", "norm", "smooth_l1_loss", "mse_loss", "l1_loss", "kl_div"),
)
EXTREMES = ("max", "min", "maximum", "minimum")
SAME = (
    *("to", "cuda", "cpu", "float", "double", "half", "long", "int", "bool", "numpy", "clone"),
    *("detach", "contiguous", "item", "tolist", "squeeze", "type", "type_as", "detach_", "neg"),
    *("requires_grad_", "FloatTensor", "LongTensor", "tensor", "as_tensor", "from_numpy"),
    *("Variable", "asarray", "array", "nan_to_num"),
)
# What has the shape of a value alone, or asks whether it is a number.
SHAPED = (
    *("size", "numel", "dim", "len", "isinstance", "hasattr", "range", "arange", "print", "any"),
    *("zeros", "ones", "empty", "full", "eye", "rand", "randn", "randint", "randperm", "all"),
    *("zeros_like", "ones_like", "randn_like", "rand_like", "empty_like", "full_like", "isnan"),
    *("isinf", "isfinite", "set", "str", "format", "set_postfix", "set_description", "type"),
)
RESHAPING = (
    *("view", "reshape", "flatten", "permute", "transpose", "t", "unsqueeze", "expand"),
    *("repeat", "expand_as", "swapaxes"),
)
JOINING = ("stack", "cat", "concat", "hstack", "vstack")
UNKNOWN = ("einsum", "baddbmm", "outer", "kron", "grad", "zip", "enumerate", "map", "filter", "dot")
KEEPING = (*JOINING, "update", "append", "add")
GATHERS = re.compile("gather.|.gather|all_reduce|sync|reduce_mean|reduce_tensor", re.IGNORECASE)
# The first dimension of a view that is still that of examples, and not of classes or shots.
OF_EXAMPLES = re.compile(
    r"size\(0\)|size\(\)\[0\]|shape\[0\]|len\(|^-1$|^(b|bs|n)$|batch", re.IGNORECASE
)
OF_BATCH = "{} is that of the whole batch"
MEETS = "{} joins examples with what is of the whole batch"
COMPARES = "{} compares the examples of the batch"
BENDS = "{} bends a mean over the batch"


def axis_of(module: Module, call: ast.Call, place: int) -> object:
    """The dimension that a call names: a number, None for none, or a text for what is not told."""
    node = argument(call, place, "dim") or argument(call, place, "axis")
    match node:
        case None:
            return None
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(number))):
            return -number
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            has_first = any(isinstance(each, ast.Constant) and each.value == 0 for each in parts)
            return 0 if has_first else "others"
    return "unknown"


def called(
    module: Module, call: ast.Call, name: str, owner: BatchValue | None, args: list[BatchValue]
) -> BatchValue:
    """What a function of torch or a method of a tensor, ``owner``, returns.

    Functions that are not known make rows of rows, and of all else nothing that is followed.
    """
    values = [*([owner] if owner is not None else []), *args]
    if not values or all(each.kind is ValueKind.FREE and each.mixed is None for each in values):
        return FREE
    if name in SHAPED:
        return FREE
    if GATHERS.search(name):
        return VAGUE
    first, whole, place = values[0], joined(*values), int(owner is None)
    if name in SAME:
        kept = (first.is_flat, first.is_bundle, whole.is_sum)
        return BatchValue(whole.kind, whole.mixed, whole.shifted, *kept)
    if name in ("mul", "div") and len(values) > 1:
        return product(module, call, first, values[1], name == "div")
    if (
        first.kind is ValueKind.ROWS
        and (made := of_rows(module, call, name, place, values)) is not None
    ):
        return made
    if name in OF_ALL and first.kind is ValueKind.TURNED:
        return mixture(module, call, ValueKind.MEAN, whole, OF_BATCH)
    if name in SUMS and first.kind in (ValueKind.MEAN, ValueKind.VAGUE):
        return as_kind(whole, first.kind)
    if name in RESHAPING:
        return reshaped(module, call, name, place, first)
    if name in ("mm", "matmul") and len(values) > 1:
        return multiplied(*values[:2])
    return of_any(module, call, name, values)


def of_rows(
    module: Module, call: ast.Call, name: str, place: int, values: list[BatchValue]
) -> BatchValue | None:
    """What reduces or ranks rows; None for what does neither."""
    first, whole = values[0], joined(*values)
    axis = axis_of(module, call, place + (name in ASKED_SECOND))
    if name in SUMS:
        if axis in (None, 0):
            return BatchValue(ValueKind.MEAN, whole.mixed, is_sum="sum" in name or first.is_sum)
        if not isinstance(axis, int):
            return VAGUE
        is_flat = axis in (1, -1) and keyword(call, "keepdim") is None
        return BatchValue(ValueKind.ROWS, whole.mixed, first.shifted, is_flat, is_sum=first.is_sum)
    if name in WHOLES and all(each.kind is ValueKind.FREE for each in values[1:]):
        if axis is None and name in (*EXTREMES, "amax", "amin"):
            return BatchValue(ValueKind.MEAN, whole.mixed, is_extreme=True)
        if axis in (None, 0):
            return mixture(module, call, ValueKind.MEAN, whole, OF_BATCH)
        return as_kind(bent(first), ValueKind.ROWS) if isinstance(axis, int) else VAGUE
    if name in COUNTS:
        return mixture(module, call, ValueKind.MEAN, whole, "{} counts in the whole batch")
    if name in RANKED:
        if name != "sorted" and (axis == 0 or (axis in (None, -1) and first.is_flat)):
            ranked = mixture(
                module, call, ValueKind.ROWS, whole, "{} ranks the examples of one rank"
            )
        elif name == "sorted" and first.is_flat:
            return mixture(
                module, call, ValueKind.VAGUE, whole, "{} ranks the examples of one rank"
            )
        else:
            ranked = bent(first)
        return BatchValue(ranked.kind, ranked.mixed, is_bundle=True)
    if (name in SHARES and axis == 0) or (
        name == "cosine_similarity" and axis_of(module, call, 2) == 0
    ):
        return mixture(
            module, call, ValueKind.ROWS, whole, "{} is shared out among the whole batch"
        )
    if name in OF_ALL:
        return mixture(module, call, ValueKind.MEAN, whole, OF_BATCH)
    return None


def of_any(module: Module, call: ast.Call, name: str, values: list[BatchValue]) -> BatchValue:
    """What other functions make of rows, means, or both."""
    whole = joined(*values)
    kinds = {each.kind for each in values}
    has_rows, has_means = ValueKind.ROWS in kinds, ValueKind.MEAN in kinds
    if has_means and kinds <= {ValueKind.MEAN, ValueKind.FREE}:
        if name in EXTREMES and len(values) > 1:
            return mixture(
                module, call, ValueKind.MEAN, whole, "{} chooses by means over the batch"
            )
        if name in BENDING:
            return mixture(module, call, ValueKind.MEAN, whole, BENDS)
    if has_rows and has_means and name not in (*KEEPING, *UNKNOWN):
        return mixture(module, call, ValueKind.ROWS, whole, MEETS)
    if name in JOINING:
        kind = ValueKind.VAGUE if name == "stack" and has_rows else whole.kind
        return BatchValue(kind, whole.mixed, whole.shifted)
    mixed = bent(whole).mixed
    is_followed = whole.kind is ValueKind.ROWS and name not in UNKNOWN
    return BatchValue(ValueKind.ROWS if is_followed else ValueKind.VAGUE, mixed, is_bundle=True)


def reshaped(
    module: Module, call: ast.Call, name: str, place: int, value: BatchValue
) -> BatchValue:
    """The value with other dimensions: rows where the first one is still that of examples."""
    if value.kind is ValueKind.TURNED and name == "t":
        return as_kind(value, ValueKind.ROWS)
    if value.kind is not ValueKind.ROWS:
        return as_kind(value, ValueKind.MEAN if value.kind is ValueKind.MEAN else ValueKind.VAGUE)
    given = call.args[place:]
    numbers = [each.value if isinstance(each, ast.Constant) else None for each in given]
    match name, numbers:
        case ("t", _) | ("permute", [1, 0]):
            return as_kind(value, ValueKind.TURNED)
        case ("permute", [0, *_]):
            return as_kind(value, ValueKind.ROWS)
        case ("transpose" | "swapaxes", [first, second]):
            is_same = None not in (first, second) and 0 not in (first, second)
            return as_kind(value, ValueKind.ROWS if is_same else ValueKind.VAGUE)
        case ("permute" | "transpose" | "swapaxes", _):
            return as_kind(value, ValueKind.VAGUE)
        case ("unsqueeze", [0]):
            return as_kind(value, ValueKind.AHEAD)
    if name in ("view", "reshape") and given and not OF_EXAMPLES.search(module.text(given[0])):
        return as_kind(value, ValueKind.VAGUE)
    is_flat = (name == "flatten" and not given) or (
        len(given) == 1 and name in ("view", "reshape") and module.text(given[0]) == "-1"
    )
    return BatchValue(ValueKind.ROWS, value.mixed, value.shifted, is_flat, is_sum=value.is_sum)


def multiplied(left: BatchValue, right: BatchValue) -> BatchValue:
    """``left @ right``. All pairs of rows are DF307's, or the features of one picture."""
    whole = joined(left, right)
    match left.kind, right.kind:
        case ValueKind.TURNED, ValueKind.ROWS:
            return as_kind(bent(whole), ValueKind.MEAN)
        case ValueKind.ROWS, ValueKind.FREE:
            return BatchValue(ValueKind.ROWS, whole.mixed, left.shifted)
    return as_kind(
        bent(whole), ValueKind.VAGUE if whole.kind is not ValueKind.FREE else ValueKind.FREE
    )


def product(
    module: Module, node: ast.expr, left: BatchValue, right: BatchValue, divides: bool
) -> BatchValue:
    """``left * right`` and ``left / right``."""
    whole = joined(left, right)
    match left.kind, right.kind:
        case kind, ValueKind.FREE:
            return BatchValue(kind, whole.mixed, left.shifted, left.is_flat, is_sum=left.is_sum)
        case ValueKind.FREE, kind if not divides:
            return BatchValue(kind, whole.mixed, right.shifted, right.is_flat, is_sum=right.is_sum)
        case ((ValueKind.MEAN | ValueKind.ROWS | ValueKind.FREE), ValueKind.MEAN) if (
            divides and right.is_sum
        ):
            if not is_by_columns(module, node):
                return BatchValue(ValueKind.VAGUE, whole.mixed)  # by a count, as DF310 knows it
            return mixture(module, node, ValueKind.MEAN, whole, "{} divides by sums over the batch")
        case ((ValueKind.MEAN | ValueKind.FREE), ValueKind.MEAN):
            return mixture(module, node, ValueKind.MEAN, whole, BENDS)
        case (ValueKind.ROWS, ValueKind.MEAN) | (ValueKind.MEAN, ValueKind.ROWS):
            return mixture(module, node, ValueKind.ROWS, whole, MEETS)
    return pairs(module, node, left, right) or bent(whole)


def pairs(module: Module, node: ast.expr, left: BatchValue, right: BatchValue) -> BatchValue | None:
    """What compares each example with each other one: rows and the same ahead; None for others."""
    if {left.kind, right.kind} == {ValueKind.ROWS, ValueKind.AHEAD}:
        return mixture(module, node, ValueKind.ROWS, joined(left, right), COMPARES)
    return None


def is_by_columns(module: Module, node: ast.expr) -> bool:
    """Whether sums over the examples alone are divided, which leave classes or features apart."""
    names = everywhere(node, ast.Name)
    values = [node, *(value for name in names for value in module.alternatives(name, name))]
    return any(
        module.last_name(call.func) in SUMS
        and axis_of(module, call, int(module.dotted(call.func).startswith("torch."))) == 0
        for value in values
        for call in everywhere(value, ast.Call)
    )
