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
from ddpfix.launchers.memory.cuda import KERNEL_WORKSPACES, as_on_card
from ddpfix.launchers.memory.curves import trace_curve
from ddpfix.launchers.memory.peak import Curve
from ddpfix.launchers.memory.step import TrainingStep
from ddpfix.launchers.memory.storages import StorageTracker
from ddpfix.recipes.network import Network
from ddpfix.record import replace
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

    class Names(StorageTracker):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, *rest: Any, **options: Any) -> Any:
            if func.namespace == "aten":
                names.append(func.overloadpacket.__name__)
            return super().__torch_dispatch__(func, *rest, **options)

    with as_on_card(capability), FakeTensorMode(), Names(KERNEL_WORKSPACES) as watch:
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


def numbers() -> list[Tensor]:
    counts = torch.ones(3, 2, dtype=torch.long)
    return [counts * 2, counts * 2.0, counts * True, counts.T + 1, counts[1:] + 1]


def views() -> list[Tensor]:
    matrix = torch.zeros(4, 6, requires_grad=True)
    return [matrix.T, matrix[1:], matrix[:, 1:], matrix[1:].view(-1), matrix.detach().view(24)]


def in_place() -> list[Tensor]:
    one, other = torch.zeros(4, 6), torch.zeros(4, 6)
    torch._foreach_mul_([one, other], 2.0)
    turned = torch.zeros(4, 6).t_()
    longer = torch.zeros(2).resize_(9)
    return [one.add_(other), one[1:].copy_(other[1:]), turned.zero_(), longer, one]


def counter() -> list[Tensor]:
    steps = torch.tensor(0.0)
    steps += 1
    torch._foreach_add_([steps], 2)
    return [torch.zeros(int(steps.item()))]


SHORT_CUTS = {"numbers": numbers, "views": views, "in place": in_place, "a counter": counter}


def made(program: Callable[[], list[Tensor]], mode: FakeTensorMode) -> list[list[str]]:
    """What comes of a program, the second time too, when its operations are known."""
    with mode:
        return [
            [str(tensor.dtype), *map(str, (tensor.shape, tensor.stride(), *stored(tensor)))]
            for tensor in (*program(), *program())
        ]


def stored(tensor: Tensor) -> tuple[object, ...]:
    return tensor.storage_offset(), tensor.untyped_storage().nbytes(), tensor.requires_grad


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
PLAIN = TrainingStep(NETWORK, 64)
STEPS = {
    "plain": PLAIN,
    "eager": replace(PLAIN, attention="eager"),
    "half": replace(PLAIN, precision="bf16"),
    "LoRA": replace(PLAIN, lora_rank=4),
    "evaluation": replace(PLAIN, training=False),
}


def curve(step: TrainingStep) -> dict[str, Any]:
    found = trace_curve(step, (8, 64, 1024))
    return found.to_json() if isinstance(found, Curve) else {"because": found.because}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    json.dump(
        {
            "seen": {name: seen(*operation) for name, operation in OPERATIONS.items()},
            "made": {
                name: [made(program, mode) for mode in (FakeTensorMode(), StorageTracker({}))]
                for name, program in SHORT_CUTS.items()
            },
            "curves": {name: curve(step) for name, step in STEPS.items()},
        },
        sys.stdout,
    )
