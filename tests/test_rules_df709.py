"""DF709: The learning rate is scaled by the batch of one process."""

from __future__ import annotations

import pytest
from cases import fixed, found

SCRIPT = """
import torch
from torch.utils.data import DataLoader, DistributedSampler
torch.distributed.init_process_group("gloo")
{made}
loader = DataLoader(data, {size}, sampler=DistributedSampler(data))
model = torch.nn.parallel.DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr={rate})
for batch in loader:
    optimizer.zero_grad()
    model(batch).mean().backward()
    optimizer.step()
"""
RANKS = "(torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1)"


def script(made: str = "pass", rate: str = "lr", size: str = "args.size") -> str:
    return SCRIPT.format(made=made, rate=rate, size=size)


# A sentence, and a script that comes close and is right.
NOOP: list[tuple[str, str]] = [
    ("an option", script(rate="args.lr")),
    ("by the ranks", script(
        "lr = args.lr * args.size * torch.distributed.get_world_size() / 256")),
    ("another size", script("lr = args.lr * args.eval_size / 256")),
    ("over an option", script("lr = args.lr * args.size / args.eval_size")),
    ("no rate", script("width = 4 * args.size / 256", rate="0.1")),
    ("a batch that the ranks share later", script(
        "lr = args.lr * args.size / 256\nargs.size = int(args.size / cards)")),
    ("the same in place", script("lr = args.lr * args.size / 256\nargs.size //= cards")),
    ("a name's", script(
        "size = args.size\nlr = args.lr * size / 256\nsize = size // cards", size="size")),
    ("a name of something else", script("b = args.size / 256\nwidth = 4 * b\nlr = args.lr")),
    ("a test of something else", script("if args.size > 256:\n    save_often = True")),
    ("a test that counts the ranks", script(
        "if args.size * torch.distributed.get_world_size() > 256:\n    args.warm = True")),
    ("a batch that the ranks share", script(
        "size = args.size // torch.distributed.get_world_size()\nlr = args.lr * args.size / 256",
        size="size")),
]  # fmt: skip

# A sentence, a script that is wrong, and what the rate becomes.
FIX: list[tuple[str, str, str]] = [
    ("of a line", script("lr = args.lr * args.size / 256"),
        f"lr = args.lr * (args.size * {RANKS}) / 256"),
    ("of an option", script("args.lr = args.lr * (args.size / 256)", "args.lr"),
        f"args.lr = args.lr * ((args.size * {RANKS}) / 256)"),
    ("of the weight decay", script("nominal = 64\nn = 2\nwd *= args.size * n / nominal"),
        f"wd *= (args.size * {RANKS}) * n / nominal"),
    ("of a name for the ratio", script(
        "def rate():\n    b = args.size / 256.0\n    lr = args.lr * b\n    return lr\nrate()"),
        f"b = (args.size * {RANKS}) / 256.0\n"),
    ("of a warm-up", script("if args.size > 256:\n    args.warm = True"),
        f"if (args.size * {RANKS}) > 256:\n"),
    ("of a rate that warms up", script(
        "if epoch < 5 and args.size > 256:\n    for group in groups:\n        group['lr'] = 0.1"),
        f"if epoch < 5 and (args.size * {RANKS}) > 256:\n"),
    ("where it is passed", script(rate="args.lr * args.size / 256"),
        f"lr=args.lr * (args.size * {RANKS}) / 256"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text"), NOOP)
def test_it_is_left_alone(name: str, text: str) -> None:
    assert found("DF709", text) == [], name


@pytest.mark.parametrize(("name", "text", "after"), FIX)
def test_it_counts_the_ranks(name: str, text: str, after: str) -> None:
    assert after in (text := fixed("DF709", text)), name
    assert found("DF709", text) == []


def test_before_the_group_the_launcher_is_asked_how_many_ranks_there_are() -> None:
    late = script("lr = args.lr * args.size / 256")
    group = 'torch.distributed.init_process_group("gloo")\n'
    early = late.replace(group, "").replace("loader = ", f"{group}loader = ", 1)
    after = fixed("DF709", early)
    assert "lr = args.lr * (args.size * (int(os.environ.get('WORLD_SIZE', 1)))) / 256\n" in after
    assert "import os\n" in after
