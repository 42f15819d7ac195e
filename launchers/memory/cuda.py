"""Let operations on fake CPU tensors allocate what they would allocate on a card.

Under `as_on_card` the dispatcher treats operations as on a card:

* dropout is one kernel that saves a mask of a byte per element, not a product in the input's type;
* attention is flash attention, or memory-efficient attention if there is a mask, the type is
  float32 or the card is too old; neither ever holds scores of length x length
  (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp and ../attention.cpp);
* autocast computes norms, softmax, powers, sums and losses in float32
  (AT_FORALL_FP32 and AT_FORALL_FP32_SET_OPT_DTYPE in aten/src/ATen/autocast_mode.h), unlike on the
  CPU.

`KERNEL_WORKSPACES` gives the workspace of kernels, which the dispatcher does not see.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey, DispatchKeySet, _ExcludeDispatchKeyGuard

from .step import FLASH_FROM

aten = torch.ops.aten

IN_FLOAT32 = (
    *(
        "layer_norm",
        "native_layer_norm",
        "group_norm",
        "cosine_similarity",
        "logsumexp",
        "softplus",
    ),
    *("nll_loss", "nll_loss2d", "kl_div", "l1_loss", "smooth_l1_loss", "huber_loss", "mse_loss"),
    *("binary_cross_entropy_with_logits", "cosine_embedding_loss", "triplet_margin_loss"),
    *("exp", "expm1", "log", "log10", "log1p", "log2", "reciprocal", "rsqrt", "tan", "sinh"),
    *("cosh", "acos", "asin", "erfinv", "dist", "cdist", "margin_ranking_loss"),
    *("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar"),
)
TO_FLOAT32 = (
    *("softmax.int", "log_softmax.int", "cumsum", "cumprod", "linalg_vector_norm"),
    *("sum", "sum.dim_IntList", "prod", "prod.dim_int"),
)
"""Operations with a dtype argument, which compute in float32 without one."""
HALF_TYPES = (torch.bfloat16, torch.float16)
FLASH_HEAD = 256  # the widest head that flash attention takes
MASK_ALIGNMENT = 8  # elements; a mask with unaligned rows is copied into longer ones


@contextlib.contextmanager
def as_on_card(capability: tuple[int, int]) -> Iterator[None]:
    """Dispatch operations on fake CPU tensors as on a card of this compute capability."""
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    try:
        library.impl("dropout", _dropout, "AutogradCPU")
        library.impl("scaled_dot_product_attention", _attention(capability), "AutogradCPU")
        for name in IN_FLOAT32:
            library.impl(name, _in_float32(_overload(name)), "AutocastCPU")
        for name in TO_FLOAT32:
            library.impl(name, _to_float32(_overload(name)), "AutocastCPU")
        yield
    finally:
        library._destroy()


def _overload(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(aten, packet), overload or "default")


def _dropout(tensor: Tensor, p: float, train: bool) -> Tensor:
    if not train or not 0 < p < 1 or not tensor.numel():
        return tensor * 0 if train and p == 1 else tensor
    output: Tensor = aten.native_dropout(tensor, p, True)[0]
    return output


def _in_float32(operation: Any) -> Callable[..., Any]:
    def upcast(value: Any) -> Any:
        return value.float() if isinstance(value, Tensor) and value.dtype in HALF_TYPES else value

    def run(*args: Any, **kwargs: Any) -> Any:
        with _ExcludeDispatchKeyGuard(DispatchKeySet(DispatchKey.AutocastCPU)):
            named = {name: upcast(value) for name, value in kwargs.items()}
            return operation(*map(upcast, args), **named)

    return run


def _to_float32(operation: Any) -> Callable[..., Any]:
    def run(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        with _ExcludeDispatchKeyGuard(DispatchKeySet(DispatchKey.AutocastCPU)):
            if (
                tensor.dtype in HALF_TYPES
                and kwargs.get("dtype") is None
                and torch.float32 not in args
            ):
                kwargs["dtype"] = torch.float32
                args = tuple(arg for arg in args if not isinstance(arg, torch.dtype))
            return operation(tensor, *args, **kwargs)

    return run


def _attention(capability: tuple[int, int]) -> Callable[..., Any]:
    def attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        flash = attn_mask is None and query.dtype in HALF_TYPES and capability >= FLASH_FROM
        if flash and query.size(-1) <= FLASH_HEAD and query.size(-1) % 8 == 0:
            return aten._scaled_dot_product_flash_attention(
                query, key, value, dropout_p, is_causal, False, scale=scale
            )[0]
        if attn_mask is not None:
            attn_mask = _as_bias(attn_mask, query, key)
        needs_backward = torch.is_grad_enabled() and any(
            x.requires_grad for x in (query, key, value)
        )
        return aten._scaled_dot_product_efficient_attention(
            query, key, value, attn_mask, needs_backward, dropout_p, is_causal, scale=scale
        )[0]

    return attention


def _as_bias(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """The mask as memory-efficient attention needs it: floats, in aligned rows."""
    if mask.dtype == torch.bool:
        mask = torch.where(mask, 0.0, torch.full((), float("-inf"), dtype=query.dtype))
    length = key.size(-2)
    if length % MASK_ALIGNMENT:
        padded = torch.nn.functional.pad(mask, (0, MASK_ALIGNMENT - length % MASK_ALIGNMENT))
        mask = padded[..., :length]
    return mask.expand(query.size(0), query.size(1), query.size(-2), length)


def _float32_bytes(tensor: Tensor) -> int:
    return tensor.numel() * 4


def _efficient_backward(grad: Tensor, query: Tensor, *_: Any, **__: Any) -> int:
    """Workspace: the query's gradient in float32; for float32 inputs, gradient x output."""
    return _float32_bytes(query)


def _flash_backward(grad: Tensor, query: Tensor, *_: Any, **__: Any) -> int:
    """Workspace: the query's gradient in float32, with rows and head width rounded up."""
    batch, heads, length, width = query.shape
    rows = -(-length // 128) * 128
    return 4 * batch * heads * rows * (-(-width // 32) * 32 + 1)


def _embedding_backward(grad: Tensor, indices: Tensor, weights: int, *_: Any, **__: Any) -> int:
    """Workspace: above 3072 indices they are sorted, and rows of one index summed by tens.

    How many indices differ is not known here: a quarter of the possible number is assumed.
    """
    count = indices.numel()
    if count <= 3072:
        return 0
    sums = count // 10 + min(count, weights) // 4
    return 5 * 8 * count + 4 * grad.size(-1) * sums


KERNEL_WORKSPACES: dict[Any, Callable[..., int]] = {
    aten._scaled_dot_product_efficient_attention_backward: _efficient_backward,
    aten._scaled_dot_product_flash_attention_backward: _flash_backward,
    aten.embedding_dense_backward: _embedding_backward,
}
