"""Make two runs comparable: disable dropout, fix the number of threads, set the seeds."""

from __future__ import annotations

import functools
import os
import random
from collections.abc import Callable
from typing import Any

from .imports import AfterImport

_FUNCTIONAL = [
    "alpha_dropout",
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "feature_alpha_dropout",
]
_NATIVE = ["alpha_dropout", "dropout", "feature_alpha_dropout", "feature_dropout"]
_RECURRENT = ["gru", "lstm", "rnn_relu", "rnn_tanh"]


def disable_dropout(torch: Any) -> None:
    """Make every dropout of an imported torch the identity, without drawing random numbers.

    Covers torch.nn.functional (and so the modules), torch's own functions, the ``dropout_p`` of
    scaled_dot_product_attention and the dropout between the layers of recurrent networks. Does not
    cover a script's own Bernoulli masks, and layer drop. A batch norm uses its averages, as in
    evaluations: it would have the statistics of a rank's part of the batch.
    """
    functional = torch.nn.functional
    for name in _FUNCTIONAL:
        setattr(functional, name, _identity(getattr(functional, name)))
    for name in _NATIVE:
        for variant in (name, f"{name}_"):
            setattr(torch, variant, _identity(getattr(torch, variant)))
    functional.batch_norm = _batch_norm(functional.batch_norm)
    if hasattr(functional, "scaled_dot_product_attention"):  # since torch 2.0
        attention = _attention(functional.scaled_dot_product_attention)
        functional.scaled_dot_product_attention = attention
    for name in _RECURRENT:
        setattr(torch._VF, name, _recurrent(getattr(torch._VF, name)))


def set_threads(count: int, after_import: AfterImport) -> None:
    """Make BLAS and torch compute with ``count`` threads from their import on."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(count)
    after_import.call("torch", lambda torch: torch.set_num_threads(count))


def set_seed(value: int, after_import: AfterImport) -> None:
    """Seed random now, numpy and torch right after their import; the script may seed again."""
    random.seed(value)
    after_import.call("numpy", lambda numpy: numpy.random.seed(value))
    after_import.call("torch", lambda torch: torch.manual_seed(value))


def _identity(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def dropout(input: Any, *_: Any, **__: Any) -> Any:
        return input

    return dropout


def _batch_norm(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def batch_norm(
        input: Any,
        running_mean: Any,
        running_var: Any,
        weight: Any = None,
        bias: Any = None,
        training: bool = False,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        has_averages = running_mean is not None and running_var is not None
        is_new = training and not has_averages
        return original(input, running_mean, running_var, weight, bias, is_new, *args, **kwargs)

    return batch_norm


def _attention(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def scaled_dot_product_attention(
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        return original(query, key, value, attn_mask, 0.0, *args, **kwargs)

    return scaled_dot_product_attention


def _recurrent(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def layers(*args: Any) -> Any:
        # (input, hx, weights, has_biases, layers, dropout, …); packed: one more before weights.
        index = 5 if isinstance(args[3], bool) else 6
        return original(*args[:index], 0.0, *args[index + 1 :])

    return layers
