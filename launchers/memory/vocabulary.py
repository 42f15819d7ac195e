"""What is read of a model's source: functions and modules of torch that only make tensors.

Left out is what a trace on the CPU tells nothing about (convolutions and recurrent layers have
their own workspaces on a card), and what depends on the values of tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its name everywhere
from torch import nn

MODULES = frozenset(
    [
        *("Linear", "Bilinear", "Embedding", "LayerNorm", "Dropout", "Identity", "Parameter"),
        *("Sequential", "ModuleList", "ModuleDict", "Tanh", "ReLU", "GELU", "Sigmoid", "Softmax"),
        *("LogSoftmax", "LeakyReLU", "ELU", "SiLU", "CosineSimilarity", "CrossEntropyLoss"),
        *("NLLLoss", "MSELoss", "L1Loss", "SmoothL1Loss", "BCELoss", "BCEWithLogitsLoss"),
        *("KLDivLoss", "MarginRankingLoss", "CosineEmbeddingLoss", "TripletMarginLoss"),
    ]
)
"""Classes of torch.nn."""

FUNCTIONS = frozenset(
    [
        *("stack", "cat", "concat", "einsum", "matmul", "mm", "bmm", "split", "chunk", "where"),
        *("abs", "exp", "log", "sqrt", "rsqrt", "square", "pow", "tanh", "sigmoid", "relu"),
        *("sum", "mean", "max", "min", "norm", "argmax", "clamp", "cumsum", "logsumexp"),
        *("add", "sub", "mul", "div", "eq", "ne", "gt", "ge", "lt", "le", "logical_not"),
        *("unsqueeze", "squeeze", "transpose", "permute", "reshape", "flatten", "gather"),
        *("zeros", "ones", "full", "arange", "eye", "empty", "tensor", "tril", "triu"),
        *("zeros_like", "ones_like", "full_like", "softmax", "log_softmax", "dropout"),
        *("cosine_similarity", "logical_and", "logical_or", "multiply", "diag", "diagonal"),
    ]
)
"""Functions of torch."""

FUNCTIONALS = frozenset(
    [
        *("relu", "gelu", "elu", "silu", "leaky_relu", "tanh", "sigmoid", "softmax"),
        *("log_softmax", "logsigmoid", "softplus", "normalize", "dropout", "linear", "embedding"),
        *("layer_norm", "cosine_similarity", "pairwise_distance", "cross_entropy", "nll_loss"),
        *("mse_loss", "l1_loss", "smooth_l1_loss", "binary_cross_entropy", "kl_div"),
        *("binary_cross_entropy_with_logits", "margin_ranking_loss", "cosine_embedding_loss"),
        *("triplet_margin_loss", "one_hot"),
    ]
)
"""Functions of torch.nn.functional."""

METHODS = FUNCTIONS - {"stack", "cat", "einsum", "tensor", "zeros", "ones", "arange"} | frozenset(
    [
        *("view", "view_as", "size", "dim", "expand", "expand_as", "repeat", "contiguous", "t"),
        *("float", "long", "int", "half", "bool", "bfloat16", "double", "type_as", "detach"),
        *("clone", "masked_fill", "index_select", "neg", "var", "std", "repeat_interleave"),
        *("new_zeros", "new_ones", "numel", "narrow", "roll", "reciprocal", "any", "all"),
    ]
)
"""Methods of a tensor."""

SAME = frozenset(["to", "cuda", "cpu", "requires_grad_"])
"""Methods that give the tensor itself on the card that it is on."""

ATTRIBUTES = frozenset(["shape", "dtype", "ndim", "T", "mT"])
"""Attributes of a tensor."""

BUILTINS: dict[str, Callable[..., Any]] = {
    "len": len,
    "range": range,
    "int": int,
    "float": float,
    "bool": bool,
    "str": str,
    "max": max,
    "min": min,
    "abs": abs,
    "sum": sum,
    "list": list,
    "tuple": tuple,
    "enumerate": enumerate,
    "zip": zip,
    "reversed": reversed,
}


def function_of(dotted: str) -> Callable[..., Any] | None:
    """The function or class of torch of a dotted name; None for one that is not read."""
    package, _, name = dotted.rpartition(".")
    if package == "torch" and name in FUNCTIONS:
        found: Callable[..., Any] = getattr(torch, name)
        return found
    if package == "torch.nn.functional" and name in FUNCTIONALS:
        return getattr(F, name)  # type: ignore[no-any-return]
    if package in ("torch.nn", "torch.nn.modules.loss", "torch.nn.parameter") and name in MODULES:
        return getattr(nn, name)  # type: ignore[no-any-return]
    return None
