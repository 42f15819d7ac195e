"""What operations keep on a card, told without one: as a program it prints bytes by name.

It runs alone, as it gives torch's dispatcher other kernels, and imports torch once for all.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from ddpfix.launchers.memory.cuda import INNER, as_on_card
from ddpfix.launchers.memory.curves import curve_of
from ddpfix.launchers.memory.peak import Curve
from ddpfix.launchers.memory.step import Step
from ddpfix.launchers.memory.trace import Watch
from ddpfix.recipes.network import Network
from ddpfix.record import changed
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

B, H, L, D = 2, 3, 32, 16  # examples, heads, tokens, width of a head


def dropout() -> Tensor:
    return F.dropout(torch.zeros(100, 10, requires_grad=True), 0.1)


def dropout_of_nothing() -> Tensor:
    return F.dropout(torch.zeros(100, 10, requires_grad=True), 0.0) * 1


def norm_of_half() -> Tensor:
    half = torch.zeros(10, 100, dtype=torch.bfloat16, requires_grad=True)
    return F.layer_norm(half, (100,), torch.ones(100), torch.ones(100))


def softmax_of_half() -> Tensor:
    return torch.softmax(torch.zeros(10, 100, dtype=torch.bfloat16, requires_grad=True), -1)


def power_of_half() -> Tensor:
    return torch.pow(torch.zeros(10, 100, dtype=torch.bfloat16, requires_grad=True), 3.0)


def product() -> Tensor:
    return torch.zeros(10, 100, requires_grad=True) @ torch.zeros(100, 5)


def attention(dtype: torch.dtype, mask: bool) -> Tensor:
    query, key, value = (torch.zeros(B, H, L, D, dtype=dtype, requires_grad=True) for _ in range(3))
    allowed = torch.zeros(B, 1, L, L, dtype=torch.bool) if mask else None
    return F.scaled_dot_product_attention(query, key, value, allowed, 0.1)


OPERATIONS: dict[str, tuple[Callable[[], Tensor], tuple[int, int]]] = {
    "dropout": (dropout, (8, 0)),
    "dropout of nothing": (dropout_of_nothing, (8, 0)),
    "norm": (norm_of_half, (8, 0)),
    "softmax": (softmax_of_half, (8, 0)),
    "power": (power_of_half, (8, 0)),
    "product": (product, (8, 0)),
    "flash": (lambda: attention(torch.bfloat16, False), (8, 0)),
    "an old card": (lambda: attention(torch.float16, False), (7, 5)),
    "float32": (lambda: attention(torch.float32, False), (8, 0)),
    "a mask": (lambda: attention(torch.bfloat16, True), (8, 0)),
}


def seen(make: Callable[[], Tensor], capability: tuple[int, int]) -> dict[str, Any]:
    """The operations of a forward and a backward pass, and the result's type."""
    names: list[str] = []

    class Names(Watch):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, *rest: Any, **options: Any) -> Any:
            if func.namespace == "aten":
                names.append(func.overloadpacket.__name__)
            return super().__torch_dispatch__(func, *rest, **options)

    with as_on_card(capability), FakeTensorMode(), Names(INNER) as watch:
        with torch.autocast("cpu", torch.bfloat16):
            result = make()
        kept = sum(watch.blocks[number].size for number in watch._live.values())
        before = len(watch.blocks)
        torch.autograd.backward(result.sum())
        inner = [block.size for block in watch.blocks[before:]]
    return {
        "dtype": str(result.dtype).removeprefix("torch."),
        "names": names,
        "kept": kept,
        "backward": inner,
    }


NETWORK = Network(
    "gpt2",
    "pair",
    vocabulary=300,
    hidden=64,
    layers=1,
    heads=2,
    intermediate=256,
    positions=200,
    length=(64,),
)
PLAIN = Step(NETWORK, 64)
STEPS = {
    "plain": PLAIN,
    "eager": changed(PLAIN, attention="eager"),
    "half": changed(PLAIN, precision="bf16"),
    "LoRA": changed(PLAIN, lora_rank=4),
    "evaluation": changed(PLAIN, training=False),
}


def curve(step: Step) -> dict[str, Any]:
    found = curve_of(step, (8, 64, 1024))
    return found.to_json() if isinstance(found, Curve) else {"because": found.because}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    json.dump(
        {
            "seen": {name: seen(*operation) for name, operation in OPERATIONS.items()},
            "curves": {name: curve(step) for name, step in STEPS.items()},
        },
        sys.stdout,
    )
