"""Let an unpatched script of 2020 run with today's libraries.

Such a script imports AdamW from transformers, which no longer has it, divides by the number of
cards, and passes attention masks of token pairs, which transformers accepted in three dimensions.
It reads a configuration's ``torchscript``, and creates CUDA tensors on a machine without a card.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from .imports import AfterImport
from .sites import Sites


def install(after_import: AfterImport, sites: Sites) -> None:
    """Provide transformers.AdamW, pairwise masks, ``torchscript``, and a card if there is none."""
    after_import.call("torch", functools.partial(_one_card, sites))
    after_import.call("transformers.configuration_utils", _configuration)
    # transformers replaces itself by a lazy module, more than once: only the class is stable.
    after_import.call("transformers.utils.import_utils", _lazy_module)
    after_import.call("transformers.optimization", _optimization)
    after_import.call("transformers.masking_utils", _pairwise_masks)


def _lazy_module(import_utils: Any) -> None:
    lazy = import_utils._LazyModule
    original = lazy.__getattr__

    @functools.wraps(original)
    def getattribute(module: Any, name: str) -> Any:
        try:
            return original(module, name)
        except AttributeError:
            if name == "AdamW" and module.__name__ == "transformers":
                return adamw()
            raise

    lazy.__getattr__ = getattribute


def _optimization(module: Any) -> None:
    if not hasattr(module, "AdamW"):
        module.AdamW = adamw()


@functools.lru_cache(maxsize=None)
def adamw() -> type[Any]:
    """The AdamW that transformers had until version 5, on top of torch's.

    Its defaults differ from torch's: weight decay 0.0 (torch: 0.01), eps 1e-6 (torch: 1e-8).
    Source: transformers 4, ``optimization.AdamW``.
    """
    import torch

    class AdamW(torch.optim.AdamW):
        def __init__(
            self,
            params: Any,
            lr: float = 1e-3,
            betas: tuple[float, float] = (0.9, 0.999),
            eps: float = 1e-6,
            weight_decay: float = 0.0,
            correct_bias: bool = True,
            no_deprecation_warning: bool = False,
        ) -> None:
            if not correct_bias:
                raise NotImplementedError("AdamW(correct_bias=False) has no equivalent in torch")
            super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)

    return AdamW


def _pairwise_masks(module: Any) -> None:
    """Add masks (batch, query, key) of 0 and 1 to the scores, as transformers 4 did.

    Source: transformers 4, ``PreTrainedModel.get_extended_attention_mask``.
    """
    # Models have imported its caller, which looks this up in every call.
    original = getattr(module, "_preprocess_mask_arguments", None)
    if original is None:
        return

    @functools.wraps(original)
    def preprocess(config: Any, inputs_embeds: Any, attention_mask: Any, *rest: Any) -> Any:
        if len(getattr(attention_mask, "shape", ())) == 3:
            attention_mask = (1.0 - attention_mask[:, None].float()) * -10000.0
        return original(config, inputs_embeds, attention_mask, *rest)

    module._preprocess_mask_arguments = preprocess


def _configuration(module: Any) -> None:
    """Give every configuration ``torchscript = False``, as in transformers 4."""
    config = getattr(module, "PreTrainedConfig", None)
    if config is not None and not hasattr(config, "torchscript"):
        config.torchscript = False


def _one_card(sites: Sites, torch: Any) -> None:
    """Let the script count one card, and put CUDA tensors on the CPU, if there is no card."""
    if torch.cuda.is_available():
        return
    original: Callable[[], int] = torch.cuda.device_count

    @functools.wraps(original)
    def device_count() -> int:
        # Libraries call it too, and must get the true number.
        return 1 if sites.is_user(sys._getframe(1).f_code.co_filename) else original()

    torch.cuda.device_count = device_count
    for name in ("ByteTensor", "FloatTensor", "LongTensor"):
        setattr(torch.cuda, name, getattr(torch, name))
