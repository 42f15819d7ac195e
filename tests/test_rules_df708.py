"""DF708: The accumulation makes one process's batches a global batch."""

from __future__ import annotations

import pytest
from cases import fixed, found

SCRIPT = """
import torch
from torch.utils.data import DataLoader, DistributedSampler
torch.distributed.init_process_group("gloo")
{made}
model = torch.nn.parallel.DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, {size}, sampler=DistributedSampler(data))
for i, batch in enumerate(loader):
    (model(batch).mean() / {number}).backward()
    if {test}:
        last = i
        optimizer.step()
        optimizer.zero_grad()
"""
RANKS = "(torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1)"


def script(made: str, number: str = "n", size: str = "args.size", test: str = "") -> str:
    test = test or f"(i + 1) % {number} == 0"
    return SCRIPT.format(made=made, number=number, size=size, test=test)


# A sentence, and a script that comes close and is right.
NOOP: list[tuple[str, str]] = [
    ("an option", script("n = args.accumulation")),
    ("by the ranks", script("n = args.total // (args.size * torch.distributed.get_world_size())")),
    ("by the ranks, behind", script(
        "n = args.total // args.size\nn = n // torch.distributed.get_world_size()")),
    ("a batch that the ranks share", script(
        "size = args.size // torch.distributed.get_world_size()\nn = args.total // args.size",
        size="size")),
    ("an option, counted otherwise", script("n = args.accumulation", test="i - last >= n")),
    ("by another size", script("n = args.total // args.eval_size")),
]  # fmt: skip

# A sentence, a script that is wrong, and what the number becomes.
FIX: list[tuple[str, str, str]] = [
    ("of two options", script("n = args.total // args.size"),
        f"n = max(1, args.total // (args.size * {RANKS}))"),
    ("at least one", script("n = max(1, args.total // args.size)"),
        f"n = max(1, args.total // (args.size * {RANKS}))"),
    ("rounded", script("n = int(args.total / args.size)"),
        f"n = max(1, int(args.total / (args.size * {RANKS})))"),
    ("of what has been waited for", script("n = max(round(64 / args.size), 1)",
        test="i - last >= n"), f"n = max(round(64 / (args.size * {RANKS})), 1)"),
    ("by a count", script("n = 64 // args.size", test="waiting == n"),
        f"n = max(1, 64 // (args.size * {RANKS}))"),
    ("and one more", script("n = args.total // args.size\nif args.rest:\n    n += 1"),
        f"n = max(1, args.total // (args.size * {RANKS}))"),
    ("an option that is set", script("args.n = 256 // args.size", "args.n"),
        f"args.n = max(1, 256 // (args.size * {RANKS}))"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text"), NOOP)
def test_it_is_left_alone(name: str, text: str) -> None:
    assert found("DF708", text) == [], name


@pytest.mark.parametrize(("name", "text", "after"), FIX)
def test_it_is_divided_by_the_ranks(name: str, text: str, after: str) -> None:
    assert after in (text := fixed("DF708", text)), name
    assert found("DF708", text) == []
